"""Functions that move elements and compute none: NumPy says where they lie, and one kernel copies them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.remote.backends.opencl.elementwise import NotHere, converted
from dovetail.remote.backends.opencl.queue import ClArray, Queue
from dovetail.remote.backends.opencl.strided import (
    axis_of,
    broadcast_strides,
    copy,
    outline,
    pattern_of,
    viewed,
)

__all__ = ["Shaping"]

_Part = tuple[ClArray, NDArray[np.uint8], NDArray[np.uint8]]
"""An array, its outline, and a view of that."""


class Shaping:
    """Parts, permutations and repetitions of arrays on one device. Errors are NumPy's."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    # -- parts -----------------------------------------------------------------------------------------

    def getitem(self, x: ClArray, key: Any) -> ClArray:
        """``x[key]`` for whole numbers, slices, ``...`` and None. Raises `NotHere` for arrays as keys."""
        return viewed(self._queue, x, lambda whole: _part(whole, key))

    def setitem(self, x: ClArray, key: Any, value: Any) -> None:
        """``x[key] = value`` for the same keys."""
        whole = outline(x.shape)
        part = _part(whole, key)
        if not isinstance(value, ClArray):
            value = self._queue.upload(np.asarray(value, dtype=x.dtype))
        if not np.can_cast(value.dtype, x.dtype, "same_kind"):
            raise TypeError(f"elements of {x.dtype} cannot become {value.dtype}")
        value = converted(self._queue, value, x.dtype, copy=value.buffer is x.buffer)
        extra = value.ndim - part.ndim
        if extra > 0 and value.shape[:extra] == (1,) * extra:
            value = value.reshaped(value.shape[extra:])
        strides = broadcast_strides(value, part.shape)
        copy(self._queue, part.shape, x, pattern_of(whole, part), value, (0, strides))

    def unstack(self, x: ClArray, *, axis: int = 0) -> list[ClArray]:
        """Copies of the parts along an axis."""
        along = axis_of(axis, x.ndim)
        return [self.getitem(x, (slice(None),) * along + (k,)) for k in range(x.shape[along])]

    # -- the same elements in another shape: the same buffer ----------------------------------------------

    def reshape(self, x: ClArray, shape: Any, *, copy: bool | None = None) -> ClArray:
        """The same buffer, unless a copy is asked for."""
        made = x.reshaped(outline(x.shape).reshape(shape).shape)
        return viewed(self._queue, made, lambda whole: whole) if copy else made

    def expand_dims(self, x: ClArray, axis: int = 0) -> ClArray:
        """The same buffer."""
        return x.reshaped(np.expand_dims(outline(x.shape), axis).shape)

    def squeeze(self, x: ClArray, axis: Any) -> ClArray:
        """The same buffer."""
        return x.reshaped(np.squeeze(outline(x.shape), axis).shape)

    # -- the same elements in another order: a copy ----------------------------------------------------

    def permute_dims(self, x: ClArray, axes: Sequence[int]) -> ClArray:
        """A copy."""
        return viewed(self._queue, x, lambda whole: np.transpose(whole, axes))

    def matrix_transpose(self, x: ClArray) -> ClArray:
        """A copy with the last two axes exchanged."""
        if x.ndim < 2:
            raise ValueError(f"matrix_transpose() needs two dimensions, found {x.ndim}")
        return viewed(self._queue, x, lambda whole: np.swapaxes(whole, -1, -2))

    def moveaxis(self, x: ClArray, source: Any, destination: Any) -> ClArray:
        """A copy with some axes elsewhere."""
        return viewed(self._queue, x, lambda whole: np.moveaxis(whole, source, destination))

    def flip(self, x: ClArray, *, axis: Any = None) -> ClArray:
        """A copy, some axes backwards."""
        given = range(x.ndim) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
        axes = {axis_of(a, x.ndim) for a in given}
        return self.getitem(x, tuple(slice(None, None, -1 if a in axes else 1) for a in range(x.ndim)))

    def roll(self, x: ClArray, shift: Any, *, axis: Any = None) -> ClArray:
        """A copy whose elements have moved along, those of the end to the beginning."""
        if axis is None:
            if not isinstance(shift, int):
                raise TypeError("roll() of several shifts needs as many axes")
            return self.roll(x.reshaped((x.size,)), shift, axis=0).reshaped(x.shape)
        axes = axis if isinstance(axis, tuple) else (axis,)
        shifts = shift if isinstance(shift, tuple) else (shift,) * len(axes)
        for by, one in zip(shifts, axes, strict=True):
            along, whole = axis_of(one, x.ndim), outline(x.shape)
            first = x.shape[along] - (by % x.shape[along] if x.shape[along] else 0)
            parts = np.split(whole, [first], along)
            x = self._joined([(x, whole, part) for part in reversed(parts)], along)
        return x

    # -- more, or several ------------------------------------------------------------------------------

    def broadcast_to(self, x: ClArray, shape: Any) -> ClArray:
        """A copy: arrays here are not views."""
        return viewed(self._queue, x, lambda whole: np.broadcast_to(whole, shape))

    def broadcast_arrays(self, *arrays: ClArray) -> list[ClArray]:
        """Copies of one shape."""
        shape = np.broadcast_shapes(*[x.shape for x in arrays])
        return [self.broadcast_to(x, shape) for x in arrays]

    def concat(self, arrays: Sequence[ClArray], *, axis: int | None = 0) -> ClArray:
        """A new array of all."""
        parts = [x.reshaped((x.size,)) for x in arrays] if axis is None else list(arrays)
        outlines = [outline(x.shape) for x in parts]
        return self._joined(list(zip(parts, outlines, outlines, strict=True)), axis or 0)

    def stack(self, arrays: Sequence[ClArray], *, axis: int = 0) -> ClArray:
        """A new array with one axis more."""
        if len({x.shape for x in arrays}) > 1:
            raise ValueError("stack() needs arrays of one shape")
        return self.concat([self.expand_dims(x, axis) for x in arrays], axis=axis)

    def tile(self, x: ClArray, repetitions: Sequence[int]) -> ClArray:
        """Repeated along each axis."""
        longer = max(x.ndim, len(repetitions))
        shape = (1,) * (longer - x.ndim) + x.shape
        times = (1,) * (longer - len(repetitions)) + tuple(repetitions)
        apart = [length for n in shape for length in (1, n)]
        spread = [length for pair in zip(times, shape, strict=True) for length in pair]
        made = self.broadcast_to(x.reshaped(tuple(apart)), spread)
        return made.reshaped(tuple(t * n for t, n in zip(times, shape, strict=True)))

    def repeat(self, x: ClArray, repeats: Any, *, axis: int | None = None) -> ClArray:
        """Each element so many times. Raises `NotHere` where these are given by an array."""
        if not isinstance(repeats, int):
            raise NotHere("repeat by an array")
        if axis is None:
            x, axis = x.reshaped((x.size,)), 0
        along = axis_of(axis, x.ndim)
        before, n, after = x.shape[:along], x.shape[along], x.shape[along + 1 :]
        made = self.broadcast_to(x.reshaped((*before, n, 1, *after)), (*before, n, repeats, *after))
        return made.reshaped((*before, n * repeats, *after))

    def _joined(self, parts: Sequence[_Part], axis: int) -> ClArray:
        """A new array of views, one after the other along an axis."""
        first = parts[0][2]
        along = axis_of(axis, first.ndim)
        shape = list(first.shape)
        for _, _, view in parts[1:]:
            if view.ndim != first.ndim or any(
                n != m for a, (n, m) in enumerate(zip(view.shape, shape, strict=True)) if a != along
            ):
                raise ValueError(f"cannot join the shapes {first.shape} and {view.shape} along axis {along}")
        shape[along] = sum(view.shape[along] for _, _, view in parts)
        made = self._queue.empty(shape, np.result_type(*[x.dtype for x, _, _ in parts]))
        target, at = outline(shape), 0
        for x, whole, view in parts:
            to = target[(slice(None),) * along + (slice(at, at + view.shape[along]),)]
            source = converted(self._queue, x, made.dtype, copy=False)
            copy(self._queue, view.shape, made, pattern_of(target, to), source, pattern_of(whole, view))
            at += view.shape[along]
        return made


def _part(whole: NDArray[np.uint8], key: Any) -> NDArray[np.uint8]:
    """A view by whole numbers, slices, ``...`` and None. Raises `IndexError`, `NotHere`."""
    keys = key if isinstance(key, tuple) else (key,)
    for k in keys:
        if isinstance(k, bool) or not (k is None or k is ... or isinstance(k, int | np.integer | slice)):
            raise NotHere("indexing by arrays")
    # With `...` an array of no dimension stays an array; NumPy would look at the element.
    return whole[keys if ... in keys else (*keys, ...)]
