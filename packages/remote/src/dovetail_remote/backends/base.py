"""What a device is to those who lend it: functions over arrays, and ways to put arrays in and out."""

from __future__ import annotations

import os
import resource
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.records import dataclass
from dovetail_remote.standard import FUNCTIONS, OPERATORS

_HEADROOM = 1 << 30
"""Bytes beside the arrays: stacks of threads, libraries, buffers."""

Kernel = Callable[[tuple[int, ...], tuple[int, ...], Sequence[Any], int], None]
"""A raw kernel: grid, block, arguments, bytes of dynamic shared memory. Raises `TypeError`, `ValueError`."""


@dataclass(frozen=True, slots=True)
class View:
    """How an array lies in a region of memory: bytes from its beginning, strides in bytes."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    readonly: bool = False

    def byte_span(self) -> tuple[int, int]:
        """First byte and the one after the last, in the region; the same where there are no elements."""
        if 0 in self.shape:
            return self.offset, self.offset
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        low = self.offset + sum(r for r in reach if r < 0)
        high = self.offset + sum(r for r in reach if r > 0) + np.dtype(self.dtype).itemsize
        return low, high

    def of(self, region: NDArray[np.uint8]) -> NDArray[Any]:
        """The array, as a view of the region's bytes on the host."""
        made: NDArray[Any] = np.ndarray(
            self.shape, self.dtype, buffer=region, offset=self.offset, strides=self.strides
        )
        if self.readonly:
            made.flags.writeable = False
        return made


class Backend(ABC):
    """One device, through one library. Subclasses give what differs; arrays are the library's own.

    Attributes:
        name: numpy, torch, cupy or opencl.
        library: the library with its version.
        device_name: the model of the device.
        functions: what `standard.FUNCTIONS` and `standard.OPERATORS` name; some may be missing.
        dtypes: the library's data types by NumPy's names.
        default_dtypes: names of the types of numbers given without one (real floating, complex floating,
            integral, indexing).
        errors: what calls raise beside the built-in errors.
        array_type: the class of its arrays.
        scalar_types: classes of NumPy's numbers, which its functions give for arrays of no dimension.
        typed_numbers: whether its functions take NumPy's scalars, which have a type; else numbers of Python.
        computes_here: whether the device is the CPU of the server, whose memory has to be limited.
    """

    name: str
    library: str
    device_name: str
    functions: Mapping[str, Callable[..., Any]]
    dtypes: Mapping[str, Any]
    default_dtypes: Mapping[str, str]
    errors: tuple[type[Exception], ...] = ()
    computes_here = True
    typed_numbers = True
    array_type: type[Any] = object
    scalar_types: frozenset[type] = frozenset()

    def settle(self, value: Any) -> Any:
        """What a function returned, as an array or a list of arrays. Raises `TypeError` for what is none."""
        if isinstance(value, tuple | list):
            return [self.settle(item) for item in value]
        if not isinstance(value, self.array_type):
            raise TypeError(f"the result is {type(value).__name__}, expected an array")
        array: Any = value
        if array.dtype.name not in self.dtypes:
            raise TypeError(f"the result is of type {array.dtype}, which no array of the standard is")
        return array

    def describe_value(self, value: Any) -> tuple[str, tuple[int, ...]]:
        """Data type and shape."""
        return value.dtype.name, value.shape

    @abstractmethod
    def from_host(self, array: NDArray[Any]) -> Any:
        """A C-contiguous array of the host that has no other user, as one of the device."""

    @abstractmethod
    def to_host(self, value: Any) -> NDArray[Any]:
        """A C-contiguous array of the host with the same elements; waits for the device."""

    def adopt_array(self, array: NDArray[Any]) -> Any:
        """An array over the memory of one of the host; None where the device cannot have it."""
        return None

    def in_place(self, value: Any) -> NDArray[Any] | None:
        """An array of the host over the same memory; None where the host cannot have it."""
        return None

    @abstractmethod
    def owner_of(self, value: Any) -> tuple[Hashable, int]:
        """A key of the memory that the array lies in, and its size in bytes."""

    @abstractmethod
    def view(self, value: Any) -> View:
        """How the array lies in the memory of its `owner_of`."""

    @abstractmethod
    def read(self, value: Any, low: int, high: int) -> NDArray[np.uint8]:
        """Bytes ``low`` to ``high`` of the memory that the array lies in; waits for the device."""

    @abstractmethod
    def build(self, region: NDArray[np.uint8], views: Sequence[View]) -> list[Any]:
        """Arrays over a copy of the region, sharing memory where they did."""

    def kernel(self, source: str, name: str) -> Kernel:
        """Compile a raw kernel. Raises `TypeError` where the device runs none."""
        raise TypeError(f"{self.library} runs no raw kernels")

    def enter_thread(self) -> None:  # noqa: B027 - most have nothing to do
        """Called once in each thread that computes."""

    def memory(self) -> int:
        """Bytes that the device has for arrays."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2

    def synchronize(self) -> None:  # noqa: B027 - most have nothing to do
        """Wait until everything is computed."""

    def trim_memory(self) -> None:  # noqa: B027 - most have nothing to do
        """Give unused memory back to the device."""

    def limit(self, size: int) -> None:
        """Never take much more than so many bytes, temporaries included.

        The last line of defence, below the counting of arrays: a call that wants more fails, instead of the
        machine running out of memory.
        """
        if self.computes_here:
            with open("/proc/self/statm", encoding="ascii") as file:
                data = int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
            limit = data + 2 * size + _HEADROOM
            _, most = resource.getrlimit(resource.RLIMIT_DATA)
            if most == resource.RLIM_INFINITY or limit < most:
                resource.setrlimit(resource.RLIMIT_DATA, (limit, most))

    def warm_up(self) -> None:
        """Compute something, so that the next call finds everything loaded."""
        x = self.from_host(np.ones((2, 2), dtype=np.float32))
        self.to_host(self.settle(self.functions["matmul"](x, x)))


def default_dtypes(real: str = "float64", integral: str = "int64") -> dict[str, str]:
    """Names of the types of numbers given without one, as most libraries have them."""
    return {
        "real floating": real,
        "complex floating": {"float32": "complex64", "float64": "complex128"}[real],
        "integral": integral,
        "indexing": integral,
    }


def standard_functions(xp: Any) -> dict[str, Callable[..., Any]]:
    """Functions and operators by name, from a namespace that follows the standard."""
    found: dict[str, Callable[..., Any]] = dict(OPERATORS)
    for name in FUNCTIONS:
        extension, _, short = name.rpartition(".")
        home = getattr(xp, extension, None) if extension else xp
        function = getattr(home, short, None)
        if function is not None:
            found[name] = function
    return found
