"""Devices by name: ``numpy``, ``torch``, ``torch:cuda:0``, ``cuda:0``, ``opencl``, ``opencl:TEXT``."""

from __future__ import annotations

import importlib.util

from dovetail.errors import InputError
from dovetail_remote.backends.base import Backend

__all__ = ["Backend", "open_backend"]


def open_backend(spec: str) -> Backend:
    """Open the device that ``spec`` names; imports its library. Raises `InputError`."""
    kind, _, which = spec.partition(":")
    if kind == "numpy" and not which:
        from dovetail_remote.backends.numpy import NumpyBackend

        return NumpyBackend()
    if kind == "cuda" and (not which or which.isdecimal()):
        if importlib.util.find_spec("cupy") is not None:
            from dovetail_remote.backends.cupy import CupyBackend

            return CupyBackend(int(which or 0))
        if importlib.util.find_spec("torch") is None:
            raise InputError(f"device 'cuda:{which or 0}' is not there: CuPy and PyTorch are not installed")
        kind, which = "torch", f"cuda:{which or 0}"
    if kind == "torch":
        from dovetail_remote.backends.torch import TorchBackend

        return TorchBackend(which or "cpu")
    if kind == "opencl":
        from dovetail_remote.backends.opencl import OpenCLBackend

        return OpenCLBackend(which)
    raise InputError(
        f"device {spec!r} is not known; expected numpy, torch, torch:DEVICE, cuda:N, opencl or opencl:TEXT"
    )
