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

from dovetail.errors import InputError
from dovetail_lab.apps.devices import open_device
from dovetail_lab.apps.interfaces import Array, Device, Implementation, Timing

__all__ = ["APPS", "AppSpec", "Result", "Sizes", "checksum", "compute", "find", "implementation", "run"]


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

    @property
    def largest(self) -> int:
        """The greatest ``--n`` that is tried at all: beyond it NumPy cannot even describe the arrays."""
        return 1 << 24 if self.n_means.startswith("side") else 1 << 32


@dataclass(frozen=True, slots=True)
class Result:
    """What one run did; seconds and bytes are totals over the ``repeat`` repetitions.

    ``seconds`` is kernel plus transfer time; ``setup_seconds``, the time to open the device, import and
    build, and ``inputs_seconds``, the time to make the inputs, are not in it.  ``checksum`` is a
    position-weighted sum of the magnitudes of the output, equal on all devices within the app's tolerance.
    """

    app: str
    device: str
    n: int
    seed: int
    repeat: int
    checksum: float
    seconds: float
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


def _table(*specs: AppSpec) -> Mapping[str, AppSpec]:
    return MappingProxyType({spec.name: spec for spec in specs})


#: The apps by name, in the order of the paper's Table 2.
APPS: Mapping[str, AppSpec] = _table(
    AppSpec(
        "binarysearch",
        "BinarySearch",
        60,
        4,
        "sorted numbers, and keys to find",
        Sizes(1 << 16, 1 << 20, 1 << 22),
        0,
    ),
    AppSpec("bitonicsort", "BitonicSort", 933, 9122, "numbers to sort", Sizes(1 << 16, 1 << 20, 1 << 22), 0),
    AppSpec(
        "fastwalsh",
        "FastWalshTransform",
        77,
        236,
        "elements of the signal",
        Sizes(1 << 18, 1 << 22, 1 << 24),
        1e-5,
    ),
    AppSpec("dct", "DCT", 49, 503, "side of the image in pixels", Sizes(512, 2048, 6144), 1e-5),
    AppSpec(
        "dwthaar1d", "DwtHaar1D", 842, 924, "elements of the signal", Sizes(1 << 18, 1 << 22, 1 << 25), 1e-5
    ),
    AppSpec(
        "eigenvalue", "EigenValue", 712, 1448, "side of the tridiagonal matrix", Sizes(256, 1024, 3072), 1e-12
    ),
    AppSpec("fft", "FFT", 1.6, 0.2, "elements of the complex signal", Sizes(1 << 18, 1 << 21, 1 << 24), 1e-5),
    AppSpec("floydwarshall", "FloydWarshall", 45, 527, "side: nodes of the graph", Sizes(256, 768, 1280), 0),
    AppSpec(
        "matmul",
        "MatrixMultiplication",
        41,
        4475,
        "side of the two square matrices",
        Sizes(256, 1024, 2048),
        1e-5,
    ),
    AppSpec(
        "transpose", "MatrixTranspose", 999, 3736, "side of the square matrix", Sizes(512, 4096, 8192), 0
    ),
    AppSpec("prefixsum", "PrefixSum", 112, 3, "numbers to add up", Sizes(1 << 16, 1 << 20, 1 << 25), 0),
    AppSpec(
        "quasirandom",
        "QuasiRandomSequence",
        18,
        441,
        "points of 8 dimensions",
        Sizes(1 << 18, 1 << 21, 1 << 23),
        0,
    ),
    AppSpec(
        "reduction", "Reduction", 26, 340, "elements that are summed", Sizes(1 << 20, 1 << 24, 1 << 27), 1e-12
    ),
    AppSpec("scan", "ScanLargeArrays", 17, 154, "numbers to add up", Sizes(1 << 18, 1 << 22, 1 << 25), 1e-12),
    AppSpec(
        "convolution",
        "SimpleConvolution",
        287,
        481,
        "side of the image in pixels",
        Sizes(512, 2048, 6144),
        1e-5,
    ),
    AppSpec("sobel", "SobelFilter", 8, 13, "side of the image in pixels", Sizes(512, 4096, 8192), 1e-6),
)

_BY_PAPER_NAME = {spec.paper_name.lower(): spec for spec in APPS.values()}


def find(name: str) -> AppSpec:
    """Return the app of this name, or of this name in the paper's suite, in any case.

    Raises:
        InputError: there is no such app.
    """
    found = APPS.get(name.lower()) or _BY_PAPER_NAME.get(name.lower())
    if found is None:
        raise InputError(f"app {name!r} is not known; the apps are {', '.join(APPS)}")
    return found


def implementation(name: str) -> Implementation:
    """Import and return the module that implements app ``name``.

    Raises:
        InputError: there is no such app.
    """
    return cast(Implementation, importlib.import_module(f"dovetail_lab.apps.{find(name).name}"))


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
            ``cuda`` (CuPy, else PyTorch), ``numpy`` (the array-API source on NumPy), or ``remote`` (the same
            on a device elsewhere; ``remote:ADDRESS``).
        n: the size, as ``n_means`` says; the medium size when left out.
        seed: seed of the generator that makes the inputs; equal seeds give equal inputs on all devices.
        repeat: how often the app runs over the same inputs, transfers included.

    Raises:
        InputError: unknown app, unknown or absent device, or a number out of range.
    """
    import time

    spec = find(name)
    app = implementation(spec.name)
    size = spec.sizes.medium if n is None else n
    given: dict[str, object] = {"n": size, "seed": seed, "repeat": repeat}
    for what, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"{what} is {value!r}; expected a whole number")
    if size < 0:
        raise InputError(f"n is {size}; expected zero or more")
    if size > spec.largest:
        raise InputError(f"n is {size}; {spec.name} takes {spec.largest} at most")
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
        raise InputError(f"{spec.name} with n = {size} does not fit into memory: {error}") from error
    return Result(
        app=spec.name,
        device=device,
        n=size,
        seed=seed,
        repeat=repeat,
        checksum=checksum(output),
        seconds=timing.kernel_seconds + timing.transfer_seconds,
        kernel_seconds=timing.kernel_seconds,
        transfer_seconds=timing.transfer_seconds,
        bytes_to_device=timing.bytes_to_device,
        bytes_from_device=timing.bytes_from_device,
        setup_seconds=opened.setup_seconds + timing.build_seconds,
        inputs_seconds=inputs_seconds,
        library=opened.library,
        device_name=opened.device_name,
    )
