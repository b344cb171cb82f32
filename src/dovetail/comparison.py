"""Several policies, clusters, loads and draws of a workload side by side, by one process or by many."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from functools import partial
from inspect import signature
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, TypeAlias

from dovetail import api
from dovetail.errors import DovetailWarning, InputError, NothingKnown, UnsupportedWorkload
from dovetail.files.units import LONGEST
from dovetail.interfaces import Planner, Policy
from dovetail.model import Cluster, Replicate, Result, Seconds, Workload
from dovetail.native.interrupts import interrupts_later
from dovetail.process.worker_pool import begin_worker, worker_pool
from dovetail.records import dataclass
from dovetail.report.options import ReportOptions
from dovetail.report.report import Comparison
from dovetail.spec.values import Bootstrap
from dovetail.workloads.load import is_trace
from dovetail.workloads.published import takes_seed
from dovetail.workloads.replicates import plan_replicates, submission_times
from dovetail.workloads.synthetic import seed_of

if TYPE_CHECKING:
    from dovetail.report.metrics import Metrics

AnyPolicy: TypeAlias = str | Policy | Planner
Task: TypeAlias = tuple[Workload | api.PathLike, dict[str, Any]]
"""A workload, and the options of `api.simulate_result`."""

Outcome: TypeAlias = Result | UnsupportedWorkload
"""What a simulation gives: a result, or why the policy cannot place these jobs there."""

Draw: TypeAlias = tuple[int | None, Replicate]
"""The seed, and which replicate of the workload."""

PATIENCE = 1.0
"""Seconds until an unfinished first simulation is left to worker processes; to start them takes as long."""
WORTH = 3.0
"""Seconds of work left from which workers are sooner done, each of which loads all anew."""
PRELOADED = (
    "dovetail.api",
    "dovetail.simulation.virtual_time",
    "dovetail.report.metrics",
    "dovetail.report.report",
)
"""What all workers share, loaded once before any begins."""
BEAT = 0.2
"""Seconds between two looks at how far the workers are."""
# From the signature, so that a new option of `simulate` is never passed to a reader by mistake.
_OF_SIMULATIONS = frozenset(signature(api.simulate).parameters) - {"lenient"}
"""Options that have nothing to do with how a workload is read, but for its cluster and ``on``."""


@dataclass(frozen=True, slots=True)
class Case:
    """One simulation of a comparison; ``None``: the workload's own machine, order and load."""

    policy: AnyPolicy
    cluster: Cluster | None
    draw: Draw
    load: float | None

    @property
    def options(self) -> dict[str, Any]:
        """As options of `api.simulate_result`."""
        seed, replicate = self.draw
        return {
            "policy": self.policy,
            "cluster": self.cluster,
            "seed": seed,
            "replicate": replicate,
            "load": self.load,
        }

    # By identity: comparing two clusters of thousands of nodes costs more, and each is given once.
    @property
    def case_key(self) -> tuple[object, ...]:
        """What makes it the same simulation as another one; policies need not be hashable."""
        return api.policy_label(self.policy), id(self.cluster), self.draw, self.load


