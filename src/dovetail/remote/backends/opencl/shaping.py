"""Functions that move elements and compute none: everything here is a view that is copied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.remote.backends.opencl.elementwise import NotHere, converted
from dovetail.remote.backends.opencl.queue import ClArray, Queue, strides_of
from dovetail.remote.backends.opencl.strided import Pattern, broadcast_strides, copy, gathered

__all__ = ["Shaping"]


class Shaping:
    """Parts, permutations and repetitions of arrays on one device."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    # -- parts -----------------------------------------------------------------------------------------

    def getitem(self, x: ClArray, key: Any) -> ClArray:
        """``x[key]`` for whole numbers, slices, ``...`` and None. Raises `NotHere` for arrays as keys."""
        shape, pattern = _viewed(x, key)
        return gathered(self._queue, x, shape, pattern)

    def setitem(self, x: ClArray, key: Any, value: Any) -> None:
        """``x[key] = value`` for the same keys."""
        shape, pattern = _viewed(x, key)
        if not isinstance(value, ClArray):
            value = self._queue.upload(np.asarray(value, dtype=x.dtype))
        if not np.can_cast(value.dtype, x.dtype, "same_kind"):
            raise TypeError(f"elements of {x.dtype} cannot become {value.dtype}")
        value = converted(self._queue, value, x.dtype, copy=value.buffer is x.buffer)
        extra = value.ndim - len(shape)
        if extra > 0 and value.shape[:extra] == (1,) * extra:
            value = value.reshaped(value.shape[extra:])
        if np.broadcast_shapes(value.shape, tuple(shape)) != tuple(shape):
            raise ValueError(f"elements of shape {value.shape} do not fit into {tuple(shape)}")
        copy(self._queue, shape, x, pattern, value, (0, broadcast_strides(value, shape)))

    # -- the same elements in another order ------------------------------------------------------------

    def reshape(self, x: ClArray, shape: Any, *, copy: bool | None = None) -> ClArray:
        """The same buffer, unless a copy is asked for."""
        wanted = [shape] if isinstance(shape, int) else list(shape)
        if -1 in wanted:
            rest = math.prod(n for n in wanted if n != -1)
            wanted[wanted.index(-1)] = x.size // rest if rest else 0
        if math.prod(wanted) != x.size or min(wanted, default=0) < 0:
            raise ValueError(f"cannot reshape an array of shape {x.shape} into shape {tuple(wanted)}")
        made = x.reshaped(tuple(wanted))
        return gathered(self._queue, made, made.shape, (0, strides_of(made.shape))) if copy else made

    def expand_dims(self, x: ClArray, axis: int = 0) -> ClArray:
        """The same buffer."""
        if not -x.ndim - 1 <= axis <= x.ndim:
            raise np.exceptions.AxisError(axis, x.ndim + 1)
        shape = list(x.shape)
        shape.insert(axis % (x.ndim + 1), 1)
        return x.reshaped(tuple(shape))

    def squeeze(self, x: ClArray, axis: Any) -> ClArray:
        """The same buffer."""
        axes = {_axis(a, x.ndim) for a in (axis if isinstance(axis, tuple) else (axis,))}
        if any(x.shape[a] != 1 for a in axes):
            raise ValueError(f"squeeze() needs axes of length 1, found the shape {x.shape}")
        return x.reshaped(tuple(n for a, n in enumerate(x.shape) if a not in axes))

    def permute_dims(self, x: ClArray, axes: Sequence[int]) -> ClArray:
        """A copy."""
        order = [_axis(a, x.ndim) for a in axes]
        if sorted(order) != list(range(x.ndim)):
            raise ValueError(f"found the axes {tuple(axes)}, expected each of {x.ndim} once")
        own = strides_of(x.shape)
        return gathered(self._queue, x, [x.shape[a] for a in order], (0, [own[a] for a in order]))

    def matrix_transpose(self, x: ClArray) -> ClArray:
        """A copy with the last two axes exchanged."""
        if x.ndim < 2:
            raise ValueError(f"matrix_transpose() needs two dimensions, found {x.ndim}")
        return self.permute_dims(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])

    def moveaxis(self, x: ClArray, source: Any, destination: Any) -> ClArray:
        """A copy with some axes elsewhere."""
        given = [[v] if isinstance(v, int) else list(v) for v in (source, destination)]
        start, end = ([_axis(a, x.ndim) for a in axes] for axes in given)
        order = [a for a in range(x.ndim) if a not in start]
        for to, a in sorted(zip(end, start, strict=True)):
            order.insert(to, a)
        return self.permute_dims(x, order)

    def flip(self, x: ClArray, *, axis: Any = None) -> ClArray:
        """A copy, some axes backwards."""
        given = range(x.ndim) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
        axes = {_axis(a, x.ndim) for a in given}
        own = strides_of(x.shape)
        offset = sum((x.shape[a] - 1) * own[a] for a in axes)
        return gathered(
            self._queue, x, x.shape, (offset, [-s if a in axes else s for a, s in enumerate(own)])
        )

    def roll(self, x: ClArray, shift: Any, *, axis: Any = None) -> ClArray:
        """A copy whose elements have moved along, those of the end to the beginning."""
        if axis is None:
            if not isinstance(shift, int):
                raise TypeError("roll() of several shifts needs as many axes")
            return self.roll(x.reshaped((x.size,)), shift, axis=0).reshaped(x.shape)
        axes = axis if isinstance(axis, tuple) else (axis,)
        shifts = shift if isinstance(shift, tuple) else (shift,) * len(axes)
        for by, along in zip(shifts, axes, strict=True):
            x = self._rolled(x, by, _axis(along, x.ndim))
        return x

    def _rolled(self, x: ClArray, by: int, axis: int) -> ClArray:
        n = x.shape[axis]
        by = by % n if n else 0
        made = self._queue.empty(x.shape, x.dtype)
        own = strides_of(x.shape)
        for first, to, count in ((0, by, n - by), (n - by, 0, by)):
            shape = [count if a == axis else m for a, m in enumerate(x.shape)]
            copy(self._queue, shape, made, (to * own[axis], own), x, (first * own[axis], own))
        return made

    # -- more, or several ------------------------------------------------------------------------------

    def broadcast_to(self, x: ClArray, shape: Any) -> ClArray:
        """A copy: arrays here are not views."""
        wanted = (shape,) if isinstance(shape, int) else tuple(shape)
        if np.broadcast_shapes(x.shape, wanted) != wanted:
            raise ValueError(f"cannot broadcast the shape {x.shape} to {wanted}")
        return gathered(self._queue, x, wanted, (0, broadcast_strides(x, wanted)))

    def broadcast_arrays(self, *arrays: ClArray) -> list[ClArray]:
        """Copies of one shape."""
        shape = np.broadcast_shapes(*[x.shape for x in arrays])
        return [self.broadcast_to(x, shape) for x in arrays]

    def concat(self, arrays: Sequence[ClArray], *, axis: int | None = 0) -> ClArray:
        """A new array of all."""
        parts = [x.reshaped((x.size,)) for x in arrays] if axis is None else list(arrays)
        along = _axis(0 if axis is None else axis, parts[0].ndim)
        shape = list(parts[0].shape)
        for x in parts[1:]:
            if x.ndim != len(shape) or any(
                n != m for a, (n, m) in enumerate(zip(x.shape, shape, strict=True)) if a != along
            ):
                raise ValueError(f"cannot join the shapes {parts[0].shape} and {x.shape} along axis {along}")
        shape[along] = sum(x.shape[along] for x in parts)
        made = self._queue.empty(shape, np.result_type(*[x.dtype for x in parts]))
        to, at = strides_of(shape), 0
        for x in parts:
            x = converted(self._queue, x, made.dtype, copy=False)
            copy(self._queue, x.shape, made, (at * to[along], to), x, (0, strides_of(x.shape)))
            at += x.shape[along]
        return made

    def stack(self, arrays: Sequence[ClArray], *, axis: int = 0) -> ClArray:
        """A new array with one axis more."""
        if len({x.shape for x in arrays}) > 1:
            raise ValueError("stack() needs arrays of one shape")
        return self.concat([self.expand_dims(x, axis) for x in arrays], axis=axis)

    def unstack(self, x: ClArray, *, axis: int = 0) -> list[ClArray]:
        """Copies of the parts along an axis."""
        along = _axis(axis, x.ndim)
        return [self.getitem(x, (slice(None),) * along + (k,)) for k in range(x.shape[along])]

    def tile(self, x: ClArray, repetitions: Sequence[int]) -> ClArray:
        """Repeated along each axis."""
        longer = max(x.ndim, len(repetitions))
        shape = (1,) * (longer - x.ndim) + x.shape
        times = (1,) * (longer - len(repetitions)) + tuple(repetitions)
        spread = [length for pair in zip(times, shape, strict=True) for length in pair]
        own = [stride for s in strides_of(shape) for stride in (0, s)]
        made = gathered(self._queue, x, spread, (0, own))
        return made.reshaped(tuple(t * n for t, n in zip(times, shape, strict=True)))

    def repeat(self, x: ClArray, repeats: Any, *, axis: int | None = None) -> ClArray:
        """Each element so many times. Raises `NotHere` where these are given by an array."""
        if not isinstance(repeats, int):
            raise NotHere("repeat by an array")
        if axis is None:
            x, axis = x.reshaped((x.size,)), 0
        along, own = _axis(axis, x.ndim), strides_of(x.shape)
        shape = [*x.shape[: along + 1], repeats, *x.shape[along + 1 :]]
        made = gathered(self._queue, x, shape, (0, [*own[: along + 1], 0, *own[along + 1 :]]))
        return made.reshaped(tuple(n * (repeats if a == along else 1) for a, n in enumerate(x.shape)))


