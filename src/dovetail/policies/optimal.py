"""Least makespan on unrelated machines, proven (CP-SAT); the "Manual Optimal" of Ravi 2012."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

from dovetail.errors import InputError
from dovetail.extras import need_module, needing_extra
from dovetail.files.arrays import np
from dovetail.interfaces import Traits, View
from dovetail.kernels import assigning
from dovetail.model import Cluster, Job, Plan, PlanItem, Seconds, Unit, one_node_choices
from dovetail.policies.parts.backlog import UnitChoice, places_for
from dovetail.policies.parts.one_node import refuse_gangs

RESOLUTION = 1 << 30
"""The longest possible schedule is this many integer time steps. With 2^40, CP-SAT 9.15 returned a wrong
optimum (a symmetry cut with such coefficients); a test keeps the case."""
EVALUATIONS = 100_000
"""Moves and swaps of the local search that the solver's plan begins with."""


@dataclass(frozen=True)
class Optimal:
    """Least makespan of the waiting jobs over CPU pools and devices, by integer programming.

    Every unit runs one job at a time; jobs that are submitted later are planned when they come.
    ``time_limit`` is in seconds: when it is reached the plan is the best found, with its bound and gap.
    With more than one of ``workers``, which of several optimal plans is found is left to chance.
    """

    time_limit: float = 60.0
    workers: int = 1
    traits: ClassVar[Traits] = Traits(each_unit=True, keeps_to="optimal")
    paper: ClassVar[str] = "Ravi 2012, section IV.C (Manual Optimal)"

    def __post_init__(self) -> None:
        if not 0 < self.time_limit < inf:
            raise InputError(
                f"found {self.time_limit:g}, expected seconds above 0", where="policy optimal: time_limit"
            )
        if self.workers < 1:
            raise InputError(
                f"found {self.workers}, expected a whole number of at least 1",
                where="policy optimal: workers",
            )
        need_module("ortools", "policy optimal")  # before others, beside which it stands, have computed

    def refuses(self, jobs: Sequence[Job], cluster: Cluster) -> str | None:
        """Gangs, and jobs that need several units at once, are refused."""
        for job in jobs:
            for choice in one_node_choices(job):
                # A plan gives each job one unit, so what holds a pool and a device at once, or several
                # devices, has no place in it.
                if choice.implementation.kind.startswith("cpu+") or choice.request.gpus > 1:
                    return f"plans jobs that use one CPU pool or one device; job {job.id} uses several"
        return refuse_gangs(jobs)

    def plan(self, view: View) -> Plan:
        """A plan for all waiting jobs, given what already runs. Exponential in the worst case."""
        jobs = list(view.queue)
        ready = [_busy_for(view, unit) for unit in view.cluster.units]
        timed = [_timed_places(view, job) for job in jobs]
        table = [{(p.unit.index, k): seconds for k, (p, seconds) in enumerate(row)} for row in timed]
        chosen, status, bound, spent = least_makespan(
            table, ready, _interchangeable_units(view, ready), self.time_limit, self.workers
        )
        items: list[PlanItem] = []
        at = list(ready)
        for job, row, pick in zip(jobs, timed, chosen, strict=True):
            (choice, unit, *_), duration = row[pick]
            start = view.now + at[unit.index]
            at[unit.index] += duration
            items.append(
                PlanItem(job.id, choice.implementation.name, choice.request, start, duration, unit.index)
            )
        used = {item.unit for item in items}
        objective = max((at[u] for u in used if u is not None), default=0.0)
        return Plan(tuple(items), objective, status, objective if status == "optimal" else bound, spent)


def _busy_for(view: View, unit: Unit) -> Seconds:
    """Predicted seconds for which the unit is still in use."""
    occupant = view.occupant(unit)
    return 0.0 if occupant is None else view.remaining(occupant)


def _timed_places(view: View, job: Job) -> list[tuple[UnitChoice, Seconds]]:
    """Where the job can run, with its predicted seconds; raises `InputError` if nothing is known of it."""
    timed = []
    for place in places_for(view, job):
        choice = place.choice
        found = view.predict(job, choice.implementation, choice.request, place.device_class)
        if found is not None:
            timed.append((place, found.expected))
    if not timed:
        raise InputError(f"job {job.id} has no predicted time, which a plan needs", where="policy optimal")
    return timed


def _interchangeable_units(view: View, ready: Sequence[Seconds]) -> list[list[int]]:
    """Groups of interchangeable units: same class, nothing running there."""
    groups: dict[Any, list[int]] = {}
    for unit in view.cluster.units:
        node = view.cluster.nodes[unit.node]
        # A busy unit is not interchangeable with others: what it has to finish sets it apart.
        if ready[unit.index] == 0:
            groups.setdefault((unit.device_class, node.cpus, node.memory), []).append(unit.index)
    return [group for group in groups.values() if len(group) > 1]


