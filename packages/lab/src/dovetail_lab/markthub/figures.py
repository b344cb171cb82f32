"""Figures 7 to 12: which points they have, and the panels that they make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dovetail.report.drawing import GRID, INK, MUTED, with_style
from dovetail_lab.figures import add_heading, clean_axes, styled_figure
from dovetail_lab.markthub.points import POLICIES, Point, PointOutcomes, mixture_point, table_4
from dovetail_lab.ravi.panels import COLOURS, Panel, panel_parts
from dovetail_lab.study import Chart, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = (9, 10, 11, 12)
CALLS = (4.0, 5.0, 6.0, 6.5, 7.0, 7.2, 7.3, 7.4, 7.5, 8.0, 8.5, 9.0)
"""Figure 7: powers of ten of calls, close to each other where RQ crosses zero."""
OTHER = (10, 20, 30, 50, 100, 300, 1000, 10_000)
NODES = (1, 2, 5, 10, 20, 30, 40, 50, 70, 100)
MAJORITIES = ("0.8,0.1,0.1", "0.1,0.8,0.1", "0.1,0.1,0.8")
INTERARRIVAL = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
CASE_STUDY = "0.025,0.124,0.851"
CASE_CALLS = (4.0, 6.0, 6.8, 7.0, 7.2, 7.5, 8.0, 8.5, 9.0)
READING_CALLS = (6.5, 7.0, 7.3, 7.5, 8.0, 8.5, 9.0)
READINGS: Mapping[str, tuple[str, str, str, tuple[float, float]]] = {
    "base": ("", "", "", (7.38, 8.40)),
    "what is drawn below zero is drawn again": ("redraw", "", "", (7.29, 8.15)),
    "one process for each GPU": ("", "", "processes=gpu", (7.38, 8.84)),
    "at least one local GPU": ("", "local=1", "", (7.38, 8.51)),
}
"""By name: draws, options of the policies, of the rates, and where the reference crosses zero (RQ, MRQ)."""
SKIPPED = (0, 1, 10, 100)
CROWD = "0.05,0.9,0.05"
CROWDED_CALLS, CROWDED_SIZES = ("1e5", "1e7", "1e8", "1e9", "1e5|3e8"), (9, 12)
GRID_CALLS, GRID_SIZES, GRID_OTHER = (4, 6, 7, 8, 9), (9, 12), (10, 10_000)
DEFAULT = table_4()


def _power_of_ten(exponent: float) -> str:
    """``10**exponent`` as the options of a workload take it.

    >>> _power_of_ten(6.5)
    '3162277.66'
    """
    return f"{10.0**exponent:.9g}"


def figure_7(size: int) -> dict[float, Point]:
    """By calls."""
    return {
        x: table_4(gpu_calls=_power_of_ten(x), gpu_bytes=_power_of_ten(size), spread="wide") for x in CALLS
    }


def figure_8(size: int) -> dict[float, Point]:
    """By the seconds of everything else."""
    return {float(x): table_4(other=x, gpu_bytes=_power_of_ten(size), other_spread="wide") for x in OTHER}


def figure_9(size: int) -> dict[float, Point]:
    """By the mean number of nodes."""
    return {float(x): table_4(nodes_mean=x, nodes_sd=x - 1, gpu_bytes=_power_of_ten(size)) for x in NODES}


def figure_10(majority: int) -> dict[float, Point]:
    """By bytes; the GPUs of a node that most jobs request."""
    return {
        float(size): table_4(gpus=MAJORITIES[majority - 1], gpu_bytes=_power_of_ten(size)) for size in SIZES
    }


def figure_11(size: int) -> dict[float, Point]:
    """By the power of ten of the mean seconds between arrivals."""
    return {x: table_4(interarrival=_power_of_ten(x), gpu_bytes=_power_of_ten(size)) for x in INTERARRIVAL}


def figure_12() -> dict[float, Point]:
    """By calls, on the case study's shares of GPUs."""
    return {x: table_4(gpu_calls=_power_of_ten(x), gpus=CASE_STUDY, spread="wide") for x in CASE_CALLS}


def reading_points(name: str) -> dict[float, Point]:
    """By calls, under another reading of what the paper leaves open."""
    negative, policies, rates, _ = READINGS[name]
    drawn = {"negative": negative} if negative else {}
    return {
        x: table_4(
            gpu_calls=_power_of_ten(x),
            spread="wide",
            policies=POLICIES[:2],
            reading=policies,
            rates=rates,
            **drawn,
        )
        for x in READING_CALLS
    }


