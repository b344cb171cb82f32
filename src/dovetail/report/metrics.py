"""Every metric of a result, from the records alone.

Means leave out rejected and cancelled jobs, and jobs that never started or have not ended. Seconds
everywhere; ``None`` where a metric does not exist (no devices, no predictions, no jobs). The
definitions are those of docs/reference/metrics.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import get_args
from weakref import WeakKeyDictionary

import numpy as np

from dovetail.errors import InputError
from dovetail.files.arrays import distinct
from dovetail.files.units import seconds_of
from dovetail.model import Result, Seconds
from dovetail.records import dataclass
from dovetail.report.columns import Bools, Columns, Floats, Ints, columns_of
from dovetail.report.operated import operated_metrics
from dovetail.report.usage import busy_seconds
from dovetail.spec.values import Breakdown

SIZE_CLASSES = (1, 4, 16, 64, 256, 1024, 4096)
"""Upper ends of the size classes; the last class is open."""

Metrics = dict[str, float | None]


def compute_metrics(
    result: Result, *, cut: TrimmedTrace | None = None, reference: Result | None = None
) -> Metrics:
    """All metrics of a result by name, the contract's first. O(jobs log jobs), worked out once.

    ``cut`` leaves out a warm-up and a cool-down. ``reference`` (usually ``best-device`` on the same
    jobs) adds how many jobs end later than there.
    """
    found = every_metric(result, cut)
    if reference is not None:
        late = later_than(result, reference)
        found["later_jobs"] = len(late)
        found["later_mean"] = _mean_or_none(np.array(list(late.values())))
        found["later_max"] = max(late.values(), default=0.0)
    return found


_FINAL: WeakKeyDictionary[Result, dict[TrimmedTrace | None, Metrics]] = WeakKeyDictionary()


def final_metrics(result: Result, cut: TrimmedTrace | None = None) -> Metrics:
    """`every_metric` but for ``mit``, worked out once; not to be changed."""
    known = _FINAL.setdefault(result, {})
    if cut not in known:
        known[cut] = _worked_out(result, cut)
    return known[cut]


_IDLE: WeakKeyDictionary[Result, float | None] = WeakKeyDictionary()


def every_metric(result: Result, cut: TrimmedTrace | None = None) -> Metrics:
    """All metrics of a result that changes no more."""
    found: Metrics = {}
    for name, value in final_metrics(result, cut).items():
        found[name] = value
        if name == "aql":
            found["mit"] = metric_of(result, "mit", cut)
    return found


def metric_of(result: Result, name: str, cut: TrimmedTrace | None = None) -> float | None:
    """One of them, ``None`` where the result has none of the name."""
    if name != "mit":
        return final_metrics(result, cut).get(name)
    # By itself: of gangs that share nodes it takes as long as all other metrics, and few outputs show it.
    if result not in _IDLE:
        _IDLE[result] = _maximum_idle_time(columns_of(result)) if result.known else None
    return _IDLE[result]


def keep_metrics(result: Result, found: Metrics) -> None:
    """What `final_metrics` answers of a result from now on: another process worked it out."""
    _FINAL.setdefault(result, {})[None] = found


def _worked_out(result: Result, cut: TrimmedTrace | None) -> Metrics:
    columns = columns_of(result)
    chosen, held = columns.counted, columns.stretches
    window = (columns.first, columns.last)
    if cut is not None:
        chosen, window = cut.select_counted(columns)
    decisions = np.asarray(result.decision_seconds, float)
    found: Metrics = {
        "makespan": None if math.isnan(result.makespan) else result.makespan,
        "mean_wait": _mean_or_none(columns.wait[chosen]),
        "mean_response": _mean_or_none(columns.response[chosen]),
        "mean_bounded_slowdown": _mean_or_none(columns.bounded_slowdown[chosen]),
        "utilisation": _used_share(columns, window, held.cpus, columns.cluster.total_cpus),
        "gpu_utilisation": _used_share(columns, window, held.devices, columns.cluster.total_devices),
        "anl": _average_normalized_loss(result, columns, chosen),
        "aql": _mean_or_none(columns.wait[chosen]),
        "decision_seconds_mean": _mean_or_none(decisions),
        "decision_seconds_p99": _sorted_quantile(np.sort(decisions), 0.99),
        "simulation_seconds": result.simulation_seconds,
    }
    found |= _spread_metrics("wait", columns.wait[chosen])
    found |= _spread_metrics("response", columns.response[chosen])
    found |= _spread_metrics("bounded_slowdown", columns.bounded_slowdown[chosen])
    found |= _count_metrics(result, columns, chosen)
    error = prediction_error(result)
    found["prediction_error_median"] = error.median if error else None
    found["prediction_error_p90"] = error.p90 if error else None
    found["prediction_coverage"] = error.coverage if error else None
    found["fairness_users"] = _user_fairness(columns, chosen)
    found |= operated_metrics(result)
    # Where the schedule is unknown every metric is, though single jobs have numbers.
    return found if result.known else dict.fromkeys(found)


def summarize_jobs(columns: Columns, chosen: Ints) -> Metrics:
    """Count, and mean, median, p95 and maximum of wait, response and bounded slowdown of some jobs.

    ``chosen`` holds their indices, shape (jobs,).
    """
    found: Metrics = {"jobs": len(chosen)}
    for name in ("wait", "response", "bounded_slowdown"):
        values = getattr(columns, name)[chosen]
        found[f"mean_{name}"] = _mean_or_none(values)
        found |= _spread_metrics(name, values)
    run = columns.run[chosen]
    found["cpu_seconds"] = float(np.sum(columns.cpus[chosen] * run))
    found["device_seconds"] = float(np.sum(columns.devices[chosen] * run))
    return found


def break_down(result: Result, by: str, *, cut: TrimmedTrace | None = None) -> dict[str, Metrics]:
    """`summarize_jobs` of the jobs of each user, group, queue, app, implementation or size class.

    ``by`` is one of ``user``, ``group``, ``queue``, ``app``, ``implementation``, ``size``. Jobs without
    the field come under ``"-"``; jobs that ``cut`` leaves out are not counted. Raises
    `InputError` for another ``by``.
    """
    if by not in FIELDS:
        raise InputError(f"cannot break down by {by!r}: expected one of {', '.join(FIELDS)}")
    columns = columns_of(result)
    names, places = _size_classes(columns) if by == "size" else columns.keys(by)
    counted = np.flatnonzero(columns.counted if cut is None else cut.select_counted(columns)[0])
    # Stable, so the order of jobs within a group is that of the file: sums are then the same on every
    # machine.
    order = counted[np.argsort(places[counted], kind="stable")]
    ends = np.cumsum(np.bincount(places[counted], minlength=len(names))).tolist()
    found: dict[str, list[Ints]] = {}
    for name, first, end in zip(names, [0, *ends], ends, strict=False):
        if end > first:
            found.setdefault(name or "-", []).append(order[first:end])
    rows = sorted(found, key=_size_order if by == "size" else _natural_order)
    return {name: summarize_jobs(columns, np.sort(np.concatenate(found[name]))) for name in rows}


def span_metrics(result: Result, edges: Floats, counted: Bools) -> list[Metrics]:
    """`summarize_jobs`, and the utilisations, of each span between ``edges`` (n + 1,), of the counted jobs.

    A job belongs to the span in which it was submitted; the last edge belongs to the last span.
    """
    columns = columns_of(result)
    held, count = columns.stretches, len(edges) - 1
    places = np.clip(np.searchsorted(edges, columns.submit, side="right") - 1, 0, count - 1)
    found = []
    for place, window in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        span = summarize_jobs(columns, np.flatnonzero(counted & (places == place)))
        span["utilisation"] = _used_share(columns, window, held.cpus, columns.cluster.total_cpus)
        span["gpu_utilisation"] = _used_share(columns, window, held.devices, columns.cluster.total_devices)
        found.append(span)
    return found


def _size_classes(columns: Columns) -> tuple[list[str], Ints]:
    """The size classes, and the place of each job's among them."""
    kinds, places = np.unique(columns.cpus + 1j * columns.devices, return_inverse=True)
    known: dict[str, int] = {}
    classes = [known.setdefault(size_class(kind.real, kind.imag), len(known)) for kind in kinds.tolist()]
    return list(known), np.array(classes, np.int64)[places]


