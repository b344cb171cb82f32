"""What apps there are, and how to run one in this process.

Sources of the names and of the papers' times: C. Gregg, M. Boyer, K. Hazelwood, K. Skadron, "Dynamic
Heterogeneous Scheduling Decisions Using Historical Runtime Data" (2011), Table 2; V. Ravi, M. Becchi,
W. Jiang, G. Agrawal, S. Chakradhar, "Scheduling Concurrent Applications on a Cluster of CPU-GPU Nodes"
(2012), Figures 1 and 2.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import numpy as np

from dovetail.errors import InputError
from dovetail.extras import MissingExtra
from dovetail_lab.apps.devices import open_device
from dovetail_lab.apps.interfaces import Array, Device, Implementation, Timing


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
    zero: all devices give the same bits.  ``iterations``, of an app that takes them: usually, and in
    the configuration of many.  ``nodes``: it also runs on several nodes, and on core and device at once.
    """

    name: str
    paper_name: str
    paper_gpu_milliseconds: float
    paper_cpu_milliseconds: float
    n_means: str
    sizes: Sizes
    tolerance: float
    iterations: tuple[int, int] | None = None
    nodes: bool = False

    def configuration_of(self, role: str) -> tuple[int, int | None] | None:
        """Size and iterations of ``small``, ``medium``, ``large``, and ``iterations`` where it takes them."""
        usual, many = self.iterations or (None, None)
        if role == "iterations" and many is not None:
            return self.sizes.large, many
        return (getattr(self.sizes, role), usual) if role in ("small", "medium", "large") else None

    @property
    def largest_size(self) -> int:
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
    iterations: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values; iterations only of an app that takes them."""
        fields = asdict(self)
        return {name: value for name, value in fields.items() if value is not None}


def _table_of_apps(*specs: AppSpec) -> Mapping[str, AppSpec]:
    return MappingProxyType({spec.name: spec for spec in specs})


#: The apps by name, in the order of the paper's Table 2.
APPS: Mapping[str, AppSpec] = _table_of_apps(
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

#: The apps of Ravi 2012, in the order of its Figures 1 and 2: times on all cores of a node (SQ / MP) and on
#: a GPU (SQ / GP); of the last three, which run on several nodes, on two of them with the smaller data set.
RAVI: Mapping[str, AppSpec] = _table_of_apps(
    AppSpec(
        "pdesolver", "PDESolver", 1553, 1074, "side of the square", Sizes(512, 1024, 3072), 1e-5, (8, 64)
    ),
    AppSpec(
        "imageprocessing",
        "ImageProcessing",
        6627,
        4333,
        "side of the image in pixels",
        Sizes(512, 1024, 3072),
        1e-5,
        (4, 32),
    ),
    AppSpec("fdtd", "FDTD", 3818, 1105, "side of the square", Sizes(512, 1024, 3072), 1e-5, (8, 64)),
    AppSpec(
        "blackscholes", "BlackScholes", 1238, 361, "options", Sizes(1 << 16, 1 << 18, 1 << 21), 1e-5, (2, 16)
    ),
    AppSpec(
        "binomialoptions", "BinomialOptions", 2107, 2810, "options", Sizes(256, 1024, 4096), 1e-4, (16, 48)
    ),
    AppSpec("montecarlo", "MonteCarlo", 1182, 5747, "options", Sizes(256, 1024, 4096), 1e-4, (16, 128)),
    AppSpec(
        "kmeans",
        "Kmeans",
        27273,
        42308,
        "points of 4 dimensions",
        Sizes(1 << 16, 1 << 18, 1 << 21),
        1e-3,
        (2, 16),
    ),
    AppSpec(
        "knn", "KNN", 8628, 10855, "points of 4 dimensions", Sizes(1 << 16, 1 << 18, 1 << 21), 1e-5, (8, 64)
    ),
    AppSpec(
        "pca", "PCA", 14639, 25357, "points of 32 dimensions", Sizes(1 << 14, 1 << 16, 1 << 19), 1e-3, (8, 64)
    ),
    AppSpec(
        "moleculardynamics",
        "MolecularDynamics",
        3612,
        5899,
        "side of the lattice of atoms",
        Sizes(8, 16, 32),
        1e-4,
        (4, 24),
    ),
    AppSpec(
        "gridding",
        "GK",
        311000,
        314000,
        "visibilities",
        Sizes(1 << 13, 1 << 15, 1 << 17),
        1e-5,
        (2, 16),
        nodes=True,
    ),
    AppSpec(
        "em",
        "EM",
        39000,
        109000,
        "points of 4 dimensions",
        Sizes(1 << 15, 1 << 17, 1 << 20),
        1e-3,
        (4, 24),
        nodes=True,
    ),
    AppSpec(
        "pagerank",
        "PR",
        1100,
        6500,
        "pages with 8 links each",
        Sizes(1 << 16, 1 << 18, 1 << 21),
        1e-5,
        (4, 32),
        nodes=True,
    ),
)

SUITES: Mapping[str, Mapping[str, AppSpec]] = MappingProxyType({"gregg": APPS, "ravi": RAVI})
_BY_PAPER_NAME = {spec.paper_name.lower(): spec for spec in (*APPS.values(), *RAVI.values())}


def find_app(name: str) -> AppSpec:
    """Return the app of this name, or of this name in the paper's suite, in any case.

    Raises:
        InputError: there is no such app.
    """
    found = APPS.get(name.lower()) or RAVI.get(name.lower()) or _BY_PAPER_NAME.get(name.lower())
    if found is None:
        raise InputError(f"app {name!r} is not known; the apps are {', '.join((*APPS, *RAVI))}")
    return found


def load_implementation(name: str) -> Implementation:
    """Import and return the module that implements app ``name``.

    Raises:
        InputError: there is no such app.
    """
    folder = "ravi." if find_app(name).name in RAVI else ""
    return cast(Implementation, importlib.import_module(f"dovetail_lab.apps.{folder}{find_app(name).name}"))


def bind_iterations(name: str, iterations: int | None, world: Any = None) -> Implementation:
    """The app with its number of iterations filled in, and the communicator of its ranks if there is one."""
    app, spec = load_implementation(name), find_app(name)
    # An app without iterations needs nothing filled in.
    if spec.iterations is None:
        return app
    given = {"iterations": spec.iterations[0] if iterations is None else iterations}
    given |= {} if world is None else {"world": world}
    forms = {
        form: getattr(app, form) for form in ("cpu", "opencl", "array_api", "both") if hasattr(app, form)
    }
    ready = SimpleNamespace(inputs=app.inputs, cpu_needs=getattr(app, "cpu_needs", ()))
    ready.__dict__.update({form: partial(do, **given) for form, do in forms.items()})
    return cast(Implementation, ready)


def weighted_checksum(output: Array) -> float:
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


def compute_once(name: str, device: Device, inputs: tuple[Array, ...]) -> tuple[Array, Timing]:
    """Run app ``name`` once on an open ``device`` over ``inputs``; return its output and the times."""
    return device.run(load_implementation(name), inputs)


def run_app(
    name: str,
    device: str = "cpu",
    n: int | None = None,
    seed: int = 0,
    repeat: int = 1,
    iterations: int | None = None,
) -> Result:
    """Make the inputs of size ``n`` from ``seed``, run app ``name`` on ``device`` ``repeat`` times.

    Args:
        name: a key of :data:`APPS`.
        device: ``cpu``, ``opencl``, ``opencl:TEXT`` (the first device whose name or platform has that text),
            ``cuda`` (CuPy, else PyTorch), ``numpy`` (the array-API source on NumPy), ``remote`` (the same
            on a device elsewhere; ``remote:ADDRESS``), or ``cpu+opencl``, both at once with a part of the
            data each, for those apps that also run on several nodes.
        n: the size, as ``n_means`` has it; the medium size when left out.
        seed: seed of the generator that makes the inputs; equal seeds give equal inputs on all devices.
        repeat: how often the app runs over the same inputs, transfers included.
        iterations: of an app of Ravi 2012; its usual number when left out.

    Where DOVETAIL_RANKS makes this one of several processes, an app for several nodes takes its part
    of the data, and the result, on each of them, is that of all.

    Raises:
        InputError: unknown app, unknown or absent device, or a number out of range.
    """
    import time

    spec = find_app(name)
    size = spec.sizes.medium if n is None else n
    given: dict[str, object] = {"n": size, "seed": seed, "repeat": repeat}
    if iterations is not None:
        given["iterations"] = iterations
    for what, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"{what} is {value!r}; expected a whole number")
    if size < 0:
        raise InputError(f"n is {size}; expected zero or more")
    if size > spec.largest_size:
        raise InputError(f"n is {size}; {spec.name} takes {spec.largest_size} at most")
    if seed < 0:
        raise InputError(f"seed is {seed}; expected zero or more")
    if repeat < 1:
        raise InputError(f"repeat is {repeat}; expected one or more")
    if iterations is not None and spec.iterations is None:
        raise InputError(f"iterations is {iterations}; {spec.name} takes none")
    if iterations is not None and iterations < 1:
        raise InputError(f"iterations is {iterations}; expected one or more")
    app = bind_iterations(spec.name, iterations, _communicator_of_ranks(spec))
    opened = open_device(device)
    begin = time.perf_counter()
    try:
        inputs = app.inputs(size, np.random.Generator(np.random.PCG64(seed)))
        inputs_seconds = time.perf_counter() - begin
        output, timing = opened.run(app, inputs)
        # Over the same inputs, as making them can take longer than the app.
        for _ in range(repeat - 1):
            output, again = opened.run(app, inputs)
            timing = timing.add_timing(again)
    except MemoryError as error:
        raise InputError(f"{spec.name} with n = {size} does not fit into memory: {error}") from error
    return Result(
        app=spec.name,
        device=device,
        n=size,
        seed=seed,
        repeat=repeat,
        checksum=weighted_checksum(output),
        seconds=timing.kernel_seconds + timing.transfer_seconds,
        kernel_seconds=timing.kernel_seconds,
        transfer_seconds=timing.transfer_seconds,
        bytes_to_device=timing.bytes_to_device,
        bytes_from_device=timing.bytes_from_device,
        setup_seconds=opened.setup_seconds + timing.build_seconds,
        inputs_seconds=inputs_seconds,
        library=opened.library,
        device_name=opened.device_name,
        iterations=(iterations or spec.iterations[0]) if spec.iterations else None,
    )


def _communicator_of_ranks(spec: AppSpec) -> Any:
    """The communicator of all ranks; ``None`` where there is one."""
    # Without several ranks no MPI is needed, and none is loaded.
    if os.environ.get("DOVETAIL_RANKS", "1") == "1":
        return None
    if not spec.nodes:
        raise InputError(f"{spec.name} runs on one node; DOVETAIL_RANKS is {os.environ['DOVETAIL_RANKS']}")
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "mpi4py":
            raise MissingExtra("mpi4py", what=f"{spec.name} on several nodes") from error
        what = f"mpi4py is installed and cannot load its MPI library: {error}"  # or finds none
        raise InputError(f"{spec.name} on several nodes: {what}") from error
    return MPI.COMM_WORLD
