"""Plots: utilisation and queue over time, comparison of policies with confidence intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dovetail.model import Cluster, Result, State
from dovetail.records import dataclass
from dovetail.report import wording
from dovetail.report.columns import Columns, Floats, StepFunction, columns_of
from dovetail.report.drawing import GRID, GROUND, INK, MUTED, Drawing, Label, Line, Rectangle, text_width
from dovetail.report.drift import figure_intervals
from dovetail.report.gantt.figure import WIDTH, time_axis
from dovetail.report.gantt.lanes import OTHER, PALETTE, Span, span_of
from dovetail.report.intervals import (
    Interval,
    group_variants,
    has_equal_draws,
    mean_interval,
    policy_label,
)
from dovetail.report.metric_names import HIGHER_IS_BETTER, MAIN
from dovetail.report.metrics import TrimmedTrace, final_metrics

if TYPE_CHECKING:
    from dovetail.report.device_memory import DeviceMemory
    from dovetail.report.memory_use import MemoryUse

OVER_LOAD = ("mean_wait", "mean_bounded_slowdown", "utilisation")
"""Metrics that are drawn against the load."""

BINS = 400
BLUE, PALE, GREEN, AMBER = "#4269d0", "#97bbf5", "#3ca951", "#efb118"


def draw_timeline(results: Sequence[Result], *, titled: bool = True) -> Drawing:
    """CPUs and devices in use and jobs waiting, over time; longer runs as means of 400 intervals.

    Several results are lines on one axis of time.
    """
    columns = {name: columns_of(group[0]) for name, group in group_variants(results).items()}
    panels = [panel for panel in PANELS if any(panel.capacity(c.cluster) != 0 for c in columns.values())]
    span = span_of(results)
    top, high, gap = 72.0 if titled else 22.0, 72.0, 30.0
    bottom = top + len(panels) * (high + gap) - gap
    drawn = Drawing(WIDTH, bottom + (20 if len(columns) == 1 else 42))
    for place, panel in enumerate(panels):
        box = ChartArea(52, top + place * (high + gap), WIDTH - 66, high)
        _draw_panel(drawn, box, panel, columns, span)
        time_axis(drawn, span, box.left, box.lower_edge, box.width, named=place == len(panels) - 1)
    if len(columns) > 1:
        _draw_key(drawn, [(name, _palette_colour(place)) for place, name in enumerate(columns)], bottom + 36)
    if titled:
        result = results[0]
        name = f"{policy_label(result)}: {wording.spell_seconds(result.makespan)}"
        drawn.add_heading(name if len(results) == 1 else "Use over time", wording.describe_setting(result))
    return drawn


def _palette_colour(place: int) -> str:
    return PALETTE[place % len(PALETTE)]


def _draw_key(drawn: Drawing, entries: Sequence[tuple[str, str]], y: float, x: float = 52.0) -> None:
    """What the colours stand for, in one row."""
    for name, colour in entries:
        drawn.add(Line([(x, y - 3), (x + 14, y - 3)], colour, 1.6), Label(x + 18, y, name))
        x += 34 + text_width(name, 8)


@dataclass(frozen=True, slots=True)
class ChartArea:
    """Where a chart lies on the sheet, and how values become places in it."""

    left: float
    top: float
    width: float
    height: float
    across: tuple[float, float] = (0.0, 1.0)
    up: tuple[float, float] = (0.0, 1.0)
    scale: Callable[[float], float] = float
    along: Callable[[float], float] = float

    @property
    def lower_edge(self) -> float:
        """The lower edge."""
        return self.top + self.height

    def x(self, value: float) -> float:
        """The place of a value along."""
        low, high = map(self.along, self.across)
        return self.left + (self.along(value) - low) / (high - low or 1.0) * self.width

    def y(self, value: float) -> float:
        """The place of a value up."""
        low, high = map(self.scale, self.up)
        return self.lower_edge - (self.scale(value) - low) / (high - low or 1.0) * self.height

    def title_label(self, text: str) -> Label:
        """A heading above the chart."""
        return Label(self.left, self.top - 6, text, 9, bold=True)

    def grid_lines(self, at: Sequence[tuple[float, str]]) -> Iterator[Line | Label]:
        """Lines across at these values, with their numbers at the left."""
        for value, text in at:
            y = self.y(value)
            yield Line([(self.left, y), (self.left + self.width, y)], GRID, 0.6)
            yield Label(self.left - 5, y + 3, text, 8, MUTED, "end")

    def grid_along(self, at: Sequence[tuple[float, str]]) -> Iterator[Line | Label]:
        """Lines up at these values, with their numbers below."""
        for value, text in at:
            x = self.x(value)
            yield Line([(x, self.top), (x, self.lower_edge)], GRID, 0.6)
            yield Label(x, self.lower_edge + 12, text, 8, MUTED, "middle")


def _decade_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Round numbers on a logarithmic axis."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values: list[float] = []
    # As few steps as give three marks: a plot over one decade still needs numbers on its axis.
    for steps in ((1,), (1, 2, 5), range(1, 10), np.arange(1.0, 10.0, 0.1)):  # as few as tell two apart
        values = [step * 10.0**e for e in exponents for step in steps if low <= step * 10.0**e <= high]
        if len(values) > 2:
            break
    return [(value, f"{round(value, 12):g}") for value in values]


@dataclass(frozen=True, slots=True)
class Panel:
    """A quantity over time; ``capacity`` is what a cluster has of it, ``None`` where there is no limit."""

    title: str
    step: Callable[[Columns], StepFunction]
    capacity: Callable[[Cluster], int | None]
    colour: str


PANELS = (
    Panel("CPUs in use", lambda columns: columns.cpus_in_use, lambda cluster: cluster.total_cpus, BLUE),
    Panel(
        "Devices in use", lambda columns: columns.devices_in_use, lambda cluster: cluster.total_devices, GREEN
    ),
    Panel("Jobs waiting", lambda columns: columns.jobs_waiting, lambda cluster: None, AMBER),
)


def _draw_panel(
    drawn: Drawing, box: ChartArea, panel: Panel, columns: Mapping[str, Columns], span: Span
) -> None:
    shares = [panel.capacity(c.cluster) for c in columns.values()]
    lines: list[tuple[Floats, Floats, str]] = []
    for place, one in enumerate(columns.values()):
        times, values = _step_series(panel.step(one), span)
        # One policy has the panel's own colour; several need one each, the same in all panels.
        colour = panel.colour if len(columns) == 1 else _palette_colour(place)
        lines.append((times, values / (panel.capacity(one.cluster) or 1), colour))
    limited = shares[0] is not None
    # A little above the top value, so that a line at full use is not the frame.
    top = 1.0 if limited else max(1.0, *(float(values.max(initial=0.0)) for _, values, _ in lines))
    of = f", of {shares[0]:,}" if limited and len(set(shares)) == 1 else ""
    box = replace(box, across=(0.0, span[1] - span[0]), up=(0.0, top * 1.04))
    drawn.add(box.title_label(f"{panel.title}{of}"))
    names = ("0 %", "50 %", "100 %") if limited else ("0", "", f"{top:,.0f}")
    drawn.add(*box.grid_lines(list(zip((0.0, top / 2, top), names, strict=True))))
    for times, values, colour in lines:
        points = _step_points(box, times, values)
        if len(columns) == 1:
            ground = [(points[0][0], box.lower_edge), *points, (points[-1][0], box.lower_edge)]
            drawn.add(Line(ground, colour, filled=True, opacity=0.28))
        drawn.add(Line(points, colour, 1.1))


def _step_points(box: ChartArea, times: Floats, values: Floats) -> list[tuple[float, float]]:
    """The places of a step function: each value holds until the next moment."""
    across, up = np.repeat(times, 2)[1:].tolist(), np.repeat(values, 2)[:-1].tolist()
    return [(box.x(x), box.y(y)) for x, y in zip(across, up, strict=True)]


def _step_series(step: StepFunction, span: Span) -> tuple[Floats, Floats]:
    """Times from the first moment on and values of a step function; of many steps, means of intervals."""
    first, last = span
    inside = (step.times >= first) & (step.times <= last)
    # More steps than points of the sheet cannot be seen: means of intervals have the same area.
    if inside.sum() <= BINS:
        times = np.concatenate([step.times[inside], [last]])
        values = np.concatenate([step.values[inside], step.values[inside][-1:] if inside.any() else [0.0]])
    else:
        times = np.linspace(first, last, BINS + 1)
        means = step.mean(times)
        values = np.append(means, means[-1:])
    return times - first, values


def predicted_pairs(result: Result) -> list[tuple[float, float, str]]:
    """Predicted and actual seconds, and the app, of the completed jobs that had a prediction."""
    return [
        (record.predicted.expected, record.took, record.job.app.name)
        for record in result.records
        if record.predicted is not None
        and record.state is State.COMPLETED
        and record.took
        and 0 < record.predicted.expected < math.inf
    ]


def draw_predictions(result: Result) -> Drawing:
    """Every job's predicted against its actual run time, on logarithmic axes, coloured by app."""
    pairs = predicted_pairs(result)
    times = [second for x, y, _ in pairs for second in (x, y)]
    ends = min(times) * 0.8, max(times) * 1.25
    drawn = Drawing(432, 302)
    box = ChartArea(58, 10, 250, 250, ends, ends, math.log10, math.log10)
    drawn.add(*box.grid_lines(_decade_ticks(*ends)), *box.grid_along(_decade_ticks(*ends)))
    drawn.add(Line([(box.x(end), box.y(end)) for end in ends], MUTED, 0.8))
    apps = [app for app, _ in Counter(app for _, _, app in pairs).most_common(len(PALETTE))]
    y = box.top + 10
    for place, app in enumerate([*apps, None]):
        mine = [(x, y) for x, y, name in pairs if name == app or (app is None and name not in apps)]
        if mine:
            colour = PALETTE[place] if app is not None else OTHER
            dots = [(box.x(across), box.y(up)) for across, up in mine]
            drawn.add(Line(dots, colour, 0.0, opacity=0.7, dots=2.0))
            drawn.add(Line([(320, y - 3)], colour, 0.0, dots=2.5), Label(328, y, app or "others"))
            y += 14
    drawn.add(Label(box.left + box.width / 2, 290, "predicted, s", 8.5, MUTED, "middle"))
    drawn.add(Label(8, box.top + box.height / 2, "actual, s", 8.5, MUTED))
    return drawn


