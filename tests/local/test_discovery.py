"""What is found on this machine and on others; drivers that hang or crash."""

# ruff: noqa: N802 - NVML's own names

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from dovetail.local import discovery
from dovetail.local.discovery import (
    Cores,
    Inventory,
    discover_cluster,
    run_probes,
    take_inventory,
    usable_cores,
)
from dovetail.local.probes import amd, nvidia
from dovetail.model import CPU
from dovetail.model.node import NVLINK
from dovetail.testing.processes import is_running

T4 = {"index": 0, "model": "NVIDIA T4", "uuid": "GPU-aa", "memory": 16, "driver": "1"}
A100 = {"index": 1, "model": "NVIDIA A100", "uuid": "GPU-bb", "memory": 80, "driver": "1"}
POCL = {
    "index": 0,
    "model": "pthread-x",
    "platform": "Portable Computing Language",
    "vendor": "AuthenticAMD",
    "memory": 5,
    "driver": "3.0",
    "units": 2,
    "type": "cpu",
}


def found_with(
    monkeypatch: pytest.MonkeyPatch,
    nvidia: Sequence[Mapping[str, Any]] = (),
    amd: Sequence[Mapping[str, Any]] = (),
    opencl: Sequence[Mapping[str, Any]] = (),
) -> Inventory:
    """The inventory of a machine whose drivers answer so."""
    answers = {"nvidia": nvidia, "amd": amd, "opencl": opencl}
    monkeypatch.setattr(
        discovery,
        "run_probes",
        lambda scripts, timeout: {name: {"devices": answers[name], "why": f"no {name}"} for name in scripts},
    )
    return take_inventory()


def test_this_machine() -> None:
    cluster = discover_cluster()
    (node,) = cluster.nodes
    assert node.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert cluster.units[0].kind == CPU
    assert node.memory is None or node.memory > 1e8


def test_gpus_become_devices_and_pocl_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = found_with(monkeypatch, nvidia=[T4, A100], opencl=[POCL])
    assert [(d.kind, d.model, d.local) for d in found.cluster().nodes[0].devices] == [
        ("gpu", "NVIDIA T4", 0),
        ("gpu", "NVIDIA A100", 1),
    ]
    pocl = found.devices[-1]
    assert (pocl.model, pocl.used) == ("pocl", False)
    assert "describe it in a cluster file" in pocl.note
    assert [(m.probe, m.reason) for m in found.missing] == [("amd", "no amd")]
    json.dumps(found.as_dict())


def test_an_opencl_gpu_is_used_unless_its_maker_is_asked_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    arc = POCL | {"model": "Arc", "platform": "Intel(R) OpenCL Graphics", "vendor": "Intel", "type": "gpu"}
    cuda = POCL | {"platform": "NVIDIA CUDA", "vendor": "NVIDIA Corporation", "type": "gpu"}
    found = found_with(monkeypatch, opencl=[arc, cuda])
    assert [(d.kind, d.model) for d in found.cluster().nodes[0].devices] == [("opencl", "Arc")]


@pytest.mark.parametrize(
    ("setting", "models"),
    [
        ("1", ["NVIDIA A100"]),
        ("1,0", ["NVIDIA A100", "NVIDIA T4"]),
        ("GPU-b", ["NVIDIA A100"]),
        ("", []),
        ("0,9,1", ["NVIDIA T4"]),
    ],
)
def test_what_our_own_environment_hides_is_not_offered(
    monkeypatch: pytest.MonkeyPatch, setting: str, models: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    found = found_with(monkeypatch, nvidia=[T4, A100])
    devices = found.cluster().nodes[0].devices
    assert [(d.model, d.local) for d in devices] == [(m, i) for i, m in enumerate(models)]


def test_an_unusable_gpu_is_named_but_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = found_with(monkeypatch, nvidia=[T4 | {"unusable": "its compute mode is PROHIBITED"}])
    assert found.devices[0].note == "its compute mode is PROHIBITED"
    assert not found.cluster().nodes[0].devices


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import time; time.sleep(300)", "its driver did not answer within 0.5 s"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            "its driver crashed the probe (signal 11)",
        ),
        ("raise RuntimeError('no such GPU')", "the probe failed: RuntimeError: no such GPU"),
        ("import sys; sys.exit(4)", "the probe failed: status 4"),
        ("print('hello')", "the probe's answer cannot be read: hello"),
        ("print('[]')", "the probe gave no answer"),
    ],
)
def test_a_broken_driver_costs_a_sentence(code: str, reason: str) -> None:
    timeout = 0.5 if "sleep" in code else 60.0
    assert run_probes({"x": ["-I", "-S", "-c", code]}, timeout) == {"x": reason}


