"""What each fixed order would have come to on the past, beside what was done: an account of regret.

Every order can be tried on the past at little cost: EASY is simulated, as counts, from the state in which the
last stretch began, over all that came in it, until all have started. What was done instead counts the same
way: starts as they were, and for those that still wait the continuation in the order that was best. So the
account knows of each order what it would have cost, whether it was used or not (a bandit with full
information), and none of it rests on predictions of what has ended.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from dovetail.files.arrays import Floats, Ints, np
from dovetail.kernels.backfilling import SLOWDOWN, WAIT, Jobs, expected, roll_outs
from dovetail.model import PastJob, PastStretch
from dovetail.policies.parts.orders import ORDERS, Order

TRIED: tuple[Order, ...] = ("fcfs", "sjf", "f1", "largest", "saf", "sqrtsaf")
LEAST = 10.0
"""The threshold of the bounded slowdown."""
ENDLESS = 1e9
"""Seconds that an endless job is taken to run."""


class Account(NamedTuple):
    """The order that would have cost least on the last stretch, the cost of each, and of what was done."""

    best: Order
    costs: dict[Order, float]
    done: float


class _Columns(NamedTuple):
    """Jobs of a stretch, by submission; times in seconds, NaN of what has not happened."""

    submit: Floats
    start: Floats
    seconds: Floats
    wall: Floats
    width: Ints


def settle_account(stretch: PastStretch, widths: Ints, capacity: int, summed: int) -> Account | None:
    """The account of a stretch; ``widths`` is what its jobs take of the capacity, shape (jobs,).

    ``summed`` is `WAIT` or `SLOWDOWN`. ``None`` where nothing could have been done otherwise. O(orders · jobs
    · waiting jobs).
    """
    fit = widths <= capacity
    jobs = [job for job, fits in zip(stretch.jobs, fit.tolist(), strict=True) if fits]
    if len(jobs) < 2:
        return None
    columns = _job_columns(jobs, widths[fit], stretch.until)
    before = columns.start < stretch.origin
    ran = np.flatnonzero(before & (columns.start + columns.seconds > stretch.origin))
    others = np.flatnonzero(~before)
    if not len(others):
        return None
    costs: dict[Order, float] = {}
    for order in TRIED:
        rank = _rank_jobs(order, [jobs[at] for at in others.tolist()])
        costs[order] = _roll_out_order(columns, ran, others, rank, stretch.origin, capacity, summed)
    best = min(costs, key=costs.__getitem__)
    started = ~np.isnan(columns.start[others])
    done = _cost_of_starts(columns, others[started], summed)
    waits = others[~started]
    if len(waits):
        running = np.flatnonzero(~np.isnan(columns.start) & (columns.start + columns.seconds > stretch.until))
        rank = _rank_jobs(best, [jobs[at] for at in waits.tolist()])
        done += _roll_out_order(columns, running, waits, rank, stretch.until, capacity, summed)
    return Account(best, costs, done) if all(cost < inf for cost in costs.values()) else None


def _job_columns(jobs: list[PastJob], width: Ints, until: float) -> _Columns:
    """The jobs as columns; one that has not ended takes as long as others of its user did, or goes on."""
    submit = np.array([one.job.submit_time for one in jobs], np.float64)
    start = np.array([np.nan if one.start is None else one.start for one in jobs], np.float64)
    seconds = np.array([np.nan if one.seconds is None else one.seconds for one in jobs], np.float64)
    wall = np.minimum(np.array([one.bound for one in jobs], np.float64), ENDLESS)
    numbers = {user: at for at, user in enumerate(dict.fromkeys(one.job.user for one in jobs))}
    users = np.array([numbers[one.job.user] for one in jobs], np.int64)
    open_ = np.isnan(seconds)
    if open_.any():
        over = ~open_
        thought, _ = expected(users[open_], wall[open_], users[over], wall[over], seconds[over])
        spent = np.nan_to_num(until - start[open_])
        seconds[open_] = np.where(thought > spent, thought, np.maximum(1.0, 1.5 * spent))
        seconds[open_] = np.minimum(seconds[open_], np.maximum(wall[open_], spent + 1.0))
    return _Columns(submit, start, seconds, wall, width)


def _rank_jobs(order: Order, jobs: list[PastJob]) -> Ints:
    """Each job's place in the order, by walltimes, as EASY has it."""
    key, bounded = ORDERS[order]
    keys = [key(one.job, one.bound) if bounded else key(one.job) for one in jobs]
    rank = np.empty(len(jobs), np.int64)
    rank[sorted(range(len(jobs)), key=keys.__getitem__)] = np.arange(len(jobs))  # a stable sort
    return rank


def _roll_out_order(
    columns: _Columns, running: Ints, others: Ints, rank: Ints, origin: float, capacity: int, summed: int
) -> float:
    """What EASY would have come to in an order, from a moment on, over those who waited or came then."""
    running = running[np.argsort(columns.start[running] + columns.wall[running], kind="stable")]
    ends = columns.start[running] + columns.seconds[running] - origin
    bounds = np.maximum(columns.start[running] + columns.wall[running] - origin, 1.0)
    # All that run fit, and none goes on for longer than its bound, if it is not late already.
    free = capacity - int(columns.width[running].sum())
    submit = columns.submit[others] - origin
    known = int(np.searchsorted(submit, 0.0, side="right"))
    found = np.empty(1)
    jobs = Jobs(
        free,
        columns.width[running],
        np.ascontiguousarray(ends)[None, :],
        bounds,
        columns.width[others],
        columns.wall[others],
        np.ascontiguousarray(columns.seconds[others])[None, :],
        submit,
        known,
    )
    roll_outs(jobs, rank[None, :], -1, summed, inf, found)
    return float(found[0])


def _cost_of_starts(columns: _Columns, chosen: Ints, summed: int) -> float:
    """What the starts of these jobs came to."""
    wait = columns.start[chosen] - columns.submit[chosen]
    if summed == WAIT:
        return float(wait.sum())
    assert summed == SLOWDOWN
    seconds = columns.seconds[chosen]
    return float(np.maximum(1.0, (wait + seconds) / np.maximum(seconds, LEAST)).sum())
