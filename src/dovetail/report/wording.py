"""Numbers and names as people read them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from dovetail.model import Cluster, Result, Seconds
from dovetail.report.metric_names import metric_named

NOTHING = 1e-9
"""Seconds that are left of sums which should cancel."""
LONG, VERY_LONG = 10_000.0, 360_000.0
"""Seconds from which people think in hours, and from which in days."""


def metric_title(name: str, *, short: bool = False) -> str:
    """A metric's name in words."""
    known = metric_named(name)
    return (known.short if short else known.title) or name.replace("_", " ")


def scale_of(values: Sequence[float | None]) -> tuple[float, str, int]:
    """(factor, unit, decimals) in which all of these seconds read well in one column.

    >>> scale_of([0.02, 0.5]), scale_of([90.0, 1203.0]), scale_of([40_000.0])
    ((1000.0, 'ms', 1), (1.0, 's', 0), (0.0002777777777777778, 'h', 2))
    """
    largest = max((abs(v) for v in values if v is not None and math.isfinite(v)), default=0.0)
    if largest < NOTHING:
        return 1.0, "s", 1
    scales = ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (LONG, 1.0, "s"), (VERY_LONG, 1 / 3600, "h"))
    _, factor, unit = next((s for s in scales if largest < s[0]), (math.inf, 1 / 86400, "d"))
    return factor, unit, _choose_decimals(largest * factor)


def _choose_decimals(largest: float) -> int:
    if largest <= 0:
        return 1
    return max(0, min(3, 3 - math.floor(math.log10(largest))))


def spell_seconds(value: Seconds | None) -> str:
    """One length of time in words; from two minutes on with the seconds behind it.

    >>> spell_seconds(0.041), spell_seconds(1203.0), spell_seconds(27_432.0)
    ('41.00 ms', '20.1 min (1,203 s)', '7.6 h (27,432 s)')
    """
    if value is None or not math.isfinite(value):
        return "-"
    exact = abs(value) >= LONG  # then whole seconds are shown, not hours with decimals
    factor, unit, decimals = (1.0, "s", 0) if exact else scale_of([value])
    text = f"{format_fixed(value * factor, decimals)} {unit}"
    # Below twice the unit one decimal would hide more than it helps.
    for size, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if abs(value) >= 2 * size:
            return f"{value / size:,.1f} {name} ({text})"
    return text


def spell_seconds_shortly(value: Seconds | None) -> str:
    """`spell_seconds` without what stands in brackets."""
    return spell_seconds(value).partition(" (")[0]


def clock_of(values: Sequence[float | None]) -> tuple[str, Callable[[float | None], str]]:
    """(unit, spelling) for moments and lengths of jobs, whose seconds matter even in a long run.

    Up to a few hours they are figures in one unit; beyond, hours, minutes and seconds as Slurm has them.

    >>> unit, spell = clock_of([5.0, 100_000.0])
    >>> unit, spell(5.0), spell(100_000.0), spell(None)
    ('', '0:05', '1-03:46:40', '-')
    """
    largest = max((abs(v) for v in values if v is not None and math.isfinite(v)), default=0.0)
    if largest >= LONG:
        return "", _spell_clock
    factor, unit, decimals = scale_of(values)

    def spell_scaled(value: float | None) -> str:
        return "-" if value is None or not math.isfinite(value) else format_fixed(value * factor, decimals)

    return unit, spell_scaled


def _spell_clock(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "-"
    total = round(abs(value))
    minutes, second = divmod(total, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    text = f"{minute}:{second:02}" if not hours else f"{hour}:{minute:02}:{second:02}"
    text = f"{days}-{hour:02}:{minute:02}:{second:02}" if days else text
    return f"-{text}" if value < 0 and total else text


def count_things(count: float, thing: str) -> str:
    """A number of things.

    >>> count_things(1, "job"), count_things(2000, "job")
    ('1 job', '2,000 jobs')
    """
    return f"{count:,.0f} {thing}{'' if count == 1 else 's'}"


def list_names(names: Sequence[str], most: int) -> str:
    """The first ``most`` names, and how many more there are.

    >>> list_names(["a", "b", "c"], 2), list_names(["a", "b", "c"], 3)
    ('a, b and 1 more', 'a, b, c')
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def format_fixed(value: float, decimals: int, *, signed: bool = False) -> str:
    """A number with separators and so many decimals, never ``-0.0``.

    >>> format_fixed(1234.5678, 1), format_fixed(-0.001, 2), format_fixed(3, 0, signed=True)
    ('1,234.6', '0.00', '+3')
    """
    text = f"{value:{'+' if signed else ''},.{decimals}f}"
    # A negative number that rounds to 0 would keep its sign: `-0.0` looks like a small loss.
    return text.lstrip("+-") if not text.strip("+-0.") else text


def format_percent(value: float | None) -> str:
    """A share in per cent."""
    return "-" if value is None or not math.isfinite(value) else f"{value * 100:.1f} %"


def format_count(value: float | None) -> str:
    """A whole number with separators."""
    return "-" if value is None else f"{value:,.0f}"


def is_seconds(name: str) -> bool:
    """Whether a metric is a length of time."""
    return metric_named(name).kind == "seconds"


def metric_value(name: str, value: float | None) -> str:
    """A metric's value in words."""
    if value is None:
        return "-"
    kind = metric_named(name).kind
    if kind == "share":
        return format_percent(value)
    if kind in ("slowdown", "index"):
        return format_fixed(value, 2 if kind == "slowdown" else 3)
    return spell_seconds(value) if kind == "seconds" else format_count(value)


def machine_name(cluster: Cluster) -> str:
    """The cluster's label (of a file without the folders that it lies in), or what it consists of."""
    if cluster.label:
        return cluster.label.rpartition("/")[2] or cluster.label
    devices = cluster.total_devices
    return f"{len(cluster)} nodes, {cluster.total_cpus} CPUs" + (f", {devices} devices" if devices else "")


_JOURNAL = re.compile(r"/([0-9a-f]{8})[0-9a-f]{24}/journal\.jsonl$")
"""A run's journal, and what the run is called for short."""


def workload_name(result: Result) -> str:
    """The workload's name; of a file without the folders that it lies in, of a run's journal the run."""
    run = _JOURNAL.search(result.workload)
    if run is not None:
        return f"run {run[1]}"
    # A command is no path, whatever it ends in.
    whole = any(mark in result.workload for mark in ": ")
    return (result.workload if whole else result.workload.rpartition("/")[2]) or "jobs"


def shown_draw(group: Sequence[Result]) -> str:
    """Which of several draws of one variant is shown: the first."""
    if len(group) == 1:
        return ""
    # Draws of a replicated trace have no seed; the first of them is the trace itself, replicate 0.
    if group[0].seed is None:
        return (
            ", the trace as it is" if any(r.replicate.number and not r.replicate.fresh for r in group) else ""
        )
    return f", seed {group[0].seed}"


def describe_setting(result: Result) -> str:
    """Workload, cluster, seed and what was known, in one line."""
    parts = [workload_name(result), f"on {machine_name(result.cluster)}"]
    if result.load is not None:
        parts.append(f"load {result.load:g}")
    if result.seed is not None:
        parts.append(f"seed {result.seed}")
    if result.knowledge == "recorded":
        parts.append("as recorded")
    else:
        parts.append("run for real" if result.live else f"simulated with {result.knowledge} knowledge")
    return ", ".join(parts)
