"""How much memory a call's result takes, before it is made: where it can be far more than the arguments.

A client whose quota does not allow the result is refused before anything is allocated, so that others on the
same device do not feel it. Results no larger than the largest argument are not estimated; they are counted
when they are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dovetail_remote.standard import BINARY_OPERATORS, FUNCTIONS, REFLECTED_OPERATORS

Given = Sequence[Any]
Named = Mapping[str, Any]
Estimate = Callable[[Given, Named], int]
"""Bytes of the result, from positional and named arguments; 0 where it is not known to be large."""


def _shape_of(value: Any) -> tuple[int, ...]:
    return tuple(getattr(value, "shape", ()))


def _size_of(value: Any) -> int:
    return math.prod(_shape_of(value))


def _bytes_of(elements: Estimate, typed_by: int | None = None) -> Estimate:
    """Bytes of a result from its elements: of the requested type, else of the largest argument's type.

    ``typed_by`` is how many of the arguments count for that, where not all do.
    """

    def estimate_bytes(given: Given, named: Named) -> int:
        wanted = named.get("dtype")
        if wanted is not None:
            return elements(given, named) * getattr(wanted, "itemsize", 8)
        values = [v for g in given[:typed_by] for v in (g if isinstance(g, list | tuple) else (g,))]
        sizes = [size for v in values if isinstance(size := getattr(v, "itemsize", 0), int)]
        return elements(given, named) * (max(sizes, default=0) or 8)

    return estimate_bytes


def _broadcast_size(given: Given, named: Named) -> int:
    shapes = {_shape_of(value) for value in given}
    try:
        return math.prod(np.broadcast_shapes(*shapes)) if len(shapes) > 1 else 0
    except ValueError:  # the call itself raises it
        return 0


def _created_size(given: Given, named: Named) -> int:
    shape = given[0] if given else named.get("shape", ())
    return math.prod(shape) if isinstance(shape, tuple | list) else int(shape)


def _eye_size(given: Given, named: Named) -> int:
    rows, columns = [*given, None][:2]
    return int(rows) * int(rows if columns is None else columns)


def _arange_size(given: Given, named: Named) -> int:
    start, stop, step = [*given, *[named.get(k) for k in ("stop", "step")[len(given) - 1 :]]][:3]
    if stop is None:
        start, stop = 0, start
    step = 1 if step is None else step
    return max(0, math.ceil((stop - start) / step)) if step else 0


def _outer_size(given: Given, named: Named) -> int:
    return math.prod(map(_size_of, given))


def _matmul_size(given: Given, named: Named) -> int:
    left, right = map(_shape_of, given[:2])
    rows = left[-2] if len(left) > 1 else 1
    columns = right[-1] if len(right) > 1 else 1
    return rows * columns * max(math.prod(left[:-2]), 1) * max(math.prod(right[:-2]), 1)


def _tensordot_size(given: Given, named: Named) -> int:
    left = _shape_of(given[0])
    axes = named.get("axes", 2)
    over = left[len(left) - axes :] if isinstance(axes, int) else [left[a] for a in axes[0]]
    summed = max(math.prod(over), 1)
    return (_size_of(given[0]) // summed) * (_size_of(given[1]) // summed)


def _indexed_size(given: Given, named: Named) -> int:
    keys = given[1] if isinstance(given[1], tuple) else (given[1],)
    arrays = [key for key in keys if _shape_of(key)]
    rest = _shape_of(given[0])[len(arrays) :]
    return math.prod(map(_size_of, arrays)) * math.prod(rest) if arrays else 0


def _square_size(given: Given, named: Named) -> int:
    """Of factorizations: square matrices of the longer side."""
    shape = _shape_of(given[0])
    return max(shape[-2:], default=0) ** 2 * max(math.prod(shape[:-2]), 1)


def _padded_size(given: Given, named: Named) -> int:
    """Of transforms, which may pad: to ``n`` along an axis, or to ``s`` along several. Of complex numbers."""
    shape, size = _shape_of(given[0]), _size_of(given[0])
    lengths, axes = named.get("s"), named.get("axes")
    if lengths is None:
        lengths, axes = [named.get("n")], [named.get("axis", -1)]
    for n, axis in zip(lengths, range(-len(lengths), 0) if axes is None else axes, strict=False):
        size = size // max(shape[axis], 1) * n if n is not None else size
    return size * 16


_BY_ALL: dict[str, Estimate] = {
    **{name: _broadcast_size for name, f in FUNCTIONS.items() if f.is_elementwise and f.most_positional == 2},
    **dict.fromkeys([*BINARY_OPERATORS, *REFLECTED_OPERATORS, "where", "clip"], _broadcast_size),
    **dict.fromkeys(("__matmul__", "__rmatmul__", "matmul", "linalg.matmul"), _matmul_size),
    **dict.fromkeys(("zeros", "ones", "empty", "full"), _created_size),
    **dict.fromkeys(("fft.fftfreq", "fft.rfftfreq"), lambda given, named: int(given[0])),
    **dict.fromkeys(("tensordot", "linalg.tensordot"), _tensordot_size),
    **dict.fromkeys(("concat", "stack"), lambda given, named: sum(map(_size_of, given[0]))),
    **dict.fromkeys(("linalg.qr", "linalg.svd", "linalg.pinv"), _square_size),
    "arange": _arange_size,
    "eye": _eye_size,
    "linspace": lambda given, named: int(given[2] if len(given) > 2 else named.get("num", 0)),
    "linalg.outer": _outer_size,
    "meshgrid": lambda given, named: _outer_size(given, named) * len(given),
}
_BY_FIRST: dict[str, Estimate] = {
    "repeat": lambda given, named: _size_of(given[0]) * given[1] if isinstance(given[1], int) else 0,
    "take": lambda given, named: _size_of(given[1]) * math.prod(_shape_of(given[0])[1:]),
    "tile": lambda given, named: _size_of(given[0]) * math.prod(given[1]),
    "__getitem__": _indexed_size,
}

#: By name, of functions whose result can be much larger than their arguments.
ESTIMATES: Mapping[str, Estimate] = {
    **{name: _bytes_of(elements) for name, elements in _BY_ALL.items()},
    **{name: _bytes_of(elements, 1) for name, elements in _BY_FIRST.items()},
    **{
        name: _padded_size for name in FUNCTIONS if name.startswith("fft.") and name.endswith(("fft", "fftn"))
    },
}