def size_class(cpus: float, devices: float) -> str:
    """The size class of a job: by its devices if it holds any, else by its CPUs, e.g. ``5-16 CPUs``."""
    amount, unit = (devices, "GPU") if devices > 0 else (cpus, "CPU")
    low = 1
    for high in SIZE_CLASSES:
        if amount <= high:
            if low == high:
                return f"{low} {unit}" if amount == high else f"<{low} {unit}"
            return f"{low}-{high} {unit}s"
        low = high + 1
    return f"{low}+ {unit}s"


def _natural_order(name: str) -> tuple[str | int, ...]:
    """``u2`` before ``u10``: texts and numbers alternate, so that like is compared with like."""
    # Alternating, so a comparison never meets a number beside a text.
    return tuple(int(t) if i % 2 else t for i, t in enumerate(re.split(r"([0-9]+)", name)))


def _size_order(name: str) -> tuple[str | int, ...]:
    number, unit = name.split(" ")
    return unit[:3], int(number.lstrip("<").split("-")[0].rstrip("+")), 0 if number.startswith("<") else 1


FIELDS: tuple[str, ...] = get_args(Breakdown)
"""What results can be broken down by."""


def _number_or_seconds(text: str) -> float:
    """A number, be it one that is refused later, or the seconds of a duration. Raises `ValueError`."""
    try:
        return float(text)
    except ValueError:
        return seconds_of(text)


