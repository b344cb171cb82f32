"""The array of a namespace: a handle, and the device that has the elements."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dovetail_remote.standard import (
    BINARY_OPERATORS,
    INPLACE_OPERATORS,
    REFLECTED_OPERATORS,
    UNARY_OPERATORS,
)

_NUMBERS = (int, float, complex, np.number, np.bool_)
_KNOWN_BOUNDS = frozenset((int, type(None)))
_PLAIN_KEYS = frozenset((int, bool, type(None), type(...)))


class Calls(Protocol):
    """What arrays need of the place where their elements are."""

    def call(self, name: str, arguments: Sequence[Any], named: Mapping[str, Any] = ..., /) -> Array:
        """A call that gives one array."""

    def change(self, name: str, array: Array, /, *arguments: Any) -> None:
        """A call that changes an array and gives none."""

    def put(self, array: NDArray[Any], /) -> Array:
        """A copy of an array of the host; waits until it is sent."""

    def fetch(self, array: Array, /) -> NDArray[Any]:
        """The elements on the host, in a fresh array; waits."""

    def describe_array(self, array: Array, /) -> tuple[str, tuple[int, ...]]:
        """Data type and shape; waits where they are not known."""

    def in_place(self, array: Array, /) -> Any:
        """The elements where they are, to be exported without a copy; None where that cannot be."""


class _NotMadeByPrograms(type):
    def __call__(cls) -> Any:
        raise TypeError("arrays are made by the functions of a namespace, such as asarray and zeros")


class Array(metaclass=_NotMadeByPrograms):
    """An array on a device, as the array API standard has it.

    Made by the functions of a namespace, never directly. What needs elements on the host waits for the device
    (``float(x)``, ``bool(x)``, ``numpy.asarray(x)``, ``repr(x)``, iteration, DLPack); operators and functions
    wait where they can fail for the elements, and where it is not yet known whether they fail for the types
    and shapes. ``copy``, ``deepcopy`` and ``pickle`` copy the elements: what is loaded is on the same device,
    or on one of its address, if the process that loads it has one, else on the first of its environment.
    """

    __slots__ = ("__weakref__", "_device", "_handle")

    # NumPy would otherwise fetch the elements and compute on the host, silently.
    __array_ufunc__ = None

    _device: Any  # an `Owner`; programs see it as the class that it is
    _handle: int

    def __del__(self) -> None:
        self._device.release(self._handle, None)

    # -- what it is ------------------------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type."""
        return np.dtype(self._fetch_description()[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each dimension."""
        return self._fetch_description()[1]

    def _fetch_description(self) -> tuple[str, tuple[int, ...]]:
        link: Calls = self._device.link
        return link.describe_array(self)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def device(self) -> Any:
        """The device that has the elements."""
        return self._device

    @property
    def T(self) -> Array:  # noqa: N802 - the standard's name
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise ValueError(f"x.T needs 2 dimensions, found {self.ndim}; x.mT transposes stacks of matrices")
        return self.mT

    @property
    def mT(self) -> Array:  # noqa: N802 - the standard's name
        """The transpose of the last two dimensions."""
        link: Calls = self._device.link
        return link.call("matrix_transpose", (self,))

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """The namespace of the functions for this array."""
        return self._device.namespace(api_version)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        """The same elements on another device; the array itself if it is there already."""
        if stream is not None:
            raise ValueError("found a stream, expected None: devices order their calls themselves")
        if device is self._device:
            return self
        link: Calls = device.link
        return link.put(self._device.link.fetch(self))

    # -- elements on the host --------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Fetch the elements. NumPy calls this: ``numpy.asarray(x)``."""
        if copy is False:
            raise ValueError("the elements are on a device: they cannot be had without a copy")
        found: NDArray[Any] = self._device.link.fetch(self)
        return found if dtype is None else found.astype(dtype, copy=False)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the elements from the memory of the host: fetched, or with ``copy=False`` as they are.

        Without a copy only those of a device in this process that computes there can be had.
        """
        if stream is not None:
            raise BufferError("found a stream, expected None: the export is in the memory of the host")
        found = self._device.link.in_place(self) if copy is False else self._device.link.fetch(self)
        if found is None:
            raise BufferError("the elements are on a device: they cannot be exported without a copy")
        return found.__dlpack__(max_version=max_version, dl_device=dl_device)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The memory of the host, to which exports are fetched."""
        return (1, 0)  # kDLCPU

    def _fetch_item(self) -> Any:
        found = self._device.link.fetch(self)
        if found.ndim:
            raise TypeError(f"only arrays of no dimension are numbers, found {found.ndim} dimensions")
        return found.item()

    def __bool__(self) -> bool:
        return bool(self._fetch_item())

    def __complex__(self) -> complex:
        return complex(self._fetch_item())

    def __float__(self) -> float:
        return float(self._fetch_item())

    def __int__(self) -> int:
        return int(self._fetch_item())

    def __index__(self) -> int:
        found = self._fetch_item()
        if type(found) is not int:
            raise TypeError(f"only arrays of whole numbers are indices, found {self.dtype}")
        return found

    def __repr__(self) -> str:
        text = np.array2string(self._device.link.fetch(self), separator=", ", prefix="Array(")
        return f"Array({text}, dtype={self.dtype}, device={str(self._device)!r})"

    def __format__(self, spec: str, /) -> str:
        return format(self._fetch_item(), spec) if not self.shape else format(str(self), spec)

    def __copy__(self) -> Array:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: Any, /) -> Array:
        link: Calls = self._device.link
        return link.call("astype", (self, self.dtype))

    def __reduce__(self) -> tuple[Any, ...]:
        # The door of the package, which knows all of it, is open wherever a module of the package is.
        restored = sys.modules["dovetail_remote"].restore_array
        return restored, (self._device.link.fetch(self), self._device.mark, self._device.address)

    # -- parts -----------------------------------------------------------------------------------------

    def __getitem__(self, key: Any, /) -> Array:
        link: Calls = self._device.link
        return link.call("__getitem__", (self, _bound_key(key)))

    def __setitem__(self, key: Any, value: Any, /) -> None:
        self._device.link.change("__setitem__", self, _bound_key(key), value)

    def __len__(self) -> int:
        if not (shape := self.shape):
            raise TypeError("an array of no dimension has no length")
        return shape[0]

    def __iter__(self) -> Iterator[Array]:
        shape = self.shape
        if not shape:
            raise TypeError("an array of no dimension has no parts")
        return (self[k] for k in range(shape[0]))


def _bound_key(key: Any) -> Any:
    """The key with numbers of Python as bounds of its slices, and for NumPy's.

    Bounds may be arrays, whose values the device must deliver before the call is on its way to it.
    """
    kind = type(key)
    if kind is tuple:
        for item in key:
            if type(item) not in _PLAIN_KEYS and not (type(item) is slice and _has_bounds(item)):
                return tuple(map(_bound_key, key))
        return key
    if kind is slice:
        if _has_bounds(key):
            return key
        bounds = (key.start, key.stop, key.step)
        return slice(*[None if bound is None else operator.index(bound) for bound in bounds])
    return int(key) if isinstance(key, np.integer) else key


def _has_bounds(key: slice) -> bool:
    return (
        type(key.stop) in _KNOWN_BOUNDS
        and type(key.start) in _KNOWN_BOUNDS
        and (key.step is None or type(key.step) is int)
    )


def _unary_method(name: str) -> Callable[[Array], Array]:
    def call_unary(self: Array) -> Array:
        link: Calls = self._device.link
        return link.call(name, (self,))

    return call_unary


def _binary_method(name: str) -> Callable[[Array, Any], Any]:
    def call_binary(self: Array, other: Any, /) -> Any:
        if type(other) is Array or isinstance(other, _NUMBERS):
            return self._device.link.call(name, (self, other))
        return NotImplemented

    return call_binary


def _in_place(name: str) -> Callable[[Array, Any], Any]:
    def change_in_place(self: Array, other: Any, /) -> Any:
        if type(other) is Array or isinstance(other, _NUMBERS):
            self._device.link.change(name, self, other)
            return self
        return NotImplemented

    return change_in_place


for _names, _made in (
    (UNARY_OPERATORS, _unary_method),
    (BINARY_OPERATORS, _binary_method),
    (REFLECTED_OPERATORS, _binary_method),
    (INPLACE_OPERATORS, _in_place),
):
    for _name in _names:
        _method: Any = _made(_name)
        _method.__name__, _method.__qualname__ = _name, f"Array.{_name}"
        setattr(Array, _name, _method)

# Equality is element by element, so arrays are no keys.
Array.__hash__ = None  # type: ignore[assignment]
