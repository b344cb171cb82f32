"""Synthetic workloads after Aupy 2013, section 6: sets I-like, II and III.

The paper gives the structure of the times and leaves open which 65 (or 260) of the 120 combinations
were taken, the problem sizes m, and the constants; they are parameters here.  The decisive unknown is
``spread``, the ratio of the longest to the shortest sequential time.  The profiles of set I were
measured and never published: the I-like set imitates their number and the machine, nothing more.

Sequential times have the paper's forms in m (`generate_forms`), or are drawn without any (`generate_times`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail_lab.packing.profiles import repair_times

SERIAL_FRACTIONS = (0.0, 0.04, 0.08, 0.16, 0.32)

Kappa = Callable[[float, NDArray[np.float64]], NDArray[np.float64]]

KAPPAS: dict[str, Kappa] = {
    "none": lambda m, q: np.zeros_like(q),
    "log2 q": lambda m, q: np.log2(q),
    "(log2 q)^2": lambda m, q: np.log2(q) ** 2,
    "q log2 q": lambda m, q: q * np.log2(q),
    "(m/q) log2 q": lambda m, q: m / q * np.log2(q),
    "sqrt(m/q)": lambda m, q: np.sqrt(m / q),
    "m log2 q": lambda m, q: m * np.log2(q),
}
"""Overheads kappa(m, q) on q cores for problem size m, in seconds; the paper's six, and none."""

FORMS: dict[str, Callable[[float], float]] = {
    "c m": lambda m: m,
    "c m log2 m": lambda m: m * float(np.log2(m)),
    "c m^2": lambda m: m**2,
    "c m^3": lambda m: m**3,
}
"""How the sequential time grows with the problem size m, but for the constant c."""

CORES_PER_PROCESSOR = 8  # a processor of the paper is an 8-core node


def model_times(
    sequential: float,
    serial_fraction: float,
    kappa: str,
    processors: int,
    *,
    size: float = 1024.0,
    cores_per_processor: int = CORES_PER_PROCESSOR,
) -> NDArray[np.float64]:
    """t(m, q) = f t(m, 1) + (1 - f) t(m, 1) / q + kappa(m, q) at q = 8, 16 ... cores; not yet repaired.

    ``sequential`` is t(m, 1) in seconds, ``serial_fraction`` is f, ``size`` is m.  Returns float64 of
    shape ``(processors,)``.  Raises ``InputError`` for values out of range.  (Aupy 2013, section 6.)
    """
    if kappa not in KAPPAS:
        raise InputError(f"overhead {kappa!r} is not known; expected one of {', '.join(KAPPAS)}")
    if not 0.0 <= serial_fraction <= 1.0:
        raise InputError(f"serial fraction {serial_fraction} is not between 0 and 1")
    if not (np.isfinite(sequential) and sequential > 0.0):
        raise InputError(f"sequential time {sequential} is not a positive number of seconds")
    if not (np.isfinite(size) and size > 0.0):
        raise InputError(f"problem size {size} is not a positive number")
    if processors < 1 or cores_per_processor < 1:
        raise InputError(
            f"{processors} processors of {cores_per_processor} cores: expected at least one each"
        )
    # Core counts in multiples of a node, as the paper's processors are nodes of eight cores.
    cores = cores_per_processor * np.arange(1, processors + 1, dtype=np.float64)
    overhead = KAPPAS[kappa](size, cores)
    result: NDArray[np.float64] = (
        serial_fraction * sequential + (1.0 - serial_fraction) * sequential / cores + overhead
    )
    return result


def generate_times(
    tasks: int,
    processors: int,
    rng: np.random.Generator,
    *,
    spread: float = 10.0,
    size: float = 1024.0,
    scale: float = 1e5,
) -> NDArray[np.float64]:
    """A workload of the paper's form, repaired to satisfy Equations 1 and 2; shape ``(tasks, processors)``.

    The five serial fractions take turns, the overhead is drawn uniformly from the paper's six, and
    t(m, 1) = ``scale`` * U with U log-uniform between 1/sqrt(spread) and sqrt(spread).
    """
    _check_arguments(tasks, spread)
    kappas = [name for name in KAPPAS if name != "none"]
    times = np.empty((tasks, processors))
    for i in range(tasks):
        # Log-uniform: as many tasks twice as long as half as long.
        sequential = scale * float(spread ** (rng.random() - 0.5))
        kappa = kappas[int(rng.integers(len(kappas)))]
        # In turns, not drawn: each workload then has all five fractions, as the paper's have.
        fraction = SERIAL_FRACTIONS[i % len(SERIAL_FRACTIONS)]
        times[i] = model_times(sequential, fraction, kappa, processors, size=size)
    return repair_times(times)[0]


def generate_forms(
    tasks: int,
    processors: int,
    rng: np.random.Generator,
    *,
    spread: float = 10.0,
    size: float = 1024.0,
    scale: float = 1e5,
) -> NDArray[np.float64]:
    """A workload of the paper's 120 combinations of f, t(m, 1) and overhead; shape ``(tasks, processors)``.

    Every 120 tasks take each combination once, in random order: 65 tasks are 65 different ones.  The sizes m
    are log-uniform about ``size``, such that the cubes of the largest and the smallest differ by ``spread``;
    c makes t(``size``, 1) = ``scale`` seconds for each of the four `FORMS`.  Repaired for Equations 1 and 2.
    """
    _check_arguments(tasks, spread)
    kappas = [name for name in KAPPAS if name != "none"]
    combinations = list(product(SERIAL_FRACTIONS, FORMS.values(), kappas))
    times = np.empty((tasks, processors))
    order: list[int] = []
    for i in range(tasks):
        order = order or rng.permutation(len(combinations)).tolist()
        fraction, form, kappa = combinations[order.pop()]
        m = size * float(spread ** ((rng.random() - 0.5) / 3.0))
        sequential = scale * form(m) / form(size)
        times[i] = model_times(sequential, fraction, kappa, processors, size=m)
    return repair_times(times)[0]


def _check_arguments(tasks: int, spread: float) -> None:
    if tasks < 1:
        raise InputError(f"{tasks} tasks: expected at least one")
    if not (np.isfinite(spread) and spread >= 1.0):
        raise InputError(f"spread {spread} is not a number of at least 1")


def set_1_like(rng: np.random.Generator, *, spread: float = 10.0, forms: bool = False) -> NDArray[np.float64]:
    """Ten tasks on 16 nodes, in place of the ten measured applications."""
    return _choose_generator(forms)(10, 16, rng, spread=spread)


def set_2(rng: np.random.Generator, *, spread: float = 10.0, forms: bool = False) -> NDArray[np.float64]:
    """Workload II: 65 tasks on 16 nodes (128 cores); ``forms`` as in `generate_forms`."""
    return _choose_generator(forms)(65, 16, rng, spread=spread)


def set_3(rng: np.random.Generator, *, spread: float = 10.0, forms: bool = False) -> NDArray[np.float64]:
    """Workload III: 260 tasks on 32 nodes (256 cores); ``forms`` as in `generate_forms`."""
    return _choose_generator(forms)(260, 32, rng, spread=spread)


def _choose_generator(forms: bool) -> Callable[..., NDArray[np.float64]]:
    return generate_forms if forms else generate_times
