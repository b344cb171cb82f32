"""``dovetail reproduce markthub``: Figures 6 to 12, the claims, and a policy that looks ahead."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, fields
from io import StringIO
from typing import Annotated

import typer

from dovetail.cli import options as opt
from dovetail.files.writing import write_text
from dovetail.report.intervals import Interval
from dovetail.report.progress import Bar
from dovetail_lab.claims import Chosen
from dovetail_lab.markthub import figures
from dovetail_lab.markthub.claims import CONSTANTS, make_claims
from dovetail_lab.markthub.figures import DEFAULT, decrease_curve
from dovetail_lab.markthub.occupancy import compare_occupancy
from dovetail_lab.markthub.points import AWARE, POLICIES, Lives, Point, PointOutcomes, mixture_point, play_all
from dovetail_lab.ravi.panels import Panel
from dovetail_lab.study import (
    Chart,
    FirstSeed,
    Out,
    Set,
    Study,
    Table,
    Workers,
    format_interval,
    named_seeds,
    prepare_folder,
    process_count,
    publish_study,
)

REFERENCE_7: Mapping[int, tuple[dict[float, float], dict[float, float]]] = {
    9: (
        {4: 31.5, 5: 31.4, 6: 29.8, 6.5: 26.4, 7: 16.4, 7.2: 8.9, 7.3: 4.3, 7.4: -1.1}
        | {7.5: -7.7, 8: -45.0, 8.5: -76.9, 9: -95.3},
        {4: 31.4, 5: 31.3, 6: 30.3, 6.5: 28.3, 7: 23.8, 7.2: 21.1, 7.3: 19.6, 7.4: 18.0}
        | {7.5: 16.0, 8: 6.7, 8.5: -1.0, 9: -5.4},
    ),
    10: (
        {4: 31.5, 5: 31.3, 6: 29.8, 6.5: 26.3, 7: 16.1, 7.5: -7.7, 8: -45.0, 8.5: -76.9, 9: -95.2},
        {4: 31.3, 5: 31.2, 6: 30.2, 6.5: 28.1, 7: 23.4, 7.5: 15.9, 8: 6.6, 8.5: -1.1, 9: -5.4},
    ),
    11: (
        {4: 30.9, 5: 30.7, 6: 29.3, 6.5: 25.8, 7: 15.7, 7.5: -7.5, 8: -44.3, 8.5: -77.1, 9: -94.9},
        {4: 30.7, 5: 30.5, 6: 29.6, 6.5: 27.6, 7: 22.9, 7.5: 15.6, 8: 6.5, 8.5: -1.0, 9: -5.4},
    ),
    12: (
        {4: 25.6, 5: 25.4, 6: 24.1, 6.5: 21.1, 7: 12.7, 7.5: -7.7, 8: -42.8, 8.5: -74.0, 9: -94.3},
        {4: 26.0, 5: 25.9, 6: 25.1, 6.5: 23.4, 7: 19.4, 7.5: 13.3, 8: 5.4, 8.5: -1.4, 9: -5.1},
    ),
}
"""Figure 7 by an independent program: by power of ten of the bytes RQ, then MRQ, by that of the calls."""
REFERENCE_9: Mapping[int, tuple[tuple[float, ...], tuple[float, ...]]] = {
    9: (
        (26.1, 24.9, 24.9, 26.0, 28.6, 30.0, 27.1, 23.3, 19.4, 17.0),
        (27.4, 25.5, 24.7, 25.8, 28.8, 30.3, 27.5, 23.7, 19.6, 17.1),
    ),
    12: (
        (11.1, 10.0, 11.8, 15.2, 21.1, 24.1, 22.6, 19.9, 17.1, 15.5),
        (21.9, 18.4, 15.7, 16.8, 21.9, 25.0, 23.8, 20.7, 17.5, 15.4),
    ),
}
"""Figure 9 likewise, by the mean number of nodes."""


def make_study(
    *,
    jobs: int = 1000,
    seeds: int = 3,
    chosen: Chosen | None = None,
    first_seed: int = 1,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Study, PointOutcomes]:
    """All figures, and what they rest on."""
    found = play_all(
        list(figures.all_points()),
        jobs=jobs,
        seeds=seeds,
        first_seed=first_seed,
        workers=workers,
        progress=progress,
    )
    both, picture, words = compare_occupancy()
    curves = _figure_curves(found)
    shown_parts = [part for _, table, chart in curves for part in (table, chart)]
    about = (
        f"Table 4's jobs on 100 nodes of 3 GPUs (Table 3): {jobs:,} a seed, "
        f"{named_seeds(first_seed, seeds)} seeds; what the paper "
        "leaves open as documented. A decrease is that of the median job's lifetime against fcfs, in percent."
    )
    parts: tuple[Table | Chart, ...] = (
        _at_defaults(found),
        *shown_parts,
        _figure_10(found),
        _sacrificed_table(found),
        _crossings_table(found),
        _readings_table(found),
        _skipping_table(found),
        _aware_table(found),
    )
    numbers = {
        "jobs": jobs,
        "seeds": seeds,
        "first_seed": first_seed,
        "panels": [panel for panel, _, _ in curves],
        "figure_6": [{"policy": o.policy, "makespan": o.makespan, "lent": o.lent} for o in both],
        "points": _point_rows(found),
    }
    title = "Markthub 2015, batch queues with remote GPUs"
    chosen = chosen or Chosen(CONSTANTS)
    made = tuple(make_claims(found, chosen))
    return Study("markthub", title, about, (words, picture, *parts), made, numbers, chosen), found


CALLS, SECONDS, NODES = (
    "calls (power of ten)",
    "seconds of everything but communication",
    "mean number of nodes",
)
NOTE_8 = "The reference crosses zero at 31 to 38 s (rq) and 14 to 23 s (mrq) for 1e9 to 1e11 bytes."
NOTE_9 = (
    "More than 100 nodes are clipped to 100, so that beyond a mean of 30 ever more jobs take all of them."
)
NOTE_11 = "The paper's axis ends at 3; it can only be a power of ten: at 3 s all is overload."
NOTE_12 = "Table 4's jobs with the case study's shares of GPUs: the log itself cannot be had."


def _figure_curves(found: PointOutcomes) -> list[tuple[Panel, Table, Chart]]:
    """Figures 7 to 9, 11 and 12; of each the reference's values for RQ and MRQ, where it has some."""
    arrivals = "mean seconds between arrivals (power of ten)"
    shown: list[tuple[str, str, Mapping[float, Point], Sequence[Mapping[float, float]], str]] = [
        *(
            (f"7, 1e{n} bytes: communication", CALLS, figures.figure_7(n), REFERENCE_7[n], "")
            for n in figures.SIZES
        ),
        *((f"8, 1e{n} bytes: lengths", SECONDS, figures.figure_8(n), (), NOTE_8) for n in figures.SIZES),
        *(
            (
                f"9, 1e{n} bytes: sizes",
                NODES,
                series,
                [dict(zip(series, row, strict=True)) for row in rows],
                NOTE_9,
            )
            for n, rows in REFERENCE_9.items()
            for series in [figures.figure_9(n)]
        ),
        *((f"11, 1e{n} bytes: waiting jobs", arrivals, figures.figure_11(n), (), NOTE_11) for n in (9, 12)),
        ("12: the case study's GPUs", CALLS, figures.figure_12(), (), NOTE_12),
    ]
    return [
        decrease_curve(
            found, f"Figure {name}", axis, series, reference, logarithmic=axis == SECONDS, note=note
        )
        for name, axis, series, reference, note in shown
    ]