def compare(
    workload: Workload | api.PathLike,
    policies: AnyPolicy | Sequence[AnyPolicy] | None = None,
    *,
    policy: AnyPolicy | Sequence[AnyPolicy] | None = None,
    cluster: Cluster | api.PathLike | Sequence[Cluster | api.PathLike] | None = None,
    seeds: int | None = None,
    replicates: int | None = None,
    jitter: Seconds | None = None,
    bootstrap: Bootstrap | None = None,
    drift: bool = False,
    loads: Sequence[float] | None = None,
    reference: AnyPolicy | None = None,
    workers: int | None = 1,
    progress: Callable[[float, float], None] | None = None,
    **options: Any,
) -> Comparison:
    """Simulate the workload under several policies, on several clusters, over draws of it and loads.

    ``policies`` (or ``policy``, as in `simulate`) is a list of names or policies, or one text with commas
    between names; ``recorded`` is the schedule of the log itself. ``cluster`` may be a list too.
    Takes the options of `simulate`. Results are in order of load, cluster, policy, draw. ``reference`` is a
    policy against which jobs that end later are counted. A policy that cannot place the jobs on one of the
    clusters is left out where others can, and a `DovetailWarning` gives the reason.

    A trace is one draw of what its users do: ``replicates`` of it are simulated (default: 10 up to 100,000
    jobs, else 1, the trace as it is), with submissions moved by up to ``jitter`` seconds (600) and, with
    ``bootstrap="week"`` (the default from 8 weeks on), weeks drawn anew; `dovetail.workloads.replicates`
    has the method. Replicates of a ``synthetic:`` workload are drawn afresh from its model, unless ``jitter``
    or ``bootstrap`` is given. A `Workload`, a job file and a list have one replicate by default. ``seeds``
    stands for the draws of seeds 1 to that number, replicates of a trace among them; in a job file a seed
    shuffles what is submitted together.

    With ``drift`` the intervals of figures hold what consecutive months of the trace differ by
    (`dovetail.report.drift`), where those of replicates alone are of this trace, resampled.

    ``workers`` processes share the work (``None``: one for each CPU; more than one needs a script that can
    be imported, as with `multiprocessing`). ``progress`` gets how many simulations of how many are done, in
    fractions. Raises `InputError`.

    >>> found = compare("published:gregg-table2", "history,best-device", cluster="1x1cpu+1gpu")
    >>> [(report.policy, round(report.makespan, 3)) for report in found]
    [('history', 3.019), ('best-device', 4.054)]
    """
    # `policy` and `policies` are both accepted, since `simulate` has the first; together they contradict.
    if policies is not None and policy is not None:
        raise InputError("found both policies and policy, expected one of them")
    if loads is not None and "load" in options:
        raise InputError("found both load and loads, expected one of them")
    for name, number in (("seeds", seeds), ("replicates", replicates)):
        if number is not None:
            api.check_whole(name, number, 1)
    if seeds is not None and replicates is not None:
        raise InputError("found both seeds and replicates, expected one of them")
    if jitter is not None and not 0 <= jitter < LONGEST:
        raise InputError(f"jitter: found {jitter!r}, expected a number of seconds of at least 0")
    if bootstrap not in (None, "week", "none"):
        raise InputError(f"bootstrap: found {bootstrap!r}, expected 'week' or 'none'")
    compared = _check_policies(policies if policy is None else policy)
    clusters = _check_clusters(cluster)
    one_seed, one_load = options.pop("seed", None), options.pop("load", None)
    wanted = _Wanted(seeds, one_seed, replicates, jitter, bootstrap)
    draws = _plan_draws((workload, {**options, "cluster": clusters[0]}), wanted)
    if drift:
        _check_drift((workload, {**options, "cluster": clusters[0]}), wanted, draws)
    all_loads = [one_load] if loads is None else list(loads)

    def make_cases(several: Sequence[AnyPolicy]) -> list[Case]:
        return [Case(p, c, d, x) for x in all_loads for c in clusters for p in several for d in draws]

    shown, others = make_cases(compared), make_cases([] if reference is None else [reference])
    # The reference is often among the compared: each simulation is made once.
    every = list({case.case_key: case for case in (*shown, *others)}.values())
    parts = [0.0] * len(every)

    def note(place: int, part: float) -> None:
        parts[place] = part
        if progress is not None:
            progress(sum(parts), len(parts))

    tasks: list[Task] = [(workload, {**options, **case.options}) for case in every]
    outcomes = _simulate_outcomes(tasks, workers, note)
    refused: dict[str, UnsupportedWorkload] = {}
    # A refusal is a row for the moment: whether it is an error is known only when all rows are there.
    for case, outcome in zip(every, outcomes, strict=True):
        if isinstance(outcome, UnsupportedWorkload):
            refused.setdefault(api.policy_label(case.policy), outcome)
    left = left_out([api.policy_label(policy) for policy in compared], refused)
    found = {
        case.case_key: outcome
        for case, outcome in zip(every, outcomes, strict=True)
        if not isinstance(outcome, UnsupportedWorkload)
    }
    given = ReportOptions(drift=drift).with_references(
        _reference_result(found, case, refused) for case in others
    )
    kept = (case for case in shown if api.policy_label(case.policy) not in left)
    return Comparison((found[case.case_key] for case in kept), given)


def left_out(compared: Sequence[str], refused: Mapping[str, UnsupportedWorkload]) -> set[str]:
    """Which of the compared policies cannot place the jobs here; a warning gives the reason for each.

    Raises the first one's `UnsupportedWorkload` where none is left.
    """
    left = [name for name in compared if name in refused]
    if left and len(left) == len(compared):
        raise refused[left[0]]
    for name in left:
        warnings.warn(f"{refused[name]}: left out of the comparison", DovetailWarning, stacklevel=3)
    return set(left)


