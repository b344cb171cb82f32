"""Sums and the like along some axes: a work-item for each result, in stages where there are few of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.remote.backends.opencl.elementwise import (
    NotHere,
    converted,
    elementwise,
    loaded,
)
from dovetail.remote.backends.opencl.queue import C_TYPES, ClArray, Queue, strides_of
from dovetail.remote.backends.opencl.strided import gathered

__all__ = ["REDUCTIONS", "arg_extreme", "mean", "reduce", "variance"]

LANES = 4096
"""Results, or parts of results, that are computed at once."""
SHORTEST = 256
"""Elements of a part at least."""

# Name: the first value, how a new element x goes into the value v, and how two parts of it are put together,
# by kind; None where the first element is the first value.
_SUM = {"biuf": ("0", "v + x"), "c": ("(V)(0, 0)", "v + x")}
_PRODUCT = {"biuf": ("1", "v * x"), "c": ("(V)(1, 0)", "(V)(v.x * x.x - v.y * x.y, v.x * x.y + v.y * x.x)")}
REDUCTIONS: dict[str, dict[str, tuple[str | None, str]]] = {
    "sum": dict(_SUM),
    "prod": dict(_PRODUCT),
    "max": {"biu": (None, "x > v ? x : v"), "f": (None, "v != v ? v : x != x ? x : x > v ? x : v")},
    "min": {"biu": (None, "x < v ? x : v"), "f": (None, "v != v ? v : x != x ? x : x < v ? x : v")},
    "all": {"b": ("1", "v && x")},
    "any": {"b": ("0", "v || x")},
}


def _lined_up(queue: Queue, x: ClArray, axis: Any) -> tuple[ClArray, int, int, int, list[int]]:
    """The array as (outer, n, inner) elements of which the middle ones are reduced, and the axes."""
    axes = sorted(_axes(axis, x.ndim))
    if axes == list(range(axes[0], axes[-1] + 1)) if axes else True:
        first, last = (axes[0], axes[-1] + 1) if axes else (x.ndim, x.ndim)
        sizes = [int(np.prod(part, dtype=object)) for part in (x.shape[:first], x.shape[first:last])]
        inner = int(np.prod(x.shape[last:], dtype=object))
        return x, sizes[0], sizes[1], inner, axes
    kept = [a for a in range(x.ndim) if a not in axes]
    order = kept + axes
    own = strides_of(x.shape)
    turned = gathered(queue, x, [x.shape[a] for a in order], (0, [own[a] for a in order]))
    outer = int(np.prod([x.shape[a] for a in kept], dtype=object))
    return turned, outer, x.size // outer if outer else 0, 1, axes


def _axes(axis: Any, ndim: int) -> set[int]:
    given = range(ndim) if axis is None else (axis if isinstance(axis, tuple | list) else (axis,))
    found: set[int] = set()
    for a in given:
        if not -ndim <= a < ndim:
            raise np.exceptions.AxisError(a, ndim)
        if a % ndim in found:
            raise ValueError(f"found the axis {a} twice")
        found.add(a % ndim)
    return found


def _shape_after(shape: Sequence[int], axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if a in axes else n for a, n in enumerate(shape))
    return tuple(n for a, n in enumerate(shape) if a not in axes)


def reduce(
    queue: Queue, name: str, x: ClArray, *, axis: Any = None, dtype: Any = None, keepdims: bool = False
) -> ClArray:
    """One of `REDUCTIONS`. Raises `ValueError` where nothing has no largest or smallest element."""
    wanted = np.dtype(dtype) if dtype is not None else _result_type(queue, name, x.dtype)
    table = {kind: found for kinds, found in REDUCTIONS[name].items() for kind in kinds}
    if wanted.kind not in table:
        raise NotHere(f"{name} of {wanted}")
    first, step = table[wanted.kind]
    lined, outer, n, inner, axes = _lined_up(queue, x, axis)
    shape = _shape_after(x.shape, axes, keepdims)
    if n == 0 and first is None and outer * inner:
        raise ValueError(f"{name}() of no elements has no value")
    # Sums of single precision are taken in double, where the device has it.
    value = wanted
    if queue.double and name in ("sum", "prod") and wanted.name in ("float32", "complex64"):
        value = np.dtype("float64" if wanted.kind == "f" else "complex128")
    data = lined
    while n > 2 * SHORTEST and outer * inner < LANES:
        parts = min(-(-n // SHORTEST), max(1, LANES // max(1, outer * inner)))
        data = _stage(queue, name, step, first, data, outer, n, inner, parts, value)
        n = parts
    done = _stage(queue, name, step, first, data, outer, n, inner, 1, value)
    return converted(queue, done.reshaped(shape), wanted, copy=False)


def _stage(
    queue: Queue,
    name: str,
    step: str,
    first: str | None,
    x: ClArray,
    outer: int,
    n: int,
    inner: int,
    parts: int,
    value: np.dtype[Any],
) -> ClArray:
    """(outer, n, inner) elements to (outer, parts, inner) values; parts are of equal length but the last."""
    made = queue.empty((outer, parts, inner), value)
    v = C_TYPES[value.name]
    read = loaded("row[k * inner]", x.dtype, value)
    begin = f"const V x = {read}; v = {step};"
    kernel = queue.build(
        ("reduce", name, x.dtype.name, value.name),
        f"""
