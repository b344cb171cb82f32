"""Moving elements: whatever copies them from one regular pattern to another is one kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail_remote.backends.opencl.queue import ClArray, Queue, strides_of

_WORDS = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong", 16: "ulong2"}

Pattern = tuple[int, Sequence[int]]
"""Offset and strides, in elements."""


def merge_patterns(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """Shape and strides of several patterns with as few dimensions as they have in common."""
    kept: list[int] = []
    found: list[list[int]] = [[] for _ in strides]
    for axis, n in enumerate(shape):
        if n == 1:
            continue
        if kept and all(f[-1] == s[axis] * n for f, s in zip(found, strides, strict=True)):
            kept[-1] *= n
            for f, s in zip(found, strides, strict=True):
                f[-1] = s[axis]
        else:
            kept.append(n)
            for f, s in zip(found, strides, strict=True):
                f.append(s[axis])
    return kept, found


def outline_array(shape: Sequence[int]) -> NDArray[np.uint8]:
    """An array of NumPy of this shape in C order, of one byte an element, that has no memory.

    NumPy's own views of it give the places of their elements: slices, permutations, repetitions are its
    business. Its elements must not be read.
    """
    return np.lib.stride_tricks.as_strided(np.empty(0, np.uint8), shape, strides_of(shape), writeable=False)


def broadcast_strides(array: ClArray, shape: Sequence[int]) -> Sequence[int]:
    """Strides with which an array fills a larger shape: 0 where it is repeated."""
    return np.broadcast_to(outline_array(array.shape), shape).strides


def index_code(dimensions: int, names: Sequence[str]) -> str:
    """C code that turns ``i`` into offsets ``at_NAME``, from arguments ``n_K`` and ``s_NAME_K``."""
    lines = ["ulong rest = i;"]
    lines += [f"long at_{name} = o_{name};" for name in names]
    for k in range(dimensions - 1, -1, -1):
        lines.append(f"{{ const ulong r = rest % n_{k}; rest /= n_{k};")
        lines += [f"at_{name} += (long)r * s_{name}_{k};" for name in names]
        lines.append("}")
    return "\n    ".join(lines)


def index_arguments(dimensions: int, names: Sequence[str]) -> str:
    """The declarations of what `index_code` reads."""
    parts = [f"const ulong n_{k}" for k in range(dimensions)]
    for name in names:
        parts.append(f"const long o_{name}")
        parts += [f"const long s_{name}_{k}" for k in range(dimensions)]
    return ", ".join(parts)


def index_values(shape: Sequence[int], patterns: Sequence[Pattern]) -> list[np.generic]:
    """The values of what `index_arguments` declares."""
    values: list[np.generic] = [np.uint64(n) for n in shape]
    for offset, strides in patterns:
        values.append(np.int64(offset))
        values += [np.int64(stride) for stride in strides]
    return values


def copy_strided(
    queue: Queue, shape: Sequence[int], target: ClArray, to: Pattern, source: ClArray, of: Pattern
) -> None:
    """``target[to] = source[of]``, element by element over ``shape``; both of the same item size."""
    kept, (into, out_of) = merge_patterns(shape, (to[1], of[1]))
    word, d = _WORDS[target.dtype.itemsize], len(kept)
    kernel = queue.build(
        ("copy", word, d),
        f"""
__kernel void run(__global {word} *restrict y, __global const {word} *restrict x,
                  {index_arguments(d, ("y", "x"))})
{{
    const ulong i = get_global_id(0);
    {index_code(d, ("y", "x"))}
    y[at_y] = x[at_x];
}}""",
    )
    values = index_values(kept, ((to[0], into), (of[0], out_of)))
    queue.launch(kernel, (int(np.prod(shape, dtype=object)),), [target, source, *values])


def pattern_of(whole: NDArray[np.uint8], view: NDArray[np.uint8]) -> Pattern:
    """Where the elements of a view of an outline lie."""
    begin, at = (a.__array_interface__["data"][0] for a in (whole, view))
    return at - begin, view.strides


def copy_view(
    queue: Queue, source: ClArray, view: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]
) -> ClArray:
    """A new array of the elements that ``view`` takes of an outline: a function that copies nothing."""
    whole = outline_array(source.shape)
    part = view(whole)
    assert type(part) is np.ndarray  # a number would have been read from memory that is not there
    made = queue.empty(part.shape, source.dtype)
    copy_strided(queue, part.shape, made, (0, strides_of(part.shape)), source, pattern_of(whole, part))
    return made
