"""What this machine has: cores that we may use, GPUs, OpenCL devices; and why something was not found.

Every driver is queried by a script in a process of its own, all at the same time, each with a time limit
(`dovetail.local.probes`): a driver that hangs or crashes costs a sentence, not us.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dovetail.local.device_processes import DeviceProcess, process_of
from dovetail.model import Cluster, Device, Node
from dovetail.model.node import NVLINK, SWITCH
from dovetail.process.environment import VISIBLE, visible_names
from dovetail.records import dataclass

_log = logging.getLogger(__name__)

PROBES: Mapping[str, str] = {"nvidia": "nvidia.py", "amd": "amd.py", "opencl": "opencl.py"}
NVML = "libnvidia-ml.so.1"
"""NVIDIA's management library; where it is put elsewhere, LD_LIBRARY_PATH names its folder."""
CLOSE = {"nvlink": NVLINK, "xgmi": NVLINK, "switch": SWITCH}
TIMEOUT = 20.0
"""Seconds for all drivers together; the first load of a driver can take ten."""
_NVIDIA_FILES = ("nvidia*", "nvgpu*", "nvhost*", "dxg")
"""Of its driver, of Tegra's, and of Windows' where Linux runs in it."""


@dataclass(frozen=True, slots=True)
class Cores:
    """CPUs. ``usable`` are the ids we may run on; ``quota`` the CPUs' worth of time that a cgroup allows."""

    usable: tuple[int, ...]
    machine: int
    model: str
    memory: int
    quota: float | None = None


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """A device. ``kind`` is its kind in a cluster; ``note`` is why `discover_cluster` leaves it out, if it
    does.

    ``number`` is its driver's own, whatever other devices are hidden or broken; an instance of a GPU that MIG
    has cut has that of its GPU, and the GPU's UUID as ``parent``. ``broken``: nothing can run on it at all.
    ``memory`` and ``memory_used`` are bytes, ``utilisation`` is from 0 to 1, where they are known. ``near``
    are the cores of its NUMA node ``numa``; ``links`` has the UUIDs of the GPUs that NVLink joins to it
    (``nvlink``; of AMD ``xgmi``), or only one PCIe switch (``switch``). ``exclusive``: one program at a
    time computes on it.
    """

    probe: str
    kind: str
    model: str
    number: int
    memory: int = 0
    driver: str = ""
    uuid: str = ""
    used: bool = True
    note: str = ""
    broken: bool = False
    memory_used: int | None = None
    utilisation: float | None = None
    processes: tuple[DeviceProcess, ...] = ()
    parent: str | None = None
    near: tuple[int, ...] = ()
    numa: int | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    exclusive: bool = False

    @property
    def address(self) -> str:
        """What its driver calls it, after its maker; empty for devices that no variable chooses."""
        if self.probe not in VISIBLE:
            return ""
        named = self.probe == "nvidia" and self.uuid.startswith(("GPU-", "MIG-"))
        return f"{self.probe}:{self.uuid if named else self.number}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "processes": [one.as_dict() for one in self.processes]}


@dataclass(frozen=True, slots=True)
class FailedProbe:
    """A probe that found nothing, and why."""

    probe: str
    reason: str


@dataclass(frozen=True, slots=True)
class Inventory:
    """All that was found, and what was not."""

    cores: Cores
    devices: Sequence[FoundDevice] = field(default_factory=tuple)
    missing: Sequence[FailedProbe] = field(default_factory=tuple)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "devices": [device.as_dict() for device in self.devices]}

    def cluster(self) -> Cluster:
        """One node, ``localhost``: all usable cores in its pool, and every device that a job can be given."""
        counts: dict[str, int] = {}
        devices: list[Device] = []
        used = [found for found in self.devices if found.used]
        places = {found.uuid: d for d, found in enumerate(used) if found.uuid}
        for found in used:
            # Numbers count the usable devices of a kind: a hidden or broken one leaves no gap.
            number = counts.get(found.kind, 0)
            near = tuple(core for core in self.cores.usable if core in found.near)
            links = sorted(
                (places[uuid], CLOSE[link])
                for uuid, link in found.links.items()
                if uuid in places and link in CLOSE
            )
            devices.append(
                Device(
                    found.kind,
                    found.model,
                    number,
                    address=found.address,
                    memory=found.memory or None,
                    # Where all cores are as near, none is preferred.
                    near=() if len(near) == len(self.cores.usable) else near,
                    links=tuple(links),
                    exclusive=found.exclusive,
                )
            )
            counts[found.kind] = counts.get(found.kind, 0) + 1
        node = Node(
            "localhost",
            self.cores.usable,
            tuple(devices),
            self.cores.memory or None,
            cpu_model=self.cores.model,
        )
        return Cluster((node,), "localhost")


