"""What apps there are, and how to run one in this process.

Source of the names and of the paper's times: C. Gregg, M. Boyer, K. Hazelwood, K. Skadron, "Dynamic
Heterogeneous Scheduling Decisions Using Historical Runtime Data" (2011), Table 2.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from dovetail.apps.devices import Array, Device, Implementation, Timing, open_device
from dovetail.errors import InputError

__all__ = ["APPS", "AppSpec", "Result", "Sizes", "checksum", "compute", "implementation", "run"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Three values of ``--n`` that are worth comparing on one core; ``docs/reference/apps.md`` has times."""

    small: int
    medium: int
    large: int


@dataclass(frozen=True, slots=True)
class AppSpec:
    """One benchmark app.

    ``tolerance`` bounds the difference between any two devices: ``max |a - b| <= tolerance * max |b|``;
    zero says that all devices give the same bits.
    """

    name: str
    paper_name: str
    paper_gpu_milliseconds: float
    paper_cpu_milliseconds: float
    n_means: str
    sizes: Sizes
    tolerance: float
    module: str


@dataclass(frozen=True, slots=True)
class Result:
    """What one run did; seconds and bytes are totals over the ``repeat`` repetitions.

    ``setup_seconds`` is the time to open the device and to build the kernels, ``inputs_seconds`` the time to
    make the inputs; neither is in ``kernel_seconds``.  ``checksum`` is a position-weighted sum of the
    magnitudes of the output, equal on all devices within the app's tolerance.
    """

    app: str
    device: str
    n: int
    seed: int
    repeat: int
    checksum: float
    kernel_seconds: float
    transfer_seconds: float
    bytes_to_device: int
    bytes_from_device: int
    setup_seconds: float
    inputs_seconds: float
    library: str
    device_name: str

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values."""
        return asdict(self)


def _spec(
    module: str,
    name: str,
    paper_name: str,
    paper: tuple[float, float],
    n_means: str,
    sizes: tuple[int, int, int],
    tolerance: float,
) -> tuple[str, AppSpec]:
    return name, AppSpec(
        name, paper_name, *paper, n_means, Sizes(*sizes), tolerance, f"dovetail.apps.{module}"
    )


#: The apps by name, in the order of the paper's Table 2.  Paper times are (GPU, CPU) in milliseconds.
APPS: Mapping[str, AppSpec] = MappingProxyType(
    dict(
        (
            _spec(
                "fft",
                "fft",
                "FFT",
                (1.6, 0.2),
                "elements of the complex signal",
                (1 << 18, 1 << 21, 1 << 23),
                1e-5,
            ),
            _spec(
                "floydwarshall",
                "floydwarshall",
                "FloydWarshall",
                (45, 527),
                "side: nodes of the graph",
                (256, 768, 1536),
                0.0,
            ),
            _spec(
                "matmul",
                "matmul",
                "MatrixMultiplication",
                (41, 4475),
                "side of the two square matrices",
                (256, 1024, 2048),
                1e-5,
            ),
            _spec(
                "quasirandom",
                "quasirandom",
                "QuasiRandomSequence",
                (18, 441),
                "points of 8 dimensions",
                (1 << 16, 1 << 19, 1 << 21),
                0.0,
            ),
            _spec(
                "reduction",
                "reduction",
                "Reduction",
                (26, 340),
                "elements that are summed",
                (1 << 20, 1 << 24, 1 << 26),
                1e-12,
            ),
            _spec(
                "sobel",
                "sobel",
                "SobelFilter",
                (8, 13),
                "side of the image in pixels",
                (512, 4096, 8192),
                1e-6,
            ),
        )
    )
)


def implementation(name: str) -> Implementation:
    """Import and return the module that implements app ``name``.

    Raises:
        InputError: there is no such app.
    """
    if name not in APPS:
        raise InputError(f"app {name!r} is not known; the apps are {', '.join(APPS)}")
    return cast(Implementation, importlib.import_module(APPS[name].module))


def checksum(output: Array) -> float:
    """Sum the magnitudes of ``output``, each weighted by ``1 + (i mod 1021) / 1021`` for flat index ``i``.

    Magnitudes make the sum well conditioned, so that rounding on different devices changes it by no more than
    the app's relative tolerance; the weights make it see misplaced elements.  Takes one pass, O(1021) memory
    beyond one block.
    """
    period, rows = 1021, 64
    flat = np.reshape(output, -1)
    sums = np.zeros(period)
    whole = flat.size - flat.size % period
    for start in range(0, whole, period * rows):
        block = flat[start : min(start + period * rows, whole)].reshape(-1, period)
        sums += np.abs(block).sum(axis=0, dtype=np.float64)
    rest = np.abs(flat[whole:])
    sums[: rest.size] += rest
    return math.fsum(sums * (1.0 + np.arange(period) / period))


def compute(name: str, device: Device, inputs: tuple[Array, ...]) -> tuple[Array, Timing]:
    """Run app ``name`` once on an open ``device`` over ``inputs``; return its output and the times."""
    return device.run(implementation(name), inputs)


def run(name: str, device: str = "cpu", n: int | None = None, seed: int = 0, repeat: int = 1) -> Result:
    """Make the inputs of size ``n`` from ``seed``, run app ``name`` on ``device`` ``repeat`` times.

    Args:
        name: a key of :data:`APPS`.
        device: ``cpu``, ``opencl``, ``opencl:TEXT`` (the first device whose name or platform has that text),
            ``cuda`` (CuPy, else PyTorch) or ``numpy`` (the array-API source on NumPy).
        n: the size, as ``n_means`` says; the medium size when left out.
        seed: seed of the generator that makes the inputs; equal seeds give equal inputs on all devices.
        repeat: how often the app runs over the same inputs, transfers included.

    Raises:
        InputError: unknown app, unknown or absent device, or a number out of range.
    """
    import time

    app = implementation(name)
    size = APPS[name].sizes.medium if n is None else n
    if size < 0:
        raise InputError(f"n is {size}; expected zero or more")
    if seed < 0:
        raise InputError(f"seed is {seed}; expected zero or more")
    if repeat < 1:
        raise InputError(f"repeat is {repeat}; expected one or more")
    opened = open_device(device)
    begin = time.perf_counter()
    try:
        inputs = app.inputs(size, np.random.Generator(np.random.PCG64(seed)))
        inputs_seconds = time.perf_counter() - begin
        output, timing = opened.run(app, inputs)
        for _ in range(repeat - 1):
            output, again = opened.run(app, inputs)
            timing = timing.plus(again)
    except MemoryError as error:
        raise InputError(f"{name} with n = {size} does not fit into memory: {error}") from error
    return Result(
        app=name,
        device=device,
        n=size,
        seed=seed,
        repeat=repeat,
        checksum=checksum(output),
        kernel_seconds=timing.kernel_seconds,
        transfer_seconds=timing.transfer_seconds,
        bytes_to_device=timing.bytes_to_device,
        bytes_from_device=timing.bytes_from_device,
        setup_seconds=opened.setup_seconds + timing.build_seconds,
        inputs_seconds=inputs_seconds,
        library=opened.library,
        device_name=opened.device_name,
    )
