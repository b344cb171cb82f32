"""How much memory a call's result takes, before it is made: where it can be far more than the arguments.

A client whose quota does not allow the result is refused before anything is allocated, so that others on the
same device do not feel it. Results no larger than the largest argument are not estimated; they are counted
when they are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail.remote.standard import BINARY_OPERATORS, FUNCTIONS, REFLECTED_OPERATORS

__all__ = ["ESTIMATES", "Estimate"]

Given = Sequence[Any]
Named = Mapping[str, Any]
Estimate = Callable[[Given, Named], int]
"""Bytes of the result, from positional and named arguments; 0 where it is not known to be large."""


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(getattr(value, "shape", ()))


def _size(value: Any) -> int:
    return math.prod(_shape(value))


def _item(given: Given, named: Named) -> int:
    """Bytes of an element: of the type asked for, else of the largest argument's."""
    wanted = named.get("dtype")
    sizes = [getattr(value, "itemsize", 0) for value in given]
    if wanted is not None:
        sizes = [getattr(wanted, "itemsize", 8)]
    return max((s for s in sizes if isinstance(s, int)), default=0) or 8


def _broadcast(given: Given, named: Named) -> int:
    shapes = {_shape(value) for value in given}
    if len(shapes) < 2:
        return 0
    size = 1
    for lengths in zip(*[reversed((1,) * 64 + shape) for shape in shapes], strict=False):
        size *= max(lengths) if 0 not in lengths else 0
    return size * _item(given, named)


def _new(given: Given, named: Named) -> int:
    shape = given[0] if given else named.get("shape", ())
    return math.prod(shape) * _item((), named) if isinstance(shape, tuple | list) else int(shape) * 8


def _eye(given: Given, named: Named) -> int:
    rows, columns = [*given, None][:2]
    return int(rows) * int(rows if columns is None else columns) * _item((), named)


def _arange(given: Given, named: Named) -> int:
    start, stop, step = [*given, *[named.get(k) for k in ("stop", "step")[len(given) - 1 :]]][:3]
    if stop is None:
        start, stop = 0, start
    step = 1 if step is None else step
    return max(0, math.ceil((stop - start) / step)) * _item((), named) if step else 0


def _linspace(given: Given, named: Named) -> int:
    count = given[2] if len(given) > 2 else named.get("num", 0)
    return int(count) * _item((), named)


def _count(given: Given, named: Named) -> int:
    return int(given[0]) * 8


def _outer(given: Given, named: Named) -> int:
    return math.prod(map(_size, given)) * _item(given, named)


def _matmul(given: Given, named: Named) -> int:
    left, right = map(_shape, given[:2])
    rows = left[-2] if len(left) > 1 else 1
    columns = right[-1] if len(right) > 1 else 1
    batch = max(math.prod(left[:-2]), 1) * max(math.prod(right[:-2]), 1)
    return rows * columns * batch * _item(given, named)


def _tensordot(given: Given, named: Named) -> int:
    left = _shape(given[0])
    axes = named.get("axes", 2)
    summed = (
        math.prod(left[len(left) - axes :]) if isinstance(axes, int) else math.prod(left[a] for a in axes[0])
    )
    return (_size(given[0]) // max(summed, 1)) * (_size(given[1]) // max(summed, 1)) * _item(given, named)


def _repeat(given: Given, named: Named) -> int:
    times = given[1]
    return _size(given[0]) * times * _item(given[:1], named) if isinstance(times, int) else 0


def _tile(given: Given, named: Named) -> int:
    return _size(given[0]) * math.prod(given[1]) * _item(given[:1], named)


def _meshgrid(given: Given, named: Named) -> int:
    return _outer(given, named) * len(given)


def _joined(given: Given, named: Named) -> int:
    return sum(map(_size, given[0])) * _item(given[0], named)


def _taken(given: Given, named: Named) -> int:
    shape = _shape(given[0])
    return _size(given[1]) * math.prod(n for n in shape[1:]) * _item(given[:1], named)


def _indexed(given: Given, named: Named) -> int:
    keys = given[1] if isinstance(given[1], tuple) else (given[1],)
    arrays = [key for key in keys if _shape(key)]
    if not arrays:
        return 0
    return math.prod(map(_size, arrays)) * math.prod(_shape(given[0])[len(arrays) :]) * _item(given[:1], {})


def _square(given: Given, named: Named) -> int:
    """Of factorizations: square matrices of the longer side."""
    shape = _shape(given[0])
    side = max(shape[-2:], default=0)
    return side * side * max(math.prod(shape[:-2]), 1) * _item(given, named)


def _padded(given: Given, named: Named) -> int:
    """Of transforms, which may pad: to ``n`` along an axis, or to ``s`` along several."""
    shape, size = _shape(given[0]), _size(given[0])
    lengths, axes = named.get("s"), named.get("axes")
    if lengths is None:
        lengths, axes = [named.get("n")], [named.get("axis", -1)]
    for n, axis in zip(lengths, range(-len(lengths), 0) if axes is None else axes, strict=False):
        size = size // max(shape[axis], 1) * n if n is not None else size
    return size * 16


#: By name, of functions whose result can be much larger than their arguments.
ESTIMATES: Mapping[str, Estimate] = {
    **{name: _broadcast for name, f in FUNCTIONS.items() if f.elementwise and f.most == 2},
    **dict.fromkeys([*BINARY_OPERATORS, *REFLECTED_OPERATORS, "where", "clip"], _broadcast),
    **dict.fromkeys(("__matmul__", "__rmatmul__", "matmul", "linalg.matmul"), _matmul),
    **dict.fromkeys(("zeros", "ones", "empty", "full"), _new),
    **dict.fromkeys(("fft.fftfreq", "fft.rfftfreq"), _count),
    **dict.fromkeys(("tensordot", "linalg.tensordot"), _tensordot),
    **dict.fromkeys(("concat", "stack"), _joined),
    **dict.fromkeys(("linalg.qr", "linalg.svd", "linalg.pinv"), _square),
    **{name: _padded for name in FUNCTIONS if name.startswith("fft.") and name.endswith(("fft", "fftn"))},
    "arange": _arange,
    "eye": _eye,
    "linspace": _linspace,
    "linalg.outer": _outer,
    "meshgrid": _meshgrid,
    "repeat": _repeat,
    "take": _taken,
    "tile": _tile,
    "__getitem__": _indexed,
}
