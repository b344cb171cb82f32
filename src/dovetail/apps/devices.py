"""The kinds of device that an app runs on, and how a run on each is timed."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError

__all__ = ["Array", "Device", "Implementation", "Timing", "open_device"]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds and bytes of one run; ``build_seconds`` is the time to build kernels not built yet."""

    kernel_seconds: float
    transfer_seconds: float = 0.0
    bytes_to_device: int = 0
    bytes_from_device: int = 0
    build_seconds: float = 0.0

    def plus(self, other: Timing) -> Timing:
        """Return the totals of two runs."""
        return Timing(
            self.kernel_seconds + other.kernel_seconds,
            self.transfer_seconds + other.transfer_seconds,
            self.bytes_to_device + other.bytes_to_device,
            self.bytes_from_device + other.bytes_from_device,
            self.build_seconds + other.build_seconds,
        )


class Implementation(Protocol):
    """What the file of an app defines; ``inputs`` comes back as positional arguments of the others.

    ``cpu`` is NumPy or SciPy at its natural best, ``opencl`` drives the kernels of the file through an
    :class:`dovetail.apps.opencl.OpenCL`, and ``array_api`` is one source for every namespace of the Python
    array API standard (2023.12), given as ``xp``.  None of them changes its inputs.  A file
    whose ``cpu`` imports more than NumPy names the modules in ``cpu_needs``: imports are not timed as work.
    """

    @property
    def inputs(self) -> Callable[[int, np.random.Generator], tuple[Array, ...]]:
        """Make the inputs of size n."""

    @property
    def cpu(self) -> Callable[..., Array]:
        """Compute with NumPy or SciPy."""

    @property
    def opencl(self) -> Callable[..., Array]:
        """Compute on an OpenCL device."""

    @property
    def array_api(self) -> Callable[..., Any]:
        """Compute with any array-API namespace."""


class Device(Protocol):
    """An open device."""

    library: str
    device_name: str
    setup_seconds: float

    def run(self, app: Implementation, inputs: tuple[Array, ...]) -> tuple[Array, Timing]:
        """Run ``app`` once and return its output on the host."""


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
    """
    kind, _, which = name.partition(":")
    if kind == "cpu" and not which:
        return Cpu()
    if kind == "opencl":
        from dovetail.apps.opencl import OpenCL

        return OpenCL(which)
    if kind in ("numpy", "cuda") and not which:
        from dovetail.apps.arrays import ArrayDevice

        return ArrayDevice.open(kind)
    raise InputError(f"device {name!r} is not known; expected cpu, opencl, opencl:TEXT, cuda or numpy")