@dataclass(frozen=True, slots=True)
class TrimmedTrace:
    """Leaves out the warm-up and the cool-down of a trace.

    Jobs count if they were submitted from ``warmup`` after the first submission on, and until
    ``cooldown`` before the last one; utilisation is taken over the same stretch of time. Seconds, or,
    with ``fraction``, shares of the time between the first and the last submission.
    """

    warmup: float = 0.0
    cooldown: float = 0.0
    fraction: bool = False

    def __post_init__(self) -> None:
        valid = 0 <= self.warmup < math.inf and 0 <= self.cooldown < math.inf
        if not valid or (self.fraction and self.warmup + self.cooldown >= 1):
            form = ".1%" if self.fraction else "g"
            raise InputError(
                f"warm-up and cool-down: found {self.warmup:{form}} and {self.cooldown:{form}}, expected "
                "two finite numbers that are not negative and, as shares, add up to less than 100%"
            )

    @staticmethod
    def parse_trim(warmup: str, cooldown: str | None = None) -> TrimmedTrace:
        """``10%`` (a share), or seconds (``3600``, ``1h``); the cool-down is the warm-up's by default."""
        texts = (warmup, warmup if cooldown is None else cooldown)
        shares = [text.strip().endswith("%") for text in texts]
        try:
            numbers = [
                float(text.strip().removesuffix("%")) if share else _number_or_seconds(text)
                for text, share in zip(texts, shares, strict=True)
            ]
        except ValueError:
            found = " and ".join(repr(t) for t in texts)
            raise InputError(
                f"warm-up and cool-down: found {found}, expected seconds or 10%, or a duration such as 1h"
            ) from None
        values = [n / (100 if share else 1) for n, share in zip(numbers, shares, strict=True)]
        # One in seconds and one as a share would cut two different spans.
        if shares[0] != shares[1] and all(values):
            raise InputError("warm-up and cool-down: expected both in seconds or both in per cent")
        return TrimmedTrace(values[0], values[1], any(s and v for s, v in zip(shares, values, strict=True)))

    def select_counted(self, columns: Columns) -> tuple[Bools, tuple[Seconds, Seconds]]:
        """Which jobs count, and the window of time for utilisation."""
        if not len(columns.submit):
            return columns.counted, (0.0, 0.0)
        first, last = columns.first, float(columns.submit.max())
        scale = last - first if self.fraction else 1.0
        low, high = first + self.warmup * scale, last - self.cooldown * scale
        inside = (columns.submit >= low) & (columns.submit <= high)
        return columns.counted & inside, (low, high if self.cooldown else columns.last)