def draw_comparison(
    results: Sequence[Result],
    *,
    titled: bool = True,
    cut: TrimmedTrace | None = None,
    drift: bool = False,
) -> Drawing:
    """A panel for each metric, a bar for each policy; over several seeds with 95 % intervals.

    ``drift`` adds what the months of the trace differ by.
    """
    groups = {
        name: group[:1] if has_equal_draws(group) else group
        for name, group in group_variants(results).items()
    }
    intervals = {name: figure_intervals(groups, name, cut, drift=drift) for name in MAIN}
    shown = [name for name in MAIN if any(intervals[name])]  # those that some result has
    rows = list(groups)
    across = min(3, max(1, len(shown)))
    left = 20 + max((text_width(row, 8.5) for row in rows), default=0.0)
    high, gap, top = 19.4 * len(rows) + 7, 36.0, 74.0 if titled else 24.0
    wide = (WIDTH - left - 14) / across
    drawn = Drawing(WIDTH, top - (-len(shown) // across) * (high + gap) - gap + 12)
    for place, name in enumerate(shown):
        down, column = divmod(place, across)
        box = ChartArea(left + column * wide, top + down * (high + gap), wide - 18, high)
        _draw_bars(drawn, box, name, intervals[name], rows if column == 0 else None)
    seeds = max((len(group) for group in groups.values()), default=0)
    about = (
        wording.describe_setting(results[0])
        if seeds == 1
        else f"{seeds} draws, bars show 95 % confidence intervals"
    )
    if titled:
        drawn.add_heading(
            f"{len(rows)} policies compared" if len(rows) > 1 else rows[0] if rows else "", about
        )
    return drawn


def _draw_bars(
    drawn: Drawing, box: ChartArea, name: str, found: Sequence[Interval | None], rows: Sequence[str] | None
) -> None:
    known = [i.mean for i in found if i is not None]
    best = (max if name in HIGHER_IS_BETTER else min)(known)
    reach = max((i.ends_within(name)[1] for i in found if i is not None), default=1.0) or 1.0
    box = replace(box, across=(0.0, reach * 1.32), up=(len(found) - 0.5, -0.5))
    drawn.add(box.title_label(wording.metric_title(name)))
    for place, i in enumerate(found):
        middle, mean = box.y(place), i.mean if i else 0.0
        colour = BLUE if i is not None and mean == best else PALE
        drawn.add(Rectangle(box.left, middle - 7, max(0.0, box.x(mean) - box.left), 14, colour))
        if i is not None and i.half_width is not None:
            low, high = map(box.x, i.ends_within(name))
            strokes = [[(low, middle), (high, middle)]]
            strokes += [[(end, middle - 3), (end, middle + 3)] for end in (low, high)]
            for colour, width in ((GROUND, 3.0), (INK, 1.0)):
                drawn.add(*(Line(points, colour, width) for points in strokes))
        text = wording.metric_value(name, i.mean if i else None).split(" (")[0]
        drawn.add(Label(box.x(i.ends_within(name)[1] if i else 0.0) + 5, middle + 3, text))
        if rows is not None:
            drawn.add(Label(box.left - 6, middle + 3, rows[place], 8.5, anchor="end"))
    drawn.add(Line([(box.left, box.top), (box.left, box.lower_edge)], GRID))


def over_load(results: Sequence[Result], *, titled: bool = True, cut: TrimmedTrace | None = None) -> Drawing:
    """Metrics against the offered load, a line for each policy; over several seeds their means.

    ``results`` have been simulated at several loads (`Result.load`). Waits grow without bound towards a load
    of 1, so all but utilisation is on a logarithmic axis.
    """
    names = [n for n in OVER_LOAD if any(final_metrics(r, cut).get(n) is not None for r in results)]
    top, high = 74.0 if titled else 24.0, 144.0
    drawn = Drawing(WIDTH, top + high + 56)
    wide = WIDTH / max(1, len(names))
    policies = group_variants(results, loads=False)
    loads = sorted({r.load for r in results if r.load is not None})
    for place, name in enumerate(names):
        curves = []
        for group in policies.values():
            means = [
                mean_interval(final_metrics(r, cut).get(name) for r in group if r.load == at) for at in loads
            ]
            curves.append([(at, m.mean) for at, m in zip(loads, means, strict=True) if m is not None])
        most = max((value for curve in curves for _, value in curve), default=1.0)
        box = ChartArea(place * wide + 56, top, wide - 70, high, (loads[0], loads[-1]))
        if "utilisation" in name:
            box = replace(box, up=(0.0, 1.02))
            at = [(share, f"{share:g}") for share in (0.0, 0.5, 1.0)]
        elif "slowdown" in name:
            box = replace(box, up=(1.0, max(2.0, most) * 1.1), scale=math.log10)
            at = _decade_ticks(*box.up)
        else:  # a wait may be 0
            box = replace(box, up=(0.0, max(10.0, most) * 1.1), scale=math.log1p)
            at = [(0.0, "0"), *_decade_ticks(1.0, box.up[1])]
        unit = " (s)" if wording.is_seconds(name) else ""
        drawn.add(
            box.title_label(wording.metric_title(name) + unit), *box.grid_lines(at[:: max(1, len(at) // 5)])
        )
        for policy, curve in enumerate(curves):
            points = [(box.x(x), box.y(y)) for x, y in curve]
            drawn.add(
                Line(points, _palette_colour(policy), 1.4),
                Line(points, _palette_colour(policy), 0.0, dots=2.2),
            )
        drawn.add(
            *(Label(box.x(load), box.lower_edge + 13, f"{load:g}", 8, MUTED, "middle") for load in loads)
        )
        drawn.add(Label(box.left + box.width / 2, box.lower_edge + 28, "offered load", 8.5, MUTED, "middle"))
    _draw_key(drawn, [(name, _palette_colour(place)) for place, name in enumerate(policies)], top + high + 46)
    if titled:
        one = results[0]
        drawn.add_heading(
            "Over the offered load", f"{wording.workload_name(one)} on {wording.machine_name(one.cluster)}"
        )
    return drawn


def draw_memory(use: MemoryUse) -> Drawing:
    """Memory in GB that jobs reserved and used, over time.

    Both are sums over all nodes. A peak counts for the whole of its try, so that what lies between the lines
    is the least that was wasted. O(points of the series).
    """
    times = np.array([moment for moment, _, _ in use.series] or [0.0])
    amounts = np.array([point[1:] for point in use.series] or [(0, 0)]) / 1e9
    span, top = (float(times[0]), float(times[-1])), float(amounts.max()) or 1.0
    box = ChartArea(52, 72, WIDTH - 66, 180, span, (0.0, top * 1.04))
    drawn = Drawing(WIDTH, box.lower_edge + 42)
    drawn.add(
        box.title_label("GB"),
        *box.grid_lines([(share * top, f"{share * top:.3g}") for share in (0.0, 0.5, 1.0)]),
    )
    for place in range(2):
        drawn.add(Line(_step_points(box, times, amounts[:, place]), _palette_colour(place), 1.2))
    time_axis(drawn, span, box.left, box.lower_edge, box.width)
    _draw_key(drawn, [("reserved", _palette_colour(0)), ("used", _palette_colour(1))], box.lower_edge + 36)
    drawn.add_heading("Memory", f"{use.wasted:,.2f} GB h wasted; {use.auto_wasted:,.2f} under auto")
    return drawn


def draw_device_memory(found: Sequence[DeviceMemory], span: Span) -> Drawing:
    """Memory in GB that jobs were given of each device, and the sum of their measured peaks, over time.

    O(changes); of many, means of intervals.
    """
    top, high, gap = 22.0, 44.0, 28.0
    bottom = top + len(found) * (high + gap) - gap
    drawn = Drawing(WIDTH, bottom + 42)
    for place, one in enumerate(found):
        size = one.size / 1e9
        box = ChartArea(52, top + place * (high + gap), WIDTH - 66, high, (0.0, span[1] - span[0]))
        lines = [(*_step_series(step, span), n) for n, step in enumerate((one.given, one.measured)) if step]
        # Peaks that were not reached at once add up to more than the device has.
        most = max([size, *(float(values.max(initial=0.0)) / 1e9 for _, values, _ in lines)])
        box = replace(box, up=(0.0, most * 1.04))
        about = ", ".join(filter(None, (one.model, f"{size:,.3g} GB")))
        drawn.add(
            box.title_label(f"{one.name} ({about})"), *box.grid_lines([(0.0, "0"), (size, f"{size:,.3g}")])
        )
        for times, values, number in lines:
            points = _step_points(box, times, values / 1e9)
            colour = _palette_colour(number)
            if number == 0:
                ground = [(points[0][0], box.lower_edge), *points, (points[-1][0], box.lower_edge)]
                drawn.add(Line(ground, colour, filled=True, opacity=0.28))
            drawn.add(Line(points, colour, 1.1))
    time_axis(drawn, span, 52, bottom, WIDTH - 66)
    names = ["given", "measured"] if any(one.measured for one in found) else ["given"]
    key = [(name, _palette_colour(place)) for place, name in enumerate(names)]
    _draw_key(drawn, key, bottom + 36)
    return drawn


@dataclass(frozen=True, slots=True)
class Learned:
    """Run times of one implementation on one class of device.

    ``measured`` is (size, seconds) of each run, ``predicted`` (size, expected, lower end, upper end) in
    ascending order of sizes; all in seconds but the sizes.
    """

    name: str
    measured: Sequence[tuple[float, float]]
    predicted: Sequence[tuple[float, float, float, float]]


def run_times(app: str, axis: str, places: Sequence[Learned]) -> Drawing:
    """Measured times as dots, predictions as a line, the 90 % interval as a band; logarithmic axes.

    ``axis`` names the size; empty: runs stand one after the other.
    """
    across = [x for one in places for x, *_ in (*one.measured, *one.predicted)] or [1.0]
    up = [y for one in places for _, *ys in (*one.measured, *one.predicted) for y in ys if y > 0] or [1.0]
    low, high = min(up) * 0.8, max(up) * 1.25
    along = (min(across) * 0.9, max(across) * 1.1) if axis else (0.5, max(across) + 0.5)
    box = ChartArea(58, 54, 520, 300, along, (low, high), math.log10, math.log10 if axis else float)
    drawn = Drawing(600, box.lower_edge + 56)
    numbers = sorted({float(round(n)) for n in np.linspace(1, max(across), 8)})
    drawn.add(*box.grid_lines(_decade_ticks(low, high)))
    drawn.add(*box.grid_along(_decade_ticks(*along) if axis else [(n, f"{n:g}") for n in numbers]))
    for place, one in enumerate(places):
        colour = _palette_colour(place)
        if one.predicted:
            xs = [box.x(row[0]) for row in one.predicted]
            line, lower, upper = (
                [(x, box.y(max(row[i], low))) for x, row in zip(xs, one.predicted, strict=True)]
                for i in (1, 2, 3)
            )
            band = [*lower, *reversed(upper)]
            # Of a single size there is no band to fill: a bar stands for it.
            if len(line) == 1:
                drawn.add(Line(band, colour, 6.0, opacity=0.3), Line(line, colour, 0.0, dots=4.0))
            else:
                drawn.add(Line(band, colour, filled=True, opacity=0.18), Line(line, colour, 1.4))
        # A run of no length has no place on a logarithmic axis.
        dots = [(box.x(x), box.y(y)) for x, y in one.measured if y > 0]
        drawn.add(Line(dots, colour, 0.0, opacity=0.7, dots=1.8))
    drawn.add(Label(box.left + box.width / 2, box.lower_edge + 28, axis or "run", 8.5, MUTED, "middle"))
    drawn.add(box.title_label("seconds"))
    _draw_key(
        drawn,
        [(one.name, _palette_colour(place)) for place, one in enumerate(places)],
        box.lower_edge + 46,
        box.left,
    )
    drawn.add_heading(f"Run times of {app}", "dots: measured; line: predicted; band: nine runs out of ten")
    return drawn
