"""``dovetail reproduce policies``: every policy on every kind of queue, against the best fixed one.

A cell is the mean, over random queues of the kind, of a policy's figure over that of the fixed policy which
was best on that very queue, chosen afterwards: no choice beforehand can be as good. The look-ahead is no
fixed policy, nor is the optimum.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

import typer

import dovetail
from dovetail.cli import options as opt
from dovetail.errors import InputError, UnsupportedWorkload
from dovetail.interfaces import traits_of
from dovetail.plugins import list_policies, load_policy
from dovetail.report.progress import Bar
from dovetail_lab.policies.queues import KINDS, Queue, noisy_model
from dovetail_lab.study import (
    FirstSeed,
    Out,
    Study,
    Table,
    Workers,
    named_seeds,
    prepare_folder,
    process_count,
    publish_study,
    seeds_from,
)
from dovetail_lab.tasks import map_tasks

FIGURES = {
    "makespan": "makespan",
    "mean_response": "mean response time",
    "mean_wait": "mean wait",
    "mean_bounded_slowdown": "mean bounded slowdown",
}
AHEAD = ("lookahead", *(f"lookahead?objective={name}" for name in ("response", "wait", "slowdown")))
ORDERS = tuple(f"easy?order={order}" for order in ("sjf", "f1", "largest", "saf", "sqrtsaf"))
OPTIMUM = "optimal?workers=1&time_limit=10"
LEFT_OUT = ("follow-plan", "pack", "optimal", "mrq", "rq")
"""Planners, and policies of jobs that borrow GPUs; the optimum is an option apart."""
LEAST = 1e-3
"""A wait of less, as a part of the mean run time, is as good as none: below it ratios say nothing."""


@dataclass(frozen=True, slots=True)
class Row:
    """A policy on one kind of queue: the mean over ``draws`` of each figure over that of the best fixed one.

    ``worst`` is the greatest of these ratios; ``None`` where the policy refuses such jobs.
    """

    policy: str
    kind: str
    draws: int
    mean: Mapping[str, float] | None
    worst: Mapping[str, float] | None


Task = tuple[str, int, tuple[str, ...]]
Found = dict[str, dict[str, float] | None]


def default_policies() -> list[str]:
    """All that are registered and place jobs, with the orders of EASY; the look-ahead last."""
    names = [info.name for info in list_policies() if info.name not in (*LEFT_OUT, "lookahead")]
    places = [name for name in names if not traits_of(load_policy(name).policy).submits]
    return [*places, *ORDERS, *AHEAD]


def _draw_figures(task: Task) -> Found:
    """Every policy's figures on one queue, in seconds (slowdowns are plain numbers)."""
    kind, seed, names = task
    queue = KINDS[kind].draw(seed)
    # The optimum plans by true times, so it is no answer where times are noisy or learned.
    able = [name for name in names if name != OPTIMUM or queue.knowledge == "perfect"]
    return {name: _policy_figures(queue, name) if name in able else None for name in names}


def _policy_figures(queue: Queue, policy: str) -> dict[str, float] | None:
    try:
        if queue.knowledge == "noise":
            model = noisy_model(queue.workload, queue.seed)
            report = dovetail.simulate(queue.workload, cluster=queue.cluster, policy=policy, model=model)
        elif queue.knowledge == "learned":
            report = dovetail.simulate(
                queue.workload, cluster=queue.cluster, policy=policy, knowledge="learned"
            )
        else:
            report = dovetail.simulate(queue.workload, cluster=queue.cluster, policy=policy)
    except UnsupportedWorkload:
        return None
    return {figure: float(report.metrics[figure] or 0.0) for figure in FIGURES}


