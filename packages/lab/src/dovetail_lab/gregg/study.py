"""``dovetail reproduce gregg``: the figures of Gregg 2011 beside what the rules yield and what we get.

"Paper" is what the paper prints, "reference" an independent program of the same rules, "ours" this
scheduler. The paper's figures come from two clocks, kernels (Table 2) and whole applications (Figures 3 to
5); every case names its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
import typer

from dovetail.cli import options as opt
from dovetail.errors import InputError
from dovetail.model import Record
from dovetail.report.progress import Bar as ProgressBar
from dovetail_lab.apps.bench.measured import MeasuredRun
from dovetail_lab.apps.bench.suite import app_names, measure_suite, size_points, sizes_table, two_devices
from dovetail_lab.claims import Chosen
from dovetail_lab.gregg import tables
from dovetail_lab.gregg.claims import CLOCKS as CLOCK_CONSTANTS
from dovetail_lab.gregg.claims import CONSTANTS, make_claims
from dovetail_lab.gregg.decisions import PAPER as PAPER_DECISION
from dovetail_lab.gregg.decisions import QUEUES, decision_time
from dovetail_lab.gregg.flows import figure_4, figure_5, run_identical
from dovetail_lab.gregg.live import CONSTANT as LIVE_SIZES
from dovetail_lab.gregg.live import Live, PaperTimes, made_up_pair, one_of_each, run_live
from dovetail_lab.gregg.live_claims import live_claims, live_table
from dovetail_lab.gregg.placements import CaseOutcome, clock_readings, run_cases
from dovetail_lab.gregg.predictions import Bar, prediction_bars, stored_measurements
from dovetail_lab.gregg.training import GPU_ONLY, REFERENCE, Curve, training_curves
from dovetail_lab.live import check_completed
from dovetail_lab.study import Out, Set, Study, Workers, prepare_folder, process_count, publish_study

CLOCKS = (
    "Table 2 prints kernel times: all sixteen take 4.2 s on the GPU.",
    "Figures 3 to 5 show whole applications: 10.0 s for static placement, where the kernels take 4.1 s. "
    "0.46 s an application on either device explains 10.0 s, 10.1 s and 11.6 s at once.",
    '"29 %" and "39 %" are reductions (1 - 7.1 / 10.0, 1 - 7.1 / 11.6); "33 %" is a ratio (10.1 / 7.6).',
    "The 0.4 s of an average GPU application (section 4.3) is neither the kernels' mean (0.26 s) nor the "
    "applications' (0.72 s).",
)
"""Where the paper's figures come from different clocks."""

SCALE = PaperTimes().scale
LEAST_SCALE, MOST_SCALE = 0.01, 10.0
"""Below it starting a program takes longer than the program."""

LIVE_ROUNDS = 2
"""How often the sizes that are learned from run: once a round …"""
LIVE_TRIALS = 3
"""… and after them the medium size, which is predicted, this often: machines have slow minutes."""


