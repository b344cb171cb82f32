"""What a job finds around it: the cores it may use, and environment variables, set in the child only.

=========================  =======================================================================
CUDA_VISIBLE_DEVICES       its NVIDIA devices, as the driver calls them; empty (none) for a job without
                           one on a node that schedules them. CUDA_DEVICE_ORDER becomes PCI_BUS_ID with it.
NVIDIA_VISIBLE_DEVICES     the same for containers that the job starts, ``void`` where it has none; with it
                           DOVETAIL_CDI_DEVICES: ``nvidia.com/gpu=UUID``, apart by commas
ROCR_VISIBLE_DEVICES       the same for AMD devices; HIP_VISIBLE_DEVICES counts among these
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
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cache

from dovetail.errors import InputError
from dovetail.model import Cluster, Device, Node, Placed, bit_indices
from dovetail.model.batch_options import of_script
from dovetail.model.templates import device_word

THREAD_COUNTS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
UNSET = ("POCL_AFFINITY",)

VISIBLE = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "ROCR_VISIBLE_DEVICES"}
_AMD_WORDS = ("amd", "radeon", "instinct", "gfx")


def tasks_of(placed: Placed) -> int:
    """Processes that the job's command starts on each node."""
    command = placed.implementation.command
    return 1 if command is None else command.tasks


def is_gang(placed: Placed) -> bool:
    """Whether the job is several processes: on several nodes, or several tasks on one.

    A batch script is not: its body runs once, and starts itself what is to run on its nodes.
    """
    if of_script(placed.job.batch_options) is not None:
        return False
    return placed.allocation.request.nodes > 1 or tasks_of(placed) > 1


def devices_of(placed: Placed, cluster: Cluster) -> list[Device]:
    """Devices held, in node order."""
    return [
        cluster.nodes[n].devices[d]
        for p in placed.allocation.parts
        for n in bit_indices(p.nodes)
        for d in p.devices
    ]


def described_devices(placed: Placed, cluster: Cluster) -> str:
    """A job's devices for people: names, models, and their memory, where it is known.

    What the job was given of each is there too, where that is less.
    """
    words = []
    for device in devices_of(placed, cluster):
        size = "" if device.memory is None else f"{device.memory / 1e9:.1f} GB"
        about = ", ".join(filter(None, (device.model, size)))
        words.append(f"{device.name} ({about})" if about else device.name)
    given = placed.allocation.request.gpu_memory
    return ", ".join(words) + (f", of which it was given {given / 1e9:.1f} GB" if given else "")


def cores_of(placed: Placed, cluster: Cluster) -> list[int]:
    """Cores that the job may use, ascending: those of its devices and those of the pools; or none."""
    cores: set[int] = set()
    for part in placed.allocation.parts:
        for n in bit_indices(part.nodes):
            node = cluster.nodes[n]
            cores.update(placed.allocation.cores_on(n, node))
            for d in part.devices:
                cores.update(node.devices[d].cores)
    return sorted(cores)


def host_cores(placed: Placed, cluster: Cluster) -> list[int]:
    """The cores on which a job's process starts: its own, else those near its devices; empty: any.

    A job on devices that requests no CPU has none of its own: its host threads stay on the NUMA nodes of its
    devices, where these are known.
    """
    cores = cores_of(placed, cluster)
    if cores:
        return cores
    return sorted({core for device in devices_of(placed, cluster) for core in device.near})


@cache
def _amd_machine() -> bool:
    return os.path.exists("/dev/kfd") and not os.path.exists("/dev/nvidiactl")


def device_vendor(device: Device) -> str | None:
    """``nvidia``, ``amd`` or ``None``: as found, by kind, by model, by what this machine has."""
    if device.address:
        return device.address.partition(":")[0]
    kind, model = device.kind.lower(), device.model.lower()
    if kind in ("cuda", "nvidia"):
        return "nvidia"
    if kind in ("rocm", "hip", "amd"):
        return "amd"
    if kind != "gpu":
        return None
    return "amd" if any(w in model for w in _AMD_WORDS) or (not model and _amd_machine()) else "nvidia"


def visible_devices(node: Node) -> dict[str, int]:
    """The variables that show a node's devices to programs, and how many devices each of them counts."""
    everything = numbers_by_variable(node, range(len(node.devices)))
    return {variable: len(numbers) for variable, numbers in everything.items()}


def numbers_by_variable(node: Node, held: Collection[int]) -> dict[str, list[int]]:
    """The places of these devices among those that each variable counts; of all variables of the node."""
    found: dict[str, list[int]] = {}
    for index, (variable, number) in enumerate(_counted_devices(node)):
        if variable:
            found.setdefault(variable, [])
            found[variable] += [number] if index in held else []
    return found


def _counted_devices(node: Node) -> Iterator[tuple[str, int]]:
    """Of each device the variable that chooses it, and its place among those which that counts.

    The variable is empty where none does.
    """
    counts: Counter[str] = Counter()
    for device in node.devices:
        variable = VISIBLE.get(device_vendor(device) or "", "")
        yield variable, counts[variable]
        counts[variable] += 1


