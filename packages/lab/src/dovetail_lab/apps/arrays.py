"""Array-API devices: one source of an app on NumPy, CuPy or PyTorch, or on a device that is elsewhere."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail.errors import InputError
from dovetail.extras import MissingExtra
from dovetail_lab.apps.interfaces import Array, Implementation, Timing


def zeros_like_device(xp: Any, shape: tuple[int, ...], like: Any) -> Any:
    """Return zeros of the type and on the device of the array ``like``."""
    return xp.zeros(shape, dtype=like.dtype, device=getattr(like, "device", None))


def _wait_for_nothing() -> None:
    """Wait for nothing: host libraries have finished when they return."""


class ArrayDevice:
    """A namespace ``xp`` of the array API, with the way to bring arrays to its device and back."""

    def __init__(
        self,
        xp: Any,
        library: str,
        device_name: str,
        *,
        to_device: Callable[[Array], Any],
        from_device: Callable[[Any], Array],
        synchronize: Callable[[], None] = _wait_for_nothing,
        remote: bool = True,
        setup_seconds: float = 0.0,
    ) -> None:
        self.xp = xp
        self.library = library
        self.device_name = device_name
        self.setup_seconds = setup_seconds
        self._to_device = to_device
        self._from_device = from_device
        self._synchronize = synchronize
        self._remote = remote

    @classmethod
    def open(cls, kind: str, which: str = "") -> ArrayDevice:
        """Open ``numpy``, ``cuda`` (by CuPy where it is installed, else by PyTorch), or ``remote``.

        ``remote`` is a device of `dovetail_remote`, at the address ``which``, or at the one in the job's
        environment.

        Raises:
            InputError: the library or a CUDA device is missing.
            DeviceError: the device server is not there, or refuses.
        """
        begin = time.perf_counter()
        device = (
            _remote_device(which)
            if kind == "remote"
            else _numpy_device()
            if kind == "numpy"
            else _cuda_device()
        )
        device.setup_seconds = time.perf_counter() - begin
        return device

    def run(self, app: Implementation, inputs: tuple[Array, ...]) -> tuple[Array, Timing]:
        """Run ``app.array_api``, timed between synchronizations of the device."""
        if not hasattr(app, "array_api"):
            raise InputError("this app has no array-API source; its devices are cpu, opencl and cpu+opencl")
        start = time.perf_counter()
        there = [self._to_device(array) for array in inputs]
        # Transfers may be asynchronous: without this they would be counted as computing.
        self._synchronize()
        loaded = time.perf_counter()
        result = app.array_api(self.xp, *there)
        # So may the computation itself.
        self._synchronize()
        computed = time.perf_counter()
        output = self._from_device(result)
        done = time.perf_counter()
        # Without a device elsewhere there are no transfers to speak of.
        if not self._remote:
            return output, Timing(computed - loaded)
        sent = sum(array.nbytes for array in inputs)
        return output, Timing(computed - loaded, (loaded - start) + (done - computed), sent, output.nbytes)


def _try_import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        return None


def _compatible_namespace(library: str) -> Any:
    namespace = _try_import(f"array_api_compat.{library}")
    if namespace is None:
        raise MissingExtra("array_api_compat", what="the array API")
    return namespace


def _numpy_device() -> ArrayDevice:
    return ArrayDevice(
        _compatible_namespace("numpy"),
        f"numpy {np.__version__}",
        "cpu",
        to_device=np.asarray,
        from_device=np.asarray,
        remote=False,
    )


def _remote_device(which: str) -> ArrayDevice:
    from dovetail_remote import namespace

    xp = namespace(*[which] if which else [])
    return ArrayDevice(
        xp,
        xp.device.library,
        f"{xp.device.name} at {xp.device}",
        to_device=xp.asarray,
        from_device=np.asarray,
        synchronize=xp.device.synchronize,
    )


def _cuda_device() -> ArrayDevice:
    # CuPy first where both are installed.
    cupy = _try_import("cupy")
    if cupy is not None and cupy.cuda.is_available():
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        return ArrayDevice(
            _compatible_namespace("cupy"),
            f"cupy {cupy.__version__}",
            properties["name"].decode(),
            to_device=cupy.asarray,
            from_device=cupy.asnumpy,
            synchronize=cupy.cuda.Device().synchronize,
        )
    torch = _try_import("torch")
    if torch is not None and torch.cuda.is_available():
        return ArrayDevice(
            _compatible_namespace("torch"),
            f"torch {torch.__version__}",
            torch.cuda.get_device_name(),
            # PyTorch takes contiguous arrays only.
            to_device=lambda array: torch.from_numpy(np.ascontiguousarray(array)).to("cuda"),
            from_device=lambda tensor: np.asarray(tensor.cpu()),
            synchronize=torch.cuda.synchronize,
        )
    missing = (
        "CuPy and PyTorch are not installed" if cupy is None and torch is None else "no CUDA device was found"
    )
    raise InputError(f"device 'cuda' is not there: {missing}")