TOLD_FROM: Seconds = 1.0
"""Of jobs that take less, no prediction error is shown: starting a process alone makes it large."""


@dataclass(frozen=True, slots=True)
class PredictionError:
    """How far predictions were off: |predicted - actual| / actual, and how often the interval held."""

    jobs: int
    median: float
    p90: float
    coverage: float


def prediction_error(result: Result, least: Seconds = 0.0) -> PredictionError | None:
    """Over the completed jobs that had a prediction and took more than ``least``; ``None`` without any.

    Of real runs the actual time is the job's own, without what its start and the report of its end took.
    """
    columns = columns_of(result)
    counted = columns.completed & (columns.took > least) & np.isfinite(columns.predictions[:, 0])
    if not counted.any():
        return None
    actual = columns.took[counted]
    expected, lower, upper = columns.predictions[counted].T
    error = np.abs(expected - actual) / actual
    slack = 1e-9 * actual
    inside = (lower - slack <= actual) & (actual <= upper + slack)
    return PredictionError(len(actual), _middle(error), _percentile_90(error), float(inside.mean()))


def later_than(result: Result, reference: Result, *, tolerance: Seconds = 1e-9) -> dict[str, Seconds]:
    """Jobs that end later than under ``reference``, and by how many seconds, in file order.

    With `best-device` as reference these are the jobs that lost by being scheduled together with others
    (Gregg 2011 claims that there are none). Jobs that did not end under both are left out.
    """
    others = dict(_job_ends(reference))
    late = {}
    for job, end in _job_ends(result):
        other = others.get(job)
        if other is not None and end - other > tolerance * max(1.0, abs(other)):
            late[job] = end - other
    return late


def _job_ends(result: Result) -> Iterator[tuple[str, Seconds]]:
    """Ids and ends of the jobs that started and ended, in file order."""
    columns = columns_of(result)
    rows = zip(columns.ids[:], columns.end.tolist(), columns.ran.tolist(), strict=True)
    return ((job, end) for job, end, ran in rows if ran)


def median_lifetime_decrease(result: Result, first: Result) -> float | None:
    """Percent by which the median job lives shorter (from submission to end) than in the first result.

    The measure of Markthub 2015. Of jobs with a communication that ended in both; ``None``
    where there are none. O(jobs).
    """
    before = _lifetime_metrics(first)
    pairs = [(before[job], life) for job, life in _lifetime_metrics(result).items() if before.get(job, 0) > 0]
    if not pairs:
        return None
    lives = np.array(pairs)
    return _middle(100 * (lives[:, 0] - lives[:, 1]) / lives[:, 0])


def _lifetime_metrics(result: Result) -> dict[str, float]:
    columns = columns_of(result)
    lives = zip(columns.jobs, columns.ran.tolist(), columns.response.tolist(), strict=True)
    return {job.id: life for job, ran, life in lives if ran and job.communication is not None}


def median_lifetime_decreases(results: Sequence[Result]) -> list[float | None]:
    """Of each result against the first one on the same cluster with the same seed, replicate and load."""
    firsts: dict[tuple[str, int | None, int, float | None], Result] = {}
    found = []
    for result in results:
        case = result.cluster.label, result.seed, result.replicate.number, result.load
        first = firsts.setdefault(case, result)
        found.append(median_lifetime_decrease(result, first))
    return found


def jain_index(values: Floats) -> float | None:
    """Jain's fairness index: 1 if all are equal, 1/n if one has everything; ``None`` without values."""
    squares = float(np.sum(values**2))
    if not len(values):
        return None
    return float(np.sum(values)) ** 2 / (len(values) * squares) if squares > 0 else 1.0


