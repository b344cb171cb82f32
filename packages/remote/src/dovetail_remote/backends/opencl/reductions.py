"""Sums and the like along some axes: a work-item for each result, in stages where there are few of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from dovetail_remote.backends.opencl.elementwise import (
    NoExpression,
    apply_code,
    apply_expression,
    convert_elements,
    load_as,
)
from dovetail_remote.backends.opencl.queue import C_TYPES, ClArray, Queue
from dovetail_remote.backends.opencl.strided import copy_view

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
    axes = _normalized_axes(axis, x.ndim)
    first, last, lined = (axes[0], axes[-1] + 1, x) if axes else (x.ndim, x.ndim, x)
    if last - first > len(axes):  # others are between them
        kept = [a for a in range(x.ndim) if a not in axes]
        lined = copy_view(queue, x, lambda whole: np.transpose(whole, kept + axes))
        first, last = len(kept), x.ndim
    shape = lined.shape
    return lined, math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:]), axes


def _normalized_axes(axis: Any, ndim: int) -> list[int]:
    return sorted(normalize_axis_tuple(range(ndim) if axis is None else axis, ndim, "axis"))


def _shape_after(shape: Sequence[int], axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if a in axes else n for a, n in enumerate(shape))
    return tuple(n for a, n in enumerate(shape) if a not in axes)


def reduce_elements(
    queue: Queue, name: str, x: ClArray, *, axis: Any = None, dtype: Any = None, keepdims: bool = False
) -> ClArray:
    """One of `REDUCTIONS`. Raises `ValueError` where nothing has no largest or smallest element."""
    wanted = np.dtype(dtype) if dtype is not None else _result_type(queue, name, x.dtype)
    table = {kind: found for kinds, found in REDUCTIONS[name].items() for kind in kinds}
    if wanted.kind not in table:
        raise NoExpression(f"{name} of {wanted}")
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
        data = _reduction_stage(queue, name, step, first, data, outer, n, inner, parts, value)
        n = parts
    done = _reduction_stage(queue, name, step, first, data, outer, n, inner, 1, value)
    return convert_elements(queue, done.reshaped(shape), wanted, copy=False)


def _reduction_stage(
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
    read = load_as("row[k * inner]", x.dtype, value)
    # The last parts may be empty: a sum of them is 0, and the last element once more changes no extreme.
    begin = "low" if first is not None else "low < n ? low : n - 1"
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
    ulong k = {begin};
    V v = {first if first is not None else load_as("row[k++ * inner]", x.dtype, value)};
    for (; k < high; k++) {{ const V x = {read}; v = {step}; }}
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
        raise NoExpression(f"mean of {x.dtype}")
    total = reduce_elements(queue, "sum", x, axis=axis, keepdims=keepdims)
    return _divide_by_count(queue, total, x.size // total.size if total.size else 0)


def _divide_by_count(queue: Queue, total: ClArray, count: float) -> ClArray:
    # nothing over nothing is no number
    factor = complex(count) if total.dtype.kind == "c" else float(count)
    return apply_expression(queue, "divide", total, factor)


def variance(
    queue: Queue, x: ClArray, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False
) -> ClArray:
    """The mean square of what differs from the mean, with the divisor n - correction."""
    if x.dtype.kind != "f":
        raise NoExpression(f"var of {x.dtype}")
    middle = mean(queue, x, axis=axis, keepdims=True)
    apart = apply_expression(queue, "square", apply_expression(queue, "subtract", x, middle))
    total = reduce_elements(queue, "sum", apart, axis=axis, keepdims=keepdims)
    count = x.size // total.size if total.size else 0
    return _divide_by_count(queue, total, max(count - correction, 0.0))


def deviation(queue: Queue, x: ClArray, **named: Any) -> ClArray:
    """The square root of the variance."""
    return apply_expression(queue, "sqrt", variance(queue, x, **named))


def count_nonzero(queue: Queue, x: ClArray, **named: Any) -> ClArray:
    """How many elements are not 0."""
    return reduce_elements(queue, "sum", apply_expression(queue, "not_equal", x, 0), **named)


def arg_extreme(
    queue: Queue, name: str, x: ClArray, *, axis: int | None = None, keepdims: bool = False
) -> ClArray:
    """``argmax`` or ``argmin``: the first position of the extreme, or of the first NaN."""
    if x.dtype.kind == "c":
        raise NoExpression(f"{name} of {x.dtype}")
    lined = x.reshaped((x.size,)) if axis is None else x
    along = normalize_axis_index(0 if axis is None else axis, lined.ndim)
    n = lined.shape[along]
    extreme = reduce_elements(queue, name.removeprefix("arg"), lined, axis=along, keepdims=True)
    position = np.dtype("int32" if n < 1 << 31 else "int64")
    places = queue.upload_array(np.arange(n, dtype=position).reshape(-1, *[1] * (lined.ndim - 1 - along)))
    code = "a == b || (a != a && b != b) ? c : d"
    types = [x.dtype, x.dtype, position, position]
    found = apply_code(queue, "position", code, [lined, extreme, places, n], types, position)
    made = reduce_elements(queue, "min", found, axis=along, dtype="int64")
    return made.reshaped(_shape_after(x.shape, _normalized_axes(axis, x.ndim), keepdims))
