"""The array of a namespace: a handle, and the device that has the elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.remote.standard import (
    BINARY_OPERATORS,
    INPLACE_OPERATORS,
    REFLECTED_OPERATORS,
    UNARY_OPERATORS,
)

if TYPE_CHECKING:
    from dovetail.remote.device import Device
    from dovetail.remote.space import Namespace

__all__ = ["Array"]

_NUMBERS = (int, float, complex)


class Array:
    """An array on a device, as the array API standard has it.

    Made by the functions of a namespace, never directly. Operators and functions do not wait for the device;
    what needs elements on the host does (``float(x)``, ``bool(x)``, ``numpy.asarray(x)``, ``repr(x)``,
    iteration, DLPack), and raises what went wrong in the calls until then. ``dtype`` and ``shape`` wait the
    first time that a call of this kind is made.
    """

    __slots__ = ("__weakref__", "_device", "_handle")

    # NumPy would otherwise fetch the elements and compute on the host, without saying so.
    __array_ufunc__ = None

    _device: Device
    _handle: int

    def __new__(cls) -> Array:  # noqa: D102 - never
        raise TypeError("arrays are made by the functions of a namespace, such as asarray and zeros")

    def __del__(self) -> None:
        self._device.release(self._handle, None)

    # -- what it is ------------------------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type."""
        return np.dtype(self._device.link.describe(self)[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each dimension."""
        return self._device.link.describe(self)[1]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def device(self) -> Device:
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
        return self._device.link.call("matrix_transpose", (self,))

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Namespace:
        """The namespace of the functions for this array."""
        return self._device.namespace(api_version)

    def to_device(self, device: Device, /, *, stream: Any = None) -> Array:
        """The same elements on another device; the array itself if it is there already."""
        if stream is not None:
            raise ValueError("found a stream, expected None: devices order their calls themselves")
        if device is self._device:
            return self
        return device.link.put(self._device.link.fetch(self))

    # -- elements on the host --------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Fetch the elements. NumPy calls this: ``numpy.asarray(x)``."""
        if copy is False:
            raise ValueError("the elements are on a device: they cannot be had without a copy")
        found = self._device.link.fetch(self)
        return found if dtype is None else found.astype(dtype, copy=False)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Fetch the elements, and export them from the memory of the host."""
        if copy is False:
            raise BufferError("the elements are on a device: they cannot be exported without a copy")
        if stream is not None:
            raise BufferError("found a stream, expected None: the export is in the memory of the host")
        found = self._device.link.fetch(self)
        return found.__dlpack__(max_version=max_version, dl_device=dl_device)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The memory of the host, to which exports are fetched."""
        return (1, 0)  # kDLCPU

    def _item(self) -> Any:
        found = self._device.link.fetch(self)
        if found.ndim:
            raise TypeError(f"only arrays of no dimension are numbers, found {found.ndim} dimensions")
        return found.item()

    def __bool__(self) -> bool:
        return bool(self._item())

    def __complex__(self) -> complex:
        return complex(self._item())

    def __float__(self) -> float:
        return float(self._item())

    def __int__(self) -> int:
        return int(self._item())

    def __index__(self) -> int:
        found = self._item()
        if type(found) is not int:
            raise TypeError(f"only arrays of whole numbers are indices, found {self.dtype}")
        return found

    def __repr__(self) -> str:
        text = np.array2string(self._device.link.fetch(self), separator=", ", prefix="Array(")
        return f"Array({text}, dtype={self.dtype}, device={str(self._device)!r})"

    # -- parts -----------------------------------------------------------------------------------------

    def __getitem__(self, key: Any, /) -> Array:
        return self._device.link.call("__getitem__", (self, key))

    def __setitem__(self, key: Any, value: Any, /) -> None:
        self._device.link.change("__setitem__", self, key, value)

    def __iter__(self) -> Iterator[Array]:
        shape = self.shape
        if not shape:
            raise TypeError("an array of no dimension has no parts")
        return (self[k] for k in range(shape[0]))


def _unary(name: str) -> Callable[[Array], Array]:
    def method(self: Array) -> Array:
        return self._device.link.call(name, (self,))

    return method


def _binary(name: str) -> Callable[[Array, Any], Any]:
    def method(self: Array, other: Any, /) -> Any:
        if type(other) is Array or isinstance(other, _NUMBERS):
            return self._device.link.call(name, (self, other))
        return NotImplemented

    return method


def _in_place(name: str) -> Callable[[Array, Any], Any]:
    def method(self: Array, other: Any, /) -> Any:
        if type(other) is Array or isinstance(other, _NUMBERS):
            self._device.link.change(name, self, other)
            return self
        return NotImplemented

    return method


for _names, _made in (
    (UNARY_OPERATORS, _unary),
    (BINARY_OPERATORS, _binary),
    (REFLECTED_OPERATORS, _binary),
    (INPLACE_OPERATORS, _in_place),
):
    for _name in _names:
        _method: Any = _made(_name)
        _method.__name__, _method.__qualname__ = _name, f"Array.{_name}"
        setattr(Array, _name, _method)

# Equality is element by element, so arrays are no keys.
Array.__hash__ = None  # type: ignore[assignment]