def _user_fairness(columns: Columns, chosen: Bools) -> float | None:
    """Jain's index over the users' mean bounded slowdown; ``None`` with fewer than two users."""
    counted = chosen & (columns.users >= 0)
    names, user = distinct(columns.users[counted])
    if len(names) < 2:
        return None
    first = np.empty(len(names), np.int64)
    first[user[::-1]] = np.arange(len(user))[::-1]  # the last that is written, which is a user's first job
    means = np.bincount(user, columns.bounded_slowdown[counted]) / np.bincount(user)
    means = means[np.argsort(first)]  # as they come: sums of floats depend on it
    return jain_index(means)


def _used_share(
    columns: Columns, window: tuple[Seconds, Seconds], amounts: Floats, offered: float
) -> float | None:
    """Used over offered seconds within the window."""
    low, high = window
    if not offered or high <= low:
        return None
    held = columns.stretches
    inside = np.minimum(held.end, high) - np.maximum(held.start, low)
    used = float(np.sum(np.maximum(inside, 0.0) * amounts))
    return used / (offered * (high - low))


def _average_normalized_loss(result: Result, columns: Columns, chosen: Bools) -> float | None:
    """Ravi 2012: mean of run time minus the best over the implementations at the requested node count.

    What a job cannot choose it cannot lose: 0 where only one implementation exists, and where it took less
    time than the best at that node count, on more nodes or because it was ended.
    """
    if not result.best:
        return None
    best = columns.best_true_times(result)
    loss = np.maximum(columns.run - best, 0.0)
    loss[columns.one_way] = 0.0
    loss[np.isnan(best)] = np.nan
    return _mean_or_none(loss[chosen & np.isfinite(loss)])


def _maximum_idle_time(columns: Columns) -> float | None:
    """Ravi 2012: the largest idle time of any resource within the makespan."""
    if not columns.ran.any() or not columns.cluster.units:
        return None
    return max(0.0, columns.makespan - float(busy_seconds(columns).min()))


def _count_metrics(result: Result, columns: Columns, chosen: Bools) -> Metrics:
    counts = columns.state_counts
    found: Metrics = {"jobs": len(result.records), "jobs_counted": int(chosen.sum())}
    found |= {f"jobs_{state.lower()}": count for state, count in counts.items()}
    found["jobs_rejected"] = len(result.rejected)
    found["promises_broken"] = result.promises_broken
    found["broken_by_overrun"] = result.broken_by_overrun
    return found


def _spread_metrics(name: str, values: Floats) -> Metrics:
    quantiles, last = {"median": 0.5, "p95": 0.95, "max": 1.0}, len(values) - 1
    near = {min(int(q * last) + after, last) for q in quantiles.values() for after in (0, 1)}
    # Only the neighbours of each quantile have to be in place: O(jobs), where a whole sort is O(jobs log
    # jobs).
    order = np.partition(values, sorted(near)) if len(values) else values  # in order at these places
    return {f"{head}_{name}": _sorted_quantile(order, q) for head, q in quantiles.items()}


def _mean_or_none(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


# Numpy's median, percentile and unique import its masked arrays, which takes 15 to 20 ms. These agree with
# them to the last bit.
def _middle(values: Floats) -> float:
    """The median of some values."""
    below, above = (len(values) - 1) // 2, len(values) // 2
    order = np.partition(values, [below, above])
    return float((order[below] + order[above]) / 2)


def _percentile_90(values: Floats) -> float:
    """The 90th percentile of some values, interpolated from the nearer neighbour."""
    place = 0.9 * (len(values) - 1)
    below = int(place)
    above, part = min(below + 1, len(values) - 1), place - below
    order = np.partition(values, [below, above])
    step = order[above] - order[below]
    return float(order[above] - step * (1 - part) if part >= 0.5 else order[below] + step * part)


def _sorted_quantile(order: Floats, q: float) -> float | None:
    """Of sorted values, interpolated linearly (as numpy does, without its cost for a few values)."""
    if not len(order):
        return None
    place = q * (len(order) - 1)
    below = int(place)
    above = min(below + 1, len(order) - 1)
    return float(order[below] + (order[above] - order[below]) * (place - below))
