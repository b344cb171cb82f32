"""Tasks of different size: who takes which task, so that the whole ends soonest.

For tasks of one size T* gives each slot exactly the tasks that list scheduling gives it when every task in
turn goes to the slot that ends it first (earliest completion time). That form needs no equal tasks: taken
longest first it is Graham's LPT on uniform machines, at most 19/12 of the optimum (Dobson 1984), in
practice a few percent.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence

from dovetail.records import dataclass
from dovetail.splitting.finish_time import CLOSE, Floats, fluid_finish


@dataclass(frozen=True, slots=True)
class Plan:
    """Where each task is to run, and when all is done.

    ``slots`` has a (kind, slot) pair for each task, in the tasks' order; ``first`` the first task of each
    slot that has one.
    """

    slots: Sequence[tuple[str, int]]
    first: Mapping[tuple[str, int], int]
    finish: float


def plan_tasks(times: Mapping[str, Sequence[float]], ready: Mapping[str, Floats]) -> Plan:
    """Give each task in turn to the slot that ends it first; ties go to the faster kind, then in order.

    ``times`` has, by kind, the seconds of every task; ``ready`` when each slot is free. O(tasks log slots).
    """
    queues: dict[str, list[tuple[float, int]]] = {}
    for kind, slots in ready.items():
        if len(slots):
            queues[kind] = [(float(moment), slot) for slot, moment in enumerate(slots)]
            heapq.heapify(queues[kind])
    if not queues:
        raise ValueError("there are no slots")
    tasks = len(next(iter(times.values())))
    given: list[tuple[str, int]] = []
    first: dict[tuple[str, int], int] = {}
    finish = 0.0
    for task in range(tasks):
        _, seconds, kind = min(
            (queue[0][0] + times[k][task], times[k][task], k) for k, queue in queues.items()
        )
        moment, slot = queues[kind][0]
        heapq.heapreplace(queues[kind], (moment + seconds, slot))
        finish = max(finish, moment + seconds)
        first.setdefault((kind, slot), task)
        given.append((kind, slot))
    return Plan(given, first, finish)


def next_task(
    kind: str,
    slot: int,
    now: float,
    longest: float,
    totals: Mapping[str, float],
    ready: Mapping[str, Floats],
    times: Callable[[], Mapping[str, Sequence[float]]],
) -> int | None:
    """The task that an idle slot should begin now, as a place among those left; ``None`` if it should wait.

    ``longest`` is the time on this kind of the first task left, ``totals`` the sums over all of them, by
    kind. While the first one surely ends before the others can be done with the rest it is taken at once;
    near the end the slot gets what `plan_tasks` gives it first (``times`` as there, longest first).
    """
    if now + longest <= fluid_finish(ready, totals, 1.0) * (1 + CLOSE):
        return 0
    return plan_tasks(times(), ready).first.get((kind, slot))