def prediction_form(source: str, found: list[Bar]) -> dict[str, Any]:
    """Figure 1 for JSON."""
    return {
        "measured": source,
        "within_paper_model": sum(bar.paper_within for bar in found),
        "within_learned": sum(bar.learned_within for bar in found),
        "within_learned_seen": sum(bar.seen_within for bar in found),
        "of": len(found),
        "bars": found,
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


def case_form(found: CaseOutcome) -> dict[str, Any]:
    """A case for JSON: ours, reference, paper, and what random orders do."""
    mean, least, greatest = found.dynamic_makespans()
    table, orders = found.table, found.orders
    return {
        "case": found.case.name,
        "ours": found.table_order_figures()
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


def make_study(
    *,
    repetitions: int = 100,
    orders: int = 100,
    queues: tuple[int, ...] | None = None,
    chosen: Chosen | None = None,
    anew: bool = False,
    live: Live | None = None,
    seed: int = 1,
    workers: int = 1,
    quiet: bool = True,
) -> Study:
    """All figures, most of them simulated.

    ``anew`` runs the apps here for Figure 1, minutes; ``live`` is what `run_live` found of Figures 3 to 5.
    """
    chosen = chosen or Chosen(CONSTANTS)
    gpu, cpu, slow = (chosen.number(n) if n in chosen.given else None for n in CLOCK_CONSTANTS)
    source = "stored: 2-core AMD EPYC virtual machine, 2026-11-20"
    measured = stored_measurements()
    if anew:
        with ProgressBar("measuring", hidden=quiet) as progress:
            source, measured = "this machine, now", _measured_now(seed, progress.tell)
    with ProgressBar("training", hidden=quiet) as progress:
        curves = training_curves(
            repetitions=repetitions,
            seed=seed,
            noise=chosen.number("training_noise"),
            spread=chosen.number("training_spread"),
            workers=workers,
            progress=progress.tell,
        )
    with ProgressBar("orders", hidden=quiet) as progress:
        found = run_cases(
            orders=orders,
            seed=seed,
            workers=workers,
            readings=clock_readings(gpu, cpu, slow),
            progress=progress.tell,
        )
    decided = [
        decision_time(int(queued))
        for queued in (chosen.number_readings("queued") if queues is None else queues)
    ]
    predicted = prediction_bars(measured)
    costs = (0.46 if gpu is None else gpu, 0.56 if cpu is None else cpu)
    four, five, ten = figure_4(*costs), figure_5(*costs), run_identical()
    return Study(
        "gregg",
        "Gregg 2011, dynamic scheduling by historical run times",
        f"{repetitions} repetitions of the training, {orders} random orders of the queue.",
        (
            *tables.prediction_parts(source, predicted),
            *tables.training_parts(curves),
            *tables.placement_parts(found),
            *([live_table(live)] if live else []),
            tables.flow_chart(4, four),
            tables.flow_chart(5, five),
            tables.identical_chart(ten),
            tables.fairness_table(found),
            tables.decision_table(decided),
            tables.clock_prose(CLOCKS),
        ),
        (
            *make_claims(predicted, curves, found, ten, decided, chosen),
            *(live_claims(live, chosen.number("tolerance")) if live else ()),
        ),
        {
            "clocks": CLOCKS,
            "figure_1": prediction_form(source, predicted),
            "figure_2": {
                "gpu_only": GPU_ONLY,
                "reference": {str(runs): seconds for runs, seconds in REFERENCE.items()},
                "curves": [curve_form(curve) for curve in curves],
            },
            "figures_3_to_5": [case_form(case) for case in found],
            "figure_4": [flow.as_dict() for flow in four],
            "figure_5": [flow.as_dict() for flow in five],
            "section_5_4": {
                "first_on_cpu": ten.first_on_cpu,
                "paper_first_on_cpu": ten.paper_first_on_cpu,
                "optimum": ten.optimum,
                **ten.flow.as_dict(),
            },
            "section_4_3": {"paper": PAPER_DECISION, "queues": decided},
        }
        | ({"live": live.as_dict()} if live else {}),
        chosen,
    )


def _measured_now(seed: int, progress: Callable[[float, float], None]) -> list[MeasuredRun]:
    """Runs of the sizes to learn from, then of the medium ones; ``progress`` gets how many have ended."""
    cluster = two_devices()
    sized = [point for point in sizes_table() if point.role == "train"]
    trials = size_points(app_names(None), ("medium",))
    parts = ((sized, 1), (trials, LIVE_TRIALS)) * LIVE_ROUNDS
    rng = np.random.Generator(np.random.PCG64(seed))
    total = len(cluster.classes) * sum(len(found) * repeat for found, repeat in parts)
    done: list[MeasuredRun] = []
    undone: list[Record] = []

    with tempfile.TemporaryDirectory(prefix="dovetail-gregg-") as folder:
        # In turns: if the machine is slow for a while, the sizes to learn from and those to predict both meet
        # it.
        for i, (found, repeat) in enumerate(parts):
            more, undone = measure_suite(
                found,
                cluster,
                repeat=repeat,
                history=Path(folder) / "history.sqlite",
                run_dir=Path(folder) / f"runs-{i}",
                changed=lambda engine: progress(
                    len(done) + sum(record.end is not None for record in engine.records.values()), total
                ),
                rng=rng,
            )
            done.extend(more)
            # What failed once would fail in each further part.
            if undone:
                break
    check_completed(undone, "--figure-1")
    return done


def check_live(*, live: bool, times: str, suite: str, scale: float) -> None:
    """Check what --live is to run: raises `InputError` for what there is not, or what needs --live."""
    for option, found, expected in (("--times", times, "table2"), ("--suite", suite, "bench")):
        if found and found != expected:
            raise InputError(f"found {found!r}, expected {expected!r}", where=option)
        if found and not live:
            raise InputError("found without --live, expected both", where=option)
    if times and suite:
        raise InputError("found both, expected one of them", where="--times, --suite")
    if scale != SCALE and not times:
        raise InputError("found without --times, expected both", where="--scale")
    if not LEAST_SCALE <= scale <= MOST_SCALE:
        raise InputError(f"found {scale:g}, expected {LEAST_SCALE:g} to {MOST_SCALE:g}", where="--scale")


def command(
    repetitions: Annotated[
        int, typer.Option(min=1, help="Of the training curve, each from an empty history.")
    ] = 100,
    orders: Annotated[int, typer.Option(min=1, help="Random orders of the queue.")] = 100,
    seed: Annotated[
        int, typer.Option("--seed", "--first-seed", min=0, help="Seed of sizes, noise and orders.")
    ] = 1,
    long_queue: Annotated[
        bool, typer.Option("--long-queue", help="Time decisions with 10,000 jobs queued, too.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Run the sixteen apps here for Figures 3 to 5, too.")
    ] = False,
    times: Annotated[
        str,
        typer.Option(metavar="table2", help="With --live: run programs that take the paper's times instead."),
    ] = "",
    suite: Annotated[
        str, typer.Option(metavar="bench", help="With --live: run the apps of this suite (the default).")
    ] = "",
    scale: Annotated[
        float, typer.Option(metavar="FACTOR", help="Of --times: seconds here for one of the paper's.")
    ] = SCALE,
    rounds: Annotated[
        int, typer.Option(min=1, help="Of --live: every placement once, half a minute each.")
    ] = 3,
    figure_1: Annotated[
        bool, typer.Option("--figure-1", help="Run them here for Figure 1: some minutes.")
    ] = False,
    constants: Set = None,
    workers: Workers = None,
    as_json: opt.Json = False,
    out: Out = None,
    quiet: opt.Quiet = False,
) -> None:
    """Gregg 2011: learning where to run.

    Predictions, training, placement, fairness, time of a decision; paper, reference, ours.
    """
    check_live(live=live, times=times, suite=suite, scale=scale)
    chosen = Chosen.of((*CONSTANTS, LIVE_SIZES) if live and not times else CONSTANTS, constants)
    out = prepare_folder(out)
    ran = None
    if live and times:
        costs = {n: chosen.number(n) for n in ("gpu_cost", "cpu_cost") if n in chosen.given}
        with ProgressBar("running", hidden=quiet or as_json) as progress:
            ran = run_live(
                made_up_pair(),
                rounds=rounds,
                seed=seed,
                times=PaperTimes(scale, **costs),
                progress=progress.tell,
            )
    elif live:
        machine = one_of_each()
        with ProgressBar("running", hidden=quiet or as_json) as progress:
            ran = run_live(
                machine,
                rounds=rounds,
                sizes=str(chosen.all("live_sizes")[0]),
                seed=seed,
                progress=progress.tell,
            )
    found = make_study(
        repetitions=repetitions,
        orders=orders,
        queues=QUEUES if long_queue else None,
        chosen=chosen,
        anew=figure_1,
        live=ran,
        seed=seed,
        workers=process_count(workers),
        quiet=quiet or as_json,
    )
    publish_study(found, as_json=as_json, out=out)
