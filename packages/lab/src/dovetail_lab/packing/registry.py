"""The algorithms by name, and ``solve``, which checks, runs, times and measures one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail_lab.packing.annealing import STEPS, anneal_packs
from dovetail_lab.packing.bounds import area_bound
from dovetail_lab.packing.contiguous import contiguous_groups, contiguous_packs
from dovetail_lab.packing.deadline import Deadline
from dovetail_lab.packing.exhaustive import search_exhaustively, subset_dp
from dovetail_lab.packing.list_schedule import best_list, improve_list
from dovetail_lab.packing.matching import each_alone, match_pairs
from dovetail_lab.packing.one_pack import single_pack
from dovetail_lab.packing.pack_approx import pack_approx, pack_approx_literal
from dovetail_lab.packing.pack_by_pack import NINE, ONE, pack_by_pack
from dovetail_lab.packing.random_heuristics import random_pack, random_proc
from dovetail_lab.packing.schedule import ListSchedule, Metrics, Outcome, Packing, measure_schedule

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may set: the seed, seconds of wall time, and how two algorithms read the paper."""

    seed: int = 1
    time_limit: float | None = None
    full_range: bool = False  # random-proc draws from 1..p, not 1..floor(p/k)
    literal: bool = False  # ilp: Theorem 4 as printed


