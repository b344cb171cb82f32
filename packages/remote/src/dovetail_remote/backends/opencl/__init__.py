"""OpenCL: any device with a driver, PoCL on CPUs included.

Element-wise functions, reductions, products of matrices, and whatever moves elements are computed on the
device; what is not (sorting, sets, factorizations, Fourier transforms, indexing by arrays, transcendental
functions of complex numbers) is computed by NumPy on the server's host, between two copies. `ON_HOST` lists
the functions of which nothing is computed on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail_remote.backends.base import Backend, Kernel, View, default_dtypes
from dovetail_remote.backends.numpy import NumpyBackend
from dovetail_remote.backends.opencl import products, reductions
from dovetail_remote.backends.opencl.elementwise import (
    EXPRESSIONS,
    NoExpression,
    apply_expression,
    clip,
    convert_elements,
    where,
)
from dovetail_remote.backends.opencl.queue import QUIET, ClArray, Queue, strides_of
from dovetail_remote.backends.opencl.shaping import SHAPING, broadcast_to, getitem, setitem
from dovetail_remote.encoding import LocalMemory
from dovetail_remote.standard import DTYPES, FUNCTIONS, INPLACE_OPERATORS, OPERATOR_FUNCTIONS, operators_by

__all__ = ["ON_HOST", "OpenCLBackend"]

_TYPED = frozenset(("clip", "full", "full_like", "where", *EXPRESSIONS))
"""Functions of numbers that have a type."""


def _functions_by_name(function: Callable[..., Any], names: Iterable[str]) -> dict[str, Callable[..., Any]]:
    """A function of a queue and a name as one of the queue for each name."""

    def bind_name(name: str) -> Callable[..., Any]:
        return lambda queue, *arguments, **named: function(queue, name, *arguments, **named)

    return {name: bind_name(name) for name in names}


def _create_empty(queue: Queue, shape: Any, *, dtype: Any = None) -> ClArray:
    return queue.empty((shape,) if isinstance(shape, int) else shape, dtype or queue.real)


def _create_full(queue: Queue, shape: Any, fill_value: Any, *, dtype: Any = None) -> ClArray:
    if dtype is None:
        dtype = np.result_type(fill_value)
        defaults = {"f": queue.real, "c": np.result_type(queue.real, np.complex64), "i": np.dtype("int64")}
        dtype = defaults.get(dtype.kind, dtype)
    one = queue.upload_array(np.full((), fill_value, dtype=dtype))
    return broadcast_to(queue, one, shape)


def _make_creation(value: int) -> Callable[..., ClArray]:
    return lambda queue, shape, *, dtype=None: _create_full(
        queue, shape, float(value) if dtype is None else value, dtype=dtype
    )


def _make_like(function: Callable[..., ClArray]) -> Callable[..., ClArray]:
    return lambda queue, x, /, *arguments, dtype=None: function(
        queue, x.shape, *arguments, dtype=dtype or x.dtype
    )


_CREATION: Mapping[str, Callable[..., ClArray]] = {
    "empty": _create_empty,
    "full": _create_full,
    "ones": _make_creation(1),
    "zeros": _make_creation(0),
}

#: What is computed on the device: functions of its queue and their arguments.
ON_DEVICE: Mapping[str, Callable[..., Any]] = {
    **SHAPING,
    **_functions_by_name(apply_expression, EXPRESSIONS),
    **_functions_by_name(reductions.reduce_elements, reductions.REDUCTIONS),
    **_functions_by_name(reductions.arg_extreme, ("argmax", "argmin")),
    **{name: getattr(products, name) for name in ("matmul", "tensordot", "vecdot")},
    **{f"linalg.{name}": getattr(products, name) for name in products.__all__},
    **_CREATION,
    **{f"{name}_like": _make_like(function) for name, function in _CREATION.items()},
    "linalg.matrix_transpose": SHAPING["matrix_transpose"],
    "mean": reductions.mean,
    "std": reductions.deviation,
    "var": reductions.variance,
    "count_nonzero": reductions.count_nonzero,
    "astype": convert_elements,
    "clip": clip,
    "where": where,
    "__getitem__": getitem,
    "__setitem__": setitem,
}

#: Functions that NumPy computes on the server's host.
ON_HOST = frozenset(FUNCTIONS) - frozenset(ON_DEVICE)


class OpenCLBackend(Backend):
    """One OpenCL device.

    Args:
        which: text in the name of the device or of its platform.

    Raises:
        InputError: pyopencl is missing, or no device fits.
    """

    name = "opencl"

    def __init__(self, which: str) -> None:
        self._queue = queue = Queue(which)
        cl = queue.cl
        self.errors = (cl.Error,)
        self.library = f"pyopencl {cl.VERSION_TEXT}, {queue.device.platform.version.strip()}"
        self.device_name = queue.device.name.strip()
        self.computes_here = queue.on_cpu
        self._host = NumpyBackend()
        doubles = () if queue.double else ("float64", "complex128")
        self.dtypes = {name: np.dtype(name) for name in DTYPES if name not in doubles}
        self.default_dtypes = default_dtypes(queue.real.name)
        self.array_type = ClArray
        self.functions = self._collect_functions()

    def _collect_functions(self) -> dict[str, Callable[..., Any]]:
        found = {name: self._on_host(name) for name in (*FUNCTIONS, "__getitem__")}
        found["__setitem__"] = self._set_on_host
        for name, function in ON_DEVICE.items():
            found[name] = _with_host_fallback(
                partial(function, self._queue), found[name], typed=name in _TYPED
            )
        found |= operators_by(found)
        for method in INPLACE_OPERATORS:
            found[method] = self._in_place(found[OPERATOR_FUNCTIONS[method]])
        return found

    # -- on the host -----------------------------------------------------------------------------------

    def _on_host(self, name: str) -> Callable[..., Any]:
        function = self._host.functions[name]

        def call_on_host(*arguments: Any, **named: Any) -> Any:
            given = [self._fetch_argument(argument) for argument in arguments]
            result = function(*given, **{key: self._fetch_argument(value) for key, value in named.items()})
            return self._return_value(self._host.settle(result))

        return call_on_host

    def _set_on_host(self, x: ClArray, key: Any, value: Any) -> None:
        changed = self._queue.download_array(x)
        changed[self._fetch_argument(key)] = self._fetch_argument(value)
        self._queue.overwrite_array(x, self._queue.upload_array(changed))

    def _fetch_argument(self, value: Any) -> Any:
        if isinstance(value, ClArray):
            return self._queue.download_array(value)
        if isinstance(value, tuple | list):
            return type(value)([self._fetch_argument(item) for item in value])
        return value

    def _return_value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._return_value(item) for item in value]
        if value.dtype.name not in self.dtypes:
            value = value.astype("complex64" if value.dtype.kind == "c" else "float32")
        return self._queue.upload_array(value)

    def _in_place(self, function: Callable[[Any, Any], ClArray]) -> Callable[[ClArray, Any], ClArray]:
        def change_in_place(x: ClArray, other: Any) -> ClArray:
            made = function(x, other)
            if made.shape != x.shape or not np.can_cast(made.dtype, x.dtype, "same_kind"):
                raise TypeError(
                    f"{made.dtype} of shape {made.shape} does not fit into {x.dtype} of {x.shape}"
                )
            self._queue.overwrite_array(x, convert_elements(self._queue, made, x.dtype, copy=False))
            return x

        return change_in_place

    # -- arrays ----------------------------------------------------------------------------------------

    def from_host(self, array: NDArray[Any]) -> ClArray:
        """A copy on the device."""
        return self._queue.upload_array(array)

    def to_host(self, value: ClArray) -> NDArray[Any]:
        """A copy on the host."""
        return self._queue.download_array(value)

    def owner_of(self, value: ClArray) -> tuple[Hashable, int]:
        """The buffer."""
        return value.buffer.int_ptr, value.buffer.size

    def view(self, value: ClArray) -> View:
        """From the beginning of the buffer."""
        strides = tuple(s * value.dtype.itemsize for s in strides_of(value.shape))
        return View(value.dtype.name, value.shape, strides, 0)

    def read(self, value: ClArray, low: int, high: int) -> NDArray[np.uint8]:
        """From the buffer."""
        return self._queue.read_bytes(value, low, high)

    def build(self, region: NDArray[np.uint8], views: Sequence[View]) -> list[ClArray]:
        """Arrays over one buffer where they lie in it from its beginning, else copies."""
        shared: Any = None
        made: list[ClArray] = []
        for view in views:
            dtype = np.dtype(view.dtype)
            plain = tuple(s * dtype.itemsize for s in strides_of(view.shape))
            if view.offset == 0 and view.strides == plain:
                shared = shared if shared is not None else self._queue.upload_array(region).buffer
                made.append(ClArray(shared, dtype, view.shape))
            else:
                made.append(self._queue.upload_array(view.of(region)))
        return made

    def kernel(self, source: str, name: str) -> Kernel:
        """OpenCL C, compiled by the driver."""
        cl, queue = self._queue.cl, self._queue
        compiled = cl.Kernel(cl.Program(queue.context, source).build(options=QUIET), name)

        def launch_kernel(
            grid: tuple[int, ...], block: tuple[int, ...], arguments: Sequence[Any], shared: int
        ) -> None:
            if shared:
                raise TypeError("found shared memory, expected LocalMemory among the arguments")
            if len(grid) != len(block):
                raise ValueError(
                    f"found the grid {grid} and the block {block}, expected as many sizes of each"
                )
            given = [cl.LocalMemory(a.size) if isinstance(a, LocalMemory) else a for a in arguments]
            queue.launch(compiled, [g * b for g, b in zip(grid, block, strict=True)], given, block)

        return launch_kernel

    def memory(self) -> int:
        """All of the device's."""
        return int(self._queue.device.global_mem_size)

    def synchronize(self) -> None:
        """Wait for the queue."""
        self._queue.finish()


def _with_host_fallback(
    function: Callable[..., Any], on_host: Callable[..., Any], *, typed: bool
) -> Callable[..., Any]:
    """The function of the device, and that of the host for types that the device's does not know.

    NumPy's scalars have a type where the function is ``typed``, and are numbers of Python elsewhere.
    """

    def call_either(*arguments: Any, **named: Any) -> Any:
        if not typed:
            arguments = tuple(a.item() if isinstance(a, np.generic) else a for a in arguments)
        try:
            return function(*arguments, **named)
        except NoExpression:
            return on_host(*arguments, **named)

    return call_either