def test_a_hanging_driver_takes_its_children_along_and_others_answer(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    start = "import subprocess; p = subprocess.Popen(['sleep', '300'])"
    hangs = f"{start}; open({str(note)!r}, 'w').write(str(p.pid)); p.wait()"
    good = 'print(\'warming up\'); print(\'{"devices": [], "why": "none"}\')'
    for patience in (1.0, 4.0, 16.0, 64.0):  # on a busy machine the good one may take a while, too
        answers = run_probes({"bad": ["-I", "-S", "-c", hangs], "good": ["-I", "-S", "-c", good]}, patience)
        assert answers["bad"] == f"its driver did not answer within {patience:.0f} s"
        if note.exists() and note.read_text() and "within" not in answers["good"]:
            break
    assert answers["good"] == {"devices": [], "why": "none"}
    until(lambda: not is_running(int(note.read_text())), "the hanging probe's child runs on")


def test_amd_gpus_are_read_from_the_kernel(tmp_path: Path) -> None:
    assert amd.probe(tmp_path)["why"] == "the kernel driver amdgpu (KFD) is not loaded"
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    for number, text in {
        0: "cpu_cores_count 64\nsimd_count 0\nvendor_id 0\n",
        1: "simd_count 416\nvendor_id 4098\ngfx_target_version 90010\ndrm_render_minor 128\n",
        10: "simd_count 8\nvendor_id 4098\ngfx_target_version 110000\ndrm_render_minor 129\n",
    }.items():
        (nodes / str(number) / "mem_banks/0").mkdir(parents=True)
        (nodes / str(number) / "properties").write_text(text)
        (nodes / str(number) / "mem_banks/0/properties").write_text("heap_type 1\nsize_in_bytes 1000\n")
    product = tmp_path / "sys/class/drm/renderD128/device"
    product.mkdir(parents=True)
    (product / "product_name").write_text("AMD Instinct MI250X\n")
    first, second = amd.probe(tmp_path)["devices"]
    assert (first["model"], first["driver"], first["memory"]) == ("AMD Instinct MI250X", "gfx90a", 1000)
    assert (second["model"], second["index"]) == ("AMD gfx1100", 1)
    assert "/dev/kfd cannot be opened" in first["unusable"]
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").write_text("")
    assert "unusable" not in amd.probe(tmp_path)["devices"][0]
    held = ("memory_used", "utilisation", "processes")
    assert [second[name] for name in held] == [None, None, []]
    (nodes / "1/gpu_id").write_text("4711\n")
    (product / "mem_info_vram_used").write_text("400\n")
    (product / "gpu_busy_percent").write_text("25\n")
    for pid, vram in {"12": "300", "13": "0"}.items():
        (tmp_path / "sys/class/kfd/kfd/proc" / pid).mkdir(parents=True)
        (tmp_path / "sys/class/kfd/kfd/proc" / pid / "vram_4711").write_text(f"{vram}\n")
    first = amd.probe(tmp_path)["devices"][0]
    assert [first[name] for name in held] == [400, 0.25, [{"pid": 12, "memory": 300}]]


def test_which_amd_gpus_are_close_to_each_other_and_to_which_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0 and 1 are joined; 2 and 3 are parts of one GPU, which its maker's number does not tell apart."""
    nodes, core = tmp_path / "sys/class/kfd/kfd/topology/nodes", min(os.sched_getaffinity(0))
    for number, unique in enumerate((0xABC, 0xDEF, 7, 7), 1):
        (nodes / str(number)).mkdir(parents=True)
        text = f"simd_count 8\nvendor_id 4098\nunique_id {unique}\ndrm_render_minor {127 + number}\n"
        (nodes / str(number) / "properties").write_text(text)
        card = tmp_path / f"sys/class/drm/renderD{127 + number}/device"
        card.mkdir(parents=True)
        (card / "numa_node").write_text("1\n" if number == 1 else "-1\n")
        (card / "local_cpulist").write_text(f"{core}\n" if number == 1 else "")
    for number, other, kind in ((1, 2, 11), (2, 1, 11), (1, 3, 11), (2, 3, 2), (2, 0, 2)):
        link = nodes / str(number) / f"io_links/{other}"
        link.mkdir(parents=True)
        (link / "properties").write_text(f"type {kind}\nnode_to {other}\n")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").write_text("")
    answer = amd.probe(tmp_path)
    first, second, *parts = answer["devices"]
    assert (first["uuid"], first["numa"], first["near"]) == ("GPU-0000000000000abc", 1, [core])
    assert first["links"] == {second["uuid"]: "xgmi"}
    assert ("numa" in second, second["near"]) == (False, [])
    assert not any("uuid" in part or "links" in part for part in parts)
    monkeypatch.setattr(discovery, "run_probes", lambda scripts, timeout: {"amd": answer})
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {core, core + 1})
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "GPU-0000000000000def,0")
    one, other = discovery.take_inventory(1.0, ["amd"]).cluster().nodes[0].devices
    assert (one.address, one.links, one.near) == ("amd:1", ((1, NVLINK),), ())
    assert (other.address, other.links, other.near) == ("amd:0", ((0, NVLINK),), (core,))


