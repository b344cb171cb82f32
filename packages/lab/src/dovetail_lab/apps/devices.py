"""The kinds of device that an app runs on: the CPU here, the others in modules of their own."""

from __future__ import annotations

import importlib
import time

import numpy as np

from dovetail.errors import InputError
from dovetail_lab.apps.interfaces import Array, Device, Implementation, Timing

__all__ = ["open_device"]


class Cpu:
    """NumPy and SciPy on the cores that this process may use."""

    def __init__(self) -> None:
        self.library = f"numpy {np.__version__}"
        self.device_name = "cpu"
        self.setup_seconds = 0.0

    def run(self, app: Implementation, inputs: tuple[Array, ...]) -> tuple[Array, Timing]:
        """Run ``app.cpu``; nothing is transferred, and imports count as building."""
        begin = time.perf_counter()
        for module in getattr(app, "cpu_needs", ()):
            importlib.import_module(module)
        ready = time.perf_counter()
        output = app.cpu(*inputs)
        return output, Timing(time.perf_counter() - ready, build_seconds=ready - begin)


def open_device(name: str) -> Device:
    """Open the device that ``name`` asks for.

    Raises:
        InputError: the name is not known, or no such device is there.
        DeviceError: a device server is not there, or refuses.
    """
    kind, _, which = name.partition(":")
    if kind == "cpu" and not which:
        return Cpu()
    if kind == "opencl":
        from dovetail_lab.apps.opencl import OpenCL

        return OpenCL(which)
    if kind == "remote" or (kind in ("numpy", "cuda") and not which):
        from dovetail_lab.apps.arrays import ArrayDevice

        return ArrayDevice.open(kind, which)
    raise InputError(
        f"device {name!r} is not known; expected cpu, opencl, opencl:TEXT, cuda, numpy, remote or "
        "remote:ADDRESS"
    )
