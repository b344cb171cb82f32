"""``dovetail reproduce aupy``: Aupy 2013, section 6, Figures 2 to 5 and Table 1, beside the paper's results.

The profiles of Workload-I were measured and not published, and of Workloads II and III the paper leaves
open which tasks they hold and how their sizes spread; ``dovetail_lab.packing.synthetic`` documents what
takes their place.  The figures' numbers are not printed in the paper either, so that its statements
about them are what can be checked: each is listed with the numbers behind the verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from dovetail import InputError
from dovetail.cli import options as opt
from dovetail.report.drawing import with_style
from dovetail.report.progress import Bar
from dovetail_lab.aupy.claims import CONSTANTS, make_claims
from dovetail_lab.aupy.found import ALGORITHMS, MEASURES, SETS, Floats, StudySamples, Timing
from dovetail_lab.claims import Chosen
from dovetail_lab.figures import add_heading, clean_axes, styled_figure
from dovetail_lab.packing.registry import Options, solve
from dovetail_lab.packing.synthetic import set_1_like, set_2, set_3
from dovetail_lab.study import (
    Chart,
    FirstSeed,
    Out,
    Prose,
    Set,
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

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAKERS: dict[str, Callable[..., Floats]] = {"I-like": set_1_like, "II": set_2, "III": set_3}

PAPER_MILLISECONDS = {  # Table 1, on the authors' machine of 2013
    "pack-approx": {"I-like": 0.50, "II": 0.30, "III": 5.12},
    "pack-by-pack-1": {"I-like": 0.03, "II": 0.12, "III": 0.53},
    "pack-by-pack-9": {"I-like": 0.30, "II": 1.17, "III": 5.07},
    "random-pack-1": {"I-like": 0.07, "II": 0.34, "III": 9.30},
    "random-pack-9": {"I-like": 0.67, "II": 2.71, "III": 87.25},
    "random-proc-1": {"I-like": 0.05, "II": 0.26, "III": 4.49},
    "random-proc-9": {"I-like": 0.47, "II": 2.26, "III": 39.54},
}

FIGURES = {
    "figure-2": (("I-like", "II"), "relative_cost"),
    "figure-3": (("I-like", "II"), "packing_ratio"),
    "figure-4": (("I-like", "II"), "relative_response_time"),
    "figure-5a": (("III",), "relative_cost"),
    "figure-5b": (("III",), "packing_ratio"),
    "figure-5c": (("III",), "relative_response_time"),
}


class Sequential(StrEnum):
    """How sequential times are made."""

    forms = "forms"
    log_uniform = "log-uniform"


@dataclass(frozen=True, slots=True)
class Solved:
    """One instance under every algorithm: its measures by (k, algorithm), seconds by algorithm, steps."""

    measures: dict[tuple[int, str], tuple[float, ...]]
    seconds: dict[str, list[float]]
    steps: int


Task = tuple[str, int, float, bool]


def _solve_instance(task: Task) -> Solved:
    """All algorithms on one instance: (workload, seed, spread, with the paper's forms)."""
    workload, seed, spread, forms = task
    times = MAKERS[workload](np.random.Generator(np.random.PCG64(seed)), spread=spread, forms=forms)
    measures: dict[tuple[int, str], tuple[float, ...]] = {}
    seconds: dict[str, list[float]] = {}
    for label, (name, full_range) in ALGORITHMS.items():
        # The exact search is exponential in the tasks: 65 of them are out of reach.
        if name == "subset-dp" and workload != "I-like":
            continue
        # The same instance for all k and algorithms, so that differences between them are not the instances'.
        for k in SETS[workload]:
            solution = solve(times, k, name, Options(seed=seed, full_range=full_range))
            measures[k, label] = tuple(getattr(solution.metrics, measure) for measure in MEASURES)
            seconds.setdefault(label, []).append(solution.seconds)
    return Solved(measures, seconds, approx_steps(times))


def run_heuristics(
    *,
    seeds: int = 10,
    spread: float = 10.0,
    sequential: Sequential = Sequential.forms,
    first_seed: int = 1,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> StudySamples:
    """Run the heuristics (and the optimum of the I-like set) over all sets, k and seeds.

    ``spread`` is the ratio of the longest to the shortest sequential time, which the paper leaves open.
    Raises ``InputError`` for fewer than one seed. Under a second a seed.
    """
    if seeds < 1:
        raise InputError(f"{seeds} seeds, expected at least 1")
    forms = sequential is Sequential.forms
    tasks = [(workload, seed, spread, forms) for workload in SETS for seed in seeds_from(first_seed, seeds)]
    solved = map_tasks(_solve_instance, tasks, workers, progress)
    by_set = {w: [s for task, s in zip(tasks, solved, strict=True) if task[0] == w] for w in SETS}
    samples = {
        (workload, k, label): np.array([one.measures[k, label] for one in ours])
        for workload, ours in by_set.items()
        for k, label in ours[0].measures
    }
    timings = [
        Timing(workload, name, 1e3 * median(s for one in ours for s in one.seconds[name]), paper[workload])
        for name, paper in PAPER_MILLISECONDS.items()
        for workload, ours in by_set.items()
    ]
    steps = {workload: [one.steps for one in ours] for workload, ours in by_set.items()}
    return StudySamples(samples, tuple(timings), steps)


def approx_steps(times: Floats) -> int:
    """How many steps Algorithm 3 takes; they do not depend on k."""
    n, p = times.shape
    sigma = np.ones(n, dtype=np.int64)
    current = times[:, 0].copy()
    steps = 1
    # Algorithm 3 adds a processor to the longest task until the mean work of a processor exceeds the longest
    # time, or that task has all processors.
    while True:
        j = int(np.argmax(current))
        if float(sigma @ current) / p > current[j] or sigma[j] == p:
            return steps
        sigma[j] += 1
        current[j] = times[j, sigma[j] - 1]
        steps += 1


def make_study(
    outcome: StudySamples,
    seeds: int,
    spread: float,
    sequential: Sequential,
    chosen: Chosen | None = None,
    *,
    first_seed: int = 1,
) -> Study:
    """The figures as tables and charts, Table 1, and the paper's statements."""
    chosen = chosen or Chosen(CONSTANTS, {"spread": spread})
    drawn = "c m, c m log m, c m^2, c m^3" if sequential is Sequential.forms else "log-uniform"
    parts: list[Table | Chart | Prose] = []
    for name, (workloads, measure) in FIGURES.items():
        parts += [_figure_table(outcome, name, workload, measure) for workload in workloads]
        parts.append(Chart(name, _figure_title(name, measure), partial(draw_chart, outcome, name)))
    parts += [_table_1(outcome), Prose("What cannot be reproduced", NOT_REPRODUCED)]
    return Study(
        "aupy",
        "Aupy 2013, packs of moldable tasks",
        f"Means over {named_seeds(first_seed, seeds)} seeds; sequential times {drawn}, the longest "
        f"{spread:g} times the shortest.",
        tuple(parts),
        make_claims(outcome, chosen),
        {
            "seeds": seeds,
            "first_seed": first_seed,
            "spread": spread,
            "sequential": sequential.value,
            "points": outcome.points(),
            "timings": outcome.timings,
            "steps": {workload: float(np.mean(steps)) for workload, steps in outcome.steps.items()},
        },
        chosen,
    )


NOT_REPRODUCED = (
    "Workload-I itself: its profiles were not published.",
    "Any single bar of the figures: neither their values nor the tasks of II and III are in the paper.",
)


def _figure_title(name: str, measure: str) -> str:
    return f"{name.replace('-', ' ').capitalize()}: {measure.replace('_', ' ')}"


def _figure_table(outcome: StudySamples, name: str, workload: str, measure: str) -> Table:
    which = MEASURES.index(measure)
    rows = [
        (label, *(f"{outcome.mean(workload, k, label, which):.3f}" for k in SETS[workload]))
        for label in outcome.algorithm_labels(workload)
    ]
    columns = ("algorithm", *(f"k={k}" for k in SETS[workload]))
    return Table(f"{_figure_title(name, measure)}, workload {workload}", columns, tuple(rows))


def _table_1(outcome: StudySamples) -> Table:
    by_place = {(row.workload, row.algorithm): row for row in outcome.timings}
    rows = []
    for name in PAPER_MILLISECONDS:
        cells = [by_place[workload, name] for workload in SETS]
        rows.append((name, *(text for c in cells for text in (f"{c.milliseconds:.3f}", f"{c.paper:.2f}"))))
    columns = ("algorithm", *(text for workload in SETS for text in (workload, f"{workload} paper")))
    return Table("Table 1: milliseconds here, and in the paper (another machine)", columns, tuple(rows))


@with_style
def draw_chart(outcome: StudySamples, name: str) -> Figure:
    """One figure of the paper: a panel a workload, a line an algorithm over k."""
    workloads, measure = FIGURES[name]
    which = MEASURES.index(measure)
    wide, high = 5.5 * len(workloads), 4.6
    fig = styled_figure(wide, high)
    add_heading(fig, _figure_title(name, measure), "means over the seeds, over the most tasks in a pack")
    for i, workload in enumerate(workloads):
        axes = fig.add_axes(((i * 5.5 + 0.6) / wide, 0.55 / high, 4.6 / wide, 3.2 / high))
        clean_axes(axes)
        for label in outcome.algorithm_labels(workload):
            values = [outcome.mean(workload, k, label, which) for k in SETS[workload]]
            axes.plot(SETS[workload], values, marker="o", markersize=3, linewidth=1.3, label=label)
        axes.set_xlabel("k")
        axes.set_ylim(bottom=0.0)
        axes.set_title(f"Workload {workload}", loc="left", fontsize=9.5)
        axes.legend(frameon=False, fontsize=6.5)
    return fig


def command(
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Random instances of each set.")] = 10,
    spread: Annotated[
        float, typer.Option(min=1, metavar="RATIO", help="Longest over shortest sequential time.")
    ] = 10.0,
    sequential: Annotated[
        Sequential, typer.Option(help="Sequential times: the paper's four forms in the size m, or drawn.")
    ] = Sequential.forms,
    constants: Set = None,
    first_seed: FirstSeed = 1,
    workers: Workers = None,
    as_json: opt.Json = False,
    out: Out = None,
    quiet: opt.Quiet = False,
) -> None:
    """Aupy 2013: packs of moldable tasks.

    Figures 2 to 5 and Table 1 on workloads of the same description; the paper's statements and ours.
    """
    chosen = Chosen.of(CONSTANTS, constants)
    chosen = Chosen(CONSTANTS, {"spread": spread} | dict(chosen.given))
    spread = chosen.number("spread")
    out = prepare_folder(out)
    with Bar("instances", hidden=quiet or as_json) as bar:
        outcome = run_heuristics(
            seeds=seeds,
            first_seed=first_seed,
            spread=spread,
            sequential=sequential,
            workers=process_count(workers),
            progress=bar.tell,
        )
    publish_study(
        make_study(outcome, seeds, spread, sequential, chosen, first_seed=first_seed),
        as_json=as_json,
        out=out,
    )