@dataclass(frozen=True, slots=True)
class Request:
    """One call: ``k`` is within 1..p already, ``given`` is the user's."""

    times: Floats
    k: int
    given: int
    options: Options
    rng: np.random.Generator
    deadline: Deadline


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A name of the command line, what stands behind it, and its limit in CPU seconds where none is given."""

    name: str
    summary: str
    run: Callable[[Request], Outcome]
    time_limit: float | None = None


@dataclass(frozen=True, slots=True)
class Solution:
    """An outcome with its measures; ``seconds`` is CPU time of the algorithm, kernels loaded."""

    algorithm: str
    k: int
    processors: int
    schedule: Packing | ListSchedule
    metrics: Metrics
    lower_bound: float | None
    proven_optimal: bool
    seconds: float
    notes: tuple[str, ...]

    @property
    def gap(self) -> float | None:
        """(cost - lower bound) / lower bound, where there is a bound."""
        if self.lower_bound is None:
            return None
        return self.metrics.cost / self.lower_bound - 1.0


def solve(times: Floats, k: int, algorithm: str, options: Options | None = None) -> Solution:
    """Run ``algorithm`` for packs of at most ``k`` tasks; ``k`` above p counts as p.

    ``times`` must satisfy Equations 1 and 2 (see ``profiles.check_times`` and ``profiles.repair``).
    Raises ``InputError`` for an unknown name, k below 1, a negative time limit, and where the
    algorithm does not take the instance.
    """
    options = options or Options()
    if algorithm not in ALGORITHMS:
        raise InputError(f"algorithm {algorithm!r} is not known; expected one of {', '.join(ALGORITHMS)}")
    if k < 1:
        raise InputError(f"k is {k}, expected at least 1")
    if options.time_limit is not None and not (math.isfinite(options.time_limit) and options.time_limit > 0):
        raise InputError(f"time limit {options.time_limit} is not a positive number of seconds")
    entry = ALGORITHMS[algorithm]
    n, p = times.shape
    times = np.ascontiguousarray(times, dtype=np.float64)
    load_kernels(algorithm, min(k, p), n)
    # A limit that a user gives is wall time; ours is CPU time, which does not depend on what else runs.
    deadline = (
        Deadline(entry.time_limit, cpu=True) if options.time_limit is None else Deadline(options.time_limit)
    )
    rng = np.random.Generator(np.random.PCG64(options.seed))
    # CPU time, so that other processes on the machine do not count; kernels are loaded by now.
    begin = time.process_time()
    outcome = entry.run(Request(times, min(k, p), k, options, rng, deadline))
    seconds = time.process_time() - begin
    return Solution(
        algorithm=algorithm,
        k=min(k, p),
        processors=p,
        schedule=outcome.schedule,
        metrics=measure_schedule(times, outcome.schedule),
        lower_bound=outcome.lower_bound,
        proven_optimal=outcome.proven_optimal,
        seconds=seconds,
        notes=outcome.notes,
    )


def load_kernels(algorithm: str, k: int, tasks: int) -> None:
    """Compile or load the kernels that ``algorithm`` will use, by running it on a tiny instance.

    So that neither compilation nor imports count as the algorithm's time, and none is compiled that
    the algorithm does not need.
    """
    parts = [algorithm]
    if algorithm == "auto":
        from dovetail_lab.packing.auto import FEW_TASKS
        from dovetail_lab.packing.listed import LISTED_TASKS

        parts = []
        if k > 1 and tasks <= LISTED_TASKS:
            parts.append("subset-dp")
        if k == 2:
            parts.append("matching")
        if k > 1 and tasks > FEW_TASKS:
            parts += ["annealing", "column-generation"]
    small = np.array([[4.0, 2.5, 2.0], [3.0, 2.0, 1.5], [2.0, 1.5, 1.2]])
    for part in parts:
        rng = np.random.Generator(np.random.PCG64(0))
        most = 3 if part == "one-pack" else 2
        # The limit bounds the solvers; it leaves time to compile.
        ALGORITHMS[part].run(Request(small, most, most, Options(), rng, Deadline(600.0)))


def _exact_outcome(packing: Packing) -> Outcome:
    return Outcome(packing, packing.total_cost, proven_optimal=True)


def _pack_approx(request: Request) -> Outcome:
    return Outcome(pack_approx(request.times, request.k))


def _solve_matching(request: Request) -> Outcome:
    # One processor, although the user allows two tasks: each runs alone, and no matching is needed.
    if request.given == 2 and request.k == 1:
        return _exact_outcome(each_alone(request.times))
    return _exact_outcome(match_pairs(request.times, request.k))


def _subset_dp(request: Request) -> Outcome:
    packing = subset_dp(request.times, request.k, request.deadline)
    if packing is not None:
        return _exact_outcome(packing)
    return Outcome(
        contiguous_packs(request.times, request.k),
        notes=("the time limit ended the subset program; these are contiguous packs",),
    )


def _solve_integer_program(request: Request) -> Outcome:
    from dovetail_lab.packing.integer_program import integer_program

    return integer_program(
        request.times, request.k, deadline=request.deadline, literal=request.options.literal
    )


def _cp_sat(request: Request) -> Outcome:
    from dovetail_lab.packing.constraint_program import constraint_program

    return constraint_program(request.times, request.k, seed=request.options.seed, deadline=request.deadline)


def _solve_annealing(request: Request) -> Outcome:
    # From the best contiguous packs, which are found fast and often good.
    _, start = min(contiguous_groups(request.times, request.k), key=lambda way: way[0])
    return Outcome(
        anneal_packs(request.times, request.k, start, request.rng, steps=STEPS, deadline=request.deadline)
    )


def _column_generation(request: Request) -> Outcome:
    from dovetail_lab.packing.auto import column_generation

    return column_generation(request.times, request.k, request.rng, request.deadline)


def _solve_auto(request: Request) -> Outcome:
    from dovetail_lab.packing.auto import solve_automatically

    return solve_automatically(request.times, request.k, request.rng, request.deadline)


def _solve_list(request: Request) -> Outcome:
    _, order, sigma = best_list(request.times, request.deadline.at_most(0.5 * request.deadline.left))
    schedule = improve_list(request.times, order, sigma, request.rng, deadline=request.deadline)
    bound = min(area_bound(request.times), schedule.total_cost)
    return Outcome(schedule, bound, bound >= schedule.total_cost * (1.0 - 1e-12))


def _random_proc(runs: int) -> Callable[[Request], Outcome]:
    return lambda request: Outcome(
        random_proc(request.times, request.k, runs, request.rng, full_range=request.options.full_range)
    )


_BY_NAME = [
    Algorithm(
        "one-pack",
        "all tasks in one pack (Algorithm 1)",
        lambda request: Outcome(single_pack(request.times, request.k)),
    ),
    Algorithm("pack-approx", "Algorithm 3, each pack filled by Algorithm 1", _pack_approx),
    Algorithm(
        "pack-approx-literal",
        "Algorithm 3 as printed; 3-approximation for k = p",
        lambda request: Outcome(pack_approx_literal(request.times, request.k)),
    ),
    Algorithm(
        "pack-by-pack-1",
        "balanced packs, epsilon 0.5",
        lambda request: Outcome(pack_by_pack(request.times, request.k, ONE)),
    ),
    Algorithm(
        "pack-by-pack-9",
        "balanced packs, best of epsilon 0.1 to 0.9",
        lambda request: Outcome(pack_by_pack(request.times, request.k, NINE)),
    ),
    Algorithm(
        "random-pack-1",
        "random packs",
        lambda request: Outcome(random_pack(request.times, request.k, 1, request.rng)),
    ),
    Algorithm(
        "random-pack-9",
        "best of nine times random packs",
        lambda request: Outcome(random_pack(request.times, request.k, 9, request.rng)),
    ),
    Algorithm("random-proc-1", "random processors, then Make-pack", _random_proc(1)),
    Algorithm("random-proc-9", "best of nine times random processors", _random_proc(9)),
    Algorithm("matching", "optimal for k = 2 (Theorem 1)", _solve_matching),
    Algorithm(
        "exhaustive",
        "all partitions, up to 12 tasks",
        lambda request: _exact_outcome(search_exhaustively(request.times, request.k)),
    ),
    Algorithm("subset-dp", "optimal by a program over subsets, up to 20 tasks", _subset_dp),
    Algorithm("ilp", "the integer program of Theorem 4 (HiGHS)", _solve_integer_program, 30.0),
    Algorithm("cp-sat", "the stronger integer program (OR-tools)", _cp_sat, 30.0),
    Algorithm(
        "contiguous",
        "optimal cuts of a sorted list",
        lambda request: Outcome(contiguous_packs(request.times, request.k)),
    ),
    Algorithm("annealing", "contiguous packs, annealed", _solve_annealing, 10.0),
    Algorithm("column-generation", "lower bound, and packs from its columns", _column_generation, 30.0),
    Algorithm("list", "no packs: moldable list scheduling, annealed", _solve_list, 10.0),
    Algorithm("auto", "exact where fast, else the best of the above; always with a bound", _solve_auto, 4.0),
]

ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType({entry.name: entry for entry in _BY_NAME})
"""Every algorithm of ``dovetail pack``, in the order of its help."""
