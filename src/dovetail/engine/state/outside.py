"""The books of an outside scheduler: questions, answers, and what was handed over to it since."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

from dovetail.model import Begun, Foreseen, ForeseenStart, HandedOver, JobId, Seconds, Shape, Submit
from dovetail.records import dataclass

REMEMBERED = 64
"""Starts that are remembered."""


@dataclass(slots=True)
class OutsideBook:
    """Implements `dovetail.interfaces.Outside`; ``waiting`` are the jobs in its hands that do not run yet."""

    waiting: dict[JobId, Submit] = field(default_factory=dict)
    cut: dict[JobId, Seconds] = field(default_factory=dict)  # walltimes below the user's own
    _outlooks: dict[Shape, ForeseenStart] = field(default_factory=dict)
    _asked: set[Shape] = field(default_factory=set)
    _sent: dict[str, list[HandedOver]] = field(default_factory=dict)
    _cut_short: set[JobId] = field(default_factory=set)
    _since: dict[JobId, Seconds] = field(default_factory=dict)
    _begun: deque[Begun] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    # ---------------------------------------------------------------- for policies

    @property
    def submitted(self) -> Mapping[JobId, Submit]:
        """Jobs that were handed over and have not started, in the order of that."""
        return MappingProxyType(self.waiting)

    def outlook(self, shape: Shape) -> ForeseenStart | None:
        """Its last answer for such jobs."""
        return self._outlooks.get(shape)

    def handed_over(self, target: str, since: Seconds) -> Sequence[HandedOver]:
        """What went to that target at that moment or after it: the answers of before know nothing of it."""
        return [sent for sent in self._sent.get(target, ()) if sent.at >= since]

    def since(self, job: JobId) -> Seconds:
        """When a job that waits was handed over."""
        return self._since[job]

    def begun(self) -> Sequence[Begun]:
        """The last starts of which something was foreseen."""
        return tuple(self._begun)

    def was_cut_short(self, job: JobId) -> bool:
        """Whether the job has run into a walltime that was below its user's."""
        return job in self._cut_short

    # -------------------------------------------------------------- for the engine

    def ask(self, shape: Shape) -> bool:
        """Whether the question is new, i.e. not waiting for its answer."""
        if shape in self._asked:
            return False
        self._asked.add(shape)
        return True

    def take_answer(self, event: Foreseen, now: Seconds) -> None:
        """An answer has come; what went there before the oldest answer is of no more interest."""
        shape = event.shape
        self._asked.discard(shape)
        start = None if event.wait is None else now + event.wait
        self._outlooks[shape] = ForeseenStart(now, start, event.room, event.why, event.used)
        oldest = min(o.asked_at for s, o in self._outlooks.items() if s.target == shape.target)
        if shape.target in self._sent:
            self._sent[shape.target] = list(self.handed_over(shape.target, oldest))

    def hand_over(
        self, decision: Submit, own: Seconds | None, now: Seconds, known: Iterable[Seconds]
    ) -> None:
        """A job goes there; ``own`` is its user's walltime, ``known`` are its predicted run times."""
        self.waiting[decision.job] = decision
        self._since[decision.job] = now
        sent = HandedOver(now, decision.request, min(known, default=None))
        self._sent.setdefault(decision.target, []).append(sent)
        if decision.walltime is not None and (own is None or decision.walltime < own):
            self.cut[decision.job] = decision.walltime

    def left(self, job: JobId, now: Seconds, *, started: bool) -> Submit | None:
        """A job waits there no more; how it was handed over, if it was."""
        submitted = self.waiting.pop(job, None)
        since = self._since.pop(job, now)
        if submitted is not None and submitted.foreseen is not None and started:
            found = Begun(submitted.target, submitted.request, submitted.foreseen, max(0.0, now - since))
            self._begun.append(found)
        return submitted

    def ended(self, job: JobId, *, at_limit: bool) -> None:
        """A job has ended, ``at_limit``: by its walltime."""
        if self.cut.pop(job, None) is not None and at_limit:
            self._cut_short.add(job)