def _reference_result(
    found: Mapping[tuple[object, ...], Result], case: Case, refused: Mapping[str, UnsupportedWorkload]
) -> Result:
    """The reference policy's result; raises `UnsupportedWorkload` where it cannot place the jobs."""
    if case.case_key not in found:
        raise refused[api.policy_label(case.policy)]
    return found[case.case_key]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The options of `compare` that choose what is drawn."""

    seeds: int | None
    seed: int | None
    replicates: int | None
    jitter: Seconds | None
    bootstrap: Bootstrap | None

    @property
    def wants_replicates(self) -> bool:
        """Whether an option requests replicates, of any workload."""
        return any(one is not None for one in (self.replicates, self.jitter, self.bootstrap))


def _plan_draws(task: Task, wanted: _Wanted) -> list[Draw]:
    """What is drawn of a workload, from whatever it is: a model, a trace, or a list of jobs."""
    source, seeds = task[0], wanted.seeds
    named = os.fspath(source) if not isinstance(source, Workload) else ""
    model = named.startswith("synthetic:") and wanted.jitter is None and wanted.bootstrap is None
    modelled = model or (named.startswith("published:") and takes_seed(named))
    # Models have no replicates to be moved: another seed draws another trace.
    if seeds is not None and (modelled or not (is_trace(source) or wanted.wants_replicates)):
        return [(seed, Replicate(seed, fresh=True)) for seed in range(1, seeds + 1)]
    if not (model or is_trace(source) or wanted.wants_replicates):
        return [(wanted.seed, Replicate())]
    workload = _read_workload(task)[0]
    assert isinstance(workload, Workload)
    plan = plan_replicates(
        workload,
        # One more than the seeds: the first of a plan is the trace itself, which `seeds` leaves out.
        replicates=wanted.replicates if seeds is None else seeds + 1,
        jitter=wanted.jitter,
        bootstrap=wanted.bootstrap,
        seed=1 if wanted.seed is None else wanted.seed,
    )
    if seeds is not None:
        return [(one.number, one) for one in plan[1:]]
    if modelled:
        first = wanted.seed if wanted.seed is not None else seed_of(named) if model else 1
        fresh = [(first + n, Replicate(n, fresh=True)) for n in range(1, len(plan))]
        return [(wanted.seed, Replicate(fresh=len(plan) > 1)), *fresh]
    return [(wanted.seed, one) for one in plan]


def _check_drift(task: Task, wanted: _Wanted, draws: Sequence[Draw]) -> None:
    """That there are months to compare: those of one trace as it is. Raises `InputError`."""
    if wanted.seeds is not None:
        raise InputError("found both drift and seeds, expected replicates: the first is the trace as it is")
    if any(replicate.fresh for _, replicate in draws):
        raise InputError("found drift with fresh draws of a model, expected a trace, which has months")
    workload = _read_workload(task)[0]
    assert isinstance(workload, Workload)
    moments = submission_times(workload)
    if not len(moments) or moments.min() == moments.max():
        raise InputError("found drift with jobs of one instant, expected a trace, which has months")


def _check_policies(policies: Any) -> list[AnyPolicy]:
    """The policies, each of which must be known; raises `InputError`."""
    several = api.split_names(policies, "policies") if isinstance(policies, str) else policies
    compared: list[AnyPolicy] = list(several or ()) if isinstance(several, Sequence | None) else [several]
    if not compared:
        raise InputError("policies: found none, expected at least one")
    labels: set[str] = set()
    for policy in compared:
        label = api.policy_label(policy)
        if label in labels:
            raise InputError(f"policies: found {label} twice, expected each policy once")
        labels.add(label)
    return compared


def _check_clusters(clusters: Any) -> list[Cluster | None]:
    """The clusters; the workload's own, or this machine, where none is given."""
    if clusters is None:
        return [None]
    if isinstance(clusters, Cluster | str | os.PathLike):
        return [api.cluster_of(clusters)]
    if not clusters:
        raise InputError("cluster: found an empty list, expected at least one")
    return [api.cluster_of(cluster) for cluster in clusters]


def simulate_all(
    tasks: Sequence[Task], workers: int | None = None, tell: Callable[[int, float], None] | None = None
) -> list[Result]:
    """The result of every task, in their order; ``workers`` processes, by default one for each CPU.

    What takes a few seconds in all is done in this process. ``tell`` gets which part of which task is
    done. Raises what a simulation raised (`InputError` and others), and `DovetailError` for a worker that
    was killed.
    """
    results: list[Result] = []
    for outcome in _simulate_outcomes(tasks, workers, tell or (lambda place, part: None)):
        if isinstance(outcome, UnsupportedWorkload):
            raise outcome
        results.append(outcome)
    return results


def _simulate_outcomes(
    tasks: Sequence[Task], workers: int | None, note: Callable[[int, float], None]
) -> list[Outcome]:
    """As `simulate_all`, with the refusals of policies that cannot place the jobs in their place."""
    # The CPUs that this process may use, which in a container or a job are fewer than the machine has.
    count = min(workers or len(os.sched_getaffinity(0)), len(tasks))
    if count <= 1:
        return [_simulate_task(task, partial(note, i)) for i, task in enumerate(tasks)]
    results = _at_once(tasks)
    done = len(results)
    for i in range(done):
        note(i, 1.0)
    if done < len(tasks):
        results += _in_workers(tasks[done:], count, lambda i, part: note(done + i, part))
    return results


