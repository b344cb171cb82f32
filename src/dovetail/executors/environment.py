"""What a job finds around it: the cores it may use, and environment variables, set in the child only.

=========================  =======================================================================
CUDA_VISIBLE_DEVICES       numbers of its NVIDIA devices; empty (none) for a job without one on a
                           node that schedules them. CUDA_DEVICE_ORDER becomes PCI_BUS_ID with it.
ROCR_VISIBLE_DEVICES       the same for AMD devices
POCL_DEVICES               ``pthread`` for a job on an OpenCL device of model ``pocl``
POCL_MAX_PTHREAD_COUNT     number of cores it was given, for jobs on OpenCL devices
OMP_NUM_THREADS and other  number of cores it was given, 1 where it was given none (a job on a device
thread counts              whose host thread is not counted)
DOVETAIL_JOB, _UID, …      the job's id, the unique id of this run, nodes, devices, cores, and
                           DOVETAIL_DEVICE: what ``{device}`` becomes
=========================  =======================================================================

An implementation's own ``env`` wins over thread counts, not over device visibility, on which the
accounting of devices rests. POCL_AFFINITY is taken out: it would override the cores.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache

from dovetail.model import Cluster, Device, Placed, bits
from dovetail.model.templates import device_word

__all__ = ["THREAD_COUNTS", "UNSET", "child_environment", "cores_of", "devices_of", "vendor"]

THREAD_COUNTS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
UNSET = ("POCL_AFFINITY",)

_VISIBLE = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "ROCR_VISIBLE_DEVICES"}
_AMD_WORDS = ("amd", "radeon", "instinct", "gfx")


def devices_of(placed: Placed, cluster: Cluster) -> list[Device]:
    """Devices held, in node order."""
    return [
        cluster.nodes[n].devices[d] for p in placed.allocation.parts for n in bits(p.nodes) for d in p.devices
    ]


def cores_of(placed: Placed, cluster: Cluster) -> list[int]:
    """Cores that the job may use, ascending: those of its devices and those of the pools; or none."""
    cores: set[int] = set()
    for part in placed.allocation.parts:
        for n in bits(part.nodes):
            node = cluster.nodes[n]
            cores.update(placed.allocation.cores_on(n, node))
            for d in part.devices:
                cores.update(node.devices[d].cores)
    return sorted(cores)


@cache
def _amd_machine() -> bool:
    return os.path.exists("/dev/kfd") and not os.path.exists("/dev/nvidiactl")


def vendor(device: Device) -> str | None:
    """``nvidia``, ``amd`` or ``None``: by kind, then by model, then by what this machine has."""
    kind, model = device.kind.lower(), device.model.lower()
    if kind in ("cuda", "nvidia"):
        return "nvidia"
    if kind in ("rocm", "hip", "amd"):
        return "amd"
    if kind != "gpu":
        return None
    return "amd" if any(w in model for w in _AMD_WORDS) or (not model and _amd_machine()) else "nvidia"


def _visible(variable: str, numbers: list[int], outer: Mapping[str, str]) -> str:
    """Device numbers, as counted among the devices that we ourselves may see."""
    ours = [word.strip() for word in outer.get(variable, "").split(",") if word.strip()]
    return ",".join(ours[n] if n < len(ours) else str(n) for n in numbers)


def child_environment(
    placed: Placed, cluster: Cluster, cores: list[int], outer: Mapping[str, str]
) -> dict[str, str]:
    """Variables to set in the child over those of ``outer``, our own environment.

    The same for all jobs of one implementation on one place; the supervisor adds DOVETAIL_JOB and _UID.
    """
    threads = str(max(1, len(cores)))
    devices = devices_of(placed, cluster)
    command = placed.implementation.command
    env = dict.fromkeys(THREAD_COUNTS, threads)
    if any(d.kind == "opencl" for d in devices):
        env["POCL_MAX_PTHREAD_COUNT"] = threads
        if "POCL_DEVICES" not in outer and any("pocl" in d.model.lower() for d in devices):
            env["POCL_DEVICES"] = "pthread"
    if command is not None:
        env.update(command.env)
    nodes = placed.allocation.nodes
    offered = {vendor(d) for n in nodes for d in cluster.nodes[n].devices}
    for maker, variable in _VISIBLE.items():
        if maker in offered:
            held = [d.local for d in devices if vendor(d) == maker]
            env[variable] = _visible(variable, held, outer)
            if maker == "nvidia":
                env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    env["DOVETAIL_DEVICE"] = device_word(placed.implementation.kind)
    env["DOVETAIL_NODES"] = ",".join(cluster.nodes[n].name for n in nodes)
    env["DOVETAIL_DEVICES"] = ",".join(placed.allocation.device_names(cluster))
    env["DOVETAIL_CORES"] = ",".join(map(str, cores))
    return env
