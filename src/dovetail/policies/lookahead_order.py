"""Looking ahead with rigid jobs: EASY decides, only the order of its queue is chosen, by roll-outs.

Whenever a waiting request fits now, EASY is rolled out over the known queue in each of six orders, as counts,
with the present promise kept; the order with the best score is EASY's order at this instant. Waits are rolled
out with walltimes for durations and without arrivals; the slowdown over several futures, in which jobs run
for a part of their walltime that was seen lately, and the last twelve hours of arrivals come again.
"""

from __future__ import annotations

from itertools import islice
from math import inf

import numpy as np
from numpy.typing import NDArray

from dovetail.interfaces import View
from dovetail.model import WHOLE_POOL, Cluster, Decision, Request, Seconds
from dovetail.policies.easy import Easy
from dovetail.policies.lookahead_units import Objective
from dovetail.policies.parts.orders import Order

__all__ = ["chosen_order", "go_on_with_easy"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TRIED: tuple[Order, ...] = ("sqrtsaf", "fcfs", "sjf", "f1", "largest", "saf")
"""The first one stands unless another is better."""
WINDOW = 256
"""Waiting jobs that are rolled out: those submitted first."""
GAIN = 0.97
"""In sampled futures another order has to have this part of the first one's score."""
HOURS = 12 * 3600.0


def go_on_with_easy(view: View, objective: Objective, roll_outs: int, age: Seconds) -> list[Decision]:
    """EASY's decisions, in the order that promises most; who has waited too long becomes its head."""
    oldest = next(iter(view.queue), None)
    if oldest is None:
        return []
    overdue = view.now - oldest.submit_time > age
    if overdue and not view.reservations:
        order: Order = "fcfs"
    else:
        order = chosen_order(view, objective, roll_outs)
    return list(Easy(order).decide(view))


def chosen_order(view: View, objective: Objective, roll_outs: int) -> Order:
    """The order in which EASY is expected to do best; the first of `TRIED` where nothing can be chosen."""
    if len(view.queue) < 2 or not _order_matters(view):
        return TRIED[0]
    from dovetail.kernels.backfilling import LAST_END, SLOWDOWN, WAIT, roll_out  # numba

    sampled = objective == "slowdown"
    queue = _Line(view, again=sampled)
    if queue.known < 2 or not queue.capacity:
        return TRIED[0]
    futures = max(1, roll_outs // len(TRIED)) if sampled else 1
    summed = SLOWDOWN if sampled else LAST_END if objective == "makespan" else WAIT
    lived = queue.sampled(futures, np.array(view.lately.ratios)) if sampled else [queue.walls()]
    best, least = TRIED[0], inf
    for order in TRIED:
        rank = queue.rank(order)
        score = 0.0
        for long, left in lived:
            score += roll_out(
                queue.free, queue.running_width, left, queue.running_bound, queue.width, queue.wall, long,
                queue.submit, queue.known, rank, queue.head, summed, least - score,
            )  # fmt: skip
            if score == inf:
                break
        if order == TRIED[0]:
            least = (GAIN if sampled else 1.0) * score  # what another one has to be below
        elif score < least:
            best, least = order, score
    return best


def _order_matters(view: View) -> bool:
    """Whether another order could change what EASY does now: more fits than one job behind a head."""
    free = view.free()
    fitting = {r: n for r, n in view.queue.requests().items() if free.count(r) >= r.nodes}
    head = next(iter(view.reservations.values()), None)
    if head is None or any(choice.request in fitting for choice in head.job.choices):
        return bool(fitting)
    return sum(fitting.values()) > 1


class _Line:
    """The known queue, and with ``again`` the last arrivals once more, as arrays; times count from now."""

    def __init__(self, view: View, again: bool) -> None:
        now = view.now
        jobs = list(islice(view.queue, WINDOW))
        promised = next(iter(view.reservations.values()), None)
        if promised is not None and promised.job not in jobs:
            jobs[-1] = promised.job
        self.known = len(jobs)
        requests = [job.choices[0].request for job in jobs]
        walls = [
            view.bound(job, job.choices[0].implementation, request)
            for job, request in zip(jobs, requests, strict=True)
        ]
        submits = [job.submit_time - now for job in jobs]
        priorities = [job.priority for job in jobs]
        numbers = [job.index for job in jobs]
        if again:
            coming = [one for one in view.lately.arrivals if one.time >= now - HOURS]
            requests += [one.request for one in coming]
            walls += [one.bound for one in coming]
            submits += [one.time + HOURS - now for one in coming]
            priorities += [0.0] * len(coming)
            numbers += [-1 - i for i in range(len(coming))]
        devices = all(request.devices for request in requests)
        self.capacity = _capacity(view.cluster, devices)
        self.width = np.array([_width(view.cluster, request, devices) for request in requests], np.int64)
        self.wall = np.minimum(np.array(walls, np.float64), _LONGEST)
        self.submit = np.array(submits, np.float64)
        self.since = np.array(submits, np.float64) + now
        self.priority = np.array(priorities, np.float64)
        self.numbers = np.array(numbers, np.int64)
        self.head = -1 if promised is None else jobs.index(promised.job)
        running = sorted(view.running.values(), key=lambda placed: placed.bound)
        self.running_width = np.array(
            [_width(view.cluster, placed.allocation.request, devices) for placed in running], np.int64
        )
        self.running_numbers = np.array([placed.job.index for placed in running], np.int64)
        self.running_spent = np.array([now - placed.start_time for placed in running], np.float64)
        bound = np.array([placed.bound - now for placed in running], np.float64)
        self.running_bound = np.clip(bound, 1.0, _LONGEST)
        self.running_wall = self.running_spent + self.running_bound
        self.free = self.capacity - int(self.running_width.sum())

    def walls(self) -> tuple[Floats, Floats]:
        """How long each job of the line, and each running one, runs if all run to their bounds."""
        return self.wall, self.running_bound

    def sampled(self, futures: int, ratios: Floats) -> list[tuple[Floats, Floats]]:
        """Futures in which each job runs for a part of its walltime that was seen lately."""
        from dovetail.kernels.backfilling import lengths  # numba

        found = []
        nothing = np.zeros(len(self.wall))
        for future in range(futures):
            long, left = np.empty(len(self.wall)), np.empty(len(self.running_wall))
            lengths(self.numbers, self.wall, nothing, ratios, future, long)
            lengths(self.running_numbers, self.running_wall, self.running_spent, ratios, future, left)
            found.append((long, left))
        return found

    def rank(self, order: Order) -> Ints:
        """Each job's place in the order (see `dovetail.policies.parts.orders`)."""
        width, wall = self.width, self.wall
        keys: dict[Order, Floats] = {
            "fcfs": self.submit,
            "sjf": wall,
            "largest": -width.astype(np.float64),
            "f1": np.log10(np.maximum(1.0, wall)) * width + 870 * np.log10(np.maximum(1.0, self.since)),
            "saf": wall * width,
            "sqrtsaf": wall * np.sqrt(width),
        }
        rank = np.empty(len(wall), np.int64)
        rank[np.lexsort((np.arange(len(wall)), keys[order], -self.priority))] = np.arange(len(wall))
        return rank


_LONGEST = 1e9
"""Seconds that an endless job is taken to run."""


def _capacity(cluster: Cluster, devices: bool) -> int:
    return sum(
        len(node.devices) if devices else node.cpus
        for n, node in enumerate(cluster.nodes)
        if n not in cluster.gone
    )


def _width(cluster: Cluster, request: Request, devices: bool) -> int:
    """What a gang takes of the capacity: devices, or CPUs."""
    if devices:
        return max(1, round(request.nodes * request.gpus))
    cpus = cluster.nodes[0].cpus if request.cpus == WHOLE_POOL else request.cpus
    return request.nodes * max(1, cpus)
