"""One OpenCL device with a queue in order: arrays, and kernels that are built when they are first used."""

from __future__ import annotations

import math
import threading
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail_remote.opencl_device import choose_device, load_pyopencl
from dovetail_remote.standard import DTYPES

_C = "uchar char short int long uchar ushort uint ulong float double float2 double2"
C_TYPES: Mapping[str, str] = dict(zip(DTYPES, _C.split(), strict=True))
"""Types in OpenCL C, by NumPy's names."""

GROUP = 64
"""Work-items of a group on CPUs, where the driver would choose another number for other shapes of arrays, and
compile the kernel anew for each: 50 ms of CPU time with PoCL."""

QUIET = ["-w"]
"""Options of the compiler: its warnings would go to whatever program runs here."""


class ClArray:
    """Elements in C order from the beginning of a buffer, which other arrays may share."""

    __slots__ = ("buffer", "dtype", "shape", "size")

    def __init__(self, buffer: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.buffer = buffer
        self.dtype = dtype
        self.shape = shape
        self.size = math.prod(shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    def reshaped(self, shape: tuple[int, ...]) -> ClArray:
        """The same elements in another shape of the same size."""
        return ClArray(self.buffer, self.dtype, shape)


def strides_of(shape: Sequence[int]) -> list[int]:
    """Strides in elements of an array in C order."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return strides


class Queue:
    """A device, its context and queue; safe to be used by several threads.

    Raises:
        InputError: pyopencl is missing, or no device fits.
    """

    def __init__(self, which: str) -> None:
        self.cl = cl = load_pyopencl()
        self.device = choose_device(cl, which)
        self.context = cl.Context([self.device])
        self.queue = cl.CommandQueue(self.context)
        self.double = bool(self.device.double_fp_config)
        self.real = np.dtype("float64" if self.double else "float32")
        self.on_cpu = bool(self.device.type & cl.device_type.CPU)
        self.kernels: dict[Hashable, Any] = {}
        # A kernel object keeps its arguments until it is launched: a second thread between the two steps
        # would launch it with the wrong ones.
        self._lock = threading.Lock()

    # -- arrays ----------------------------------------------------------------------------------------

    def empty(self, shape: Sequence[int], dtype: Any) -> ClArray:
        """An array whose elements are not set. Raises `MemoryError`."""
        made = ClArray(None, np.dtype(dtype), tuple(int(n) for n in shape))
        made.buffer = self.buffer(made.nbytes)
        return made

    def buffer(self, size: int) -> Any:
        """So many bytes, at least a few: OpenCL has no empty buffers. Raises `MemoryError`."""
        most = self.device.max_mem_alloc_size
        if size > most:
            raise MemoryError(f"a buffer of {size} bytes, and {most} is the most that the device allows")
        return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, max(size, 16))

    def upload_array(self, array: NDArray[Any]) -> ClArray:
        """A copy of an array of the host."""
        made = self.empty(array.shape, array.dtype)
        if array.size:
            with self._lock:
                self.cl.enqueue_copy(self.queue, made.buffer, np.ascontiguousarray(array), is_blocking=True)
        return made

    def download_array(self, array: ClArray) -> NDArray[Any]:
        """A copy on the host."""
        found: NDArray[Any] = np.empty(array.shape, dtype=array.dtype)
        if array.size:
            self.cl.enqueue_copy(self.queue, found, array.buffer)
        return found

    def read_bytes(self, array: ClArray, low: int, high: int) -> NDArray[np.uint8]:
        """A copy of some bytes of the array's buffer."""
        found: NDArray[np.uint8] = np.empty(high - low, dtype=np.uint8)
        if high > low:
            self.cl.enqueue_copy(self.queue, found, array.buffer, src_offset=low)
        return found

    def overwrite_array(self, target: ClArray, source: ClArray) -> None:
        """Copy all elements into an array of the same size and type."""
        if target.size and target.buffer is not source.buffer:
            with self._lock:
                self.cl.enqueue_copy(self.queue, target.buffer, source.buffer, byte_count=source.nbytes)

    # -- kernels ---------------------------------------------------------------------------------------

    def build(self, key: Hashable, source: str, name: str = "run") -> Any:
        """The kernel that ``source`` defines, built once for each key."""
        kernel = self.kernels.get(key)
        if kernel is None:
            program = self.cl.Program(self.context, source).build(options=QUIET)
            kernel = self.kernels.setdefault(key, self.cl.Kernel(program, name))
        return kernel

    def launch(
        self, kernel: Any, items: Sequence[int], arguments: Sequence[Any], group: Sequence[int] | None = None
    ) -> None:
        """Enqueue a kernel; nothing if there are no items. Arrays stand for their buffers."""
        if 0 in items:
            return
        given = [a.buffer if isinstance(a, ClArray) else a for a in arguments]
        enqueue = self.cl.enqueue_nd_range_kernel
        with self._lock:
            kernel.set_args(*given)
            if group is not None or not self.on_cpu:
                enqueue(self.queue, kernel, tuple(items), tuple(group) if group is not None else None)
            elif len(items) > 1 or items[0] < GROUP:
                enqueue(self.queue, kernel, tuple(items), (1,) * len(items))
            else:
                whole = items[0] // GROUP * GROUP
                enqueue(self.queue, kernel, (whole,), (GROUP,))
                if left := items[0] - whole:
                    enqueue(self.queue, kernel, (left,), (1,), (whole,))

    def finish(self) -> None:
        """Wait until all is done."""
        self.queue.finish()
