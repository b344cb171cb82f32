"""The kinds of device that an app runs on: the CPU here, the others in modules of their own."""

from __future__ import annotations

import importlib
import os
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np

from dovetail.errors import InputError
from dovetail_lab.apps.interfaces import Array, Device, Implementation, Timing

if TYPE_CHECKING:
    from dovetail_lab.apps.opencl import OpenCL


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


class CoreAndDevice:
    """A core and an OpenCL device at once; the app divides its data by their speeds."""

    def __init__(self, which: str) -> None:
        # Where the device is PoCL, the host's share of the work takes one of the cores.
        os.environ["POCL_MAX_PTHREAD_COUNT"] = str(max(1, len(os.sched_getaffinity(0)) - 1))
        from dovetail_lab.apps.opencl import OpenCL

        self._opencl = OpenCL(which)
        self._cpu = Cpu()
        self.library = f"{self._cpu.library}, {self._opencl.library}"
        self.device_name = f"cpu + {self._opencl.device_name}"
        self.setup_seconds = self._opencl.setup_seconds

    def run(self, app: Implementation, inputs: tuple[Array, ...]) -> tuple[Array, Timing]:
        """Run ``app.both``; all of it is wall-clock time, but what the device copies is counted."""
        both = getattr(app, "both", None)
        if both is None:
            raise InputError("device 'cpu+opencl' is for the apps that run on several nodes")
        share = 0.0

        def divided(device: OpenCL, *given: Array) -> Array:
            nonlocal share
            output, share = both(device, *given)
            return cast(Array, output)

        begin = time.perf_counter()
        output, timing = self._opencl.run(cast(Implementation, SimpleNamespace(opencl=divided)), inputs)
        seconds = time.perf_counter() - begin - timing.build_seconds
        self.device_name = f"{self.device_name.partition(',')[0]}, {share:.0%} of the data on the cpu"
        return output, replace(timing, kernel_seconds=seconds, transfer_seconds=0.0)


def open_device(name: str) -> Device:
    """Open the device of this ``name``.

    Raises:
        InputError: the name is not known, or no such device is there.
        DeviceError: a device server is not there, or refuses.
    """
    kind, _, which = name.partition(":")
    if kind == "cpu" and not which:
        return Cpu()
    # Imported late: opening the CPU must not need any of these libraries.
    if kind == "opencl":
        from dovetail_lab.apps.opencl import OpenCL

        return OpenCL(which)
    if kind == "cpu+opencl":
        return CoreAndDevice(which)
    if kind == "remote" or (kind in ("numpy", "cuda") and not which):
        from dovetail_lab.apps.arrays import ArrayDevice

        return ArrayDevice.open(kind, which)
    raise InputError(
        f"device {name!r} is not known; expected cpu, opencl, opencl:TEXT, cpu+opencl, cuda, numpy, "
        "remote or remote:ADDRESS"
    )
