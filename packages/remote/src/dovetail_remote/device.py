"""A device that can be anywhere, and can be moved while a program uses it."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from dovetail.errors import DovetailError, InputError
from dovetail.records import dataclass
from dovetail_remote.address import Address, parse_address
from dovetail_remote.array import Array
from dovetail_remote.backends import open_backend
from dovetail_remote.client import RemoteLink
from dovetail_remote.connection import ServerHello, connect_to_server, parse_welcome
from dovetail_remote.encoding import LocalMemory
from dovetail_remote.failures import CALL_ERRORS, CallSites
from dovetail_remote.link import Link, next_handle
from dovetail_remote.local import LocalLink
from dovetail_remote.replay import ReplayLog
from dovetail_remote.wire import Channel

_OURS = os.path.dirname(__file__) + os.sep


@dataclass(frozen=True, slots=True)
class Moved:
    """What a migration did: from where to where, bytes of arrays, and seconds.

    ``pause`` is the time during which the program could make no calls, ``prepared`` that before, during
    which the target was opened while the program went on.
    """

    source: str
    target: str
    arrays: int
    size: int
    pause: float
    prepared: float


class Kernel:
    """A raw kernel of a device: ``kernel(grid, block, *arrays)``.

    ``grid`` is the number of groups (blocks) in each of one to three dimensions, ``block`` the number of
    work-items (threads) in a group. Arguments are arrays of the device (contiguous; the kernel may change
    them), NumPy scalars (``numpy.int32(5)``: a kernel's argument has a size) and, in OpenCL, `LocalMemory`.
    ``shared`` is CUDA's dynamic shared memory in bytes. Does not wait.
    """

    def __init__(self, device: Device, source: str, name: str) -> None:
        self.name = name
        self.device = device
        self.source = source
        self.handle = next_handle()

    def __call__(
        self, grid: int | Sequence[int], block: int | Sequence[int], *arguments: Any, shared: int = 0
    ) -> None:
        """Launch it. Raises `TypeError` for an argument that no kernel takes."""
        for argument in arguments:
            if not isinstance(argument, Array | np.generic | LocalMemory):
                raise TypeError(
                    f"kernel {self.name}: found {type(argument).__name__}, expected an array, a NumPy scalar "
                    "such as numpy.int32(5), or LocalMemory"
                )
            if type(argument) is Array and argument._device is not self.device:
                raise self.device.foreign_error(argument)
        self.device.link.launch(self.handle, _launch_extent(grid), _launch_extent(block), shared, arguments)

    def __repr__(self) -> str:
        return f"Kernel({self.name!r}, device={str(self.device)!r})"


def _launch_extent(sizes: int | Sequence[int]) -> tuple[int, ...]:
    return (int(sizes),) if isinstance(sizes, int | np.integer) else tuple(int(size) for size in sizes)


class Device:
    """Where the arrays of a namespace are.

    Args:
        address: as `dovetail_remote.address` has it.
        replay: keep a log of calls, from which a lost server is rebuilt.
        spares: other servers to rebuild at.
        patience: seconds to go on trying to rebuild.
        token: of servers on the network; default: the file that ``DOVETAIL_TOKEN_FILE`` names.
        errors: ``"immediate"``, where calls fail; or ``"deferred"``, where the program next waits: quicker.

    Raises:
        InputError: the address means nothing, or a local library or device is missing.
        DeviceError: there is no server, or it refuses.
    """

    def __init__(
        self,
        address: str,
        *,
        replay: bool = False,
        spares: Sequence[str] = (),
        patience: float = 30.0,
        token: bytes | None = None,
        errors: str = "immediate",
    ) -> None:
        if errors not in ("immediate", "deferred"):
            raise InputError(f"found errors={errors!r}, expected 'immediate' or 'deferred'")
        self.deferred = errors == "deferred"
        self.mark = f"{os.getpid()}-{next_handle()}"
        self.lock = threading.Lock()
        self.sites = CallSites(_OURS)
        self.freed: deque[int] = deque()
        self.spares = tuple(spares)
        self.patience = patience
        self.token = token
        self._replay = replay
        self._kernels: weakref.WeakSet[Kernel] = weakref.WeakSet()
        self._space: weakref.ref[Any] | None = None
        self._spaces: Callable[[list[Device]], Any] | None = None
        self._moving = threading.Lock()
        # Two locks, in this order: `_moving` for one migration at a time, which may take minutes, and
        # `_gate`, behind which calls wait only while the arrays are being put down.
        self._gate = threading.Lock()
        self.link: Link = self._open_link(parse_address(address))
        self.release: Callable[[int, None], Any] = self.link.release
        self.link.note_ready()
        _devices.add(self)

    # -- for programs ----------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where the device is now."""
        return self.link.address

    @property
    def is_local(self) -> bool:
        """Whether the device is in this process."""
        return isinstance(self.link, LocalLink)

    @property
    def library(self) -> str:
        """The library that computes, with its version."""
        return self.link.library

    @property
    def name(self) -> str:
        """The model of the device."""
        return self.link.device_name

    def kernel(self, source: str, name: str) -> Kernel:
        """Compile a raw kernel of OpenCL C or CUDA C; its errors are raised where the program next waits.

        It is compiled once more wherever the device moves.
        """
        kernel = Kernel(self, source, name)
        self.link.kernel(kernel.handle, source, name)
        self._kernels.add(kernel)
        # At exit the device may be gone already: nothing is to be freed then.
        weakref.finalize(kernel, self.freed.append, kernel.handle).atexit = False
        return kernel

    def synchronize(self) -> None:
        """Wait until all calls are carried out; raise the oldest failure that was not raised yet."""
        self.link.synchronize()

    def migrate(self, target: str) -> Moved:
        """Move everything to another device; the program, in other threads, sees a pause.

        The target is opened and warmed first. Then, between two calls, the arrays are put down there, and
        calls go there from then on. If anything fails, the work stays where it is.

        Raises:
            InputError, DeviceError: the target is not there, refuses, or fails.
            TypeError, MemoryError: the target lacks a data type, or memory.
        """
        with self._moving:
            begin = time.perf_counter()
            fresh = self._open_link(parse_address(target))
            with ExitStack() as undo:
                undo.callback(fresh.close)
                # Kernels first, outside of the pause: compiling takes longer than copying.
                for kernel in list(self._kernels):
                    fresh.kernel(kernel.handle, kernel.source, kernel.name)
                fresh.synchronize()
                prepared = time.perf_counter() - begin
                moved = self._swap_link(fresh, prepared)
                undo.pop_all()
        return moved

    def close(self) -> None:
        """Give all arrays back and leave the server; the arrays of the program are of no use any more."""
        with self.lock:
            self.link.close()
            self.freed.clear()

    def __repr__(self) -> str:
        return f"Device({self.address!r})"

    def __str__(self) -> str:
        return self.address

    # -- for the rest of the package -------------------------------------------------------------------

    def namespace(self, api_version: str | None = None) -> Any:
        """The namespace that the device belongs to, or another where that one is gone."""
        space = self._space() if self._space is not None else None
        if space is None:
            assert self._spaces is not None  # only a namespace makes arrays, and it sets this
            space = self._spaces([self])
        space.check_version(api_version)
        return space

    def join_namespace(self, space: Any) -> None:
        """Be a device of this namespace."""
        self._space, self._spaces = weakref.ref(space), type(space)

    def present_link(self) -> Link:
        """The link, once nothing is being moved any more."""
        with self._gate:
            return self.link

    def open_channel(self, address: str) -> tuple[Channel, ServerHello]:
        """A channel to a server, and its description of the device. Raises `DeviceError`."""
        parsed = parse_address(address)
        channel, reply = connect_to_server(parsed, self.token)
        return channel, parse_welcome(parsed, reply)

    def foreign_error(self, array: Array) -> ValueError:
        """That an array is not on this device."""
        return ValueError(
            f"found an array on {array._device}, expected one on {self}; x.to_device moves arrays"
        )

    def kernel_calls(self) -> list[list[Any]]:
        """The calls that compile all kernels."""
        return [["kernel", k.handle, -1, [k.source, k.name], None, False] for k in list(self._kernels)]

    def note_fork(self) -> None:
        """In a child process: the connection is the parent's alone."""
        # A lock that another thread held at the fork would never be released in the child.
        self.lock = self.link.lock = threading.Lock()
        self._moving, self._gate = threading.Lock(), threading.Lock()
        self.link.note_fork()

    def _open_link(self, address: Address) -> Link:
        """A link to the device there, warm and empty."""
        if address.is_local:
            backend = open_backend(address.place)
            backend.warm_up()
            return LocalLink(self, backend, str(address))
        channel, welcome = self.open_channel(str(address))
        return RemoteLink(self, str(address), channel, welcome, ReplayLog() if self._replay else None)

    def _swap_link(self, fresh: Link, prepared: float) -> Moved:
        """Put everything down on the other side of ``fresh``, and use it from now on."""
        old = self.link
        with self._gate:
            old.retired = True  # who makes calls waits at the gate: the lock favours those that have it
            old.await_quiet()
            with self.lock:
                begin = time.perf_counter()
                # Handles that die during the copy go to the queue: the table of the old link is being read.
                release, self.release = self.release, lambda handle, _: self.freed.append(handle)
                with ExitStack() as undo:
                    undo.callback(self._take_back, old, release)
                    manifest, fill, end = old.take()
                    try:
                        fresh.give(manifest, fill)
                    finally:
                        end()
                    undo.pop_all()
                # What failed at the old place and was not raised yet is raised here, at the next wait.
                fresh.unheard.extend(old.unheard)
                self.link, self.release = fresh, fresh.release
                fresh.note_ready()
                pause = time.perf_counter() - begin
        old.close()
        return Moved(old.address, fresh.address, len(manifest.arrays), manifest.size, pause, prepared)

    def _take_back(self, old: Link, release: Callable[[int, None], Any]) -> None:
        """The work stays where it is."""
        old.retired, self.release = False, release


def open_at(mark: str, address: str) -> Device | None:
    """The device of this process with a mark, else one at an address, if there is one."""
    here = list(_devices)
    same = [device for device in here if device.mark == mark]
    return next(iter([*same, *[device for device in here if device.address == address]]), None)


# -- forks and the end of the program ------------------------------------------------------------------

_devices: weakref.WeakSet[Device] = weakref.WeakSet()
_ERRORS: tuple[type[Exception], ...] = (DovetailError, *CALL_ERRORS)


def _in_child() -> None:
    for device in list(_devices):
        device.note_fork()


def _at_exit() -> None:
    for device in list(_devices):
        try:
            device.link.finish()
        except _ERRORS as error:
            print(f"dovetail: {error}", file=sys.stderr)


os.register_at_fork(after_in_child=_in_child)
atexit.register(_at_exit)
