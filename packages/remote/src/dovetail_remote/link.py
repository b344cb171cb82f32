"""What a device needs of the place where its arrays are: in this process, or with a server."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from numpy.typing import NDArray

from dovetail_remote.array import Array, Calls
from dovetail_remote.connection import ServerHello
from dovetail_remote.failures import CallSites, Failure
from dovetail_remote.snapshot import Fill, Manifest
from dovetail_remote.wire import Channel

L = TypeVar("L", bound="Link")
P = ParamSpec("P")
R = TypeVar("R")

NOTHING: Mapping[str, Any] = {}

next_handle: Callable[[], int] = itertools.count(1).__next__
"""Handles differ in the whole process: one of another device is never taken for one's own."""

new_array: Callable[[], Array] = type.__call__.__get__(Array)
"""What the class itself refuses programs; `object.__new__` takes longer."""


def make_array(device: Any, handle: int) -> Array:
    """The array that stands for a handle."""
    array = new_array()
    array._device, array._handle = device, handle
    return array


class Owner(Protocol):
    """The device of a link, as the link needs it; arrays need its link, mark, address and namespace."""

    lock: threading.Lock
    sites: CallSites
    freed: deque[int]
    spares: tuple[str, ...]
    patience: float
    token: bytes | None
    deferred: bool

    def present_link(self) -> Link:
        """The link, once nothing is being moved any more."""

    def open_channel(self, address: str, /) -> tuple[Channel, ServerHello]:
        """A channel to a server, and its description of the device. Raises `DeviceError`."""

    def foreign_error(self, array: Array, /) -> ValueError:
        """That an array is not on this device."""

    def kernel_calls(self) -> list[list[Any]]:
        """The calls that compile all kernels."""


class Link(Calls, Protocol):
    """Calls of one device. Work moves between two of them: each takes the device's lock, or is waited for.

    A link that its device has left (`retired`) passes calls on to the device's present link.
    """

    retired: bool
    device: Owner
    lock: threading.Lock
    address: str
    default_dtypes: Mapping[str, str]
    dtypes: frozenset[str]
    library: str
    device_name: str
    unheard: deque[Failure]

    @property
    def release(self) -> Callable[[int, None], Any]:
        """Gives a handle back; called when an array dies, in any thread, and takes no lock."""

    def call_many(
        self, name: str, arguments: Sequence[Any], named: Mapping[str, Any], count: int
    ) -> list[Array]:
        """A call that gives so many arrays."""

    def adopt_array(self, array: NDArray[Any]) -> Array | None:
        """An array over the memory of one of the host; None where that cannot be."""

    def kernel(self, handle: int, source: str, name: str) -> None:
        """Compile a raw kernel."""

    def launch(self, handle: int, grid: Any, block: Any, shared: int, arguments: Sequence[Any]) -> None:
        """Launch a raw kernel."""

    def synchronize(self) -> None:
        """Wait until all calls are carried out; raises the oldest failure that was not raised yet."""

    # The rest is called by a migration, with the lock held but for the first.

    def await_quiet(self) -> None:
        """Wait until no call is being carried out in this process; the link is retired."""

    def take(self) -> tuple[Manifest, Fill, Callable[[], None]]:
        """All arrays; a function that reads them, and one to call at the end, also of a failed attempt."""

    def give(self, manifest: Manifest, fill: Fill) -> None:
        """Take over arrays; returns when they are there."""

    def note_ready(self) -> None:
        """All that the device holds is here now."""

    def close(self) -> None:
        """Give everything back."""

    # And at the end.

    def finish(self) -> None:
        """Fetch the failures that were not raised yet; takes the lock."""

    def note_fork(self) -> None:
        """This is the copy in a child process now."""


def on_present_link(method: Callable[Concatenate[L, P], R]) -> Callable[Concatenate[L, P], R]:
    """Run a method with the lock, on the link that the device has by the time the lock is had."""

    @wraps(method)
    def call_locked(link: L, /, *arguments: P.args, **named: P.kwargs) -> R:
        with link.lock:
            if not link.retired:
                return method(link, *arguments, **named)
        present: Callable[P, R] = getattr(link.device.present_link(), method.__name__)
        return present(*arguments, **named)

    return call_locked
