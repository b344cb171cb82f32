"""How much it matters that predictions are wrong: the same queue, scheduled by ever worse predictions.

Every prediction is the true time multiplied by a factor between 1/f and f, drawn once for each job and way
of running it, uniformly on a logarithmic scale: f = 2 is wrong by a factor of 1.4 on average, 2 at worst.
Errors are independent, which is the worst case for a choice between two devices: an error that both share
cancels out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

import dovetail
from dovetail import Cluster, InputError, Workload, load_workload
from dovetail.cli import options as opt
from dovetail.plugins import list_policies
from dovetail.report.drawing import with_style
from dovetail.report.intervals import mean_interval
from dovetail.report.progress import Bar
from dovetail.workloads.edit import shuffle_together
from dovetail_lab.figures import add_heading, clean_axes, make_figure
from dovetail_lab.mistaken import MistakenModel
from dovetail_lab.study import (
    Chart,
    FirstSeed,
    Out,
    Study,
    Table,
    Workers,
    named_seeds,
    prepare_folder,
    process_count,
    publish_study,
)
from dovetail_lab.tasks import map_tasks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FACTORS = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
POLICIES = ("history", "best-device", "min-min", "sufferage", "heteroprio", "gpu-only")
"""Those of them that are registered; ``gpu-only`` needs no prediction on one GPU."""
CHUNK = 20


def wrong_model(workload: Workload, factor: float, rng: np.random.Generator) -> MistakenModel:
    """Predictions wrong by a factor of up to ``factor`` either way, uniformly on a logarithmic scale."""
    reach = math.log(factor)
    return MistakenModel(
        workload, lambda: rng.uniform(-reach, reach), source="true time, made wrong on purpose"
    )


@dataclass(frozen=True, slots=True)
class Row:
    """A policy under predictions wrong by up to ``factor``: makespans in seconds over all seeds.

    ``relative`` is the mean over the seeds of makespan over that of GPU-only placement in the same order;
    ``half_width`` its 95 % interval; ``worse`` the share of seeds in which it is longer.
    """

    policy: str
    factor: float
    mean: float
    longest: float
    relative: float
    half_width: float | None
    worse: float


def factor_rows(
    workload: str = "published:gregg-table2",
    *,
    cluster: str = "1x1cpu+1gpu",
    names: Sequence[str] = POLICIES,
    factors: Sequence[float] = FACTORS,
    seeds: int = 100,
    first_seed: int = 1,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """Simulate the workload in ``seeds`` random orders; a seed's errors serve all policies alike.

    Raises `InputError`, also where a job does not give its true times. About 3 ms a policy, factor and
    seed for Table 2.
    """
    if seeds < 1:
        raise InputError(f"found {seeds} seeds, expected at least 1")
    for factor in factors:
        if not 1 <= factor < math.inf:
            raise InputError(f"found the factor {factor:g}, expected a number of at least 1")
    if not load_workload(workload, Cluster.parse(cluster)).fully_timed:
        raise InputError("does not give the true times of every job", where=workload)
    tasks = [
        (workload, cluster, policy, factor, start, min(start + CHUNK, first_seed + seeds))
        for policy in dict.fromkeys((*names, "gpu-only"))
        for factor in factors
        for start in range(first_seed, first_seed + seeds, CHUNK)
    ]
    parts = map_tasks(_run_chunk, tasks, workers, progress)
    spans: dict[tuple[str, float], list[float]] = {}
    for task, part in zip(tasks, parts, strict=True):
        spans.setdefault((task[2], task[3]), []).extend(part)
    return [_factor_row(policy, factor, spans) for policy in dict.fromkeys(names) for factor in factors]


def _factor_row(policy: str, factor: float, spans: dict[tuple[str, float], list[float]]) -> Row:
    own, baseline = np.array(spans[policy, factor]), np.array(spans["gpu-only", factor])
    ratio = own / baseline
    found = mean_interval(ratio.tolist())
    assert found is not None
    worse = float(np.mean(ratio > 1 + 1e-9))
    return Row(policy, factor, float(own.mean()), float(own.max()), found.mean, found.half_width, worse)


def _run_chunk(task: tuple[str, str, str, float, int, int]) -> list[float]:
    """The makespans of seeds from ``start`` to before ``stop``."""
    spec, machine, policy, factor, start, stop = task
    cluster = Cluster.parse(machine)
    plain = load_workload(spec, cluster)
    found = []
    for seed in range(start, stop):
        order, errors = (np.random.Generator(np.random.PCG64([seed, purpose])) for purpose in range(2))
        workload = shuffle_together(plain, order)
        # Drawn in the file's order, so that an application keeps its errors whatever its place.
        model = wrong_model(plain, factor, errors)
        found.append(dovetail.simulate(workload, cluster=cluster, policy=policy, model=model).makespan)
    return found


@with_style
def plot_factors(found: Sequence[Row]) -> Figure:
    """Makespan relative to GPU-only over the factor, a line a policy with 95 % intervals."""
    fig, axes, _ = make_figure(8.0, 3.6, above=0.8, right=1.6)
    clean_axes(axes)
    for policy in dict.fromkeys(row.policy for row in found):
        own = [row for row in found if row.policy == policy]
        errors = [row.half_width or 0.0 for row in own]
        axes.errorbar(
            [row.factor for row in own],
            [row.relative for row in own],
            yerr=errors,
            marker="o",
            markersize=3.5,
            linewidth=1.4,
            capsize=2,
            label=policy,
        )
    axes.set_xscale("log")
    factors = sorted({row.factor for row in found})
    axes.set_xticks(factors, [f"{factor:g}x" for factor in factors])
    axes.minorticks_off()
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("predictions wrong by up to")
    axes.set_ylabel("makespan, GPU only = 1")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    add_heading(fig, "What wrong predictions cost", "mean over random orders, bars show 95 % intervals")
    return fig


def make_study(workload: str, cluster: str, found: Sequence[Row], seeds: int, first_seed: int = 1) -> Study:
    """The rows as a table, a row a policy and a column a factor, and as a chart."""
    factors = list(dict.fromkeys(row.factor for row in found))
    by_place = {(row.policy, row.factor): row for row in found}
    lines = [
        (policy, *(_ratio_cell(by_place[policy, factor]) for factor in factors))
        for policy in dict.fromkeys(row.policy for row in found)
    ]
    table = Table(
        "Makespan over that of GPU only",
        ("predictions off by up to", *("right" if f == 1 else f"{f:g}x" for f in factors)),
        tuple(lines),
        note="± is half of the 95 % interval; in brackets: orders that take longer than GPU only.",
    )
    return Study(
        "wrong-predictions",
        "What wrong predictions cost",
        f"{workload} on {cluster}, {named_seeds(first_seed, seeds)} random orders.",
        (table, Chart("wrong-predictions", "As a chart", partial(plot_factors, found))),
        numbers={
            "workload": workload,
            "cluster": cluster,
            "seeds": seeds,
            "first_seed": first_seed,
            "rows": found,
        },
    )


def _ratio_cell(row: Row) -> str:
    spread = "" if row.half_width is None else f" ±{row.half_width:.{2 if row.half_width < 10 else 0}f}"
    return f"{row.relative:.2f}{spread} ({row.worse:.0%})"


def command(
    workload: Annotated[
        str, typer.Option(metavar="FILE|published:NAME", help="Jobs that give their true times.")
    ] = "published:gregg-table2",
    cluster: Annotated[str, typer.Option(metavar="FILE|SHORT", help="Where they run.")] = "1x1cpu+1gpu",
    names: Annotated[
        str | None, typer.Option("--policies", metavar="NAME,NAME…", help="Policies to compare.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Random orders and errors.")] = 100,
    first_seed: FirstSeed = 1,
    workers: Workers = None,
    as_json: opt.Json = False,
    out: Out = None,
    quiet: opt.Quiet = False,
) -> None:
    """What predictions cost that are 1.5x to 10x off.

    The same queue under several policies, scheduled by ever worse predictions.
    """
    if names is None:
        known = {info.name for info in list_policies()}
        chosen = [name for name in POLICIES if name in known]
    else:
        chosen = [name.strip() for name in names.split(",")]
    out = prepare_folder(out)
    with Bar("wrong predictions", hidden=quiet or as_json) as bar:
        found = factor_rows(
            workload,
            cluster=cluster,
            names=chosen,
            seeds=seeds,
            first_seed=first_seed,
            workers=process_count(workers),
            progress=bar.tell,
        )
    publish_study(make_study(workload, cluster, found, seeds, first_seed), as_json=as_json, out=out)
