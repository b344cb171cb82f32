"""Functions that move elements and compute none: NumPy gives their places, and one kernel copies them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from numpy.typing import NDArray

from dovetail_remote.backends.opencl.elementwise import NoExpression, convert_elements
from dovetail_remote.backends.opencl.queue import ClArray, Queue
from dovetail_remote.backends.opencl.strided import (
    broadcast_strides,
    copy_strided,
    copy_view,
    outline_array,
    pattern_of,
)


def _view_part(whole: NDArray[np.uint8], key: Any) -> NDArray[np.uint8]:
    """A view by whole numbers, slices, ``...`` and None. Raises `IndexError`, `NoExpression`."""
    keys = key if isinstance(key, tuple) else (key,)
    for k in keys:
        if isinstance(k, bool) or not (k is None or k is ... or isinstance(k, int | np.integer | slice)):
            raise NoExpression("indexing by arrays")
    # With `...` an array of no dimension stays an array; NumPy would look at the element.
    return whole[keys if ... in keys else (*keys, ...)]


def getitem(queue: Queue, x: ClArray, key: Any) -> ClArray:
    """A copy of ``x[key]``. Raises `NoExpression` for arrays as keys."""
    return copy_view(queue, x, lambda whole: _view_part(whole, key))


def setitem(queue: Queue, x: ClArray, key: Any, value: Any) -> None:
    """``x[key] = value`` for the same keys."""
    whole = outline_array(x.shape)
    part = _view_part(whole, key)
    if not isinstance(value, ClArray):
        value = queue.upload_array(np.asarray(value, dtype=x.dtype))
    if not np.can_cast(value.dtype, x.dtype, "same_kind"):
        raise TypeError(f"elements of {x.dtype} cannot become {value.dtype}")
    value = convert_elements(queue, value, x.dtype, copy=value.buffer is x.buffer)
    extra = value.ndim - part.ndim
    if extra > 0 and value.shape[:extra] == (1,) * extra:
        value = value.reshaped(value.shape[extra:])
    strides = broadcast_strides(value, part.shape)
    copy_strided(queue, part.shape, x, pattern_of(whole, part), value, (0, strides))


def broadcast_to(queue: Queue, x: ClArray, shape: Any) -> ClArray:
    """A copy: arrays here are not views."""
    return copy_view(queue, x, lambda whole: np.broadcast_to(whole, shape))


def _reshape_array(queue: Queue, x: ClArray, shape: Any, *, copy: bool | None = None) -> ClArray:
    made = x.reshaped(outline_array(x.shape).reshape(shape).shape)
    return copy_view(queue, made, lambda whole: whole) if copy else made


def _moving_function(function: Callable[..., NDArray[np.uint8]]) -> Callable[..., ClArray]:
    """The elements in another order, as a function of NumPy has them that makes views: a copy."""
    return lambda queue, x, *given, **named: copy_view(
        queue, x, lambda whole: function(whole, *given, **named)
    )


def _renaming_function(function: Callable[..., NDArray[np.uint8]]) -> Callable[..., ClArray]:
    """The same elements in another shape: the same buffer."""
    return lambda queue, x, *given, **named: x.reshaped(
        function(outline_array(x.shape), *given, **named).shape
    )


def _roll_elements(queue: Queue, x: ClArray, shift: Any, *, axis: Any = None) -> ClArray:
    """Elements that have moved along, those of the end to the beginning."""
    if axis is None:
        if not isinstance(shift, int):
            raise TypeError("roll() of several shifts needs as many axes")
        return _roll_elements(queue, x.reshaped((x.size,)), shift, axis=0).reshaped(x.shape)
    axes = axis if isinstance(axis, tuple) else (axis,)
    shifts = shift if isinstance(shift, tuple) else (shift,) * len(axes)
    for by, one in zip(shifts, axes, strict=True):
        before = (slice(None),) * normalize_axis_index(one, x.ndim)
        first = -by % max(x.shape[one], 1)
        parts = (slice(first, None), slice(None, first))
        x = _concatenate_arrays(queue, [getitem(queue, x, (*before, part)) for part in parts], axis=one)
    return x


def _tile_array(queue: Queue, x: ClArray, repetitions: Sequence[int]) -> ClArray:
    longer = max(x.ndim, len(repetitions))
    shape = (1,) * (longer - x.ndim) + x.shape
    times = (1,) * (longer - len(repetitions)) + tuple(repetitions)
    apart = [length for n in shape for length in (1, n)]
    spread = [length for pair in zip(times, shape, strict=True) for length in pair]
    made = broadcast_to(queue, x.reshaped(tuple(apart)), spread)
    return made.reshaped(tuple(t * n for t, n in zip(times, shape, strict=True)))


def _repeat_elements(queue: Queue, x: ClArray, repeats: Any, *, axis: int | None = None) -> ClArray:
    """Each element so many times. Raises `NoExpression` where these are given by an array."""
    if not isinstance(repeats, int):
        raise NoExpression("repeat by an array")
    if axis is None:
        x, axis = x.reshaped((x.size,)), 0
    along = normalize_axis_index(axis, x.ndim)
    before, n, after = x.shape[:along], x.shape[along], x.shape[along + 1 :]
    made = broadcast_to(queue, x.reshaped((*before, n, 1, *after)), (*before, n, repeats, *after))
    return made.reshaped((*before, n * repeats, *after))


def _unstack_array(queue: Queue, x: ClArray, *, axis: int = 0) -> list[ClArray]:
    before = (slice(None),) * normalize_axis_index(axis, x.ndim)
    return [getitem(queue, x, (*before, k)) for k in range(x.shape[axis])]


def _concatenate_arrays(queue: Queue, arrays: Sequence[ClArray], *, axis: int | None = 0) -> ClArray:
    parts = [x.reshaped((x.size,)) for x in arrays] if axis is None else list(arrays)
    along = normalize_axis_index(axis or 0, parts[0].ndim)
    shape = list(parts[0].shape)
    for x in parts[1:]:
        if x.ndim != len(shape) or (*x.shape[:along], *x.shape[along + 1 :]) != (
            *shape[:along],
            *shape[along + 1 :],
        ):
            raise ValueError(f"cannot join the shapes {parts[0].shape} and {x.shape} along axis {along}")
    shape[along] = sum(x.shape[along] for x in parts)
    made, at = queue.empty(shape, np.result_type(*[x.dtype for x in parts])), 0
    for x in parts:
        place = (slice(None),) * along + (slice(at, at + x.shape[along]),)
        setitem(queue, made, place, x)
        at += x.shape[along]
    return made


def _stack_arrays(queue: Queue, arrays: Sequence[ClArray], *, axis: int = 0) -> ClArray:
    if len({x.shape for x in arrays}) > 1:
        raise ValueError("stack() needs arrays of one shape")
    shape = np.expand_dims(outline_array(arrays[0].shape), axis).shape
    return _concatenate_arrays(queue, [x.reshaped(shape) for x in arrays], axis=axis)


def _broadcast_arrays(queue: Queue, *arrays: ClArray) -> list[ClArray]:
    shape = np.broadcast_shapes(*[x.shape for x in arrays])
    return [broadcast_to(queue, x, shape) for x in arrays]


#: The functions of the standard that move elements; their errors are NumPy's.
SHAPING: Mapping[str, Callable[..., Any]] = {
    "broadcast_arrays": _broadcast_arrays,
    "broadcast_to": broadcast_to,
    "concat": _concatenate_arrays,
    "expand_dims": _renaming_function(lambda whole, axis=0: np.expand_dims(whole, axis)),
    # Of no dimension NumPy would look at the element.
    "flip": _moving_function(
        lambda whole, *, axis=None: np.flip(whole, axis) if whole.ndim or axis is not None else whole
    ),
    "matrix_transpose": _moving_function(np.matrix_transpose),
    "moveaxis": _moving_function(np.moveaxis),
    "permute_dims": _moving_function(np.transpose),
    "repeat": _repeat_elements,
    "reshape": _reshape_array,
    "roll": _roll_elements,
    "squeeze": _renaming_function(np.squeeze),
    "stack": _stack_arrays,
    "tile": _tile_array,
    "unstack": _unstack_array,
}
