"""A GPU box for real: what the tests show with a stand-in of NVIDIA's library, on the GPUs of this machine.

    python benchmarks/gpu_box.py [--jobs 40] [--out FOLDER] [SCENE…]

Scenes: ``sharing`` (mixed small jobs, first exclusive, then shared, then by what was learned), ``stranger``
(a program that Dovetail did not start comes and goes), ``peaks`` (memory as measured against nvidia-smi),
``words`` (the last words of torch, CuPy and JAX when a device has too little memory). A scene whose needs are
not there is left out, with the reason. Each prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from dovetail.local.discovery import take_inventory
from dovetail.process.device_memory import who_lacks_memory

TORCH = """
import sys, time, torch
what, size, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
a = torch.randn(size, size, device="cuda")
layer = torch.nn.Linear(size, size).cuda()
steps = int(seconds * {"products": 400, "training": 300, "inference": 600}[what])
step = torch.optim.SGD(layer.parameters(), lr=1e-3)
for _ in range(steps):
    if what == "products":
        a = torch.tanh(a @ a)
    elif what == "training":
        step.zero_grad(); layer(a).square().mean().backward(); step.step()
    else:
        with torch.no_grad():
            layer(a[:16])
        time.sleep(0.001)
torch.cuda.synchronize()
"""
"""A matrix product, a training loop, and an inference loop that waits between its batches."""
TOO_MUCH = {
    "torch": "import torch; torch.empty(1 << 50, dtype=torch.uint8, device='cuda')",
    "cupy": "import cupy; cupy.empty(1 << 50, dtype='uint8')",
    "jax": "import jax.numpy as np; np.zeros((1 << 48,), 'float32').block_until_ready()",
}
"""Programs that ask for more memory than any device has."""
KINDS = (("products", 2048), ("training", 1024), ("inference", 512))


class LeftOutError(Exception):
    """A scene cannot be shown here, and why."""


def dovetail(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command line, as a user has it."""
    command = [sys.executable, "-m", "dovetail", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **variables}
    )


def job_file(folder: Path, gpus: str, count: int) -> Path:
    """So many jobs of the three kinds, in turn."""
    program = folder / "job.py"
    program.write_text(TORCH)
    lines: list[str] = []
    for what, size in KINDS:
        command = [sys.executable, str(program), what, str(size), "4"]
        lines += ["[[app]]", f'name = "{what}"', "[[app.implementation]]", 'name = "gpu"']
        lines += [f"gpus = {gpus}", f"command = {json.dumps(command)}"]
    for index in range(count):
        lines += ["[[job]]", f'app = "{KINDS[index % len(KINDS)][0]}"']
    path = folder / "jobs.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(folder: Path, gpus: str, count: int, history: Path) -> Mapping[str, Any]:
    """The report of a run of these jobs. Raises `RuntimeError` where it fails."""
    done = dovetail("run", str(job_file(folder, gpus, count)), "--history", str(history), "--json")
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    report: Mapping[str, Any] = json.loads(done.stdout)
    return report


def needs(*modules: str) -> None:
    """Raises `LeftOutError`."""
    for module in modules:
        if find_spec(module) is None:
            raise LeftOutError(f"the Python package {module} is not installed")


def sharing(folder: Path, count: int) -> Mapping[str, Any]:
    """Makespans in seconds; ``learned`` after as many runs as the others have made."""
    needs("torch")
    spans = {}
    for name, gpus in (("exclusive", "1"), ("always", "0.5"), ("learning", '"auto"'), ("learned", '"auto"')):
        history = folder / ("auto.db" if "auto" in gpus else f"{name}.db")
        spans[name] = run(folder, gpus, count, history)["makespan"]
    return {**spans, "ratio": spans["learned"] / min(spans["exclusive"], spans["always"])}


def stranger(folder: Path, count: int) -> Mapping[str, Any]:
    """Of the jobs that ran while somebody else was on the first GPU, how many were there with it."""
    needs("torch")
    program = "import time, torch; a = torch.ones(1 << 28, device='cuda'); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "CUDA_VISIBLE_DEVICES": "0"})
    try:
        time.sleep(10.0)
        jobs = run(folder, "1", count, folder / "stranger.db")["jobs"]
        until = 60.0
        beside = [
            job["id"] for job in jobs if job["devices"] == ["localhost/gpu0"] and job["start"] < until - 15
        ]
        return {
            "jobs": len(jobs),
            "completed": sum(j["state"] == "COMPLETED" for j in jobs),
            "beside": beside,
        }
    finally:
        other.kill()
        other.wait()


def peaks(folder: Path, count: int) -> Mapping[str, Any]:
    """Peaks in bytes as the history has them, and as nvidia-smi shows them every half second."""
    needs("torch")
    if shutil.which("nvidia-smi") is None:
        raise LeftOutError("there is no nvidia-smi")
    command = [
        "nvidia-smi",
        "--query-compute-apps=pid,used_memory",
        "--format=csv,noheader,nounits",
        "-lms",
        "500",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as smi:
        run(folder, "1", len(KINDS), folder / "peaks.db")
        smi.terminate()
        said = smi.communicate()[0].splitlines()
    seen: dict[str, int] = {}
    for pid, _, size in (line.partition(",") for line in said if "," in line):
        seen[pid] = max(seen.get(pid, 0), int(size) << 20)
    dovetail("history", "export", str(folder / "runs.jsonl"), "--history", str(folder / "peaks.db"))
    ours = [json.loads(line).get("gpu_memory") for line in (folder / "runs.jsonl").read_text().splitlines()]
    return {"measured": sorted(filter(None, ours)), "nvidia_smi": sorted(seen.values())}


def words(folder: Path, count: int) -> Mapping[str, Any]:
    """Of each framework that is there: who the last words are taken for."""
    found = {}
    for name, program in TOO_MUCH.items():
        if find_spec(name) is not None:
            done = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, check=False
            )
            found[name] = who_lacks_memory(done.stderr) or f"not recognised: {done.stderr[-300:]}"
    if not found:
        raise LeftOutError("none of torch, cupy and jax is installed")
    return found


SCENES: Mapping[str, Callable[[Path, int], Mapping[str, Any]]] = {
    "sharing": sharing,
    "stranger": stranger,
    "peaks": peaks,
    "words": words,
}


def main() -> int:
    """Show the scenes that can be shown here."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("scenes", nargs="*", help=f"some of {', '.join(SCENES)}; default: all")
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--out", type=Path, help="where histories stay; default: nowhere")
    given = parser.parse_args()
    if unknown := [name for name in given.scenes if name not in SCENES]:
        print(f"found {unknown[0]!r}, expected one of {', '.join(SCENES)}", file=sys.stderr)
        return 2
    gpus = [device for device in take_inventory(60.0, ["nvidia"]).devices if device.used]
    if not gpus:
        print("left out: this machine has no NVIDIA GPU that can be used")
        return 0
    folder = given.out or Path(mkdtemp(prefix="gpu-box-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(json.dumps({"gpus": [gpu.model for gpu in gpus], "driver": gpus[0].driver}))
    for name in given.scenes or SCENES:
        try:
            print(json.dumps({"scene": name, **SCENES[name](folder, given.jobs)}), flush=True)
        except LeftOutError as reason:
            print(json.dumps({"scene": name, "left_out": str(reason)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
