"""A device in this process: what a server does, without a server."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail_remote.array import Array
from dovetail_remote.backends.base import Backend, Kernel
from dovetail_remote.encoding import known_dtype, plain_number
from dovetail_remote.failures import Failure
from dovetail_remote.link import NOTHING, Owner, make_array, new_array, next_handle, on_present_link
from dovetail_remote.snapshot import Fill, Manifest, load_snapshot, region_reader, take_snapshot
from dovetail_remote.standard import DTYPES

_asarray = np.asarray  # looked up once, not for each result
_TYPES = (np.dtype, type)
_PLAIN = frozenset((int, float, complex, str, bool, type(None), slice, type(...)))
_DTYPES = frozenset(type(np.dtype(name)) for name in DTYPES)


class LocalLink:
    """The arrays of a device in this process, by handle, as a server has them.

    Calls are carried out at once and raise at once. What was sent ahead to a server, and failed there before
    the work moved here, is raised at the next synchronization, as it would have been.
    """

    def __init__(self, device: Owner, backend: Backend, address: str) -> None:
        self.device = device
        self.lock = device.lock
        self.address = address
        self.retired = False
        self.backend = backend
        self.library, self.device_name = backend.library, backend.device_name
        self.default_dtypes: Mapping[str, str] = backend.default_dtypes
        self.dtypes = frozenset(backend.dtypes)
        self._dtypes: dict[Any, Any] = {np.dtype(name): dtype for name, dtype in backend.dtypes.items()}
        self.values: dict[int, Any] = {}
        self.failed: dict[int, Failure] = {}
        self.unheard: deque[Failure] = deque()
        self.kernels: dict[int, Kernel] = {}
        self._present = False
        self._functions = backend.functions
        self._settle = backend.settle
        # What needs nothing done to it, or little; of other libraries than NumPy nothing does.
        self._settled = np.ndarray if backend.array_type is np.ndarray else None
        self._scalars = backend.scalar_types

    @property
    def release(self) -> Callable[[int, None], Any]:
        """Takes the array out of the table."""
        return self.values.pop

    # -- calls -----------------------------------------------------------------------------------------

    def call(self, name: str, arguments: Sequence[Any], named: Mapping[str, Any] = NOTHING) -> Array:
        """Carry it out. Written out for the common cases: this is all that small calls cost more.

        No lock is taken: threads compute side by side, as with the library itself, and a migration waits
        until no result is missing. It takes half the time, so that a call costs at most a microsecond more
        than the library's own (``benchmarks/test_remote.py``).
        """
        values = self.values
        handle = next_handle()
        try:
            values[handle] = None  # until the result is there
            if not self.retired:
                try:
                    function, count = self._functions[name], len(arguments)
                    if count == 2:
                        x, y = arguments
                        x = values[x._handle] if type(x) is Array else self._resolve_one(x)
                        if type(y) is Array:
                            y = values[y._handle]
                        elif type(y) not in _PLAIN:
                            y = self._resolve_one(y)
                        result = function(x, y, **self._named_arguments(named)) if named else function(x, y)
                    elif count == 1:
                        x = arguments[0]
                        if type(x) is Array:
                            x = values[x._handle]
                        elif type(x) is list:
                            given = []
                            for a in x:  # `_resolve_all`, without the call
                                given.append(values[a._handle] if type(a) is Array else self._resolve_one(a))  # noqa: PERF401
                            x = given
                        else:
                            x = self._resolve_one(x)
                        if not named:
                            result = function(x)
                        elif len(named) == 1 and type(axis := named.get("axis")) is int:
                            result = function(x, axis=axis)  # half of what passing on a mapping takes
                        else:
                            result = function(x, **self._named_arguments(named))
                    elif count == 3 and not named:
                        x, y, z = arguments
                        x = values[x._handle] if type(x) is Array else self._resolve_one(x)
                        y = values[y._handle] if type(y) is Array else self._resolve_one(y)
                        z = values[z._handle] if type(z) is Array else self._resolve_one(z)
                        result = function(x, y, z)
                    else:
                        result = function(*self._resolve_all(arguments), **self._named_arguments(named))
                except KeyError as error:
                    raise self._missing_error(name, arguments, named, error) from None
                kind = type(result)
                if kind is not self._settled:
                    result = _asarray(result) if kind in self._scalars else self._settle(result)
                values[handle] = result
                array = new_array()
                array._device, array._handle = self.device, handle
                return array
            values.pop(handle, None)
        except BaseException:  # Ctrl-C too: a migration would wait for this result for ever
            values.pop(handle, None)
            raise
        return self.device.present_link().call(name, arguments, named)

    @on_present_link
    def call_many(
        self, name: str, arguments: Sequence[Any], named: Mapping[str, Any], count: int
    ) -> list[Array]:
        """Carry it out."""
        try:
            found = self._functions[name](*self._resolve_all(arguments), **self._named_arguments(named))
        except KeyError as error:
            raise self._missing_error(name, arguments, named, error) from None
        results = self._settle(found)
        if len(results) != count:
            raise TypeError(f"{name}() gave {len(results)} arrays, expected {count}")
        return [self._keep_value(result) for result in results]

    def change(self, name: str, array: Array, *arguments: Any) -> None:
        """Carry it out; the array keeps its handle."""
        with self.lock:
            if not self.retired:
                values = self.values
                try:
                    result = self._functions[name](values[array._handle], *self._resolve_all(arguments))
                except KeyError as error:
                    raise self._missing_error(name, (array, *arguments), NOTHING, error) from None
                if result is not None:
                    values[array._handle] = self._settle(result)
                return
        self.device.present_link().change(name, array, *arguments)

    @on_present_link
    def put(self, array: NDArray[Any]) -> Array:
        """A copy of the array."""
        self._drain_dead()
        if array.dtype.name not in self.dtypes:
            raise TypeError(f"{self.library} has no {array.dtype}")
        own = np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)
        return self._keep_value(self.backend.from_host(own))

    @on_present_link
    def adopt_array(self, array: NDArray[Any]) -> Array | None:
        """An array over the same memory, where the library has its own there."""
        if array.dtype.name not in self.dtypes or not array.dtype.isnative:
            return None
        value = self.backend.adopt_array(array)
        return None if value is None else self._keep_value(value)

    @on_present_link
    def in_place(self, array: Array) -> NDArray[Any] | None:
        """The library's own memory, where that is the host's."""
        self._raise_unheard()
        return self.backend.in_place(self._value_of_array(array))

    @on_present_link
    def fetch(self, array: Array) -> NDArray[Any]:
        """A copy of the array."""
        self._raise_unheard()
        return np.array(self.backend.to_host(self._value_of_array(array)), order="C")

    @on_present_link
    def describe_array(self, array: Array) -> tuple[str, tuple[int, ...]]:
        """As the library describes it."""
        self._raise_unheard()
        return self.backend.describe_value(self._value_of_array(array))

    @on_present_link
    def kernel(self, handle: int, source: str, name: str) -> None:
        """Compile it."""
        self._drain_dead()
        self.kernels[handle] = self.backend.kernel(source, name)

    @on_present_link
    def launch(self, handle: int, grid: Any, block: Any, shared: int, arguments: Sequence[Any]) -> None:
        """Launch it."""
        given = [self._value_of_array(a) if type(a) is Array else a for a in arguments]
        self.kernels[handle](grid, block, given, shared)

    @on_present_link
    def synchronize(self) -> None:
        """Wait for the library."""
        self._drain_dead()
        self._raise_unheard()
        self.backend.synchronize()

    def await_quiet(self) -> None:
        """Wait until no result is missing; calls that come now find the link retired."""
        while type(None) in map(type, list(self.values.values())):
            time.sleep(1e-5)

    # -- moving ----------------------------------------------------------------------------------------

    def take(self) -> tuple[Manifest, Fill, Callable[[], None]]:
        """Everything in the table; calls that find the link retired are in it for a moment."""
        self._drain_dead()
        values = {handle: value for handle, value in dict(self.values).items() if value is not None}
        manifest, sources = take_snapshot(self.backend, values, self.failed)
        return manifest, region_reader(self.backend, sources), lambda: None

    def give(self, manifest: Manifest, fill: Fill) -> None:
        """Into the table."""
        self.values.update(load_snapshot(self.backend, manifest, fill))
        self.failed.update(manifest.failures)

    def note_ready(self) -> None:
        """From now on what the device frees is ours."""
        self._present = True

    def finish(self) -> None:
        """Nothing to do: what failed has been raised."""

    def note_fork(self) -> None:
        """The arrays have been copied with the process."""

    def close(self) -> None:
        """Empty the table."""
        self.values.clear()
        self.failed.clear()
        self.kernels.clear()
        self.backend.trim_memory()

    # -- inside ----------------------------------------------------------------------------------------

    def _named_arguments(self, named: Mapping[str, Any]) -> Mapping[str, Any]:
        """Arguments by name as the library takes them; mostly those that were given."""
        for value in named.values():
            if type(value) not in _PLAIN:
                return {key: self._resolve_one(value) for key, value in named.items()}
        return named

    def _resolve_one(self, value: Any) -> Any:
        """An argument as the library takes it. Raises `TypeError`, and `KeyError` for an array elsewhere."""
        kind = type(value)
        if kind is Array:
            return self.values[value._handle]
        if kind in _PLAIN:
            return value
        if kind is tuple:
            for item in value:
                if type(item) not in _PLAIN:
                    return tuple(self._resolve_all(value))
            return value
        if kind in _DTYPES and (dtype := self._dtypes.get(value)) is not None:
            return dtype
        if kind is list:
            return self._resolve_all(value)
        if isinstance(value, _TYPES):
            if (known := known_dtype(value)) not in self._dtypes:
                raise TypeError(f"{self.library} has no {known}")
            return self._dtypes[known]
        if isinstance(value, np.generic):
            known_dtype(value.dtype)
            return value if self.backend.typed_numbers else value.item()
        if isinstance(value, tuple | list):
            return self._resolve_one((tuple if isinstance(value, tuple) else list)(value))
        return plain_number(value)

    def _resolve_all(self, arguments: Sequence[Any]) -> list[Any]:
        values, given = self.values, []
        for a in arguments:
            given.append(values[a._handle] if type(a) is Array else self._resolve_one(a))  # noqa: PERF401 - quicker
        return given

    def _value_of_array(self, array: Array) -> Any:
        try:
            return self.values[array._handle]
        except KeyError as error:
            raise self._missing_error("", (array,), NOTHING, error) from None

    def _missing_error(
        self, name: str, arguments: Sequence[Any], named: Mapping[str, Any], error: KeyError
    ) -> Exception:
        """What a `KeyError` means: an array that failed, one of another device, a function not there."""
        handle = error.args[0] if error.args else None
        if handle in self.failed:
            failure = self.failed[handle]
            return failure.exception(self.device.sites.where(failure.site))
        if name and name not in self._functions:
            return AttributeError(f"{self.library} has no {name}")
        for array in (*arguments, *named.values()):
            if type(array) is Array and array._device is not self.device:
                return self.device.foreign_error(array)
        return error

    def _keep_value(self, value: Any) -> Array:
        handle = next_handle()
        self.values[handle] = value
        return make_array(self.device, handle)

    def _drain_dead(self) -> None:
        """Kernels that died, and arrays that died while work was being moved."""
        freed = self.device.freed
        while freed and self._present:
            handle = freed.popleft()
            self.values.pop(handle, None)
            self.failed.pop(handle, None)
            self.kernels.pop(handle, None)

    def _raise_unheard(self) -> None:
        if self.unheard:
            failure = self.unheard.popleft()
            raise failure.exception(self.device.sites.where(failure.site))
