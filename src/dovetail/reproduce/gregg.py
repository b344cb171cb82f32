"""``dovetail reproduce gregg``: the figures of Gregg 2011 beside what the rules yield and what we get.

"Paper" is what the paper prints, "reference" an independent program of the same rules, "ours" this
scheduler. The paper's figures come from two clocks, kernels (Table 2) and whole applications (Figures 3 to
5); every case says which one it is on.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
import typer

from dovetail.engine.core import Engine
from dovetail.errors import InputError
from dovetail.model import Record, State
from dovetail.reproduce import gregg_show
from dovetail.reproduce.gregg_decisions import PAPER as PAPER_DECISION
from dovetail.reproduce.gregg_decisions import QUEUES, DecisionTime, decision_time
from dovetail.reproduce.gregg_figures import Found, cases
from dovetail.reproduce.gregg_predictions import Bar, bars
from dovetail.reproduce.gregg_training import GPU_ONLY, REFERENCE, Curve, training
from dovetail.reproduce.study_pool import StudyProgress, make_folder
from dovetail.reproduce.study_suite import (
    Measured,
    measure,
    names,
    points,
    sizes_table,
    stored_measurements,
    two_devices,
)

__all__ = ["Study", "command", "study"]

CLOCKS = (
    "Table 2 prints kernel times: all sixteen take 4.2 s on the GPU.",
    "Figures 3 to 5 show whole applications: 10.0 s for static placement, where the kernels take 4.1 s. "
    "0.46 s an application on either device explains 10.0 s, 10.1 s and 11.6 s at once.",
    '"29 %" and "39 %" are reductions (1 - 7.1 / 10.0, 1 - 7.1 / 11.6); "33 %" is a ratio (10.1 / 7.6).',
    "The 0.4 s of an average GPU application (section 4.3) is neither the kernels' mean (0.26 s) nor the "
    "applications' (0.72 s).",
)
"""Where the paper's figures come from different clocks."""

LIVE_ROUNDS = 2
"""How often the sizes that are learned from run: once a round …"""
LIVE_TRIALS = 3
"""… and after them the medium size, which is predicted, this often: machines have slow minutes."""


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that the command shows."""

    source: str
    bars: tuple[Bar, ...]
    curves: tuple[Curve, ...]
    found: tuple[Found, ...]
    decisions: tuple[DecisionTime, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the figures by their number in the paper."""
        return {
            "clocks": CLOCKS,
            "figure_1": {
                "measured": self.source,
                "within_paper_model": sum(bar.paper_within for bar in self.bars),
                "within_learned": sum(bar.learned_within for bar in self.bars),
                "within_learned_seen": sum(bar.seen_within for bar in self.bars),
                "of": len(self.bars),
                "bars": [asdict(bar) for bar in self.bars],
            },
            "figure_2": {
                "gpu_only": GPU_ONLY,
                "reference": {str(runs): seconds for runs, seconds in REFERENCE.items()},
                "curves": [curve_form(curve) for curve in self.curves],
            },
            "figures_3_to_5": [case_form(found) for found in self.found],
            "section_4_3": {"paper": PAPER_DECISION, "queues": [asdict(row) for row in self.decisions]},
        }


def curve_form(curve: Curve) -> dict[str, Any]:
    """A training curve for JSON: means over the repetitions, and the worst of every run."""
    return {
        "policy": curve.policy,
        "repetitions": len(curve.tests),
        "mean": curve.tests.mean(axis=0).tolist(),
        "longest": curve.tests.max(axis=0).tolist(),
        "training_over_gpu_only_mean": curve.ratios.mean(axis=0).tolist(),
        "training_over_gpu_only_worst": curve.ratios.max(axis=0).tolist(),
    }


def case_form(found: Found) -> dict[str, Any]:
    """A case for JSON: ours, reference, paper, and what random orders do."""
    mean, least, greatest = found.dynamic()
    table, orders = found.table, found.orders
    return {
        "case": found.case.name,
        "ours": found.ours()
        | {
            "static_cpu_utilisation": found.table.static_cpu_utilisation,
            "late": found.table.late,
            "latest": found.table.latest,
        },
        "reference": found.case.reference,
        "paper": found.case.paper,
        "random_orders": {
            "orders": len(orders),
            "dynamic_mean": mean,
            "dynamic_least": least,
            "dynamic_greatest": greatest,
            "late_mean": fmean(order.late for order in orders) if orders else table.late,
            "late_most": max((order.late for order in orders), default=table.late),
            "latest": max((order.latest for order in orders), default=table.latest),
            "unfair_share": fmean(order.late > 0 for order in orders) if orders else float(table.late > 0),
        },
    }


