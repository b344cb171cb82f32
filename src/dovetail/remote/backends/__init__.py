"""Devices by name: ``numpy``, ``torch``, ``torch:cuda:0``, ``cuda:0``, ``opencl``, ``opencl:TEXT``."""

from __future__ import annotations

from dovetail.errors import InputError
from dovetail.remote.backends.base import Backend

__all__ = ["Backend", "open_backend"]


def open_backend(spec: str) -> Backend:
    """Open the device that ``spec`` names; imports its library. Raises `InputError`."""
    kind, _, which = spec.partition(":")
    if kind == "numpy" and not which:
        from dovetail.remote.backends.numpy import NumpyBackend

        return NumpyBackend()
    if kind == "torch":
        from dovetail.remote.backends.torch import TorchBackend

        return TorchBackend(which or "cpu")
    if kind == "cuda" and (not which or which.isdecimal()):
        from dovetail.remote.backends.cupy import open_cuda

        return open_cuda(int(which or 0))
    if kind == "opencl":
        from dovetail.remote.backends.opencl import OpenCLBackend

        return OpenCLBackend(which)
    raise InputError(
        f"device {spec!r} is not known; expected numpy, torch, torch:DEVICE, cuda:N, opencl or opencl:TEXT"
    )
