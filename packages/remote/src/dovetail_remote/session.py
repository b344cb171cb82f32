"""The arrays of one client on a device: its calls are carried out here, and its memory is counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from dovetail.errors import DeviceError
from dovetail.records import dataclass
from dovetail_remote.backends.base import Backend, Kernel
from dovetail_remote.encoding import decode_value
from dovetail_remote.failures import CALL_ERRORS, FailedError, Failure
from dovetail_remote.limits import ESTIMATES, Estimate
from dovetail_remote.snapshot import Fill, Manifest, load_snapshot
from dovetail_remote.standard import FUNCTIONS, OPERATORS, UNARY_OPERATORS
from dovetail_remote.wire import ProtocolError

_Known = tuple[Callable[..., Any], int, frozenset[str], Estimate | None]
"""A function, how many arguments it takes by position, their names, and the size of its result."""

MOST_ARRAYS = 1 << 18
"""Arrays that a client may hold."""
_CLEARED = {"empty": "zeros", "empty_like": "zeros_like"}
"""Functions that would show what others, who have left, had in that memory; and what is called instead."""
_MOST_FAILURES = 64
_MOST_TOLD = 4096
_MOST_KERNELS = 1024
_MOST_HANDLE = 1 << 62


@dataclass(slots=True)
class _Memory:
    """Memory that one or more arrays lie in."""

    size: int
    arrays: int


class Session:
    """Arrays by handle, which the client chooses, and the failures that it has not received.

    Args:
        backend: the device.
        quota: bytes that the arrays may take, counted by the memory that they lie in.
        most: arrays that there may be.
        total: what all clients of the device use, and the device's memory; default: this is the only client.
    """

    def __init__(
        self,
        backend: Backend,
        quota: int,
        most: int = MOST_ARRAYS,
        total: tuple[Callable[[], int], int] | None = None,
    ) -> None:
        self.backend = backend
        self.quota = quota
        self.most = most
        self._total = total
        self.used = 0
        self.values: dict[int, Any] = {}
        self.failed: dict[int, Failure] = {}
        self.unheard: deque[Failure] = deque()
        self.described: list[tuple[int, str, tuple[int, ...]]] = []
        self._memory: dict[Hashable, _Memory] = {}
        self._kernels: dict[int, Kernel] = {}
        self._errors: tuple[type[Exception], ...] = (*CALL_ERRORS, DeviceError, *backend.errors)
        functions = backend.functions
        self._functions: dict[str, _Known] = {
            name: (functions[_CLEARED.get(name, name)], *_function_arguments(name), ESTIMATES.get(name))
            for name in functions
        }

    # -- calls -----------------------------------------------------------------------------------------

    def run(self, calls: Any) -> None:
        """Carry out calls ``[NAME, OUT, SITE, ARGUMENTS, KEYWORDS or null, TELL]``; failures are kept.

        OUT is the handle of the result, a list of handles, or null. A call that is a list of whole numbers
        gives arrays back. With TELL the type and shape of the result are kept for the client's next
        question. Raises `ProtocolError`.
        """
        if type(calls) is not list:
            raise ProtocolError("calls that are no list")
        for call in calls:
            try:
                if type(call[0]) is int:
                    # Arrays that the client no longer has; no failure can come of it.
                    for handle in call:
                        self.drop_array(handle)
                    continue
                name, out, site, arguments, keywords, described = call
                if type(arguments) is not list or type(site) is not int:
                    raise ProtocolError("a call without arguments or site")
            except (TypeError, ValueError, LookupError):
                raise ProtocolError("a call that is none") from None
            try:
                self._carry_out(name, out, arguments, keywords)
            # The call was sent before its argument's failure was known: it fails for the same reason.
            except FailedError as failed:  # an argument is the result of a call that failed
                self._poison_result(out, failed.failure)
            except self._errors as error:
                self.keep_failure(out, Failure.of(error, str(name), site))
            else:
                if described and type(out) is int and len(self.described) < _MOST_TOLD:
                    self.described.append((out, *self.backend.describe_value(self.values[out])))

    def _carry_out(self, name: Any, out: Any, arguments: list[Any], keywords: Any) -> None:
        found = self._functions.get(name) if type(name) is str else None
        if found is None:
            self._run_kernel_call(name, out, arguments)
            return
        function, most, known, estimate = found
        values, dtypes, typed = self.values, self.backend.dtypes, self.backend.typed_numbers
        try:
            given = [
                values[a] if type(a) is int else decode_value(a, values, dtypes, typed) for a in arguments
            ]
            named = {}
            if keywords:
                if type(keywords) is not dict:
                    raise ProtocolError("keywords that are no object")
                if not known.issuperset(keywords):
                    unknown = next(key for key in keywords if key not in known)
                    raise TypeError(f"{name}() has no argument {unknown!r}")
                named = {key: decode_value(value, values, dtypes, typed) for key, value in keywords.items()}
        except KeyError as error:
            raise self._missing_error(error) from None
        if len(given) > most:
            raise TypeError(f"{name}() takes {most} arguments, found {len(given)}")
        if estimate is not None:
            # Estimated before it runs: a library that is out of memory may take the whole process with it.
            wanted = estimate(given, named)
            if wanted > self.quota - self.used:
                raise self._beyond_quota(wanted)
        result = function(*given, **named)
        if type(out) is int:
            self.store(out, self.backend.settle(result))
        elif out is not None:
            results = self.backend.settle(result)
            # Strict: handles without arrays would otherwise stay in use at the client for ever.
            if type(out) is not list or not isinstance(results, list | tuple) or len(out) != len(results):
                raise TypeError(f"{name}() gave another number of arrays than the call expects")
            for handle, value in zip(out, results, strict=True):
                self.store(handle, value)

    def _run_kernel_call(self, name: Any, out: Any, arguments: list[Any]) -> None:
        """Kernels: compiled under a handle, and launched."""
        if type(name) is not str:
            raise ProtocolError("a call without a name")
        if name == "kernel" and len(arguments) == 2:
            source, entry = arguments
            if not isinstance(source, str) or not isinstance(entry, str):
                raise ProtocolError("a kernel without source or name")
            handle = _check_handle(out)
            if len(self._kernels) >= _MOST_KERNELS:
                raise MemoryError(f"this client holds {_MOST_KERNELS} kernels, the most that it may")
            self._kernels[handle] = self.backend.kernel(source, entry)
        elif name == "launch" and len(arguments) == 5:
            number, *rest = arguments
            try:
                grid, block, shared, given = [decode_value(a, self.values, self.backend.dtypes) for a in rest]
                kernel = self._kernels[number]
            except KeyError as error:
                raise self._missing_error(error) from None
            kernel(_launch_extent(grid), _launch_extent(block), given, shared)
        elif name in FUNCTIONS or name in OPERATORS:
            raise AttributeError(f"{self.backend.library} has no {name}")
        else:
            raise ProtocolError(f"a call of {str(name)[:80]!r}")

    def _missing_error(self, error: KeyError) -> Exception:
        handle = error.args[0]
        if handle in self.failed:
            return FailedError(self.failed[handle])
        return DeviceError(f"found no array {handle} of this client")

    def keep_failure(self, out: Any, failure: Failure) -> None:
        """Keep a failure until the client receives it, and in place of what the call should have given."""
        if len(self.unheard) < _MOST_FAILURES:
            self.unheard.append(failure)
        self._poison_result(out, failure)

    def _poison_result(self, out: Any, failure: Failure) -> None:
        """Whatever needs a result that is not there fails for the same reason."""
        for handle in out if type(out) is list else [out]:
            # What was there already, the target of an operation in place, stays as it was.
            if type(handle) is int and handle not in self.values and len(self.failed) < self.most:
                self.failed[handle] = failure

    # -- arrays ----------------------------------------------------------------------------------------

    def store(self, handle: Any, value: Any) -> None:
        """Keep an array under a handle. Raises `MemoryError` beyond the quota."""
        known = self.values.get(_check_handle(handle))
        if known is value:
            return  # done in place
        # By the memory's owner: views share it, and a view alone keeps the whole of it.
        key, size = self.backend.owner_of(value)
        memory = self._memory.get(key)
        refused = self.room(size if memory is None else 0)
        if refused is not None:
            raise refused
        if memory is None:
            self._memory[key] = memory = _Memory(size, 0)
            self.used += size
        memory.arrays += 1
        # Dropped only after the new one is stored, so a refusal leaves the old array as it was.
        if known is not None:
            self.drop_array(handle)
        self.values[handle] = value

    def drop_array(self, handle: Any) -> None:
        """Give an array back; nothing if it is not there."""
        value = self.values.pop(handle, None)
        if value is None:
            self.failed.pop(handle, None)
            self._kernels.pop(handle, None)
            return
        key, _ = self.backend.owner_of(value)
        memory = self._memory[key]
        memory.arrays -= 1
        if not memory.arrays:
            self.used -= memory.size
            del self._memory[key]

    def room(self, size: int) -> MemoryError | None:
        """Why an array of so many bytes may not be put here, if it may not."""
        if len(self.values) >= self.most:
            return MemoryError(f"this client holds {self.most} arrays, the most that it may")
        if size and self.used + size > self.quota:
            return self._beyond_quota(size)
        # Beside the own quota: quotas may add up to more than the device has.
        if size and self._total is not None and self._total[0]() + size > self._total[1]:
            return MemoryError(f"{size} bytes are needed, and others use the rest of the device's memory")
        return None

    def _beyond_quota(self, size: int) -> MemoryError:
        return MemoryError(
            f"{size} bytes are needed, and of the {self.quota} bytes of this client {self.used} are in use"
        )

    def get(self, handle: Any) -> Any:
        """An array. Raises what made it fail as `FailedError`, or that it is not there."""
        try:
            return self.values[handle]
        except (KeyError, TypeError):
            pass
        failure = self.failed.get(handle) if type(handle) is int else None
        raise FailedError(failure or Failure("DeviceError", "found no such array of this client", "", -1))

    def told_so_far(self) -> list[tuple[int, str, tuple[int, ...]]]:
        """Types and shapes that the client wants; each is given once."""
        reported, self.described = self.described, []
        return reported

    # -- moving ----------------------------------------------------------------------------------------

    def load(self, manifest: Manifest, fill: Fill) -> None:
        """Take over a snapshot. Raises `MemoryError` or `TypeError`, nothing loaded."""
        if len(manifest.arrays) + len(self.values) > self.most:
            raise MemoryError(f"this client may hold {self.most} arrays, found {len(manifest.arrays)}")
        if self.used + manifest.size > self.quota:
            raise self._beyond_quota(manifest.size)
        for handle, value in load_snapshot(self.backend, manifest, fill).items():
            self.store(handle, value)
        self.failed.update(manifest.failures)

    def close(self) -> None:
        """Give everything back."""
        for container in (
            self.values,
            self.failed,
            self._memory,
            self._kernels,
            self.unheard,
            self.described,
        ):
            container.clear()
        self.used = 0
        self.backend.trim_memory()


def _check_handle(handle: Any) -> int:
    if type(handle) is not int or not 0 <= handle < _MOST_HANDLE:
        raise ProtocolError(f"{str(handle)[:80]!r} for a handle")
    return handle


def _launch_extent(sizes: Any) -> tuple[int, ...]:
    """Of a grid or a block. Raises `ValueError`."""
    if type(sizes) is not tuple or not 1 <= len(sizes) <= 3:
        raise ValueError(f"found a grid or block {sizes!r}, expected one to three whole numbers")
    if not all(type(size) is int and 0 < size < 1 << 31 for size in sizes):
        raise ValueError(f"found a grid or block {sizes!r}, expected whole numbers above 0")
    return sizes


def _function_arguments(name: str) -> tuple[int, frozenset[str]]:
    """How many arguments a function takes by position, and the names of the others."""
    if name in FUNCTIONS:
        return FUNCTIONS[name].most_positional, FUNCTIONS[name].keyword_names
    if name == "__setitem__":
        return 3, frozenset()
    return (1 if name in UNARY_OPERATORS else 2), frozenset()
