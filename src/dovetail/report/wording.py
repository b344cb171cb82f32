"""Numbers and names as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dovetail.model import Cluster, Result, Seconds

__all__ = [
    "SHORT",
    "TITLES",
    "count",
    "fixed",
    "is_seconds",
    "machine",
    "metric",
    "percent",
    "printable",
    "scale_of",
    "seconds",
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

_SHARES = {"utilisation", "gpu_utilisation", "prediction_coverage"}
_SHARES |= {"prediction_error_median", "prediction_error_p90"}
_FACTORS = {"fairness_users"}


def title(name: str, *, short: bool = False) -> str:
    """A metric's name in words."""
    return SHORT.get(name, name.replace("_", " ")) if short else TITLES.get(name, name.replace("_", " "))


def scale_of(values: Sequence[float | None]) -> tuple[float, str, int]:
    """(factor, unit, decimals) in which all of these seconds read well in one column."""
    largest = max((abs(v) for v in values if v is not None and math.isfinite(v)), default=0.0)
    if largest < 1e-9:  # what is left of sums that should cancel
        return 1.0, "s", 1
    for limit, factor, unit, whole in ((1e-3, 1e6, "µs", 1e-6), (1.0, 1e3, "ms", 1e-3)):
        if largest < limit:
            return factor, unit, _decimals(largest / whole)
    return 1.0, "s", _decimals(largest)


def _decimals(largest: float) -> int:
    if largest <= 0:
        return 1
    return max(0, min(3, 3 - math.floor(math.log10(largest))))


def seconds(value: Seconds | None) -> str:
    """One length of time, e.g. ``41 ms``, ``3.019 s``, ``1203 s (20 min)``."""
    if value is None or not math.isfinite(value):
        return "-"
    factor, unit, decimals = scale_of([value])
    text = f"{fixed(value * factor, decimals)} {unit}"
    for size, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if abs(value) >= 2 * size:
            return f"{text} ({value / size:,.1f} {name})"
    return text


def printable(text: str) -> str:
    """Names as they are, control characters as ``?``: a job's name moves no cursor and breaks no row."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def fixed(value: float, decimals: int) -> str:
    """A number with separators and so many decimals, never ``-0.0``."""
    text = f"{value:,.{decimals}f}"
    return text.lstrip("-") if not text.strip("-0.") else text


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


def where(result: Result) -> str:
    """Workload, cluster, seed and what was known, in one line."""
    parts = [workload(result), f"on {machine(result.cluster)}"]
    if result.load is not None:
        parts.append(f"load {result.load:g}")
    if result.seed is not None:
        parts.append(f"seed {result.seed}")
    parts.append("run for real" if result.live else f"simulated with {result.knowledge} knowledge")
    return ", ".join(parts)