def least_makespan(
    table: Sequence[dict[tuple[int, int], Seconds]],
    ready: Sequence[Seconds],
    alike: Sequence[Sequence[int]] = (),
    time_limit: float = 60.0,
    workers: int = 2,
) -> tuple[list[int], Any, Seconds, Seconds]:
    """Assign each job to one of its (unit, option) pairs so that the last unit is done as early as possible.

    ``table[j]`` maps (unit, option) to seconds; ``ready[u]`` is when unit u is free. Units in one group of
    ``alike`` are interchangeable. The solver begins with the plan of a local search, which is also the result
    where it finds none in time. Returns the chosen option of every job, ``optimal`` or ``feasible``, a
    lower bound and the solver's seconds. Times are rounded to 1 / 2^30 of the longest schedule.
    """
    with needing_extra("policy optimal"):
        cp_model = importlib.import_module("ortools.sat.python.cp_model")
    if not table:
        return [], "optimal", 0.0, 0.0
    longest = max(ready, default=0.0) + sum(max(row.values()) for row in table)
    # Where all times are below 1e-290 s the quotient is infinite: they count as nothing.
    scale = min(RESOLUTION / longest, sys.float_info.max) if longest > 0 else 1.0
    model = cp_model.CpModel()
    # Rounding lengthens a job by half a unit at most, so one for each job is room enough.
    horizon = RESOLUTION + len(table)
    makespan = model.new_int_var(0, horizon, "makespan")
    loads: dict[int, list[Any]] = {}
    chosen: list[dict[tuple[int, int], Any]] = []
    for j, row in enumerate(table):
        variables = {key: model.new_bool_var(f"x{j}_{key[0]}_{key[1]}") for key in row}
        model.add_exactly_one(variables.values())
        for key, seconds in row.items():
            loads.setdefault(key[0], []).append(round(seconds * scale) * variables[key])
        chosen.append(variables)
    for u, terms in loads.items():
        model.add(cp_model.LinearExpr.sum(terms) + round(ready[u] * scale) <= makespan)
    # Interchangeable units in order of their load: of all permutations of a plan the solver looks at one.
    for group in alike:
        used = [u for u in group if u in loads]
        for first, second in itertools.pairwise(used):
            model.add(cp_model.LinearExpr.sum(loads[first]) >= cp_model.LinearExpr.sum(loads[second]))
    model.minimize(makespan)
    # The solver starts from a complete plan, so that a short time limit does not end with none.
    searched, searched_bound = _search_plan(table, ready, alike)
    for key, variables in zip(searched, chosen, strict=True):
        for other, variable in variables.items():
            model.add_hint(variable, other == key)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = 1
    outcome = solver.solve(model)
    if outcome not in (cp_model.OPTIMAL, cp_model.FEASIBLE):  # there was no time even to look at the hint
        return [option for _, option in searched], "feasible", searched_bound, solver.wall_time
    picks = [
        next(option for (_, option), variable in variables.items() if solver.boolean_value(variable))
        for variables in chosen
    ]
    status = "optimal" if outcome == cp_model.OPTIMAL else "feasible"
    return picks, status, solver.best_objective_bound / scale, solver.wall_time


def _search_plan(
    table: Sequence[dict[tuple[int, int], Seconds]], ready: Sequence[Seconds], alike: Sequence[Sequence[int]]
) -> tuple[list[tuple[int, int]], Seconds]:
    """The (unit, option) of every job in the plan that a local search finds, and a lower bound.

    Of interchangeable units the first is the one that ends last, as in the solver's model.
    """
    times = np.full((len(table), len(ready)), inf)
    best: dict[tuple[int, int], tuple[int, int]] = {}
    for j, row in enumerate(table):
        for key, seconds in row.items():
            if seconds < times[j, key[0]]:
                times[j, key[0]] = seconds
                best[j, key[0]] = key
    at, units = np.array(ready, np.float64), np.arange(len(ready))
    assigned, _, bound = assigning.least_makespan(times, at, units, np.empty(0, np.int64), EVALUATIONS, 1)
    load = at + np.bincount(assigned, times[np.arange(len(table)), assigned], len(ready))
    # The model demands falling loads of interchangeable units: those of the search are renamed to comply, or
    # its plan would be no valid hint.
    name = units.copy()
    for group in alike:
        by_load = sorted(group, key=lambda u: -load[u])
        name[by_load] = group
    return [best[j, int(name[unit])] for j, unit in enumerate(assigned.tolist())], bound
