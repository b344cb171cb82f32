"""Implementations that fail at once on a class of device while another class completes the app.

Where a driver is missing every job fails within moments: the device is always free, and a whole queue would
run empty through it. After `IN_A_ROW` such failures the class takes no job of the app as that implementation
for a minute, then one job as a trial; while trials fail the pause doubles, up to an hour. Where nothing has
completed elsewhere yet, the first job that ends elsewhere decides: if it fails too, the app is to blame.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import TypeAlias

from dovetail.model import DeviceClass, Job, JobId, Seconds, State
from dovetail.records import dataclass

_log = logging.getLogger(__name__)
AT_ONCE: Seconds = 5.0
"""A job that fails later than so long after its start had a device that works."""
IN_A_ROW = 3
FIRST_PAUSE: Seconds = 60.0
LONGEST_PAUSE: Seconds = 3600.0

PAUSED = "the queue is paused"
"""How the reason begins of a job that waits until its kind is resumed."""
EVERYWHERE = "all"
"""Among paused kinds: nothing starts at all."""

Way: TypeAlias = tuple[str, str, DeviceClass]
"""App, implementation, device class."""


@dataclass(slots=True)
class _FailingWay:
    """A way that has failed at once. ``until`` is when its suspension ends; ``None`` while there is none.

    ``open``: that moment has come, and the next job that starts so is the ``trial``. ``proven``: the app has
    completed elsewhere.
    """

    failures: int = 0
    pause: Seconds = FIRST_PAUSE
    until: Seconds | None = None
    open: bool = False
    proven: bool = False
    trial: JobId | None = None


@dataclass(slots=True)
class Suspensions:
    """All of one engine. ``narrowed`` are waiting jobs that lost a choice to one, as they were submitted."""

    narrowed: dict[JobId, Job] = field(default_factory=dict)
    active: int = 0
    """How many ways are suspended, or on trial."""
    changed: bool = False
    """Whether something was suspended or let go since this was last set back."""
    paused: frozenset[str] = frozenset()
    """Kinds of devices on which nothing starts until they are resumed; `EVERYWHERE`: on none."""
    _suspects: dict[Way, _FailingWay] = field(default_factory=dict)
    _completed: dict[str, set[tuple[str, DeviceClass]]] = field(default_factory=dict)

    @property
    def limits_choices(self) -> bool:
        """Whether any waiting job may have lost a choice."""
        return bool(self.active or self.paused)

    def pause_kinds(self, kinds: Iterable[str]) -> None:
        """From now on nothing starts on these kinds, and on all others what waits may."""
        self.paused, self.changed = frozenset(kinds), True

    def paused_for(self, kind: str) -> str:
        """Why no implementation of this kind starts now, for people; empty where it may."""
        if not self.paused:
            return ""
        if EVERYWHERE in self.paused:
            return PAUSED
        found = [part for part in kind.split("+") if part in self.paused]
        return f"{PAUSED} for {found[0]}" if found else ""

    def started(self, way: Way, job: JobId) -> None:
        """A job has started; where the way was suspended it is the trial."""
        suspect = self._suspects.get(way)
        if suspect is not None and suspect.open:
            suspect.trial, suspect.open = job, False
            self.changed = True

    def note_completion(self, way: Way) -> None:
        """A job has completed: the app works there, and what failed before counts no more."""
        app, name, device = way
        self._completed.setdefault(app, set()).add((name, device))
        # While something is suspended an end decides more than this: `ended` looks at the others as well.
        if not self.active and self._suspects:
            self._suspects.pop(way, None)

    def lapse_suspensions(self, now: Seconds) -> None:
        """Suspensions whose end has come are open to a trial."""
        for suspect in self._suspects.values():
            # One trial at a time: until it has ended the way stays closed to all others.
            if suspect.until is not None and suspect.until <= now and not suspect.open and not suspect.trial:
                suspect.open = self.changed = True

    def ended(
        self,
        way: Way,
        job: JobId,
        state: State,
        ran: Seconds,
        now: Seconds,
        *,
        known: Callable[[], bool],
        elsewhere: Callable[[], bool],
    ) -> None:
        """A job has ended after ``ran`` seconds.

        ``known``: whether an earlier run of the app is known to have completed on another class,
        ``elsewhere`` whether there is another class here on which the job could have run.
        """
        if state is State.COMPLETED:
            self.note_completion(way)
        if self.active and state in (State.COMPLETED, State.FAILED):
            self._judge_suspects(way, completed=state is State.COMPLETED)
        # Only failures within seconds of the start: a broken driver fails at once, an app's own error later.
        if state is State.FAILED and ran <= AT_ONCE:
            self._note_failure(self._suspects.setdefault(way, _FailingWay()), way, job, now, known, elsewhere)
            return
        suspect = self._suspects.get(way)
        if suspect is None:
            return
        if state is State.COMPLETED or (suspect.trial == job and state in (State.FAILED, State.TIMEOUT)):
            del self._suspects[way]  # the device works, whatever ails the job
            if suspect.until is not None:
                _log.info("%s of %s is no longer suspended on %s", way[1], way[0], way[2])
                self.active -= 1
                self.changed = True
        elif suspect.trial == job:  # cancelled, or its node was lost: the next one is the trial
            suspect.trial, suspect.open, self.changed = None, True, True

    def _judge_suspects(self, way: Way, *, completed: bool) -> None:
        """What an end on one class means for the app's suspensions on others that are not proven."""
        app, _, device = way
        # A copy, since entries are removed on the way.
        for other, suspect in list(self._suspects.items()):
            if other[0] != app or other[2] == device or suspect.until is None or suspect.proven:
                continue
            if completed:
                suspect.proven = self.changed = True
            # The app fails elsewhere too, so it is the app and not the device: nothing is to be suspended for
            # it.
            else:
                del self._suspects[other]
                self.active -= 1
                self.changed = True

    def _note_failure(
        self,
        suspect: _FailingWay,
        way: Way,
        job: JobId,
        now: Seconds,
        known: Callable[[], bool],
        elsewhere: Callable[[], bool],
    ) -> None:
        suspect.failures += 1
        if suspect.until is None:
            if suspect.failures < IN_A_ROW:
                return
            app, _, device = way
            # It must have worked somewhere, or be able to run somewhere else: else waiting would help
            # nothing.
            suspect.proven = any(other != device for _, other in self._completed.get(app, ())) or known()
            if not (suspect.proven or elsewhere()):
                return
            self.active += 1
        elif suspect.trial == job:
            # Twice as long after each trial that fails, up to a limit: a repaired device is found within it.
            suspect.pause = min(LONGEST_PAUSE, 2 * suspect.pause)
        else:
            return  # it ran already when its class was suspended
        # From now, not from the failure's start: long queues of trials would else come due at once.
        suspect.until, suspect.open, suspect.trial = now + suspect.pause, False, None
        self.changed = True
        _log.info("%s", self.reason(way))

    def is_blocked(self, way: Way) -> bool:
        """Whether no job may start so now."""
        suspect = self._suspects.get(way)
        return suspect is not None and suspect.until is not None and not suspect.open

    def is_proven(self, way: Way) -> bool:
        """Whether the app has completed elsewhere: then also jobs wait that could run in no other way."""
        return self._suspects[way].proven

    def reason(self, way: Way) -> str:
        """Why a way is suspended, for people; empty where it is not."""
        app, name, device = way
        suspect = self._suspects.get(way)
        if suspect is None or suspect.until is None:
            return ""
        end = "it completes elsewhere" if suspect.proven else "it is tried elsewhere"
        return (
            f"{name} is suspended on {device} for {suspect.pause:g} s: {suspect.failures} runs of {app} "
            f"failed there within {AT_ONCE:g} s of their start, and {end}"
        )

    @property
    def next_end(self) -> Seconds | None:
        """When the next suspension ends."""
        ends = [s.until for s in self._suspects.values() if s.until is not None and not (s.open or s.trial)]
        return min(ends, default=None)

    def forget_counts(self) -> None:
        # A replay that begins here must count as we do, from nothing.
        """What was counted, where nothing is suspended: a journal that begins here has not seen it."""
        self._suspects.clear()
        self._completed.clear()