typedef {v} V;
__kernel void run(__global V *y, __global const {C_TYPES[x.dtype.name]} *x, const ulong n,
                  const ulong inner, const ulong parts)
{{
    const ulong i = get_global_id(0), part = i / inner % parts;
    const ulong length = (n + parts - 1) / parts;
    const ulong low = min(n, part * length), high = min(n, low + length);
    __global const {C_TYPES[x.dtype.name]} *row = x + (i / inner / parts * n) * inner + i % inner;
    ulong k = low < n ? low : n - 1;  // a part may be empty: the last element once more changes no extreme
    V v = {first if first is not None else loaded("row[k++ * inner]", x.dtype, value)};
    for (; k < high; k++) {{ {begin} }}
    y[i] = v;
}}""",
    )
    sizes = (np.uint64(n), np.uint64(inner), np.uint64(parts))
    queue.launch(kernel, (made.size,), [made, x, *sizes])
    return made


def _result_type(queue: Queue, name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    if name in ("all", "any"):
        return np.dtype("bool")
    if name in ("sum", "prod") and dtype.kind in "bi":
        return np.dtype("int64")
    if name in ("sum", "prod") and dtype.kind == "u":
        return np.dtype("uint64")
    return dtype


def mean(queue: Queue, x: ClArray, *, axis: Any = None, keepdims: bool = False) -> ClArray:
    """The sum over the number of elements."""
    if x.dtype.kind not in "fc":
        raise NotHere(f"mean of {x.dtype}")
    total = reduce(queue, "sum", x, axis=axis, keepdims=keepdims)
    return _divided(queue, total, x.size // total.size if total.size else 0)


def _divided(queue: Queue, total: ClArray, count: float) -> ClArray:
    # nothing over nothing is no number
    factor = complex(count) if total.dtype.kind == "c" else float(count)
    return elementwise(queue, "divide", total, factor)


def variance(
    queue: Queue, x: ClArray, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False
) -> ClArray:
    """The mean square of what differs from the mean, with the divisor n - correction."""
    if x.dtype.kind != "f":
        raise NotHere(f"var of {x.dtype}")
    middle = mean(queue, x, axis=axis, keepdims=True)
    apart = elementwise(queue, "square", elementwise(queue, "subtract", x, middle))
    total = reduce(queue, "sum", apart, axis=axis, keepdims=keepdims)
    count = x.size // total.size if total.size else 0
    return _divided(queue, total, max(count - correction, 0.0))


def arg_extreme(
    queue: Queue, name: str, x: ClArray, *, axis: int | None = None, keepdims: bool = False
) -> ClArray:
    """``argmax`` or ``argmin``: the first position of the extreme, or of the first NaN."""
    if x.dtype.kind == "c":
        raise NotHere(f"{name} of {x.dtype}")
    lined, outer, n, inner, axes = _lined_up(queue, x, axis)
    if n == 0 and outer * inner:
        raise ValueError(f"{name}() of no elements has no value")
    shape = _shape_after(x.shape, axes, keepdims)
    at: ClArray | None = None
    left = n
    while True:
        few = outer * inner < LANES and left > 2 * SHORTEST
        parts = min(-(-left // SHORTEST), max(1, LANES // max(1, outer * inner))) if few else 1
        at = _arg_stage(queue, name, lined, at, outer, n, left, inner, parts)
        left = parts
        if parts == 1:
            return at.reshaped(shape)


def _arg_stage(
    queue: Queue,
    name: str,
    x: ClArray,
    at: ClArray | None,
    outer: int,
    n: int,
    left: int,
    inner: int,
    parts: int,
) -> ClArray:
    """Positions of the extremes of parts; ``at`` has those of the stage before."""
    made = queue.empty((outer, parts, inner), "int64")
    better = "x > v" if name == "argmax" else "x < v"
    if x.dtype.kind == "f":
        better = f"(x != x && v == v) || {better}"
    position = "k" if at is None else "from[k * inner]"
    c = C_TYPES[x.dtype.name]
    kernel = queue.build(
        (name, x.dtype.name, at is None),
        f"""
__kernel void run(__global long *y, __global const {c} *x, __global const long *at, const ulong n,
                  const ulong left, const ulong inner, const ulong parts)
{{
    const ulong i = get_global_id(0), part = i / inner % parts, o = i / inner / parts;
    const ulong length = (left + parts - 1) / parts;
    const ulong low = min(left, part * length), high = min(left, low + length);
    __global const {c} *row = x + o * n * inner + i % inner;
    __global const long *from = at + o * left * inner + i % inner;
    ulong k = low < left ? low : left - 1;
    long best = {position};
    {c} v = row[best * inner];
    for (k++; k < high; k++) {{
        const long p = {position};
        const {c} x = row[p * inner];
        if ({better}) {{ v = x; best = p; }}
    }}
    y[i] = best;
}}""",
    )
    sizes = [np.uint64(number) for number in (n, left, inner, parts)]
    queue.launch(kernel, (made.size,), [made, x, made if at is None else at, *sizes])
    return made
