"""Remote-GPU queueing: a gang that finds no room may borrow GPUs of other nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.interfaces import Free, Traits, View
from dovetail.model import Decision, Job, Start
from dovetail.policies.parts.lending import borrow_devices
from dovetail.policies.parts.orders import priority_first
from dovetail.policies.parts.trials import Trials

Worth = Callable[[Sequence[Start], Sequence[Job]], bool]
"""Whether the head of the waiting jobs is to borrow, after what has been decided to start."""


def starts_in_order(
    view: View, free: Free, *, local: int, skip: int, worth: Worth | None = None
) -> list[Start]:
    """From the front of the queue, at home where there is room, else with borrowed GPUs (section 2.1).

    Only the head borrows, and only where it is ``worth`` it. ``free`` is as free as the decisions leave it.
    """
    started: list[Start] = []
    trials = Trials(view)
    queue = view.queue.by(priority_first) if view.queue else ()
    passed = 0
    for place, job in enumerate(queue):
        choice = trials.preferred_choice(job, free)
        allocation = free.fit(choice.request)
        if allocation is None and not passed:
            allocation = borrow_devices(free, view.cluster, choice.request, local=local)
            if allocation is not None and worth is not None and not worth(started, queue[place:]):
                allocation = None
        if allocation is not None:
            free.take(allocation)
            started.append(Start(job.id, choice.implementation.name, allocation))
            continue
        passed += 1
        if passed > skip:
            break
    return started


@dataclass(frozen=True, slots=True)
class Rq:
    """First come, first served; a head that finds no room starts with GPUs of other nodes, if there are any.

    A borrowed GPU stays borrowed to the job's end. Every process has at least ``local`` GPUs of its own node.
    With ``skip`` so many jobs behind a head that cannot start may go first (the paper's queue is strict).
    """

    local: int = 0
    skip: int = 0

    paper: ClassVar[str] = "Markthub 2015, section 2"
    traits: ClassVar[Traits] = Traits(settles=True, priorities=True, borrows=True)

    def decide(self, view: View) -> Iterable[Decision]:
        """Start from the front of the queue, at home where there is room, else with borrowed GPUs."""
        return starts_in_order(view, view.free(), local=self.local, skip=self.skip) if view.queue else []