def policy_rows(
    kinds: Sequence[str] = tuple(KINDS),
    names: Sequence[str] | None = None,
    *,
    draws: int = 24,
    first_seed: int = 1,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """Every policy on every kind. Raises `InputError` for an unknown kind, or where no policy is fixed."""
    for kind in kinds:
        if kind not in KINDS:
            raise InputError(f"found the queue {kind!r}, expected one of {', '.join(KINDS)}")
    chosen = tuple(dict.fromkeys(default_policies() if names is None else names))
    # Fixed ones alone are the measure: against itself a look-ahead would always be as good as the best.
    fixed = [name for name in chosen if not name.startswith(("lookahead", "optimal"))]
    if not fixed:
        raise InputError("found no fixed policy to compare with, expected one at least", where="--policies")
    if names is None and importlib.util.find_spec("ortools") is not None:
        chosen = (*chosen, OPTIMUM)
    tasks: list[Task] = [(kind, seed, chosen) for kind in kinds for seed in seeds_from(first_seed, draws)]
    found = map_tasks(_draw_figures, tasks, workers, progress)
    by_kind: dict[str, list[Found]] = {}
    for task, drawn in zip(tasks, found, strict=True):
        by_kind.setdefault(task[0], []).append(drawn)
    return [_policy_row(name, kind, by_kind[kind], fixed) for name in chosen for kind in kinds]


def _policy_row(policy: str, kind: str, draws: Sequence[Found], fixed: Sequence[str]) -> Row:
    # A policy that refuses one draw of a kind has no mean that could be compared with the others'.
    if any(drawn[policy] is None for drawn in draws):
        return Row(policy, kind, len(draws), None, None)
    ratios: dict[str, list[float]] = {figure: [] for figure in FIGURES}
    for drawn in draws:
        own = drawn[policy]
        assert own is not None
        for figure in FIGURES:
            best = min(other[figure] for name in fixed if (other := drawn[name]) is not None)
            # Near 0 a ratio of waits is noise, see `LEAST`.
            least = LEAST * own["mean_response"]
            ratios[figure].append(max(own[figure], least) / max(best, least))
    return Row(
        policy,
        kind,
        len(draws),
        {figure: fmean(found) for figure, found in ratios.items()},
        {figure: max(found) for figure, found in ratios.items()},
    )


def make_study(found: Sequence[Row], first_seed: int = 1) -> Study:
    """The rows as one table a figure, a row a policy and a column a kind of queue."""
    kinds = list(dict.fromkeys(row.kind for row in found))
    names = list(dict.fromkeys(row.policy for row in found))
    by_place = {(row.policy, row.kind): row for row in found}
    tables = [
        Table(
            f"{title.capitalize()} over that of the best fixed policy",
            ("policy", *kinds),
            tuple((name, *(_figure_cell(by_place[name, kind], figure) for kind in kinds)) for name in names),
            note="- where a policy refuses such jobs; in brackets the worst queue.",
        )
        for figure, title in FIGURES.items()
    ]
    about = [f"{kind}: {KINDS[kind].about}." for kind in kinds]
    draws = max(row.draws for row in found)
    return Study(
        "policies",
        "Every policy on every kind of queue",
        f"Means over {named_seeds(first_seed, draws)} random queues of each kind, each against the fixed "
        "policy that was best on it. " + " ".join(about),
        tuple(tables),
        numbers={"first_seed": first_seed, "rows": found},
    )


def _figure_cell(row: Row, figure: str) -> str:
    if row.mean is None or row.worst is None:
        return "-"
    return f"{row.mean[figure]:.3f} ({row.worst[figure]:.2f})"


def command(
    kinds: Annotated[
        list[str] | None, typer.Option("--queue", metavar="KIND", help="Only queues of this kind.")
    ] = None,
    names: Annotated[
        str | None, typer.Option("--policies", metavar="NAME,NAME…", help="Policies to compare.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Random queues of each kind.")] = 24,
    first_seed: FirstSeed = 1,
    workers: Workers = None,
    as_json: opt.Json = False,
    out: Out = None,
    quiet: opt.Quiet = False,
) -> None:
    """Every policy on every kind of queue.

    Each against the fixed policy that was best there: which one to leave on, and what the others cost.
    """
    chosen = None if names is None else [name.strip() for name in names.split(",")]
    out = prepare_folder(out)
    with Bar("policies", hidden=quiet or as_json) as bar:
        found = policy_rows(
            kinds or tuple(KINDS),
            chosen,
            draws=seeds,
            first_seed=first_seed,
            workers=process_count(workers),
            progress=bar.tell,
        )
    publish_study(make_study(found, first_seed), as_json=as_json, out=out)
