"""PyTorch: CUDA devices, or the CPU."""

from __future__ import annotations

import platform
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail_remote.backends.base import Backend, Kernel, View, default_dtypes, standard_functions
from dovetail_remote.backends.cupy import cuda_kernel
from dovetail_remote.backends.numpy import compatible_namespace
from dovetail_remote.standard import CREATION, DTYPES, operators_by


class TorchBackend(Backend):
    """One device of PyTorch, through array-api-compat.

    Raises:
        InputError: PyTorch, array-api-compat or the device is missing.
    """

    name = "torch"
    typed_numbers = False

    def __init__(self, where: str) -> None:
        xp = compatible_namespace("torch")
        import torch

        self._torch = torch
        try:
            self.device = torch.device(where)
            torch.zeros(1, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"device 'torch:{where}' is not there: {str(error).splitlines()[0]}") from None
        cuda = self.device.type == "cuda"
        self.library = f"torch {torch.__version__}"
        self.device_name = torch.cuda.get_device_name(self.device) if cuda else platform.machine()
        self.computes_here = self.device.type == "cpu"
        self.functions = self._collect_functions(xp)
        self.dtypes = {name: getattr(xp, name) for name in DTYPES if hasattr(xp, name)}
        self._names = {dtype: name for name, dtype in self.dtypes.items()}
        self.default_dtypes = default_dtypes(self._names[torch.get_default_dtype()])
        self.array_type = torch.Tensor

    def _collect_functions(self, xp: Any) -> dict[str, Callable[..., Any]]:
        # torch's own operators take arrays of no dimension for numbers without a type.
        found = standard_functions(xp)
        found |= operators_by(found)
        for name in CREATION & found.keys():
            found[name] = partial(found[name], device=self.device)
        return found

    def settle(self, value: Any) -> Any:
        """Tensors as they are, complex ones without a conjugation that is still to be done."""
        if type(value) is not self._torch.Tensor:
            if isinstance(value, tuple | list):
                return [self.settle(item) for item in value]
            raise TypeError(f"the result is {type(value).__name__}, expected an array")
        if value.dtype not in self._names:
            raise TypeError(f"the result is of type {value.dtype}, which no array of the standard is")
        return value.resolve_conj() if value.is_complex() else value

    def describe_value(self, value: Any) -> tuple[str, tuple[int, ...]]:
        """Data type and shape."""
        return self._names[value.dtype], tuple(value.shape)

    def from_host(self, array: NDArray[Any]) -> Any:
        """On the CPU the array's own memory."""
        return self._torch.from_numpy(array).to(self.device)

    def to_host(self, value: Any) -> NDArray[Any]:
        """On the CPU the tensor's own memory where it is contiguous."""
        found: NDArray[Any] = value.detach().cpu().contiguous().numpy()
        return found

    def adopt_array(self, array: NDArray[Any]) -> Any:
        """A tensor over the array's memory, on the CPU; none over what may not be written."""
        if self.device.type != "cpu" or not array.flags.writeable or min(array.strides, default=0) < 0:
            return None
        return self._torch.from_numpy(array)

    def in_place(self, value: Any) -> NDArray[Any] | None:
        """The tensor's memory, on the CPU."""
        return value.detach().numpy() if self.device.type == "cpu" else None

    def owner_of(self, value: Any) -> tuple[Hashable, int]:
        """The storage."""
        storage = value.untyped_storage()
        address = storage.data_ptr()
        return address or ("empty", id(value)), storage.nbytes()

    def view(self, value: Any) -> View:
        """In its storage."""
        item = value.element_size()
        strides = tuple(stride * item for stride in value.stride())
        return View(self._names[value.dtype], tuple(value.shape), strides, value.storage_offset() * item)

    def read(self, value: Any, low: int, high: int) -> NDArray[np.uint8]:
        """From its storage."""
        torch = self._torch
        whole = torch.empty(0, dtype=torch.uint8, device=self.device).set_(value.untyped_storage())
        found: NDArray[np.uint8] = whole[low:high].cpu().numpy()
        return found

    def build(self, region: NDArray[np.uint8], views: Sequence[View]) -> list[Any]:
        """Tensors over one storage; what torch cannot view (backwards, or not aligned) is copied."""
        torch = self._torch
        storage = torch.from_numpy(region).to(self.device).untyped_storage()
        made: list[Any] = []
        for view in views:
            item = np.dtype(view.dtype).itemsize
            if any(s < 0 or s % item for s in view.strides) or view.offset % item:
                made.append(self.from_host(np.ascontiguousarray(view.of(region)).reshape(view.shape)))
                continue
            strides = [stride // item for stride in view.strides]
            empty = torch.empty(0, dtype=self.dtypes[view.dtype], device=self.device)
            made.append(empty.set_(storage, view.offset // item, view.shape, strides))
        return made

    def kernel(self, source: str, name: str) -> Kernel:
        """CUDA C, by CuPy's compiler, where CuPy is installed too."""
        if self.device.type != "cuda":
            return super().kernel(source, name)
        return cuda_kernel(source, name)

    def enter_thread(self) -> None:
        """The current device is a thread's own."""
        if self.device.type == "cuda":
            self._torch.cuda.set_device(self.device)

    def memory(self) -> int:
        """All of the device's."""
        if self.device.type == "cuda":
            return int(self._torch.cuda.mem_get_info(self.device)[1])
        return super().memory()

    def limit(self, size: int) -> None:
        """A share of the device's memory."""
        if self.device.type == "cuda":
            share = min(1.0, size / self._torch.cuda.mem_get_info(self.device)[1])
            self._torch.cuda.set_per_process_memory_fraction(share, self.device)
        super().limit(size)

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            self._torch.cuda.synchronize(self.device)

    def trim_memory(self) -> None:
        """Empty torch's cache."""
        if self.device.type == "cuda":
            self._torch.cuda.empty_cache()
