"""CuPy: CUDA devices, and raw kernels of CUDA C compiled by NVRTC."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail_remote.backends.base import Backend, Kernel, View, default_dtypes, standard_functions
from dovetail_remote.backends.numpy import compatible_namespace
from dovetail_remote.encoding import LocalMemory
from dovetail_remote.standard import DTYPES


class CupyBackend(Backend):
    """One CUDA device.

    Raises:
        InputError: CuPy or the device is missing.
    """

    name = "cupy"
    computes_here = False

    def __init__(self, number: int) -> None:
        xp = compatible_namespace("cupy")
        import cupy

        self._cupy = cupy
        runtime = cupy.cuda.runtime
        self.errors = (runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError)
        self.errors += (cupy.cuda.compiler.CompileException,)
        try:
            count = runtime.getDeviceCount()
        except runtime.CUDARuntimeError as error:
            raise InputError(f"device 'cuda:{number}' is not there: {error}") from None
        if number >= count:
            raise InputError(f"device 'cuda:{number}' is not there: found {count} CUDA devices")
        self.device = cupy.cuda.Device(number)
        self.enter_thread()
        self.library = f"cupy {cupy.__version__}"
        self.device_name = runtime.getDeviceProperties(number)["name"].decode()
        self.functions = standard_functions(xp)
        self.functions["expand_dims"] = lambda x, /, axis=0: cupy.expand_dims(x, axis)
        self.dtypes = {name: np.dtype(name) for name in DTYPES}
        self.default_dtypes = default_dtypes()
        self.array_type = cupy.ndarray

    def settle(self, value: Any) -> Any:
        """CuPy gives arrays, and numbers here and there."""
        known = isinstance(value, (self.array_type, tuple, list))
        return super().settle(value if known else self._cupy.asarray(value))

    def from_host(self, array: NDArray[Any]) -> Any:
        """A copy on the device."""
        return self._cupy.asarray(array)

    def to_host(self, value: Any) -> NDArray[Any]:
        """A copy on the host."""
        found: NDArray[Any] = self._cupy.asnumpy(value, order="C")
        return found

    def owner_of(self, value: Any) -> tuple[Hashable, int]:
        """The piece of CuPy's memory pool."""
        memory = value.data.mem
        return memory.ptr or ("empty", id(value)), memory.size

    def view(self, value: Any) -> View:
        """From the beginning of the piece."""
        offset = value.data.ptr - value.data.mem.ptr
        return View(value.dtype.name, value.shape, value.strides, offset)

    def read(self, value: Any, low: int, high: int) -> NDArray[np.uint8]:
        """From the piece of memory."""
        pointer = self._cupy.cuda.MemoryPointer(value.data.mem, low)
        found: NDArray[np.uint8] = self._cupy.ndarray((high - low,), dtype=np.uint8, memptr=pointer).get()
        return found

    def build(self, region: NDArray[np.uint8], views: Sequence[View]) -> list[Any]:
        """Views of one piece of memory."""
        there = self._cupy.asarray(region)
        return [
            self._cupy.ndarray(v.shape, dtype=v.dtype, memptr=there.data + v.offset, strides=v.strides)
            for v in views
        ]

    def kernel(self, source: str, name: str) -> Kernel:
        """CUDA C, compiled by NVRTC."""
        return cuda_kernel(source, name)

    def enter_thread(self) -> None:
        """The current device is a thread's own."""
        self.device.use()

    def memory(self) -> int:
        """All of the device's."""
        return int(self.device.mem_info[1])

    def limit(self, size: int) -> None:
        """Of CuPy's memory pool."""
        self._cupy.get_default_memory_pool().set_limit(size=size)

    def synchronize(self) -> None:
        """Wait for the device."""
        self.device.synchronize()

    def trim_memory(self) -> None:
        """Give the pool's unused blocks back."""
        self._cupy.get_default_memory_pool().free_all_blocks()


def cuda_kernel(source: str, name: str) -> Kernel:
    """A kernel of CUDA C, compiled now, for whichever library holds the arrays.

    Raises `TypeError` where CuPy, which has the compiler, is missing."""
    try:
        import cupy
    except ModuleNotFoundError:
        raise TypeError("raw kernels of CUDA C need CuPy, which is not installed") from None
    compiled: Callable[..., None] = cupy.RawKernel(source, name)
    compiled.compile()  # type: ignore[attr-defined]

    def launch_kernel(
        grid: tuple[int, ...], block: tuple[int, ...], arguments: Sequence[Any], shared: int
    ) -> None:
        given: list[Any] = []
        for argument in arguments:
            if isinstance(argument, LocalMemory):
                raise TypeError("found LocalMemory, which CUDA does not know; expected shared=BYTES")
            if not isinstance(argument, np.generic):
                argument = cupy.asarray(argument)
                if not argument.flags.c_contiguous:
                    raise ValueError("found an array that is not contiguous, expected one that is")
            given.append(argument)
        compiled(grid, block, tuple(given), shared_mem=shared)

    return launch_kernel
