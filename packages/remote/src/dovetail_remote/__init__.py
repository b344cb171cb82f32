"""Arrays on a device that can be anywhere, and that can be moved while a program uses it.

    import dovetail_remote
    xp = dovetail_remote.namespace()          # the devices that the job's environment names
    x = xp.linspace(0, 1, 1_000_000)
    y = float(xp.sum(xp.sin(x) ** 2))

The namespace follows the Python array API standard (2025.12, with ``linalg`` and ``fft``). Whether the device
is in this process, with a server on this node, or on another node, the program is the same; and while it
runs, `Device.migrate` (or a scheduler, through `dovetail_remote.control`) takes its arrays elsewhere.

Method: Markthub 2015, sections 2 and 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail_remote.address import ADDRESSES
    from dovetail_remote.array import Array
    from dovetail_remote.device import Device, Kernel, Moved
    from dovetail_remote.encoding import LocalMemory
    from dovetail_remote.space import Namespace

__all__ = [
    "ADDRESSES",
    "Array",
    "Device",
    "Kernel",
    "LocalMemory",
    "Moved",
    "Namespace",
    "namespace",
    "restore_array",
]

_HOMES = {
    "ADDRESSES": "address",
    "Array": "array",
    "Device": "device",
    "Kernel": "device",
    "LocalMemory": "encoding",
    "Moved": "device",
    "Namespace": "space",
}


def __getattr__(name: str) -> Any:
    # Parts are loaded when they are first used: a device server needs none of the client's.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"dovetail_remote.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'dovetail_remote' has no attribute {name!r}")


def namespace(
    *addresses: str, replay: bool = False, spares: tuple[str, ...] = (), errors: str = "immediate"
) -> Namespace:
    """A namespace over devices, given by their addresses (`dovetail_remote.address`).

    Without an address they are those that ``DOVETAIL_DEVICE_ADDRESSES`` lists, as Dovetail sets it for jobs
    with borrowed devices; without that either, NumPy in this process. With ``DOVETAIL_CONTROL`` set, the
    scheduler that listens there may move the devices.

    Args:
        addresses: one for each device.
        replay: keep a log of calls, from which a lost server is rebuilt (at ``spares``, or where it was).
        spares: addresses of servers to rebuild at.
        errors: ``"immediate"``: a call that may fail is waited for, and raises where the program makes it.
            ``"deferred"``: every call is sent ahead, and raises where the program next waits: quicker.

    Raises:
        InputError: an address or ``errors`` means nothing, or a library or device is missing.
        DeviceError: a server is not there, or refuses.
    """
    import os

    from dovetail_remote.address import ADDRESSES
    from dovetail_remote.control import join_switchboard
    from dovetail_remote.device import Device
    from dovetail_remote.space import Namespace

    seat = None if addresses else join_switchboard()
    placed = addresses or (seat.addresses if seat else tuple(os.environ.get(ADDRESSES, "").split()))
    devices = [Device(a, replay=replay, spares=spares, errors=errors) for a in placed or ("local:numpy",)]
    if seat is not None:
        seat.watch(devices)
    return Namespace(devices)


def restore_array(elements: Any, mark: str, address: str) -> Array:
    """An array that was pickled: on its device, one of that address, or the first of the environment."""
    from dovetail_remote.device import open_at

    device = open_at(mark, address)
    found: Array = (namespace().device if device is None else device).link.put(elements)
    return found