# ------------------------------------------------------------------------------------------------ tables


def _at_defaults(found: PointOutcomes) -> Table:
    reference = {
        "fcfs": ("-", "0.56", "-", "0", "1.95e+06"),
        "rq": ("29.84 ± 0.52 (sd)", "0.81", "49 %", "0", "1.37e+06"),
        "mrq": ("30.24 ± 0.51 (sd)", "0.81", "60 %", "87,515", "1.36e+06"),
    }
    rows: list[tuple[str, ...]] = []
    faint = []
    for policy in ("fcfs", *POLICIES):
        rows.append(
            (
                policy,
                format_interval(found.median_decrease(DEFAULT, policy)),
                format_interval(found.mean_over_seeds(DEFAULT, policy, lambda lives: lives.utilisation)),
                f"{found.mean_over_seeds(DEFAULT, policy, lambda lives: lives.borrowed).mean:.0%}",
                f"{found.mean_over_seeds(DEFAULT, policy, lambda lives: lives.migrations).mean:,.0f}",
                f"{found.mean_over_seeds(DEFAULT, policy, lambda lives: lives.median_life).mean:.3g}",
            )
        )
        if policy in reference:
            faint.append(len(rows))
            rows.append(("  reference", *reference[policy]))
    return Table(
        "Table 4's defaults",
        ("policy", "decrease, %", "GPUs in use", "jobs that borrow", "GPUs moved home", "median life, s"),
        tuple(rows),
        faint=frozenset(faint),
        note="The reference has 10,000 jobs; moves and lives grow with the number of jobs.",
    )


