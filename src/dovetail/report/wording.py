"""Numbers and names as people read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dovetail.files.sentences import printable
from dovetail.model import Cluster, Result, Seconds

__all__ = [
    "ABOUT",
    "SHORT",
    "TITLES",
    "clock_of",
    "count",
    "fixed",
    "is_seconds",
    "listed",
    "machine",
    "many",
    "metric",
    "percent",
    "printable",
    "scale_of",
    "seconds",
    "shortly",
    "title",
    "where",
    "workload",
]

TITLES = {
    "makespan": "Makespan",
    "mean_wait": "Mean wait",
    "median_wait": "Median wait",
    "p95_wait": "95 % wait at most",
    "max_wait": "Longest wait",
    "mean_response": "Mean response",
    "median_response": "Median response",
    "p95_response": "95 % respond within",
    "max_response": "Longest response",
    "mean_bounded_slowdown": "Mean bounded slowdown",
    "median_bounded_slowdown": "Median bounded slowdown",
    "p95_bounded_slowdown": "95 % slowed at most",
    "max_bounded_slowdown": "Largest bounded slowdown",
    "utilisation": "CPU utilisation",
    "gpu_utilisation": "Device utilisation",
    "anl": "ANL, lost to a slower choice",
    "aql": "AQL, lost to waiting",
    "mit": "MIT, most idle resource",
    "decision_seconds_mean": "Decision time, mean",
    "decision_seconds_p99": "Decision time, p99",
    "prediction_error_median": "Prediction error, median",
    "prediction_error_p90": "Prediction error, p90",
    "prediction_coverage": "Predicted range held",
    "fairness_users": "Fairness between users (Jain)",
    "later_jobs": "Jobs later than the reference",
    "later_mean": "Later by, mean",
    "later_max": "Later by, at most",
    "promises_broken": "Promises broken",
    "broken_by_overrun": "of these, by an overrun",
}
"""Metrics in words."""

ABOUT = {
    "makespan": "From the first submission to the last end.",
    "mean_wait": "Mean of start minus submission.",
    "mean_response": "Mean of end minus submission.",
    "mean_bounded_slowdown": "Mean of (end - submission) / run time; run times below 10 s count as 10 s.",
    "utilisation": "CPU-seconds that jobs held, over those that the CPU pools offered within the makespan.",
    "gpu_utilisation": "Device-seconds that jobs held, over those offered within the makespan.",
    "anl": "Average node loss (Ravi 2012): how much longer a job ran than on the best of its "
    "implementations, in the mean. 0 where there is but one.",
    "aql": "Average queue loss (Ravi 2012): the mean wait.",
    "mit": "Maximum idle time (Ravi 2012): of all CPU pools and devices, the longest time that one was idle "
    "within the makespan.",
    "decision_seconds_mean": "Seconds that one call of the policy takes, in the mean.",
    "decision_seconds_p99": "Seconds within which 99 of 100 calls of the policy are done.",
    "p95_wait": "95 of 100 jobs wait no longer.",
    "prediction_error_median": "|predicted - actual| / actual: half of the jobs are off by less.",
    "prediction_error_p90": "|predicted - actual| / actual: 90 of 100 jobs are off by less.",
    "prediction_coverage": "Share of jobs whose run time lay within the predicted 90 % interval.",
    "fairness_users": "Jain's index over the users' mean bounded slowdowns: 1 if all users fare alike.",
}
"""What a metric is, for those who point at it."""

SHORT = {
    "makespan": "makespan",
    "mean_wait": "wait",
    "p95_wait": "p95 wait",
    "mean_response": "response",
    "mean_bounded_slowdown": "slowdown",
    "utilisation": "CPU",
    "gpu_utilisation": "GPU",
    "anl": "ANL",
    "aql": "AQL",
    "mit": "MIT",
    "decision_seconds_mean": "decision",
    "decision_seconds_p99": "decision p99",
}

NOTHING = 1e-9
"""Seconds that are left of sums which should cancel."""
LONG, VERY_LONG = 10_000.0, 360_000.0
"""Seconds from which people think in hours, and from which in days."""

_SHARES = {"utilisation", "gpu_utilisation", "prediction_coverage"}
_SHARES |= {"prediction_error_median", "prediction_error_p90"}
_FACTORS = {"fairness_users"}


def title(name: str, *, short: bool = False) -> str:
    """A metric's name in words."""
    return SHORT.get(name, name.replace("_", " ")) if short else TITLES.get(name, name.replace("_", " "))


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
    return factor, unit, _decimals(largest * factor)


def _decimals(largest: float) -> int:
    if largest <= 0:
        return 1
    return max(0, min(3, 3 - math.floor(math.log10(largest))))


