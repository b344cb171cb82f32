"""A map of tasks of one size whose times are known: the paper's split, and how long it takes by a rule."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

import numpy as np

from dovetail.records import dataclass
from dovetail.splitting.finish_time import CLOSE, fluid_finish, whole_tasks
from dovetail.splitting.rules import Rule, SplitState

QUIET = 3
"""Times of the slowest task before the end, up to which no rule leaves a slot idle."""


@dataclass(frozen=True, slots=True)
class Shares:
    """The split of Shirahata 2010, section III.

    ``cpu_tasks`` and ``gpu_tasks`` are its real-valued x and y, ``makespan`` its f.
    ``acceleration`` is the factor alpha, a CPU task's seconds over a GPU task's.
    """

    acceleration: float
    cpu_tasks: float
    gpu_tasks: float
    makespan: float


def split_shares(tasks: float, cpu_slots: int, gpu_slots: int, cpu_time: float, gpu_time: float) -> Shares:
    """How many of N tasks CPU and GPU slots run, so that f = max(x / n * alpha * t, y / m * t) is least.

    x = N n / (n + alpha m), y = N - x, f = N alpha t / (n + alpha m) (equations 1 to 4).

    Times are mean seconds of a task. Either kind may have no slots; raises `ValueError` if both have none,
    or if a time is not above 0. O(1).
    """
    if cpu_slots < 0 or gpu_slots < 0 or cpu_slots + gpu_slots == 0:
        raise ValueError(f"{cpu_slots} CPU slots and {gpu_slots} GPU slots, expected at least one slot")
    if not (cpu_time > 0 and gpu_time > 0):
        raise ValueError(f"task times {cpu_time} and {gpu_time}, expected seconds above 0")
    alpha = cpu_time / gpu_time
    weight = cpu_slots + alpha * gpu_slots
    return Shares(
        alpha, tasks * cpu_slots / weight, tasks * alpha * gpu_slots / weight, tasks * cpu_time / weight
    )


def rule_makespan(tasks: int, slots: Mapping[str, int], seconds: Mapping[str, float], rule: Rule) -> float:
    """When the last of ``tasks`` ends, if an idle slot takes what the rule gives it at once.

    ``slots`` are all free at 0; ``seconds`` is the time of a task, by kind. Raises `ValueError` without
    slots. O(slots) before the last waves, O(log slots) for each task in them.
    """
    kinds = sorted((kind for kind, count in slots.items() if count), key=lambda kind: seconds[kind])
    # When a slot began what it does without a break.
    anchor = {kind: np.zeros(slots[kind]) for kind in kinds}
    # Long before the end every rule keeps all slots busy: begin where something is to be decided.
    quiet = fluid_finish(anchor, seconds, tasks) - QUIET * max(seconds[kind] for kind in kinds)
    waves = {kind: whole_tasks(quiet, seconds[kind]) for kind in kinds}
    if not all(waves.values()):
        waves = dict.fromkeys(kinds, 0)
    # Tasks that a slot has begun since.
    row = {kind: np.full(slots[kind], waves[kind]) for kind in kinds}
    free = {kind: row[kind] * seconds[kind] for kind in kinds}
    left = tasks - sum(waves[kind] * slots[kind] for kind in kinds)
    ends = [(waves[kind] * seconds[kind], kind, i) for kind in kinds for i in range(slots[kind])]
    heapq.heapify(ends)
    idle: dict[str, list[int]] = {kind: [] for kind in kinds}
    finish = 0.0
    while ends:
        now = finish = ends[0][0]
        while ends and ends[0][0] <= now * (1 + CLOSE):
            _, kind, slot = heapq.heappop(ends)
            heapq.heappush(idle[kind], slot)
        at = SplitState(now, left, {kind: np.maximum(free[kind], now) for kind in kinds}, seconds)
        for kind in kinds:
            while at.left and idle[kind] and rule.slot_quota(kind, at) >= 1:
                slot = heapq.heappop(idle[kind])
                # A product, no sum of a thousand times: slots that end together do so to the last digit.
                if abs(anchor[kind][slot] + row[kind][slot] * seconds[kind] - now) > CLOSE * now:
                    anchor[kind][slot], row[kind][slot] = now, 0
                row[kind][slot] += 1
                free[kind][slot] = now + seconds[kind]
                heapq.heappush(
                    ends, (float(anchor[kind][slot] + row[kind][slot] * seconds[kind]), kind, slot)
                )
                at.left -= 1
        left = int(at.left)
    return finish