def test_only_drivers_that_left_a_trace_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "find_spec", lambda name: None)
    assert discovery.with_traces(tmp_path) == []
    for name in ("nvidiactl", "dxg", "nvhost-gpu"):
        file = tmp_path / "dev" / name
        file.parent.mkdir(exist_ok=True)
        file.touch()
        assert discovery.with_traces(tmp_path) == ["nvidia"]
        file.unlink()
    (tmp_path / "sys/class/kfd").mkdir(parents=True)
    assert discovery.with_traces(tmp_path) == ["amd"]
    monkeypatch.setattr(discovery, "find_spec", lambda name: name)
    assert discovery.with_traces(tmp_path) == ["amd", "opencl"]


def test_nvidia_without_its_package_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvidia.probe() == {"devices": [], "why": "the Python package nvidia-ml-py is not installed"}


class FakeNvml:
    """As much of NVML as the probe asks, for one GPU."""

    NVML_COMPUTEMODE_PROHIBITED = 2

    class NVMLError(Exception):
        pass

    def __init__(self, *, mode: int = 0, mig: int | None = None, lost: bool = False) -> None:
        self.mode, self.mig, self.lost = mode, mig, lost

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"550.1"

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if self.lost:
            raise self.NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA T4"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return "GPU-aa"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return type("Memory", (), {"total": 16_000, "used": 5_000})

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return type("Rates", (), {"gpu": 25})

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return []

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> int:
        return 0

    def nvmlDeviceGetComputeMode(self, handle: int) -> int:
        return self.mode

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        if self.mig is None:
            raise self.NVMLError("Not Supported")
        return [self.mig, self.mig]


