"""OpenCL: any device with a driver, PoCL on CPUs included.

Element-wise functions, reductions, products of matrices, and whatever moves elements are computed on the
device; what is not (sorting, sets, factorizations, Fourier transforms, indexing by arrays, transcendental
functions of complex numbers) is computed by NumPy on the server's host, between two copies. `ON_HOST` lists
the functions of which nothing is computed on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.remote.backends.base import Backend, Kernel, Place, View, default_dtypes
from dovetail.remote.backends.numpy import NumpyBackend
from dovetail.remote.backends.opencl import products, reductions
from dovetail.remote.backends.opencl.elementwise import (
    EXPRESSIONS,
    NoExpression,
    clip,
    converted,
    elementwise,
    where,
)
from dovetail.remote.backends.opencl.queue import QUIET, ClArray, Queue, strides_of
from dovetail.remote.backends.opencl.shaping import SHAPING, broadcast_to, getitem, setitem
from dovetail.remote.encoding import LocalMemory
from dovetail.remote.standard import DTYPES, FUNCTIONS, INPLACE_OPERATORS, OPERATOR_FUNCTIONS, operators_by

__all__ = ["ON_HOST", "OpenCLBackend"]

_OTHERS = (
    "all", "any", "argmax", "argmin", "astype", "clip", "count_nonzero", "empty", "empty_like", "full",
    "full_like", "linalg.matmul", "linalg.matrix_transpose", "linalg.outer", "linalg.tensordot",
    "linalg.vecdot", "matmul", "max", "mean", "min", "ones", "ones_like", "prod", "std", "sum", "tensordot",
    "var", "vecdot", "where", "zeros", "zeros_like",
)  # fmt: skip

_TYPED = ("clip", "full", "full_like", "where")
"""Functions, beside the element-wise ones, of numbers that have a type."""

#: Functions that NumPy computes on the server's host.
ON_HOST = frozenset(FUNCTIONS) - {*EXPRESSIONS, *SHAPING, *_OTHERS}


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
        self._real = np.dtype("float64" if queue.double else "float32")
        self.default_dtypes = default_dtypes(self._real.name)
        self.array_type = ClArray
        self.functions = self._functions()

    def _functions(self) -> dict[str, Callable[..., Any]]:
        queue = self._queue
        with_queue: dict[str, Callable[..., Any]] = {
            **SHAPING,
            **{name: getattr(products, name) for name in ("matmul", "tensordot", "vecdot")},
            **{f"linalg.{name}": getattr(products, name) for name in products.__all__},
            "linalg.matrix_transpose": SHAPING["matrix_transpose"],
            "mean": reductions.mean,
            "std": reductions.deviation,
            "var": reductions.variance,
            "count_nonzero": reductions.count_nonzero,
            "astype": converted,
            "clip": clip,
            "where": where,
            "__getitem__": getitem,
            "__setitem__": setitem,
        }
        here: dict[str, Callable[..., Any]] = {n: partial(f, queue) for n, f in with_queue.items()}
        for table, function in (
            (EXPRESSIONS, elementwise),
            (reductions.REDUCTIONS, reductions.reduce),
            (("argmax", "argmin"), reductions.arg_extreme),
        ):
            here |= {name: partial(function, queue, name) for name in table}
        here["empty"], here["full"] = self._empty, self._full
        for name, value in (("ones", 1), ("zeros", 0)):
            here[name] = _filled(self._full, value)
        for name in ("empty", "full", "ones", "zeros"):
            here[f"{name}_like"] = _like(here[name])
        found = {name: self._on_host(name) for name in (*FUNCTIONS, "__getitem__")}
        found["__setitem__"] = self._set_on_host
        for name, function in here.items():
            found[name] = _or(function, found[name], typed=name in EXPRESSIONS or name in _TYPED)
        found |= operators_by(found)
        for method in INPLACE_OPERATORS:
            found[method] = self._in_place(found[OPERATOR_FUNCTIONS[method]])
        return found

    def _empty(self, shape: Any, *, dtype: Any = None) -> ClArray:
        return self._queue.empty((shape,) if isinstance(shape, int) else shape, dtype or self._real)

    def _full(self, shape: Any, fill_value: Any, *, dtype: Any = None) -> ClArray:
        if dtype is None:
            dtype = np.result_type(fill_value)
            dtype = np.dtype(self.default_dtypes.get(_KINDS.get(dtype.kind, ""), dtype.name))
        one = self._queue.upload(np.full((), fill_value, dtype=dtype))
        return broadcast_to(self._queue, one, shape)

    # -- on the host -----------------------------------------------------------------------------------

    def _on_host(self, name: str) -> Callable[..., Any]:
        function = self._host.functions[name]

        def call(*arguments: Any, **named: Any) -> Any:
            given = [self._fetched(argument) for argument in arguments]
            result = function(*given, **{key: self._fetched(value) for key, value in named.items()})
            return self._returned(self._host.settle(result))

        return call

    def _set_on_host(self, x: ClArray, key: Any, value: Any) -> None:
        changed = self._queue.download(x)
        changed[self._fetched(key)] = self._fetched(value)
        self._queue.overwrite(x, self._queue.upload(changed))

    def _fetched(self, value: Any) -> Any:
        if isinstance(value, ClArray):
            return self._queue.download(value)
        if isinstance(value, tuple | list):
            return type(value)([self._fetched(item) for item in value])
        return value

    def _returned(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._returned(item) for item in value]
        if value.dtype.name not in self.dtypes:
            value = value.astype("complex64" if value.dtype.kind == "c" else "float32")
        return self._queue.upload(value)

    def _in_place(self, function: Callable[[Any, Any], ClArray]) -> Callable[[ClArray, Any], ClArray]:
        def call(x: ClArray, other: Any) -> ClArray:
            made = function(x, other)
            if made.shape != x.shape or not np.can_cast(made.dtype, x.dtype, "same_kind"):
                raise TypeError(
                    f"{made.dtype} of shape {made.shape} does not fit into {x.dtype} of {x.shape}"
                )
            self._queue.overwrite(x, converted(self._queue, made, x.dtype, copy=False))
            return x

        return call

    # -- arrays ----------------------------------------------------------------------------------------

    def from_host(self, array: NDArray[Any]) -> ClArray:
        """A copy on the device."""
        return self._queue.upload(array)

    def to_host(self, value: ClArray) -> NDArray[Any]:
        """A copy on the host."""
        return self._queue.download(value)

    def owner(self, value: ClArray) -> tuple[Hashable, int]:
        """The buffer."""
        return value.buffer.int_ptr, value.buffer.size

    def place(self, value: ClArray) -> Place:
        """From the beginning of the buffer."""
        strides = tuple(s * value.itemsize for s in strides_of(value.shape))
        return Place(value.buffer.int_ptr, View(value.dtype.name, value.shape, strides, 0))

    def read(self, value: ClArray, low: int, high: int) -> NDArray[np.uint8]:
        """From the buffer."""
        return self._queue.bytes(value, low, high)

    def build(self, region: NDArray[np.uint8], views: Sequence[View]) -> list[ClArray]:
        """Arrays over one buffer where they lie in it from its beginning, else copies."""
        shared: Any = None
        made: list[ClArray] = []
        for view in views:
            dtype = np.dtype(view.dtype)
            plain = tuple(s * dtype.itemsize for s in strides_of(view.shape))
            if view.offset == 0 and view.strides == plain:
                shared = shared if shared is not None else self._queue.upload(region).buffer
                made.append(ClArray(shared, dtype, view.shape))
            else:
                made.append(self._queue.upload(view.of(region)))
        return made

    def kernel(self, source: str, name: str) -> Kernel:
        """OpenCL C, compiled by the driver."""
        cl, queue = self._queue.cl, self._queue
        compiled = cl.Kernel(cl.Program(queue.context, source).build(options=QUIET), name)

        def launch(
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

        return launch

    def memory(self) -> int:
        """All of the device's."""
        return int(self._queue.device.global_mem_size)

    def synchronize(self) -> None:
        """Wait for the queue."""
        self._queue.finish()


_KINDS = {"f": "real floating", "c": "complex floating", "i": "integral"}


def _or(function: Callable[..., Any], on_host: Callable[..., Any], *, typed: bool) -> Callable[..., Any]:
    """The function of the device, and that of the host for types that the device's does not know.

    NumPy's scalars have a type where the function is ``typed``, and are numbers of Python elsewhere.
    """

    def call(*arguments: Any, **named: Any) -> Any:
        if not typed:
            arguments = tuple(a.item() if isinstance(a, np.generic) else a for a in arguments)
        try:
            return function(*arguments, **named)
        except NoExpression:
            return on_host(*arguments, **named)

    return call


def _filled(full: Callable[..., ClArray], value: int) -> Callable[..., ClArray]:
    return lambda shape, *, dtype=None: full(shape, float(value) if dtype is None else value, dtype=dtype)


def _like(function: Callable[..., ClArray]) -> Callable[..., ClArray]:
    def call(x: ClArray, /, *arguments: Any, dtype: Any = None) -> ClArray:
        return function(x.shape, *arguments, dtype=dtype or x.dtype)

    return call