def _axis(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(axis, ndim)
    return axis % ndim


def _viewed(x: ClArray, key: Any) -> tuple[list[int], Pattern]:
    """Shape and pattern of ``x[key]``. Raises `IndexError`, `NotHere`."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(isinstance(k, ClArray | list | bool | np.ndarray) for k in keys):
        raise NotHere("indexing by arrays")
    used = sum(k is not None and k is not ... for k in keys)
    if used > x.ndim or sum(k is ... for k in keys) > 1:
        raise IndexError(f"found {used} indices for {x.ndim} dimensions")
    if ... not in keys:
        keys.append(...)
    at = keys.index(...)
    keys[at : at + 1] = [slice(None)] * (x.ndim - used)
    own, offset, axis = strides_of(x.shape), 0, 0
    shape: list[int] = []
    strides: list[int] = []
    for k in keys:
        if k is None:
            shape.append(1)
            strides.append(0)
            continue
        n = x.shape[axis]
        if isinstance(k, slice):
            start, stop, step = k.indices(n)
            count = len(range(start, stop, step))
            offset += start * own[axis] if count else 0
            shape.append(count)
            strides.append(step * own[axis])
        else:
            if not -n <= k < n:
                raise IndexError(f"index {k} is out of bounds for axis {axis} with size {n}")
            offset += k % n * own[axis]
        axis += 1
    return shape, (offset, strides)