def discover_cluster(timeout: float = TIMEOUT) -> Cluster:
    """This machine as a cluster: what ``run`` uses where no cluster file is given.

    PoCL runs on the cores that are in the pool already; it is used only where a cluster file gives it
    cores of its own. A driver of which there is no trace is not queried: each costs a start of Python.
    """
    return take_inventory(timeout, with_traces()).cluster()


def with_traces(root: Path = Path("/")) -> list[str]:
    """The probes that could find a device, since what it needs is there. ``root`` stands for ``/``."""
    folders = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    traces = {
        "nvidia": any(any((root / "dev").glob(name)) for name in _NVIDIA_FILES)
        or any(Path(folder, NVML).exists() for folder in folders),
        "amd": (root / "sys/class/kfd").is_dir(),
        "opencl": find_spec("pyopencl") is not None,
    }
    return [name for name, seen in traces.items() if seen]


def take_inventory(timeout: float = TIMEOUT, probes: Collection[str] = tuple(PROBES)) -> Inventory:
    """Look at everything, or through these ``probes`` only.

    Takes as long as the slowest driver, ``timeout`` seconds at most.
    """
    scripts = {name: [str(_SCRIPTS / script)] for name, script in PROBES.items() if name in probes}
    answers = run_probes(scripts, timeout)
    devices: list[FoundDevice] = []
    missing: list[FailedProbe] = []
    for name, answer in answers.items():
        if isinstance(answer, str):
            missing.append(FailedProbe(name, answer))
            continue
        found = (
            _visible_gpus(name, answer["devices"])
            if name != "opencl"
            else _usable_opencl_devices(answer["devices"])
        )
        devices.extend(found)
        if not found:
            missing.append(
                FailedProbe(
                    name,
                    answer["why"]
                    or f"{VISIBLE[name]}={os.environ[VISIBLE[name]]} leaves none of its devices",
                )
            )
    return Inventory(usable_cores(), devices, missing)


_SCRIPTS = Path(__file__).with_name("probes")


def run_probes(scripts: Mapping[str, Sequence[str]], timeout: float) -> dict[str, dict[str, Any] | str]:
    """Run probe scripts at the same time; their answers, or a sentence on what went wrong.

    A process that not even SIGKILL ends (it hangs in its driver) is left behind.
    """
    running = {
        name: subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        for name, arguments in scripts.items()
    }
    deadline = time.monotonic() + timeout
    # All started before the first is waited for: the slowest driver decides, not their sum.
    return {name: _probe_answer(process, deadline, timeout) for name, process in running.items()}


def _probe_answer(process: subprocess.Popen[bytes], deadline: float, timeout: float) -> dict[str, Any] | str:
    try:
        out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        _abandon_probe(process)
        _log.info("the probe %s did not answer within %g s and is killed", process.args, timeout)
        return f"its driver did not answer within {timeout:g} s"
    # A driver's crash takes the probe with it, never this process.
    if process.returncode < 0:
        return f"its driver crashed the probe (signal {-process.returncode})"
    lines = out.decode("utf-8", "replace").strip().splitlines()
    complaint = err.decode("utf-8", "replace").strip().splitlines()
    if process.returncode or not lines:
        return f"the probe failed: {complaint[-1] if complaint else f'status {process.returncode}'}"
    try:
        answer = json.loads(lines[-1])
    except ValueError:
        return f"the probe's answer cannot be read: {lines[-1][:100]}"
    return answer if isinstance(answer, dict) and "devices" in answer else "the probe gave no answer"


def _abandon_probe(process: subprocess.Popen[bytes]) -> None:
    """Kill a probe and its children; do not wait for one that cannot be killed."""
    try:
        # The group, since a driver may have started helpers that hold our pipes open.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=1.0)
    except ProcessLookupError:
        process.wait(timeout=1.0)
    except subprocess.TimeoutExpired:
        # It hangs in the kernel: a wait would never return.
        process.returncode = -signal.SIGKILL
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _visible_gpus(probe: str, devices: Sequence[Mapping[str, Any]]) -> list[FoundDevice]:
    """GPUs that our own environment lets us see, in its order."""
    chosen = _select_visible(devices, os.environ.get(VISIBLE[probe]))
    return [
        FoundDevice(
            probe,
            "gpu",
            device["model"],
            device["index"],
            device.get("memory", 0),
            device.get("driver", ""),
            device.get("uuid", ""),
            "unusable" not in device,
            device.get("unusable", device.get("note", "")),
            "unusable" in device,
            device.get("memory_used"),
            device.get("utilisation"),
            tuple(process_of(**one) for one in device.get("processes", ())),
            device.get("parent"),
            tuple(device.get("near", ())),
            device.get("numa"),
            device.get("links", {}),
            device.get("exclusive", False),
        )
        for device in chosen
    ]


