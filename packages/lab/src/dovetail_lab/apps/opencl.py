"""A small OpenCL runtime for the apps: device, kernels, buffers, and times from profiling events.

Kernels here check no bounds where it can be avoided: buffers are padded to whole work-groups instead,
because a compiler that turns work-items into vector lanes (PoCL on a CPU) does not vectorise behind a
condition, and a GPU loses nothing.  For the same reason kernels take ``restrict`` pointers to distinct
buffers and write ``a < b ? a : b`` for ``min(a, b)``.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dovetail.errors import ExecutorError, InputError
from dovetail_lab.apps.interfaces import Array, Implementation, Timing
from dovetail_remote.opencl_device import choose_device, load_pyopencl

#: Kernels count elements in 32 bits; the rest is room for padding.
MOST_ELEMENTS = (1 << 32) - (1 << 16)


def round_up(value: int, multiple: int) -> int:
    """Return the least multiple of ``multiple`` that is not below ``value``."""
    return -(-value // multiple) * multiple


class OpenCL:
    """One OpenCL device with an in-order, profiled queue.

    Args:
        which: text that the name of the device or of its platform must contain, in any case.  Among the
            devices that fit, the first GPU is taken, else the first accelerator, else the first one.

    Raises:
        InputError: pyopencl is missing, or no device fits.
    """

    def __init__(self, which: str = "") -> None:
        begin = time.perf_counter()
        self._cl = cl = load_pyopencl()
        self.device = choose_device(cl, which)
        self._context = cl.Context([self.device])
        self._queue = cl.CommandQueue(self._context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        self.library = f"pyopencl {cl.VERSION_TEXT}, {self.device.platform.version.strip()}"
        self.device_name = self.device.name.strip()
        self._programs: dict[str, Any] = {}
        self._kernel_events: list[Any] = []
        self._transfer_events: list[Any] = []
        self._sent = self._received = 0
        self._build_seconds = 0.0
        self.setup_seconds = time.perf_counter() - begin

    def run(self, app: Implementation, inputs: tuple[Array, ...]) -> tuple[Array, Timing]:
        """Run ``app.opencl``; kernel and transfer times are sums over the profiled commands.

        Raises:
            InputError: the device cannot hold the buffers, or lacks something that the app needs.
            ExecutorError: the device failed.
        """
        cl = self._cl
        self._kernel_events, self._transfer_events = [], []
        self._sent = self._received = 0
        self._build_seconds = 0.0
        try:
            output: Array = app.opencl(self, *inputs)
            self._queue.finish()
        # Errors of earlier commands surface at the finish: the queue is asynchronous.
        except cl.MemoryError as error:
            raise InputError(f"n is too large for device {self.device_name!r}: {error}") from error
        except cl.Error as error:
            raise ExecutorError(f"device {self.device_name!r} failed: {error}") from error
        timing = Timing(
            _event_seconds(self._kernel_events),
            _event_seconds(self._transfer_events),
            self._sent,
            self._received,
            self._build_seconds,
        )
        return output, timing

    def kernel(self, source: str, name: str) -> Any:
        """Return kernel ``name`` of ``source``, built once (and cached on disk by pyopencl and PoCL)."""
        # Building takes longer than most runs, and is reported apart from them.
        program = self._programs.get(source)
        if program is None:
            begin = time.perf_counter()
            program = self._cl.Program(self._context, source).build()
            self._programs[source] = program
            self._build_seconds += time.perf_counter() - begin
        return self._cl.Kernel(program, name)

    def require_double(self, app: str) -> None:
        """Raise InputError unless the device computes in double precision."""
        if not self.device.double_fp_config:
            raise InputError(f"{app} needs double precision, which device {self.device_name!r} does not have")

    def local_memory(self, size: int) -> Any:
        """Return a ``__local`` argument of ``size`` bytes."""
        return self._cl.LocalMemory(size)

    def allocate_buffer(self, *shape: int, dtype: DTypeLike) -> Any:
        """Return an uninitialised buffer; of one element at least, as OpenCL knows no empty ones.

        Raises:
            InputError: the device cannot hold a buffer of this size.
        """
        # OpenCL knows no empty buffers.
        count = max(1, math.prod(shape))
        size = count * np.dtype(dtype).itemsize
        # Kernels index by 32 bits, whatever the device could hold.
        most = min(self.device.max_mem_alloc_size, MOST_ELEMENTS * np.dtype(dtype).itemsize)
        if size > most:
            raise InputError(
                f"n is too large for device {self.device_name!r}: a buffer of {size} bytes is needed, "
                f"and {most} is the most it allows"
            )
        return self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, size)

    def upload_array(
        self,
        array: Array,
        padded: tuple[int, ...] | None = None,
        *,
        fill: float = 0,
        origin: tuple[int, int] = (0, 0),
    ) -> Any:
        """Copy ``array`` (of one or two dimensions) to a new buffer of shape ``padded``, else ``fill``.

        ``origin`` is the row and column in the buffer at which a two-dimensional array begins.
        """
        array = np.ascontiguousarray(array)
        shape: tuple[int, ...] = array.shape if padded is None else padded
        buffer = self.allocate_buffer(*shape, dtype=array.dtype)
        size = math.prod(list(shape)) * array.itemsize
        if shape != array.shape and size:
            pattern = np.asarray(fill, dtype=array.dtype)
            # For a row the padding is one stretch behind it; an image is filled as a whole first.
            start = array.nbytes if array.ndim == 1 else 0  # all padding follows a single row
            filled = self._cl.enqueue_fill_buffer(self._queue, buffer, pattern, start, size - start)
            self._transfer_events.append(filled)
        if array.size:
            where: dict[str, Any] = {}
            if array.ndim == 2:
                where = self._copy_rectangle(array, shape[1], origin)
            copied = self._cl.enqueue_copy(self._queue, buffer, array, is_blocking=False, **where)
            # The event keeps the host array alive until the copy has ended.
            self._transfer_events.append(copied)
            self._sent += array.nbytes
        return buffer

    def download_array(
        self, buffer: Any, shape: tuple[int, ...], dtype: DTypeLike, padded_columns: int | None = None
    ) -> Array:
        """Copy the first elements of ``buffer`` back; rows are ``padded_columns`` elements apart."""
        array = np.empty(shape, dtype=dtype)
        if array.size:
            where: dict[str, Any] = {}
            if array.ndim == 2 and padded_columns is not None:
                where = self._copy_rectangle(array, padded_columns, (0, 0))
            self._transfer_events.append(self._cl.enqueue_copy(self._queue, array, buffer, **where))
            self._received += array.nbytes
        return array

    @staticmethod
    def _copy_rectangle(array: Array, columns: int, origin: tuple[int, int]) -> dict[str, Any]:
        item = array.itemsize
        return {
            "buffer_origin": (origin[1] * item, origin[0], 0),
            "host_origin": (0, 0, 0),
            "region": (array.shape[1] * item, array.shape[0], 1),
            "buffer_pitches": (columns * item, 0),
            "host_pitches": (array.shape[1] * item, 0),
        }

    def group(self, kernel: Any, *wanted: int) -> tuple[int, ...]:
        """Return ``wanted`` (powers of two), its sides halved until the device can run ``kernel`` with it."""
        group = list(wanted)
        most = kernel.get_work_group_info(self._cl.kernel_work_group_info.WORK_GROUP_SIZE, self.device)
        for axis, limit in enumerate(self.device.max_work_item_sizes[: len(group)]):
            while group[axis] > limit:
                group[axis] //= 2
        while math.prod(group) > most:
            group[group.index(max(group))] //= 2
        return tuple(group)

    def launch(self, kernel: Any, items: tuple[int, ...], group: tuple[int, ...], *arguments: Any) -> None:
        """Enqueue ``kernel`` over ``items``, each a multiple of its ``group``; nothing if there are none."""
        if not all(items):
            return
        kernel.set_args(*arguments)
        self._kernel_events.append(self._cl.enqueue_nd_range_kernel(self._queue, kernel, items, group))


def _event_seconds(events: list[Any]) -> float:
    return float(sum(event.profile.end - event.profile.start for event in events)) * 1e-9
