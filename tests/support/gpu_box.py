"""A machine with NVIDIA GPUs for tests: a stand-in of their library, loaded by the real ``nvidia-ml-py``.

What the library says stands in files; a test changes them while Dovetail runs. Programs of `USER` allocate
memory there, and fail as frameworks do where a device has too little.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

GB = 10**9
GIB = 2**30
LOST = 15
"""NVML's status for a GPU that has fallen off the bus."""


@cache
def library_folder() -> Path:
    """A folder with the compiled stand-in, ``libnvidia-ml.so.1``; made once a process."""
    folder = Path(mkdtemp(prefix="nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source = Path(__file__).with_name("nvml_stand_in.c")
    target = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-w", "-o", str(target), str(source)], check=True)
    return folder


@dataclass
class GpuBox:
    """The GPUs of a machine, as files in ``folder``; `write` after a change."""

    folder: Path
    devices: list[dict[str, object]] = field(default_factory=list)
    slices: list[dict[str, object]] = field(default_factory=list)
    processes: list[tuple[str, int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "processes").mkdir(parents=True, exist_ok=True)
        self.write()

    def add(self, memory: int, model: str = "NVIDIA A100-PCIE-40GB", used: int = 0, mig: int = -1) -> str:
        """One more GPU; its UUID."""
        uuid = f"GPU-{len(self.devices):08x}-0000-0000-0000-000000000000"
        said = {"uuid": uuid, "name": model, "memory": memory, "used": used, "util": 0, "mode": 0}
        self.devices.append({**said, "mig": mig, "fault": 0})
        self.write()
        return uuid

    def cut(self, profiles: Sequence[tuple[str, int]], model: str = "NVIDIA A100-SXM4-40GB") -> list[str]:
        """One more GPU, cut by MIG into instances of these profiles (``3g.20gb``) and sizes; their UUIDs."""
        self.add(40 * GB, model, mig=1)
        parent, uuids = len(self.devices) - 1, []
        for profile, memory in profiles:
            uuid = f"MIG-{len(self.slices):08x}-0000-0000-0000-000000000000"
            said = {"parent": parent, "uuid": uuid, "name": f"{model} MIG {profile}", "memory": memory}
            self.slices.append({**said, "used": 0})
            uuids.append(uuid)
        self.write()
        return uuids

    def occupy(self, uuid: str, pid: int, memory: int, utilisation: int = 50) -> None:
        """A process that is not ours computes there, for as long as it lives."""
        self.processes.append((uuid, pid, memory, utilisation))
        self.write()

    def leave(self, pid: int) -> None:
        """That process computes no more."""
        self.processes = [one for one in self.processes if one[1] != pid]
        self.write()

    def join(
        self, links: Sequence[tuple[int, int, str]] = (), near: Mapping[int, Sequence[int]] | None = None
    ) -> None:
        """GPUs that ``nvlink`` or one ``switch`` joins, by index, and the cores that are near GPUs."""
        lines = [f"link {one} {other} {how}" for one, other, how in links]
        lines += [f"near {n} {sum(1 << core for core in cores):x}" for n, cores in (near or {}).items()]
        (self.folder / "topology").write_text("".join(f"{line}\n" for line in lines))

    def fail(self, *functions: str, status: int = 13) -> None:
        """Have these functions of the library fail from now on; 13: it has none of that name."""
        (self.folder / "failing").write_text("".join(f"{name} {status}\n" for name in functions))

    def write(self) -> None:
        """Have the library say what stands here."""
        lines = []
        for d in self.devices:
            named = ("uuid", "name", "memory", "used", "util", "mode", "mig", "fault")
            lines.append("\t".join(["device", *(str(d[name]) for name in named)]))
        for s in self.slices:
            named = ("parent", "uuid", "name", "memory", "used")
            lines.append("\t".join(["mig", *(str(s[name]) for name in named)]))
        lines += ["\t".join(["process", *map(str, one)]) for one in self.processes]
        fresh = self.folder / "box.new"
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.replace(self.folder / "box")

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which a process finds the stand-in."""
        return {
            "NVML_BOX": str(self.folder),
            "LD_LIBRARY_PATH": f"{library_folder()}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":"),
        }


WORDS = {
    "torch": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total "
    "capacity of 15.00 GiB of which 1.00 GiB is free.",
    "jax": "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
    "21474836480 bytes.",
    "tensorflow": "tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node x}} OOM "
    "when allocating tensor with shape[50000,50000] and type float on /job:localhost/device:GPU:0",
    "cupy": "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 21,474,836,480 bytes (allocated so "
    "far: 0 bytes).",
    "cuda": "CUDA error: out of memory (error code 2, cudaErrorMemoryAllocation) at main.cu:31",
    "hip": "hipErrorOutOfMemory: out of memory",
    "own": "the arena of our solver is exhausted",
}
"""Last words of frameworks."""

USER = '''
"""Takes memory of its device until a file is there, or N are: BYTES SECONDS|FILE|xN [WORDS]."""
import os, sys, time
from pathlib import Path

size, span = int(float(sys.argv[1])), sys.argv[2]
words = sys.argv[3] if len(sys.argv) > 3 else "torch"
box = Path(os.environ["NVML_BOX"])
uuid = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[0]
if uuid.isdecimal():
    cards = [line for line in (box / "box").read_text().splitlines() if line.startswith("device")]
    uuid = cards[int(uuid)].split("\\t")[1]
print("on", uuid, flush=True)
capacity = used = 0
for line in (box / "box").read_text().splitlines():
    kind, *rest = line.split("\\t")
    if kind == "device" and rest[0] == uuid:
        capacity, used = int(rest[2]), used + int(rest[3])
    elif kind == "mig" and rest[1] == uuid:
        capacity, used = int(rest[3]), used + int(rest[4])
    elif kind == "process" and rest[0] == uuid:
        used += int(rest[2])
hidden = "HIDDEN" in os.environ  # as the driver shows processes of another container
mine = box / "processes" / (f"0.{os.getpid()}" if hidden else f"{os.getpid()}.0")
mine.with_name("." + mine.name).write_text(f"{uuid} {size} 40")
os.replace(mine.with_name("." + mine.name), mine)
try:
    for other in (box / "processes").iterdir():
        if not other.name.startswith(".") and Path("/proc", other.name.partition(".")[0]).exists():
            try:
                where, bytes, _ = other.read_text().split()
            except (OSError, ValueError):
                continue
            used += int(bytes) if where == uuid else 0
    if used > capacity:
        mine.unlink()
        time.sleep(float(os.environ.get("FAIL_AFTER", "0")))
        print(WORDS[words], file=sys.stderr)
        sys.exit(1)
    while span.startswith("x") and not (box / "met").exists():
        if len([one for one in os.listdir(box / "processes") if one[0] != "."]) >= int(span[1:]):
            (box / "met").touch()
        time.sleep(0.02)
    while span.startswith("/") and not os.path.exists(span):
        time.sleep(0.02)
    time.sleep(float(span) if span[0].isdigit() else 0)
finally:
    mine.unlink(missing_ok=True)
'''


def write_user(folder: Path) -> list[str]:
    """A program that takes memory of the device that it was given: how to call it."""
    path = folder / "user.py"
    path.write_text(USER.replace("WORDS[words]", f"{WORDS!r}[words]"))
    return [sys.executable, str(path)]
