"""The namespace: every function of the array API standard, over devices that can be anywhere."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.records import dataclass
from dovetail_remote.array import Array
from dovetail_remote.device import Device
from dovetail_remote.link import NOTHING, Link
from dovetail_remote.standard import CONSTANTS, CREATION, DTYPES, FUNCTIONS, VERSION, Function

_KINDS: Mapping[str, str] = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}
_LIKE = frozenset(("empty_like", "full_like", "ones_like", "zeros_like"))
_SEQUENCES = (tuple, list)
_NOT_STANDARD = ValueError("only the versions up to " + VERSION + " of the array API standard are there")


@dataclass(frozen=True, slots=True)
class FloatInfo:
    """What ``finfo`` gives; numbers of Python."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype[Any]


class Namespace:
    """Functions, data types and constants of the standard (2025.12, with ``linalg`` and ``fft``).

    Arrays are made on the first device where no ``device=`` is given; a function computes where its
    arguments are. Data types are NumPy's. Functions that the device's library lacks raise
    `AttributeError`.
    """

    __name__ = "dovetail_remote"
    __array_api_version__ = VERSION

    def __init__(self, devices: Sequence[Device]) -> None:
        self.devices = tuple(devices)
        self.device = self.devices[0]
        self.linalg = types.SimpleNamespace()
        self.fft = types.SimpleNamespace()
        for name, value in CONSTANTS.items():
            setattr(self, name, value)
        for name in DTYPES:
            if name in self.device.link.dtypes:
                setattr(self, name, np.dtype(name))
        for function in FUNCTIONS.values():
            home, _, short = function.name.rpartition(".")
            made = self._program_function(function)
            made.__name__, made.__qualname__ = short, function.name
            made.__doc__ = f"``{function.name}`` of the array API standard."
            made.__signature__ = function.signature
            setattr(getattr(self, home) if home else self, short, made)
        for device in self.devices:
            device.join_namespace(self)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the array API standard, or the device {self.device}, has no {name!r}")

    def __repr__(self) -> str:
        return f"namespace({', '.join(map(str, self.devices))})"

    # -- functions that compute ------------------------------------------------------------------------

    def _program_function(self, function: Function) -> Any:
        """The function as programs call it."""
        name = function.name
        if function.results is not None:
            return self._several_results(name, function.results)
        if name in _COUNTS:
            return self._counted_results(name, _COUNTS[name])
        if name in CREATION:
            return self._creation_function(name)
        if name in _LIKE:
            return self._alike_function(name)

        def call_function(*arguments: Any, **named: Any) -> Array:
            if arguments:
                x = arguments[0]
                if type(x) is list and x:  # concat, stack
                    x = x[0]
                if type(x) is Array:
                    link: Link = x._device.link
                    return link.call(name, arguments, named)
            return self._device_of(name, arguments, named).link.call(name, arguments, named)

        return call_function

    def _several_results(self, name: str, results: type[tuple[Any, ...]]) -> Any:
        count = len(results._fields)  # type: ignore[attr-defined]  # a named tuple

        def call_several(*arguments: Any, **named: Any) -> tuple[Any, ...]:
            device = self._device_of(name, arguments, named)
            return results(*device.link.call_many(name, arguments, named, count))

        return call_several

    def _counted_results(self, name: str, count: Callable[..., int]) -> Any:
        def call_counted(*arguments: Any, **named: Any) -> tuple[Array, ...]:
            if not arguments:
                return ()
            device = self._device_of(name, arguments, named)
            return tuple(device.link.call_many(name, arguments, named, count(*arguments, **named)))

        return call_counted

    def _creation_function(self, name: str) -> Any:
        def call_creation(*arguments: Any, device: Device | None = None, **named: Any) -> Array:
            chosen = self.device if device is None else self._choose_device(device)
            return chosen.link.call(name, arguments, named)

        return call_creation

    def _alike_function(self, name: str) -> Any:
        def call_alike(x: Array, /, *arguments: Any, device: Device | None = None, **named: Any) -> Array:
            if device is None or device is self._device_of(name, (x,), {}):
                return self._device_of(name, (x,), named).link.call(name, (x, *arguments), named)
            dtype = named.pop("dtype", None)
            made = getattr(self, name.removesuffix("_like"))
            found: Array = made(x.shape, *arguments, dtype=dtype or x.dtype, device=device, **named)
            return found

        return call_alike

    def _choose_device(self, device: Device | None) -> Device:
        if device is not None and not isinstance(device, Device):
            raise ValueError(f"found the device {device!r}, expected one of {self.devices}")
        return self.device if device is None else device

    def _device_of(self, name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Device:
        """The device of the first array among the arguments. Raises `TypeError` where there is none."""
        for argument in (*arguments, *named.values()) if named else arguments:
            for value in argument if isinstance(argument, _SEQUENCES) else (argument,):
                if type(value) is Array:
                    found: Device = value._device
                    return found
        raise TypeError(f"{name}() needs an array of a device, found none")

    # -- arrays from elsewhere, and to elsewhere -------------------------------------------------------

    def asarray(
        self, obj: Any, /, *, dtype: Any = None, device: Device | None = None, copy: bool | None = None
    ) -> Array:
        """An array of numbers, nested sequences, or whatever exports its memory (NumPy arrays, DLPack).

        Raises:
            ValueError: ``copy=False`` where a copy has to be made.
        """
        if type(obj) is Array:
            return self._convert_array(obj, dtype, device, copy)
        if copy is False:
            return self._adopt_memory(obj, dtype, self._choose_device(device))
        if isinstance(obj, _SEQUENCES) and _holds_arrays(obj):
            return self._stack_items(obj, dtype, device)
        chosen = self._choose_device(device)
        if _exports_memory(obj):
            found = np.from_dlpack(obj)
        else:  # numbers become what they are to be at once: by way of a float large ones would lose digits
            found = np.asarray(obj, None if dtype is None else np.dtype(dtype))
        if dtype is not None:
            found = found.astype(np.dtype(dtype), copy=False)
        elif not isinstance(
            obj, np.ndarray | np.generic | memoryview | bytes | bytearray
        ) and not _exports_memory(obj):
            found = found.astype(self._default_dtype(chosen, found.dtype), copy=False)
        return chosen.link.put(found)

    def from_dlpack(self, x: Any, /, *, device: Device | None = None, copy: bool | None = None) -> Array:
        """An array from whatever exports its memory by DLPack: a copy, but of arrays of our own.

        Raises:
            BufferError: ``copy=False`` where a copy has to be made.
        """
        if not hasattr(x, "__dlpack__"):
            raise TypeError(f"found {type(x).__name__}, expected what has __dlpack__")
        try:
            return self.asarray(x, device=device, copy=copy)
        except ValueError as error:
            if copy is False:
                raise BufferError(str(error)) from None
            raise

    def _adopt_memory(self, obj: Any, dtype: Any, chosen: Device) -> Array:
        """An array over the memory of ``obj``, where the device computes in this process's memory."""
        found = np.from_dlpack(obj) if _exports_memory(obj) else None
        if isinstance(obj, np.ndarray | memoryview | bytearray):
            found = np.asarray(obj)
        if found is not None and (dtype is None or np.dtype(dtype) == found.dtype):
            adopted = chosen.link.adopt_array(found)
            if adopted is not None:
                return adopted
        raise ValueError("found copy=False: what is not on the device has to be copied there")

    def _stack_items(self, items: Any, dtype: Any, device: Device | None) -> Array:
        """One array of nested sequences with arrays in them, put together where these are."""
        parts = [self.asarray(item, device=device) for item in items]
        wanted = self.result_type(*parts) if dtype is None else np.dtype(dtype)
        home = parts[next(k for k, item in enumerate(items) if _holds_arrays([item]))].device
        made: Array = self.stack([self._convert_array(part, wanted, home, None) for part in parts])
        return made

    def astype(self, x: Array, dtype: Any, /, *, copy: bool = True, device: Device | None = None) -> Array:
        """The elements as another data type."""
        home = x._device if type(x) is Array else self._device_of("astype", (x,), {})
        wanted = np.dtype(dtype) if type(dtype) is str else dtype
        made = home.link.call("astype", (x, wanted), NOTHING if copy else {"copy": False})
        return made if device is None else made.to_device(device)

    def _convert_array(self, x: Array, dtype: Any, device: Device | None, copy: bool | None) -> Array:
        elsewhere = device is not None and device is not x._device
        another = dtype is not None and np.dtype(dtype) != x.dtype
        if copy is False and (elsewhere or another):
            raise ValueError("found copy=False: another device or data type needs a copy")
        if copy or another:
            x = x._device.link.call("astype", (x, x.dtype if dtype is None else np.dtype(dtype)))
        return x.to_device(device) if device is not None else x

    def _default_dtype(self, device: Device, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The type of Python's numbers on a device, for what NumPy takes them for."""
        kind = {"f": "real floating", "c": "complex floating", "i": "integral"}.get(dtype.kind)
        if kind is None:
            return dtype
        default = np.dtype(device.link.default_dtypes[kind])
        return dtype if dtype.kind == "i" and not np.can_cast(dtype, default, "safe") else default

    # -- data types; computed here ---------------------------------------------------------------------

    def broadcast_shapes(self, *shapes: tuple[int, ...]) -> tuple[int, ...]:
        """The shape to which all of these can be broadcast. Raises `ValueError`."""
        return tuple(np.broadcast_shapes(*shapes))

    def can_cast(self, from_: Any, to: Any, /) -> bool:
        """Whether a data type (or an array's) can become another by the standard's promotion."""
        source, target = np.dtype(getattr(from_, "dtype", from_)), np.dtype(to)
        return bool(np.can_cast(source, target))

    def finfo(self, type: Any, /) -> FloatInfo:  # noqa: A002 - the standard's name
        """Limits of a floating-point type (of the real part, for a complex one)."""
        dtype = np.dtype(getattr(type, "dtype", type))
        info = np.finfo(dtype)
        numbers = (info.eps, info.max, info.min, info.smallest_normal)
        eps, largest, least, normal = (float(number) for number in numbers)
        return FloatInfo(int(info.bits), eps, largest, least, normal, info.dtype)

    def iinfo(self, type: Any, /) -> np.iinfo[Any]:  # noqa: A002 - the standard's name
        """Limits of an integer type: numbers of Python."""
        return np.iinfo(np.dtype(getattr(type, "dtype", type)))

    def isdtype(self, dtype: Any, kind: Any) -> bool:
        """Whether a data type is of a kind: a data type, a name of the standard, or several of them."""
        if isinstance(kind, tuple):
            return any(self.isdtype(dtype, one) for one in kind)
        if isinstance(kind, str):
            if kind not in _KINDS:
                raise ValueError(f"found the kind {kind!r}, expected one of {', '.join(_KINDS)}")
            return np.dtype(dtype).kind in _KINDS[kind]
        return bool(np.dtype(dtype) == np.dtype(kind))

    def result_type(self, *arrays_and_dtypes: Any) -> np.dtype[Any]:
        """The type that results from arrays, data types and numbers of Python."""
        if not any(hasattr(one, "dtype") or isinstance(one, np.dtype) for one in arrays_and_dtypes):
            raise ValueError("found no array and no data type")
        return np.result_type(*[getattr(one, "dtype", one) for one in arrays_and_dtypes])

    # -- inspection ------------------------------------------------------------------------------------

    def __array_namespace_info__(self) -> Info:
        return Info(self)

    def check_version(self, api_version: str | None) -> None:
        """Raise `ValueError` for a version of the standard that is not there."""
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12", VERSION):
            raise _NOT_STANDARD


class Info:
    """What ``__array_namespace_info__`` gives."""

    def __init__(self, space: Namespace) -> None:
        self._space = space

    def capabilities(self) -> dict[str, Any]:
        """Optional parts of the standard."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """Where arrays are made."""
        return self._space.device

    def default_dtypes(self, *, device: Device | None = None) -> dict[str, np.dtype[Any]]:
        """The types of numbers given without one."""
        defaults = self._space._choose_device(device).link.default_dtypes
        return {kind: np.dtype(name) for kind, name in defaults.items()}

    def devices(self) -> tuple[Device, ...]:
        """All devices."""
        return self._space.devices

    def dtypes(self, *, device: Device | None = None, kind: Any = None) -> dict[str, np.dtype[Any]]:
        """The data types of a device, those of a kind if one is given."""
        there = self._space._choose_device(device).link.dtypes
        found = {name: np.dtype(name) for name in DTYPES if name in there}
        return {n: d for n, d in found.items() if kind is None or self._space.isdtype(d, kind)}


def _exports_memory(value: Any) -> bool:
    return hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic)


def _holds_arrays(items: Any) -> bool:
    """Whether there is one of our arrays somewhere in nested sequences."""
    return any(
        type(item) is Array or (isinstance(item, _SEQUENCES) and _holds_arrays(item)) for item in items
    )


def _count_unstacked(x: Array, /, *, axis: int = 0) -> int:
    return x.shape[axis]


def _count_nonzero_results(x: Array, /) -> int:
    if not x.ndim:
        raise ValueError("nonzero() needs an array of at least one dimension, found none")
    return x.ndim


#: How many arrays a function gives, where that depends on its arguments.
_COUNTS: Mapping[str, Callable[..., int]] = {
    "broadcast_arrays": lambda *arrays: len(arrays),
    "meshgrid": lambda *arrays, indexing="xy": len(arrays),
    "nonzero": _count_nonzero_results,
    "unstack": _count_unstacked,
}