def skipping_points() -> dict[int, Point]:
    """How many jobs may pass a head that cannot start."""
    return {k: table_4(policies=POLICIES[:1], reading=f"skip={k}") for k in SKIPPED}


def crowded_points() -> list[Point]:
    """Short jobs of few nodes in a queue that only grows, by calls and bytes: where looking ahead is hard."""
    return [
        table_4(
            nodes_mean=2, nodes_sd=1, gpus=CROWD, interarrival=3, other=60,
            gpu_calls=calls, gpu_bytes=_power_of_ten(size), spread="wide",
        )
        for size in CROWDED_SIZES
        for calls in CROWDED_CALLS
    ]  # fmt: skip


def grid_points() -> list[Point]:
    """Figure 7's corners at other job lengths, all of its points, the mixtures, and the crowd."""
    corners = [
        table_4(gpu_calls=_power_of_ten(calls), gpu_bytes=_power_of_ten(size), other=other, spread="wide")
        for other in GRID_OTHER
        for size in GRID_SIZES
        for calls in GRID_CALLS
    ]
    whole = [point for size in SIZES for point in figure_7(size).values()]
    return [*whole, *corners, mixture_point(wide=False), mixture_point(wide=True), *crowded_points()]


def all_points() -> Iterator[Point]:
    """Of all figures and tables."""
    yield DEFAULT
    yield from grid_points()
    for size in SIZES:
        yield from figure_8(size).values()
    for size in (9, 12):
        yield from figure_9(size).values()
        yield from figure_11(size).values()
    for majority in (1, 2, 3):
        yield from figure_10(majority).values()
    yield from figure_12().values()
    for name in READINGS:
        yield from reading_points(name).values()
    yield from skipping_points().values()


# ------------------------------------------------------------------------------------------------ panels


def decrease_curve(
    found: PointOutcomes,
    name: str,
    axis: str,
    series: Mapping[float, Point],
    references: Sequence[Mapping[float, float]] = (),
    *,
    logarithmic: bool = False,
    note: str = "",
) -> tuple[Panel, Table, Chart]:
    """The decrease of lifetimes along an axis under `POLICIES`: the numbers, the table and the chart.

    ``references`` are what an independent program found at some points, for the first of the policies.
    """
    values = tuple(
        tuple(found.median_decrease(point, policy) for point in series.values()) for policy in POLICIES
    )
    reference = [*references, *[{}] * (len(POLICIES) - len(references))]
    known = tuple(tuple(one.get(x) for x in series) for one in reference) if references else ()
    columns = tuple(f"{x:g}" for x in series)
    panel = Panel(name, f"median decrease in % by {axis}", columns, POLICIES, values, known)
    table, bars = panel_parts(panel, "markthub", note)
    chart = Chart(bars.name, name, partial(draw_lines, panel, axis, tuple(series), logarithmic), note=note)
    return panel, table, chart


@with_style
def draw_lines(panel: Panel, axis: str, xs: Sequence[float], logarithmic: bool) -> Figure:
    """A line for each policy with 95 % intervals; crosses are what the reference found."""
    fig = styled_figure(8.0, 4.6)
    add_heading(
        fig, panel.name, "median decrease of lifetimes against fcfs in %, 95 % intervals; x: reference"
    )
    axes = fig.add_axes((0.09, 0.13, 0.76, 0.68))
    clean_axes(axes)
    axes.axhline(0.0, color=INK, linewidth=0.8)
    for r, row in enumerate(panel.rows):
        held = [(x, value) for x, value in zip(xs, panel.values[r], strict=True) if value is not None]
        colour = COLOURS[r % len(COLOURS)]
        axes.errorbar(
            [x for x, _ in held],
            [value.mean for _, value in held],
            yerr=[value.half_width or 0.0 for _, value in held],
            color=colour,
            linewidth=1.6,
            capsize=2,
            marker="o",
            markersize=3,
        )
        x, last = held[-1]
        axes.annotate(row, (x, last.mean), (5, 0), textcoords="offset points", color=colour, fontsize=8)
        reference = panel.reference[r] if r < len(panel.reference) else ()
        marks = [(x, value) for x, value in zip(xs, reference, strict=False) if value is not None]
        axes.plot([x for x, _ in marks], [y for _, y in marks], "x", color=INK, markersize=5)
    if logarithmic:
        axes.set_xscale("log")
    axes.set_xlabel(axis, fontsize=9, color=MUTED)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    return fig
