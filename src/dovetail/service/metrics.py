"""Figures of a service in the text form of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dovetail.model import Record, State

SECONDS = (0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 4 * 3600.0, 86400.0, 7 * 86400.0)
RATIOS = (0.1, 0.25, 0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 2.0, 4.0, 10.0)


class Histogram:
    """How many values were at most each of the bounds, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """One more value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str) -> Iterator[str]:
        """Its lines, cumulative as Prometheus has them."""
        total = 0
        for bound, count in zip((*map(repr, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self.sum!r}"
        yield f"{name}_count {total}"


class Figures:
    """What is kept of jobs that have ended since the start."""

    def __init__(self) -> None:
        self.ended: dict[str, int] = {}  # by state
        self.waits, self.runs, self.errors = Histogram(SECONDS), Histogram(SECONDS), Histogram(RATIOS)

    def add(self, record: Record) -> None:
        """A job has ended."""
        state = str(record.state)
        self.ended[state] = self.ended.get(state, 0) + 1
        if record.start is None or record.run_time is None:
            return
        self.waits.add(max(0.0, record.start - record.job.submit_time))
        self.runs.add(record.run_time)
        if record.predicted is not None and record.predicted.expected > 0 and record.state is State.COMPLETED:
            self.errors.add((record.took or 0.0) / record.predicted.expected)


def format_exposition(info: Mapping[str, Any], figures: Figures) -> str:
    """All figures; ``info`` is `dovetail.service.overview.service_info`."""
    return "\n".join(_exposition_lines(info, figures)) + "\n"


def _exposition_lines(info: Mapping[str, Any], figures: Figures) -> Iterator[str]:
    yield from _metric_header("jobs", "gauge", "Jobs that have not ended.")
    for what, count in info["jobs"].items():
        yield f'dovetail_jobs{{state="{what}"}} {count}'
    yield from _metric_header(
        "jobs_ended_total", "counter", "Jobs that have ended since the service was started."
    )
    for state in State:
        if state not in (State.PENDING, State.RUNNING):
            yield f'dovetail_jobs_ended_total{{state="{state}"}} {figures.ended.get(str(state), 0)}'
    for name, what in (
        ("cpus", "CPUs of the cluster."),
        ("cpus_used", "CPUs that jobs hold."),
        ("devices", "Devices of the cluster."),
    ):
        yield from _metric_header(name, "gauge", what)
        yield f"dovetail_{name} {info[name]}"
    yield from _metric_header("start_time_seconds", "gauge", "When the service was started.")
    yield f"dovetail_start_time_seconds {info['since']:.3f}"
    what = "Whether nothing starts now: a full disk, or no claims on this machine."
    yield from _metric_header("blocked", "gauge", what)
    yield f"dovetail_blocked {int(info['blocked'] is not None)}"
    what = "The longest time for which nothing was answered, since the start."
    yield from _metric_header("longest_instant_seconds", "gauge", what)
    yield f"dovetail_longest_instant_seconds {info['longest_instant']:.3f}"
    for name, what, histogram in (
        ("wait_seconds", "From submission to the last start, of jobs that have ended.", figures.waits),
        ("run_seconds", "From the last start to the end.", figures.runs),
        ("prediction_ratio", "Run time by predicted run time, of jobs that completed.", figures.errors),
    ):
        yield from _metric_header(name, "histogram", what)
        yield from histogram.lines(f"dovetail_{name}")


def _metric_header(name: str, kind: str, what: str) -> Iterator[str]:
    yield f"# HELP dovetail_{name} {what}"
    yield f"# TYPE dovetail_{name} {kind}"
