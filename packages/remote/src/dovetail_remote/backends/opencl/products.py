"""Products of matrices, and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail_remote.backends.opencl.elementwise import NoExpression, apply_expression, convert_elements
from dovetail_remote.backends.opencl.queue import C_TYPES, ClArray, Queue
from dovetail_remote.backends.opencl.reductions import reduce_elements
from dovetail_remote.backends.opencl.strided import copy_view

__all__ = ["matmul", "outer", "tensordot", "vecdot"]

BLOCK = 4
"""A work-item makes a block of so many rows and columns, so that each value loaded serves for several."""


def matmul(queue: Queue, a: ClArray, b: ClArray) -> ClArray:
    """``a @ b``, stacks of matrices broadcast. Raises `ValueError` for shapes that do not go together."""
    if not a.ndim or not b.ndim:
        raise ValueError("matmul() needs arrays of at least one dimension")
    left = a.reshaped((1, *a.shape)) if a.ndim == 1 else a
    right = b.reshaped((*b.shape, 1)) if b.ndim == 1 else b
    if left.shape[-1] != right.shape[-2]:
        raise ValueError(f"matmul() of shapes {a.shape} and {b.shape}: the inner lengths differ")
    dtype = np.result_type(a.dtype, b.dtype)
    if dtype.kind == "b":
        raise NoExpression("matmul of bool")
    stack = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    made = _multiply_stacks(
        queue, _stack_matrices(queue, left, stack, dtype), _stack_matrices(queue, right, stack, dtype)
    )
    shape = list(stack)
    shape += [] if a.ndim == 1 else [left.shape[-2]]
    shape += [] if b.ndim == 1 else [right.shape[-1]]
    return made.reshaped(tuple(shape))


def _stack_matrices(queue: Queue, x: ClArray, stack: Sequence[int], dtype: np.dtype[Any]) -> ClArray:
    """The matrices as (count, rows, columns); one that serves for all stays one."""
    x = convert_elements(queue, x, dtype, copy=False)
    matrix = x.shape[-2:]
    if math.prod(x.shape[:-2]) == 1:
        return x.reshaped((1, *matrix))
    shape = (*stack, *matrix)
    if x.shape != shape:
        x = copy_view(queue, x, lambda whole: np.broadcast_to(whole, shape))
    return x.reshaped((math.prod(stack), *matrix))


def _multiply_stacks(queue: Queue, a: ClArray, b: ClArray) -> ClArray:
    m, k = a.shape[1:]
    n = b.shape[2]
    count = max(a.shape[0], b.shape[0]) if a.shape[0] and b.shape[0] else 0
    made = queue.empty((count, m, n), a.dtype)
    product = "(T)(u.x * w.x - u.y * w.y, u.x * w.y + u.y * w.x)" if a.dtype.kind == "c" else "u * w"
    kernel = queue.build(
        ("matmul", a.dtype.name),
        f"""
typedef {C_TYPES[a.dtype.name]} T;
#define B {BLOCK}
__kernel void run(__global T *restrict y, __global const T *restrict a, __global const T *restrict b,
                  const ulong m, const ulong k, const ulong n, const ulong step_a, const ulong step_b)
{{
    const ulong column = get_global_id(0) * B, row = get_global_id(1) * B, s = get_global_id(2);
    const ulong rows = min((ulong)B, m - row), columns = min((ulong)B, n - column);
    a += s * step_a + row * k;
    b += s * step_b + column;
    T sum[B][B];
    for (uint i = 0; i < B; i++)
        for (uint j = 0; j < B; j++)
            sum[i][j] = (T)(0);
    // Of whole blocks the bounds are known to the compiler, which unrolls them.
    #define ADD(R, C) for (ulong p = 0; p < k; p++) for (uint i = 0; i < R; i++) {{ \\
        const T u = a[i * k + p]; \\
        for (uint j = 0; j < C; j++) {{ const T w = b[p * n + j]; sum[i][j] += {product}; }} }}
    if (rows == B && columns == B) ADD(B, B) else ADD(rows, columns)
    y += s * m * n + row * n + column;
    for (uint i = 0; i < rows; i++)
        for (uint j = 0; j < columns; j++)
            y[i * n + j] = sum[i][j];
}}""",
    )
    steps = (m * k if a.shape[0] > 1 else 0, k * n if b.shape[0] > 1 else 0)
    items = (-(-n // BLOCK), -(-m // BLOCK), count)
    queue.launch(kernel, items, [made, a, b, *[np.uint64(v) for v in (m, k, n, *steps)]])
    return made


def outer(queue: Queue, a: ClArray, b: ClArray) -> ClArray:
    """Every product of an element of ``a`` and one of ``b``."""
    if a.ndim != 1 or b.ndim != 1:
        raise ValueError(f"outer() needs two vectors, found {a.ndim} and {b.ndim} dimensions")
    return apply_expression(queue, "multiply", a.reshaped((a.size, 1)), b.reshaped((1, b.size)))


def vecdot(queue: Queue, a: ClArray, b: ClArray, *, axis: int = -1) -> ClArray:
    """Sums of products along one axis, the first factor conjugated."""
    if not -min(a.ndim, b.ndim) <= axis < 0 or a.shape[axis] != b.shape[axis]:
        raise NoExpression("vecdot along this axis")
    first = apply_expression(queue, "conj", a) if a.dtype.kind == "c" else a
    product = apply_expression(queue, "multiply", first, b)
    return reduce_elements(queue, "sum", product, axis=axis, dtype=product.dtype)


def tensordot(queue: Queue, a: ClArray, b: ClArray, *, axes: Any = 2) -> ClArray:
    """A product of matrices, once the axes that are summed are put last in one and first in the other."""
    if isinstance(axes, int):
        over = (list(range(a.ndim - axes, a.ndim)), list(range(axes)))
    else:
        over = ([x % a.ndim for x in axes[0]], [x % b.ndim for x in axes[1]])
    if [a.shape[x] for x in over[0]] != [b.shape[x] for x in over[1]]:
        raise ValueError(f"tensordot() of shapes {a.shape} and {b.shape}: the axes' lengths differ")
    rest = [[x for x in range(v.ndim) if x not in o] for v, o in zip((a, b), over, strict=True)]
    left = _reorder_axes(queue, a, rest[0] + over[0])
    right = _reorder_axes(queue, b, over[1] + rest[1])
    outside = [left.shape[: len(rest[0])], right.shape[len(over[1]) :]]
    rows, columns = map(math.prod, outside)
    summed = math.prod(right.shape[: len(over[1])])
    made = matmul(queue, left.reshaped((rows, summed)), right.reshaped((summed, columns)))
    return made.reshaped((*outside[0], *outside[1]))


def _reorder_axes(queue: Queue, x: ClArray, order: Sequence[int]) -> ClArray:
    if list(order) == list(range(x.ndim)):
        return x
    return copy_view(queue, x, lambda whole: np.transpose(whole, order))