def study(
    *,
    repetitions: int = 100,
    orders: int = 100,
    queues: tuple[int, ...] = QUEUES[:3],
    live: bool = False,
    seed: int = 1,
    workers: int = 1,
    quiet: bool = True,
) -> Study:
    """All figures. A minute and more of simulation; ``live`` runs the suite on this machine first."""
    source = "stored: 2-core AMD EPYC virtual machine, 2026-11-20"
    measured = stored_measurements()
    if live:
        with StudyProgress("measuring", hidden=quiet) as progress:
            source, measured = "this machine, now", _measured_now(seed, progress.tell)
    with StudyProgress("training", hidden=quiet) as progress:
        curves = training(repetitions=repetitions, seed=seed, workers=workers, tell=progress.tell)
    with StudyProgress("orders", hidden=quiet) as progress:
        found = cases(orders=orders, seed=seed, workers=workers, tell=progress.tell)
    decisions = tuple(decision_time(queued) for queued in queues)
    return Study(source, tuple(bars(measured)), tuple(curves), tuple(found), decisions)


def _measured_now(seed: int, tell: Callable[[int, int], None]) -> list[Measured]:
    """Runs of the sizes to learn from, then of the medium ones; ``tell`` hears how many of how many ended."""
    cluster = two_devices()
    sized = [point for point in sizes_table() if point.role == "train"]
    trials = points(names(None), ("medium",))
    parts = ((sized, 1), (trials, LIVE_TRIALS)) * LIVE_ROUNDS
    rng = np.random.Generator(np.random.PCG64(seed))
    total = len(cluster.classes) * sum(len(found) * repeat for found, repeat in parts)
    done: list[Measured] = []
    undone: list[Record] = []

    def changed(engine: Engine) -> None:
        tell(len(done) + sum(record.end is not None for record in engine.records.values()), total)

    with tempfile.TemporaryDirectory(prefix="dovetail-gregg-") as folder:
        for i, (found, repeat) in enumerate(parts):
            more, undone = measure(
                found,
                cluster,
                repeat=repeat,
                history=Path(folder) / "history.sqlite",
                run_dir=Path(folder) / f"runs-{i}",
                changed=changed,
                rng=rng,
            )
            done += more
            if undone:
                break
    if any(record.state is State.CANCELLED for record in undone):
        raise KeyboardInterrupt  # the run ended what it could; nothing is left to show
    if undone:
        first = undone[0]
        raise InputError(f"job {first.job.id} ended as {first.state} {first.detail}".rstrip(), where="--live")
    return done


def command(
    repetitions: Annotated[
        int, typer.Option(min=1, help="Of the training curve, each from an empty history.")
    ] = 100,
    orders: Annotated[int, typer.Option(min=1, help="Random orders of the queue.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of sizes, noise and orders.")] = 1,
    long_queue: Annotated[
        bool, typer.Option("--long-queue", help="Time decisions with 10,000 jobs queued, too.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Run the sixteen apps here for Figure 1: some minutes.")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes. Default: one a core.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone on standard output.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the figures (SVG) and the numbers there.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Gregg 2011: predictions, training, placement, fairness, decision time; paper, reference, ours."""
    if out is not None:
        make_folder(out)  # before minutes of work
    found = study(
        repetitions=repetitions,
        orders=orders,
        queues=QUEUES if long_queue else QUEUES[:3],
        live=live,
        seed=seed,
        workers=workers or len(os.sched_getaffinity(0)),
        quiet=quiet or as_json,
    )
    if out is not None:
        _write(found, out)
    if as_json:
        print(json.dumps(found.as_dict(), indent=1))
    else:
        gregg_show.show(found.source, found.bars, found.curves, found.found, found.decisions, CLOCKS)


def _write(found: Study, out: Path) -> None:
    try:
        text = json.dumps(found.as_dict(), indent=1) + "\n"
        (out / "gregg.json").write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(out)) from error
    gregg_show.draw(found.bars, found.curves, found.found, out)