def _figure_10(found: PointOutcomes) -> Table:
    rows = []
    for majority in (1, 2, 3):
        series = figures.figure_10(majority)
        for policy in POLICIES:
            values = tuple(format_interval(found.median_decrease(point, policy)) for point in series.values())
            rows.append((f"{majority}-GPU majority", policy, *values))
    columns = ("jobs", "policy", *(f"1e{size} bytes" for size in figures.SIZES))
    title = "Figure 10: GPUs of a node that jobs request (median decrease in %)"
    return Table(title, columns, tuple(rows), names=2)


def _sacrificed_table(found: PointOutcomes) -> Table:
    series = figures.figure_7(9)
    rows = [
        (
            policy,
            *(
                f"{found.mean_over_seeds(p, policy, lambda lives: lives.sacrificed).mean:.1%}"
                for p in series.values()
            ),
        )
        for policy in POLICIES
    ]
    return Table(
        "Sacrificed jobs of Figure 7, 1e9 bytes: they live longer than under fcfs (by calls, power of ten)",
        ("policy", *(f"{x:g}" for x in series)),
        tuple(rows),
        note="Reference at 7.5: 96 % under rq, 0.03 % under mrq.",
    )


def crossing_text(found: Interval | None) -> str:
    """A crossing, or that there is none."""
    return "none" if found is None else format_interval(found, 2)


def _crossings_table(found: PointOutcomes) -> Table:
    axes: list[tuple[str, Mapping[float, Point]]] = [
        *((f"Figure 7, 1e{size} bytes: calls", figures.figure_7(size)) for size in figures.SIZES),
        *((f"Figure 8, 1e{size} bytes: seconds", figures.figure_8(size)) for size in figures.SIZES),
        ("Figure 12: calls", figures.figure_12()),
    ]
    rows = tuple(
        (name, *(crossing_text(found.mean_crossing(series, policy)) for policy in POLICIES))
        for name, series in axes
    )
    note = (
        "Calls as powers of ten. Reference: 7.38 and 8.40 at 1e9 bytes, 7.35 and 8.36 at 1e12; 7.10 and 7.74."
    )
    return Table("Where the gain crosses zero", ("axis", *POLICIES), rows, note=note)


def _readings_table(found: PointOutcomes) -> Table:
    rows: list[tuple[str, ...]] = []
    faint = []
    for name, (_, _, _, reference) in figures.READINGS.items():
        crossings = [found.mean_crossing(figures.reading_points(name), policy) for policy in POLICIES[:2]]
        # A factor exists only where both curves cross zero within the calls that were simulated.
        factor = "-"
        if crossings[0] is not None and crossings[1] is not None:
            factor = f"{10 ** (crossings[1].mean - crossings[0].mean):.1f}"
        rows.append((name, *map(crossing_text, crossings), factor))
        faint.append(len(rows))
        rows.append(
            ("  reference", *(f"{x:.2f}" for x in reference), f"{10 ** (reference[1] - reference[0]):.1f}")
        )
    return Table(
        "Readings: where the gain crosses zero (calls, power of ten; 1e9 bytes)",
        ("reading", "rq", "mrq", "tolerates, times"),
        tuple(rows),
        faint=frozenset(faint),
    )