def seconds(value: Seconds | None) -> str:
    """One length of time as people say it; from two minutes on with the seconds behind it.

    >>> seconds(0.041), seconds(1203.0), seconds(27_432.0)
    ('41.00 ms', '20.1 min (1,203 s)', '7.6 h (27,432 s)')
    """
    if value is None or not math.isfinite(value):
        return "-"
    exact = abs(value) >= LONG  # then whole seconds are told, not hours with decimals
    factor, unit, decimals = (1.0, "s", 0) if exact else scale_of([value])
    text = f"{fixed(value * factor, decimals)} {unit}"
    for size, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if abs(value) >= 2 * size:
            return f"{value / size:,.1f} {name} ({text})"
    return text


def shortly(value: Seconds | None) -> str:
    """`seconds` without what stands in brackets."""
    return seconds(value).partition(" (")[0]


def clock_of(values: Sequence[float | None]) -> tuple[str, Callable[[float | None], str]]:
    """(unit, spelling) for moments and lengths of jobs, whose seconds matter even in a long run.

    Up to a few hours they are figures in one unit; beyond, hours, minutes and seconds as Slurm has them.

    >>> unit, spell = clock_of([5.0, 100_000.0])
    >>> unit, spell(5.0), spell(100_000.0), spell(None)
    ('', '0:05', '1-03:46:40', '-')
    """
    largest = max((abs(v) for v in values if v is not None and math.isfinite(v)), default=0.0)
    if largest >= LONG:
        return "", _clock
    factor, unit, decimals = scale_of(values)

    def spell(value: float | None) -> str:
        return "-" if value is None or not math.isfinite(value) else fixed(value * factor, decimals)

    return unit, spell


def _clock(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "-"
    total = round(abs(value))
    minutes, second = divmod(total, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    text = f"{minute}:{second:02}" if not hours else f"{hour}:{minute:02}:{second:02}"
    text = f"{days}-{hour:02}:{minute:02}:{second:02}" if days else text
    return f"-{text}" if value < 0 and total else text


def many(count: float, thing: str) -> str:
    """A number of things.

    >>> many(1, "job"), many(2000, "job")
    ('1 job', '2,000 jobs')
    """
    return f"{count:,.0f} {thing}{'' if count == 1 else 's'}"


def listed(names: Sequence[str], most: int) -> str:
    """The first ``most`` names, and how many more there are.

    >>> listed(["a", "b", "c"], 2), listed(["a", "b", "c"], 3)
    ('a, b and 1 more', 'a, b, c')
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def fixed(value: float, decimals: int, *, signed: bool = False) -> str:
    """A number with separators and so many decimals, never ``-0.0``.

    >>> fixed(1234.5678, 1), fixed(-0.001, 2), fixed(3, 0, signed=True)
    ('1,234.6', '0.00', '+3')
    """
    text = f"{value:{'+' if signed else ''},.{decimals}f}"
    return text.lstrip("+-") if not text.strip("+-0.") else text


def percent(value: float | None) -> str:
    """A share in per cent."""
    return "-" if value is None or not math.isfinite(value) else f"{value * 100:.1f} %"


def count(value: float | None) -> str:
    """A whole number with separators."""
    return "-" if value is None else f"{value:,.0f}"


def is_seconds(name: str) -> bool:
    """Whether a metric is a length of time."""
    return not (
        name in _SHARES
        or name in _FACTORS
        or "slowdown" in name
        or "decrease" in name
        or name.startswith(("jobs", "promises", "broken"))
        or name == "later_jobs"
    )


def metric(name: str, value: float | None) -> str:
    """A metric's value in words."""
    if value is None:
        return "-"
    if name in _SHARES:
        return percent(value)
    if "slowdown" in name:
        return f"{value:,.2f}"
    if name in _FACTORS:
        return f"{value:.3f}"
    return seconds(value) if is_seconds(name) else count(value)


def machine(cluster: Cluster) -> str:
    """The cluster's label (of a file without the folders that it lies in), or what it consists of."""
    if cluster.label:
        return cluster.label.rpartition("/")[2] or cluster.label
    devices = cluster.total_devices
    return f"{len(cluster)} nodes, {cluster.total_cpus} CPUs" + (f", {devices} devices" if devices else "")


def workload(result: Result) -> str:
    """The workload's name; of a file without the folders that it lies in."""
    return (result.workload if ":" in result.workload else result.workload.rpartition("/")[2]) or "jobs"


def which(group: Sequence[Result]) -> str:
    """Which of several draws of one variant is shown: the first."""
    if len(group) == 1:
        return ""
    if group[0].seed is None:
        return (
            ", the trace as it is" if any(r.replicate.number and not r.replicate.fresh for r in group) else ""
        )
    return f", seed {group[0].seed}"


def where(result: Result) -> str:
    """Workload, cluster, seed and what was known, in one line."""
    parts = [workload(result), f"on {machine(result.cluster)}"]
    if result.load is not None:
        parts.append(f"load {result.load:g}")
    if result.seed is not None:
        parts.append(f"seed {result.seed}")
    if result.knowledge == "recorded":
        parts.append("as recorded")
    else:
        parts.append("run for real" if result.live else f"simulated with {result.knowledge} knowledge")
    return ", ".join(parts)