def test_nvidia_gpus_and_what_hinders_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(nvml: FakeNvml) -> dict[str, Any]:
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        (device,) = nvidia.probe()["devices"]
        assert isinstance(device, dict)
        return device

    plain = {"index": 0, "model": "NVIDIA T4", "uuid": "GPU-aa", "memory": 16_000, "driver": "550.1"}
    plain |= {"memory_used": 5_000, "utilisation": 0.25, "processes": []}
    assert probe(FakeNvml()) == plain
    assert probe(FakeNvml(mode=2)) == plain | {"unusable": "its compute mode is PROHIBITED"}
    assert "MIG is on" in probe(FakeNvml(mig=1))["unusable"]
    assert probe(FakeNvml(mig=0)) == plain
    assert probe(FakeNvml(lost=True))["unusable"] == "NVML cannot read it: GPU is lost"


def test_limits_of_cgroups_count(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1000000 kB\nMemFree: 1 kB\n")
    (tmp_path / "proc/cpuinfo").write_text("processor: 0\nmodel name\t:  Some   CPU \n")
    bare = usable_cores(tmp_path)
    assert (bare.model, bare.memory, bare.quota) == ("Some CPU", 1_024_000_000, None)
    (tmp_path / "proc/self/cgroup").write_text("4:cpu,cpuacct:/a/b\n3:memory:/a\n0::/x/y\n")
    for path, text in {
        "sys/fs/cgroup/x/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/x/y/cpu.max": "max 100000\n",
        "sys/fs/cgroup/x/memory.max": "600000000\n",
        "sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "400000\n",
        "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    limited = usable_cores(tmp_path)
    assert (limited.memory, limited.quota) == (600_000_000, 1.5)


def test_a_broken_gpu_moves_no_other_ones_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    broken = {"index": 0, "model": "", "driver": "1", "unusable": "GPU is lost"}
    others = [{**T4, "index": 1, "uuid": ""}, {**A100, "index": 2}]
    found = Inventory(Cores((0,), 1, "", 0), discovery._visible_gpus("nvidia", [broken, *others])).cluster()
    assert [device.address for device in found.nodes[0].devices] == ["nvidia:1", "nvidia:GPU-bb"]
    assert [device.local for device in found.nodes[0].devices] == [0, 1]


FAKE_OPENCL = """
import os, sys
from types import SimpleNamespace as Made


class Error(Exception):
    pass


device_type = Made(CPU=2)
names = ["good", "aborts", "wrong", "good too"]
made = [
    Made(name=name, vendor="v", global_mem_size=1, driver_version="1", max_compute_units=1, type=2)
    for name in names
]


def get_platforms():
    return [Made(name="Portable Computing Language", get_devices=lambda: made)]


class Context:
    def __init__(self, devices):
        (self.device,) = devices


CommandQueue = id
mem_flags = Made(READ_WRITE=1)


class Buffer:
    def __init__(self, context, flags, size):
        self.name = context.device.name


class Program:
    def __init__(self, context, source):
        self.name = context.device.name

    def build(self):
        return self

    def count(self, queue, shape, group, held):
        if self.name == "aborts":
            print("Final linking of kernel count failed.", file=sys.stderr, flush=True)
            os.abort()


def enqueue_copy(queue, array, held):
    array[:] = 0 if held.name == "wrong" else range(len(array))
"""


def test_a_device_counts_once_a_kernel_has_run_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that ends the process that it is in costs its device alone."""
    (tmp_path / "pyopencl.py").write_text(FAKE_OPENCL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    script = Path(discovery.__file__).with_name("probes") / "opencl.py"
    found = run_probes({"opencl": [str(script)]}, 60.0)["opencl"]
    assert isinstance(found, dict)
    assert {one["model"]: one["unusable"] for one in found["devices"]} == {
        "good": "",
        "aborts": "its driver ends the process: Final linking of kernel count failed.",
        "wrong": "its results are wrong",
        "good too": "",
    }
    monkeypatch.setattr(discovery, "run_probes", lambda scripts, timeout: {"opencl": found})
    broken = [(one.broken, one.note) for one in take_inventory(1.0, ("opencl",)).devices][1]
    assert broken[0]
    assert broken[1].endswith("it needs a C compiler (on Debian: apt-get install -y gcc libc6-dev)")
