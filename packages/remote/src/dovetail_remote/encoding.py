"""Arguments of calls as JSON values, and back.

=====================  ==========================================
array or kernel        its handle, a whole number
``True``, ``None``     ``true``, ``null``
text                   text
finite float           a number with a point
everything else        a list that begins with a letter:
whole number           ``["i", 5]``, text where beyond 64 bits
other float            ``["f", "nan"]``, ``"inf"``, ``"-inf"``
complex number         ``["c", RE, IM]``
tuple, list            ``["t", …]``, ``["l", …]``
slice                  ``["s", START, STOP, STEP]``
``...``                ``["e"]``
dtype                  ``["d", "float32"]``
NumPy scalar           ``["n", "int32", BYTES]``
local memory           ``["m", BYTES]`` (kernels only)
=====================  ==========================================

Bytes are in hexadecimal. Handles are the common case, so they are the short form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dovetail.records import dataclass
from dovetail_remote.standard import DTYPES
from dovetail_remote.wire import ProtocolError

_DEEPEST = 8
_SMALL = 1 << 62
_DTYPES = {name: np.dtype(name) for name in DTYPES}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}  # a dtype's own `name` takes microseconds


@dataclass(frozen=True, slots=True)
class LocalMemory:
    """A kernel's argument of so many bytes that the work-items of a group share (OpenCL's ``__local``)."""

    size: int


class UnsupportedDtypeError(TypeError):
    """A data type of the standard that a device does not have."""


def known_dtype(value: Any) -> np.dtype[Any]:
    """The data type, if the standard has it; also for Python's and NumPy's types. Raises `TypeError`."""
    return _DTYPES[_dtype_name(value)]


def _dtype_name(value: Any) -> str:
    if isinstance(value, type) and issubclass(value, bool | int | float | complex | np.generic):
        value = np.dtype(value)
    name = _NAMES.get(value)
    if name is None:
        raise TypeError(f"found {value}, expected a data type of the array API standard")
    return name


def encode_value(value: Any, handle: Callable[[Any], int | None]) -> Any:
    """``value`` as JSON; ``handle`` gives the number of an array, None of anything else.

    Raises `TypeError` for what a call cannot take.
    """
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is int:
        # As text beyond 62 bits: the JSON library takes no number of more than 64.
        return ["i", value if -_SMALL < value < _SMALL else str(value)]
    if kind is float:
        # JSON has no infinities and no NaN.
        return value if math.isfinite(value) else ["f", repr(value)]
    if kind is str:
        return value
    number = handle(value)
    if number is not None:
        return number
    if kind is tuple or kind is list:
        return ["t" if kind is tuple else "l", *[encode_value(item, handle) for item in value]]
    if kind is slice:
        return ["s", *[_encode_bound(bound) for bound in (value.start, value.stop, value.step)]]
    if value is ...:
        return ["e"]
    if isinstance(value, np.dtype | type):
        return ["d", _dtype_name(value)]
    if isinstance(value, np.generic):
        return ["n", _dtype_name(value.dtype), value.tobytes().hex()]
    if isinstance(value, LocalMemory):
        return ["m", value.size]
    if kind is complex:
        return ["c", encode_value(value.real, handle), encode_value(value.imag, handle)]
    return encode_value(plain_number(value), handle)


def plain_number(value: Any) -> bool | int | float | complex:
    """A number of Python's own types, from a subclass of them. Raises `TypeError`."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, complex):
        return complex(value)
    raise TypeError(
        f"found {type(value).__name__}, expected an array of this device, a number of Python or NumPy, "
        "or a dtype"
    )


def _encode_bound(value: Any) -> Any:
    if value is None:
        return None
    index = value.__index__()
    return index if -_SMALL < index < _SMALL else str(index)


def decode_value(
    value: Any, arrays: Mapping[int, Any], dtypes: Mapping[str, Any], typed: bool = True, depth: int = 0
) -> Any:
    """What ``value`` means, arrays looked up in ``arrays``, dtypes in ``dtypes``.

    NumPy's scalars are ``typed``, or numbers of Python for libraries that know no others.

    Raises `ProtocolError` for what `encode_value` would not have made, `KeyError` for a handle that is not
    there,
    `UnsupportedDtypeError`.
    """
    kind = type(value)
    if kind is int:
        return arrays[value]
    if kind is not list:
        if kind is dict:
            raise ProtocolError("an argument that is a JSON object")
        return value
    # A bound on depth: the text comes from another process, and recursion would end ours.
    if not value or depth > _DEEPEST:
        raise ProtocolError("an argument that is empty or nested too deeply")
    tag, *rest = value
    if tag in ("t", "l"):
        items = [decode_value(item, arrays, dtypes, typed, depth + 1) for item in rest]
        return tuple(items) if tag == "t" else items
    if tag == "d" and rest[:1] != [] and rest[0] in _DTYPES and rest[0] not in dtypes:
        raise UnsupportedDtypeError(f"the device has no {rest[0]}")
    try:
        found = _DECODE[tag](dtypes, *rest)
        return found if typed or tag != "n" else found.item()
    except (TypeError, ValueError, KeyError) as error:
        raise ProtocolError(f"an argument {str(value)[:80]!r}") from error


def _decode_number(found: Any) -> float:
    if isinstance(found, list):
        tag, text = found
        if tag != "f" or text not in ("nan", "inf", "-inf"):
            raise ValueError(text)
        return float(text)
    if type(found) is not float:
        raise TypeError(found)
    return found


def _decode_whole_number(found: Any) -> int:
    if isinstance(found, str) and len(found) > 100:
        raise ValueError(found)
    return int(found)


def _decode_scalar(dtypes: Mapping[str, Any], name: str, data: str) -> np.generic:
    made = np.frombuffer(bytes.fromhex(data), dtype=_DTYPES[name])
    if made.size != 1:
        raise ValueError(data)
    return made[0]  # type: ignore[no-any-return]


def _decode_local_memory(dtypes: Mapping[str, Any], size: int) -> LocalMemory:
    if type(size) is not int or not 0 < size < 1 << 31:
        raise ValueError(size)
    return LocalMemory(size)


_DECODE: dict[str, Callable[..., Any]] = {
    "i": lambda dtypes, value: _decode_whole_number(value),
    "f": lambda dtypes, value: _decode_number(["f", value]),
    "c": lambda dtypes, real, imag: complex(_decode_number(real), _decode_number(imag)),
    "s": lambda dtypes, *bounds: slice(*[None if b is None else _decode_whole_number(b) for b in bounds]),
    "e": lambda dtypes: ...,
    "d": lambda dtypes, name: dtypes[name],
    "n": _decode_scalar,
    "m": _decode_local_memory,
}