# One entry, not a cache: a workload of millions of jobs must not be held twice.
_last: tuple[tuple[object, ...], tuple[Workload, Cluster]] | None = None
"""What was read last, and its options: tasks in a row mostly share a workload."""


def _read_workload(task: Task) -> Task:
    """The same task; where no seed changes the workload it is there as it was read."""
    # Global, since a worker gets its tasks one by one and has no other place to keep it.
    global _last
    source, options = task
    # With a seed a job file is shuffled as it is read, so two seeds do not share what was read.
    if isinstance(source, Workload) or options.get("seed") is not None:
        return task
    reader = {name: value for name, value in options.items() if name not in _OF_SIMULATIONS}
    given = source, options.get("cluster"), options.get("on", ()), reader
    if _last is None or _last[0] != given:
        _last = given, api.jobs_and_machine(*given[:3], **reader)
    workload, machine = _last[1]
    return workload, {**options, "cluster": machine}


def _simulate_task(task: Task, note: Callable[[float], None]) -> Outcome:
    """One task; ``note`` is given which part of its jobs has ended."""
    workload, options = _read_workload(task)
    try:
        result = api.simulate_result(workload, progress=lambda done, total: note(done / total), **options)
    except NothingKnown as unknown:  # one row among others, which may know more
        about = {name: options.get(name) for name in ("seed", "load")}
        result = replace(unknown.result, replicate=options.get("replicate") or Replicate(), **about)
    except UnsupportedWorkload as refusal:  # one row among others
        note(1.0)
        return refusal
    note(1.0)
    return result


class _TooLong(Exception):  # noqa: N818 - no error: it ends an attempt
    """The work is worth worker processes."""


def _at_once(tasks: Sequence[Task]) -> list[Outcome]:
    """Results of the first tasks, for as long as workers would not be sooner done with those that are left.

    Of the first only the simulation itself counts: reading the jobs, and loading what simulates them, are
    not done again here, but would be in every worker.
    """
    # Most comparisons are over before a worker would have loaded its modules.
    since = time.monotonic()

    # Progress is the only place at which a simulation can be left halfway.
    def note(part: float) -> None:
        if part < 1.0 and time.monotonic() - since > PATIENCE:
            raise _TooLong

    results: list[Outcome] = []
    try:
        for task in tasks:
            begun = time.monotonic()
            result = _simulate_task(task, note)
            if isinstance(result, UnsupportedWorkload):
                seconds = 0.0
            else:
                seconds = time.monotonic() - begun if results else result.simulation_seconds or 0.0
            results.append(result)
            if seconds * (len(tasks) - len(results)) > WORTH:
                break
    except _TooLong:
        pass
    return results


# ------------------------------------------------------------------------------------------ the workers

_parts: MutableSequence[float] = []
"""In a worker: which part of each task is done; shared with the parent."""


def _begin_worker(parts: MutableSequence[float]) -> None:
    """Set a worker up."""
    global _parts
    _parts = parts
    begin_worker()


def _work_on_task(place: int, task: Task) -> tuple[Outcome, Metrics | None]:
    """The outcome and its metrics, which the parent would work out one after another: a third of the work."""

    from dovetail.report.metrics import final_metrics  # with numpy, which a list of policies does not need

    def note(part: float) -> None:
        _parts[place] = part

    outcome = _simulate_task(task, note)
    return outcome, None if isinstance(outcome, UnsupportedWorkload) else final_metrics(outcome)


def _in_workers(tasks: Sequence[Task], count: int, note: Callable[[int, float], None]) -> list[Outcome]:
    # A shared array and no queue: a worker writes its progress without waiting, and only the last value
    # counts.
    parts = get_context("forkserver").RawArray("d", len(tasks))
    with worker_pool(min(count, len(tasks)), _begin_worker, (parts,), preload=PRELOADED) as pool:
        with interrupts_later():
            # An interrupt between a worker's start and its being known would leave it behind.
            futures = [pool.submit(_work_on_task, i, task) for i, task in enumerate(tasks)]
        waiting: set[Future[tuple[Outcome, Metrics | None]]] = set(futures)
        while waiting:
            done, waiting = wait(waiting, timeout=BEAT, return_when=FIRST_COMPLETED)
            for future in done:
                # Raises what a worker raised as soon as it is there, not when all are done.
                future.result()
            for i, part in enumerate(parts):
                note(i, part)
        both = [future.result() for future in futures]
    from dovetail.report.metrics import keep_metrics

    for outcome, metrics in both:
        if not isinstance(outcome, UnsupportedWorkload) and metrics is not None:
            keep_metrics(outcome, metrics)
    return [outcome for outcome, _ in both]
