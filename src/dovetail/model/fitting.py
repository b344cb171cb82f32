"""Whether a node fits: what a request takes of a node, and whether the node has it.

The node is taken as it is, with nothing in use. Of a node partly in use `engine.capacity.free` answers,
by the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from dovetail.model.cluster import Cluster, Unit
from dovetail.model.job import FRACTION_UNITS, HOST_CPUS, WHOLE_POOL, Request
from dovetail.model.node import CPU, Device, Node
from dovetail.model.reservation import NODE

__all__ = [
    "device_kind",
    "fits_node",
    "fits_unit",
    "units_for",
]


def cpus_on(request: Request, cpus: int, host_cpus: int) -> int:
    """CPUs that the request takes of a node with so many in its pool, and so many for a device's host.

    >>> [cpus_on(Request(cpus=cpus), 8, 1) for cpus in (WHOLE_POOL, HOST_CPUS, 2)]
    [8, 1, 2]
    """
    if request.cpus == WHOLE_POOL:
        return cpus
    return host_cpus if request.cpus == HOST_CPUS else request.cpus


def whole_devices(count: float) -> int:
    """Devices that a count touches: a share below one device is of one device."""
    return 1 if count < 1 else int(count)


def share_of_device(count: float) -> int:
    """What is taken of each device, in `FRACTION_UNITS`."""
    # At least one unit: a share of a millionth or less is not nothing.
    return max(1, round(count * FRACTION_UNITS)) if count < 1 else FRACTION_UNITS


def suits_request(device: Device, kind: str, request: Request) -> bool:
    """Whether the device is of this kind, of a model that the request accepts, and has memory enough."""
    if device.kind != kind or (request.models and device.model not in request.models):
        return False
    return device.memory is None or max(request.gpu_memory, request.gpu_least) <= device.memory


def units_taken(request: Request, device: Device) -> int:
    """What the request takes of a device, in `FRACTION_UNITS`.

    Nothing but memory where it requests whole devices and gives the memory of each: it then shares them.
    A device of which the memory is not known is not shared so, and an exclusive one not at all. A request
    with ``sharing`` takes half of one, and all of it as long as its memory there is not known.

    >>> wanted = Request(devices=(("gpu", 1),), gpu_memory=6)
    >>> units_taken(wanted, Device("gpu", memory=16)), units_taken(wanted, Device("gpu"))
    (0, 1000000)
    """
    if device.exclusive:
        return FRACTION_UNITS
    if request.sharing:
        known = request.gpu_memory or device.memory is None
        # Two that share each take half, so that a third finds no room.
        return FRACTION_UNITS // 2 if known else FRACTION_UNITS
    units = min((share_of_device(count) for _, count in request.devices), default=FRACTION_UNITS)
    # Its memory is what is counted: units would keep a second one out.
    if request.gpu_memory and units == FRACTION_UNITS and device.memory is not None:
        return 0
    return units


def memory_taken(size: int, units: int, gpu_memory: int) -> int:
    """Bytes taken of a device of ``size``: ``gpu_memory`` if given, else the part in ``units``."""
    return gpu_memory or size * units // FRACTION_UNITS


def share_taken(device: Device, units: int, gpu_memory: int) -> float:
    """Which part of a device that is: of its units or of its memory, whichever is more.

    >>> share_taken(Device("gpu", memory=16), 250_000, 8)
    0.5
    """
    share = units / FRACTION_UNITS
    return share if not device.memory else min(1.0, max(share, gpu_memory / device.memory))


def shares_device(request: Request) -> bool:
    """Whether it may run beside others on a device: it requests a part of one, or gives its memory."""
    return bool(request.devices) and (
        request.sharing or request.gpu_memory > 0 or any(count < 1 for _, count in request.devices)
    )


def takes_alike(request: Request, devices: Sequence[Device], eligible: Iterable[int]) -> list[list[int]]:
    """The eligible devices (by index) by what the request would take of each, those that it shares first.

    Of all its devices on a node a job takes the same part.
    """
    groups: dict[int, list[int]] = {}
    for d in eligible:
        groups.setdefault(units_taken(request, devices[d]), []).append(d)
    # The smallest take first: devices that are shared anyway keep others whole.
    return [groups[units] for units in sorted(groups)]


def devices_on(request: Request, devices: Sequence[Device]) -> Iterator[tuple[int, list[int]]]:
    """For each kind of device requested: how many devices, and the indices of those that suit."""
    for kind, count in request.devices:
        yield (
            whole_devices(count),
            [d for d, device in enumerate(devices) if suits_request(device, kind, request)],
        )


def fits_node(request: Request, node: Node) -> bool:
    """Whether the node could give one node's share if nothing else ran. O(devices).

    >>> gpu = Request(cpus=2, devices=(("gpu", 1),))
    >>> fits_node(gpu, Node("n0", (0, 1), (Device("gpu"),))), fits_node(gpu, Node("n1", (0, 1)))
    (True, False)
    """
    if request.partition and request.partition not in node.partitions:
        return False
    cpus = cpus_on(request, node.cpus, node.host_cpus)
    if cpus > node.cpus or (request.cpus == WHOLE_POOL and not node.cpus):
        # All CPUs of a node without any are not enough.
        return False
    if node.memory is not None and request.memory > node.memory:
        return False
    if not request.gpu_memory:
        return all(len(suitable) >= wanted for wanted, suitable in devices_on(request, node.devices))
    # All devices of a node are taken alike: one group must hold enough of each kind.
    return any(
        all(
            sum(d in alike for d in suitable) >= wanted
            for wanted, suitable in devices_on(request, node.devices)
        )
        for alike in _like_devices(request, node)
    )


def _like_devices(request: Request, node: Node) -> list[list[int]]:
    """Devices of a node of which the request takes the same part; one empty list where there are none."""
    return takes_alike(request, node.devices, range(len(node.devices))) or [[]]


def device_kind(request: Request) -> str:
    """The kind of unit that a request occupies: its device's, or the CPU."""
    return request.devices[0][0] if request.devices else CPU


def fits_unit(cluster: Cluster, request: Request, unit: Unit) -> bool:
    """Whether a request for one node could be run on this unit if nothing else ran.

    A request for devices runs on a device that suits, any other on a CPU pool; the unit's node must have
    the rest, and be there.
    """
    if unit.node in cluster.gone:
        return False
    if request.avoids and cluster.kept.get((unit.node, NODE), 0) & request.avoids:
        return False
    node = cluster.nodes[unit.node]
    if request.nodes != 1 or unit.kind != device_kind(request):
        return False
    if unit.device is not None:
        if not suits_request(node.devices[unit.device], unit.kind, request):
            return False
        if request.avoids and cluster.kept.get((unit.node, unit.device), 0) & request.avoids:
            return False
    return fits_node(request, node)


@lru_cache(maxsize=1024)
def units_for(cluster: Cluster, request: Request) -> tuple[Unit, ...]:
    """The units on which a request for one node can be run, in their order. O(units) once, then O(1).

    Devices that are reserved for it come first: they leave the others to those who may not use these.
    """
    units = [unit for unit in cluster.units if fits_unit(cluster, request, unit)]
    if cluster.kept:
        units.sort(key=lambda unit: (unit.node, unit.device) not in cluster.kept)
    return tuple(units)
