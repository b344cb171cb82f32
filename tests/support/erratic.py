"""A policy that does everything that a policy may do, without rhyme but for a reason: to be checked."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from dovetail.interfaces import Free, Traits, View
from dovetail.model import (
    Allocation,
    Decision,
    Dequeue,
    Enqueue,
    Migrate,
    Placed,
    Preempt,
    Start,
    Submit,
    Wait,
)

__all__ = ["Erratic"]


@dataclass(frozen=True)
class Erratic:
    """Starts, binds, unbinds, moves, preempts and hands over at random; a function of the view alone.

    ``held`` holds the source of a migration until it is over.
    """

    seed: int = 0
    held: bool = True
    outside: bool = False
    traits: ClassVar[Traits] = Traits(migrates=True)

    def decide(self, view: View) -> Iterable[Decision]:
        busy = sorted(view.running)
        if view.changes.migrated or (not any(view.queue) and not view.device_queues and not busy):
            return []
        rng = random.Random(f"{self.seed} {view.now} {busy} {len(view.queue)} {sorted(view.device_queues)}")
        free = view.free()
        decisions = list(self._starts(view, free, rng))
        if not decisions and rng.random() < 0.3:
            decisions = list(self._moves(view, free, rng))
        if not decisions and rng.random() < 0.1:
            fresh = [p for p in view.running.values() if p.start_time < view.now and p.attempt < 3]
            decisions = [Preempt(p.job.id) for p in fresh[:1] if p.job.id not in view.moving]
            decisions = decisions if rng.random() < 0.3 else []
        return decisions

    def _starts(self, view: View, free: Free, rng: random.Random) -> Iterable[Decision]:
        for unit, fifo in view.device_queues.items():
            job, implementation = fifo[0]
            choice = next(c for c in job.choices if c.implementation is implementation)
            found = free.fit_unit(choice.request, view.cluster.units[unit])
            if found is not None:
                free.take(found)
                yield Start(job.id, implementation.name, found)
            elif rng.random() < 0.3 and int(view.now) % 2:
                yield Dequeue(job.id)
        for job in islice(view.queue, 6):
            choice = rng.choice(job.choices)
            if self.outside and rng.random() < 0.3:
                yield Submit(job.id, choice.implementation.name, choice.request, "outside")
                continue
            found = free.fit(choice.request)
            if found is not None and rng.random() < 0.8:
                free.take(found)
                yield Start(job.id, choice.implementation.name, found)
            elif rng.random() < 0.2 and choice.request.nodes == 1 and not int(view.now) % 2:
                kinds = {"cpu", *(kind for kind, _ in choice.request.devices)}
                kinds -= {"cpu"} if choice.implementation.kind not in ("cpu", "cpu+gpu") else set()
                units = [unit.index for unit in view.cluster.units if unit.kind in kinds]
                if units:
                    yield Enqueue(job.id, choice.implementation.name, rng.choice(units))
            else:
                yield Wait(job.id, "no room", view.now + rng.choice([1.0, 2.0, 7.0]))

    def _moves(self, view: View, free: Free, rng: random.Random) -> Iterable[Decision]:
        for placed in view.running.values():
            job = placed.job.id
            if job in view.moving or job in view.elsewhere or placed.start_time >= view.now:
                continue
            target = self._target(view, free, placed)
            if target is not None and rng.random() < 0.5:
                free.take(target)
                yield Migrate(placed.job.id, target, self.held)

    @staticmethod
    def _target(view: View, free: Free, placed: Placed) -> Allocation | None:
        """Another place that is free as a whole, on other nodes."""
        request, here = placed.allocation.request, placed.allocation.mask
        return free.fit(request, within=((1 << len(view.cluster)) - 1) & ~here)