def _select_visible(devices: Sequence[Mapping[str, Any]], setting: str | None) -> list[Mapping[str, Any]]:
    """The devices that a ``*_VISIBLE_DEVICES`` variable names, in its order; it ends at a wrong name."""
    names = visible_names(setting)
    if names is None:
        return list(devices)
    chosen: list[Mapping[str, Any]] = []
    for word in names:
        # As the drivers do: the list ends at the first word that names no device, or one again.
        match = [d for d in devices if _is_called(d, word)]
        if len(match) != 1 or match[0] in chosen:
            break
        chosen += match
        # With a GPU that MIG has cut come its instances, unless one of them is named.
        chosen += [d for d in devices if d.get("parent") and d["parent"] == match[0].get("uuid")]
    return chosen


def _is_called(device: Mapping[str, Any], word: str) -> bool:
    """Whether a word of a ``*_VISIBLE_DEVICES`` variable names the device: by number or start of its UUID."""
    if word.startswith("MIG-GPU-") and word == device.get("old_uuid"):
        return True
    if word.startswith(("GPU-", "MIG-")):
        return bool(device.get("uuid", "").startswith(word))
    return word == str(device["index"]) and not device.get("parent")


def _usable_opencl_devices(devices: Sequence[Mapping[str, Any]]) -> list[FoundDevice]:
    """OpenCL devices; those that are CPUs, or are found by their maker's own probe, are only named."""
    found: list[FoundDevice] = []
    for device in devices:
        words = f"{device['platform']} {device['vendor']}".lower()
        note = ""
        if device.get("unusable"):
            note = f"runs no kernel ({device['unusable']}); {_suggest_remedy(device['unusable'])}"
        elif device["type"] == "cpu":
            note = (
                f"a CPU device ({device['units']} compute units) that shares the cores above: describe it in "
                "a cluster file, with cores of its own, to schedule on it"
            )
        elif "nvidia" in words or "amd" in words or "advanced micro" in words:
            note = "the same GPU as its maker's probe finds"
        model = "pocl" if "portable computing language" in words else device["model"]
        about = f"{device['platform']} {device['driver']}"
        found.append(
            FoundDevice(
                "opencl",
                "opencl",
                model,
                device["index"],
                device["memory"],
                about,
                "",
                not note,
                note,
                bool(device.get("unusable")),
            )
        )
    return found


def _suggest_remedy(unusable: str) -> str:
    """What helps a device on which no kernel runs."""
    # PoCL has the C compiler link what it has compiled.
    if "link" in unusable.lower():
        return "it needs a C compiler (on Debian: apt-get install -y gcc libc6-dev)"
    return "a newer driver may"


def usable_cores(root: Path = Path("/")) -> Cores:
    """The cores of this process; ``root`` stands for ``/`` in tests."""
    return Cores(
        tuple(sorted(os.sched_getaffinity(0))),
        os.cpu_count() or 1,
        _cpu_model(root),
        _available_memory(root),
        _cpu_quota(root),
    )


def _read_or_empty(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _cpu_model(root: Path) -> str:
    for line in _read_or_empty(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Hardware"):
            return " ".join(value.split())
    return ""


def _available_memory(root: Path) -> int:
    """Bytes of memory: the machine's, or what the cgroup allows, if that is less. 0 if not known."""
    total = 0
    for line in _read_or_empty(root / "proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            total = int(line.split()[1]) * 1024
    limits = [total]
    for name, controller in (("memory.max", ""), ("memory.limit_in_bytes", "memory")):
        # Version 1 writes a huge number, version 2 "max", where there is no limit.
        limits += [int(t) for t in _cgroup_values(root, name, controller) if t.isdecimal() and int(t) > 0]
    return min(limits)


def _cpu_quota(root: Path) -> float | None:
    """CPUs' worth of time that the cgroups allow us, the least of all levels."""
    quotas: list[float] = []
    for text in _cgroup_values(root, "cpu.max", ""):
        amount, _, period = text.partition(" ")
        if amount.isdecimal() and period.strip().isdecimal():
            quotas.append(int(amount) / int(period))
    amounts = _cgroup_values(root, "cpu.cfs_quota_us", "cpu")
    periods = _cgroup_values(root, "cpu.cfs_period_us", "cpu")
    quotas += [
        int(a) / int(p) for a, p in zip(amounts, periods, strict=False) if a.isdecimal() and int(p) > 0
    ]
    return min(quotas, default=None)


def _cgroup_values(root: Path, name: str, controller: str) -> list[str]:
    """Contents of a cgroup file in our own group and all groups above it; ``controller`` empty: version 2."""
    values: list[str] = []
    for line in _read_or_empty(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if (controller in controllers.split(",")) if controller else not controllers:
            base = root / "sys/fs/cgroup" / controller
            folder = base / group.lstrip("/")
            # The strictest of all levels counts, so those above ours are read too.
            for place in (folder, *folder.parents):
                text = _read_or_empty(place / name).strip()
                if text:
                    values.append(text)
                if place == base:
                    break
    return values