def _skipping_table(found: PointOutcomes) -> Table:
    reference = {0: "29.2", 1: "26.8", 10: "24.4", 100: "22.5"}
    rows = tuple(
        (f"{k}", format_interval(found.median_decrease(point, "rq")), reference[k])
        for k, point in figures.skipping_points().items()
    )
    return Table(
        "A queue that is not strict: jobs that may pass a head which cannot start",
        ("jobs", "rq, %", "reference"),
        rows,
        note="Both fcfs and rq let them pass. The reference has 3,000 jobs and 2 seeds.",
    )


def _aware_table(found: PointOutcomes) -> Table:
    # The point where looking ahead does worst against the better of fcfs and mrq is shown beside those that
    # were made for it.
    worst = min(figures.grid_points(), key=lambda point: found.beyond_others(point, AWARE).mean)
    rows = [
        (name, *(format_interval(found.median_decrease(point, policy)) for policy in POLICIES))
        for name, point in (
            ("calls of 1e5 or 3e8, narrow", mixture_point(wide=False)),
            ("calls of 1e5 or 3e8, wide", mixture_point(wide=True)),
            (f"least against fcfs and mrq: {_point_name(worst)}", worst),
        )
    ]
    return Table(
        f"A policy that looks ahead (median decrease in %; {len(figures.grid_points())} points)",
        ("jobs", *POLICIES),
        tuple(rows),
        note=f"At its least point {AWARE} is {format_interval(found.beyond_others(worst, AWARE))} "
        f"beyond the better one. "
        f"At most {100 * _most_sacrificed(found):.0f} % of a point's jobs live longer than under fcfs.",
    )


def _most_sacrificed(found: PointOutcomes) -> float:
    """The largest share, of all points, of jobs that live longer under the policy than under ``fcfs``."""
    return max(
        found.mean_over_seeds(point, AWARE, lambda lives: lives.sacrificed).mean
        for point in figures.grid_points()
    )


def _point_name(point: Point) -> str:
    return ", ".join(f"{name}={value}" for name, value in point.options if name != "spread")


# ------------------------------------------------------------------------------------------------ numbers


def _point_rows(found: PointOutcomes) -> list[dict[str, object]]:
    """Every point, seed and policy."""
    return [
        {
            "options": dict(point.options),
            "reading": "&".join(part for part in (point.reading, point.rates) if part),
            "seed": seed,
            **{field.name: getattr(lives, field.name) for field in fields(Lives)},
        }
        for point, by_seed in found.lives.items()
        for seed, several in enumerate(by_seed, found.first_seed)
        for lives in several
    ]


def _csv_text(found: PointOutcomes) -> str:
    """The same as CSV, a line each."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["options", "reading", "rates", "seed", *(field.name for field in fields(Lives))])
    for point, by_seed in found.lives.items():
        for seed, several in enumerate(by_seed, found.first_seed):
            for lives in several:
                options = "&".join(f"{name}={value}" for name, value in point.options)
                writer.writerow([options, point.reading, point.rates, seed, *astuple(lives)])
    return text.getvalue()


def command(
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Draws of every job set.")] = 3,
    jobs: Annotated[
        int, typer.Option(min=200, metavar="N", help="Jobs of a set; the paper has 10,000.")
    ] = 1000,
    constants: Set = None,
    first_seed: FirstSeed = 1,
    workers: Workers = None,
    as_json: opt.Json = False,
    out: Out = None,
    quiet: opt.Quiet = False,
) -> None:
    """Markthub 2015, Figures 6 to 12: borrowed GPUs.

    FCFS, RQ, MRQ and a policy that looks ahead; paper, reference, ours.
    """
    chosen = Chosen.of(CONSTANTS, constants)
    out = prepare_folder(out)
    with Bar("borrowed GPUs", hidden=quiet or as_json) as bar:
        made, found = make_study(
            jobs=jobs,
            seeds=seeds,
            first_seed=first_seed,
            chosen=chosen,
            workers=process_count(workers),
            progress=bar.tell,
        )
    publish_study(made, as_json=as_json, out=out)
    if out is not None:
        write_text(out / "markthub.csv", _csv_text(found))