def visible_names(setting: str | None) -> list[str] | None:
    """The devices that a ``*_VISIBLE_DEVICES`` variable leaves; ``None`` where it is not set: all of them.

    As the drivers read it, the list ends at the first word that is no number or UUID, or is there twice.

    >>> visible_names("2,GPU-6f1c, 0"), visible_names("1,-1,0"), visible_names("0,0"), visible_names("")
    (['2', 'GPU-6f1c', '0'], ['1'], ['0'], [])
    """
    if setting is None:
        return None
    names: list[str] = []
    for word in (word.strip() for word in setting.split(",")):
        if not (word.isascii() and word.isdecimal()) and not word.startswith(("GPU-", "MIG-")):
            break
        if word in names:
            break
        names.append(word)
    return names


def visible_name(variable: str, number: int, outer: Mapping[str, str]) -> str:
    """What a device is called in a variable: by its place among those that ``outer`` leaves to us.

    Raises `InputError` where it leaves fewer.
    """
    ours = visible_names(outer.get(variable))
    if ours is None:
        return str(number)
    if number >= len(ours):
        raise InputError(
            f"found a cluster with a device number {number} of this maker, but {variable}="
            f"{outer[variable]} leaves {len(ours)} of them to Dovetail",
            where="cluster",
        )
    return ours[number]


def driver_names(node: Node, outer: Mapping[str, str]) -> list[str]:
    """What the drivers call a node's devices, in its order; empty for devices that no variable chooses.

    Raises `InputError` as `visible_name`.
    """
    names: list[str] = []
    for device, (variable, number) in zip(node.devices, _counted_devices(node), strict=True):
        known = device.address.partition(":")[2] if variable else ""
        names.append(known or (visible_name(variable, number, outer) if variable else ""))
    return names


def visible_on(node: Node, held: Collection[int], outer: Mapping[str, str]) -> dict[str, str]:
    """The variables that choose these devices of one node, for a process there.

    Raises `InputError` as `visible_name`.
    """
    found: dict[str, list[str]] = {}
    names = driver_names(node, outer)
    for index, (variable, _) in enumerate(_counted_devices(node)):
        if variable:
            found.setdefault(variable, [])
            found[variable] += [names[index]] if index in held else []
    return {variable: ",".join(names) for variable, names in found.items()}


def _device_variables(placed: Placed, cluster: Cluster, outer: Mapping[str, str]) -> dict[str, str]:
    """The variables that choose a job's devices; those of makers that its nodes do not have stay."""
    found: dict[str, list[str]] = {}
    for part in placed.allocation.parts:
        for n in bit_indices(part.nodes):
            for variable, words in visible_on(cluster.nodes[n], part.devices, outer).items():
                found.setdefault(variable, []).extend(words.split(",") if words else ())
    env = {variable: ",".join(names) for variable, names in found.items()}
    if "CUDA_VISIBLE_DEVICES" in env:
        # CUDA's own order is by speed; ours is the driver's, by bus.
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        env["NVIDIA_VISIBLE_DEVICES"] = env["CUDA_VISIBLE_DEVICES"] or "void"
        env["DOVETAIL_CDI_DEVICES"] = ",".join(f"nvidia.com/gpu={n}" for n in found["CUDA_VISIBLE_DEVICES"])
    if env.get("ROCR_VISIBLE_DEVICES"):
        # HIP counts among the devices that ROCR leaves: from 0 on, whichever these are.
        env["HIP_VISIBLE_DEVICES"] = ",".join(map(str, range(len(found["ROCR_VISIBLE_DEVICES"]))))
    return env


def child_environment(
    placed: Placed, cluster: Cluster, cores: list[int], outer: Mapping[str, str]
) -> dict[str, str]:
    """Variables to set in the child over those of ``outer``, our own environment.

    The same for all jobs of one implementation on one place; the supervisor adds DOVETAIL_JOB and _UID.
    """
    threads = str(max(1, len(cores)))
    devices = devices_of(placed, cluster)
    command = placed.implementation.command
    # A numerical library starts a thread for each core of the machine by default: they would share ours.
    env = dict.fromkeys(THREAD_COUNTS, threads)
    if any(d.kind == "opencl" for d in devices):
        env["POCL_MAX_PTHREAD_COUNT"] = threads
        if "POCL_DEVICES" not in outer and any("pocl" in d.model.lower() for d in devices):
            env["POCL_DEVICES"] = "pthread"
    if command is not None:
        env.update(command.env)
    nodes = placed.allocation.nodes
    env |= _device_variables(placed, cluster, outer)
    env["DOVETAIL_DEVICE"] = device_word(placed.implementation.kind)
    env["DOVETAIL_NODES"] = ",".join(cluster.nodes[n].name for n in nodes)
    env["DOVETAIL_DEVICES"] = ",".join(placed.allocation.device_names(cluster))
    env["DOVETAIL_CORES"] = ",".join(map(str, cores))
    return env
