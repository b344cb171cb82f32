"""What an app and a device are to each other: the words that every file of this room shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds and bytes of one run; ``build_seconds`` is the time to build kernels not built yet."""

    kernel_seconds: float
    transfer_seconds: float = 0.0
    bytes_to_device: int = 0
    bytes_from_device: int = 0
    build_seconds: float = 0.0

    def add_timing(self, other: Timing) -> Timing:
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
    :class:`dovetail_lab.apps.opencl.OpenCL`, and ``array_api`` is one source for every namespace of the
    Python array API standard (2023.12), given as ``xp``.  None of them changes its inputs.  A file
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
