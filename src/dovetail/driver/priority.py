"""Whose turn it is: priorities and fair shares, before any policy sees the queue.

What admission has let through is let into the engine's queue by rank: a job is held back while one of higher
rank waits that could run on the same kind of device, or one of its user's that is less nice. So every policy,
whatever it looks at, starts the higher one first. Each move is an event of the engine and stands in the
journal. A replay needs no ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby, islice

from dovetail.driver.fair_shares import FairShares
from dovetail.model import (
    Adopted,
    Cancelled,
    Cluster,
    Event,
    Held,
    Job,
    JobId,
    Moved,
    Placed,
    Record,
    Released,
    Requeued,
    Seconds,
    Submitted,
    Updated,
)
from dovetail.records import dataclass

BEHIND = "others go first"
"""Why a job waits that is behind others in priority or by its user's share."""
WINDOW = 256
"""Of those that were held back so many of a kind are let in ahead: moving them costs events."""
LOOK: Seconds = 1.0
"""Between two looks at what users have used."""
NICE = "nice"
"""The option that puts a job behind those of its user that have a lower one."""
RANKING = (NICE,)
"""Options of jobs that decide here who goes first."""
_PASSES: tuple[tuple[type, ...], ...] = (
    (Submitted, Requeued),
    (Updated,),
    (Held,),
    (Released,),
    (Cancelled,),
)
"""The order in which the engine takes such events in."""


def is_ranked(job: Job) -> bool:
    """Whether a job has an option that decides here who goes first, whatever the policy."""
    return any(name in job.options for name in RANKING)


Ways = frozenset[tuple[str, str]]
"""Kinds of devices that a job could run on, each with its partition."""


@dataclass(slots=True)
class _Group:
    """Jobs of one rank that could run in the same places, in order of arrival: let through, and behind."""

    priority: float
    user: str
    nice: int
    ways: Ways
    through: dict[JobId, None] = field(default_factory=dict)
    behind: dict[JobId, None] = field(default_factory=dict)
    queued: bool = False  # some have been held back, and who comes goes behind them

    def let_through(self) -> Iterator[JobId]:
        """Of those behind, as many as there is room for ahead; not one by one."""
        # Half a window of slack: one job at a time would mean an event for every start.
        if self.queued and len(self.through) >= WINDOW // 2:
            return
        room = WINDOW - len(self.through) if self.queued else len(self.behind)
        for job in list(islice(self.behind, room)):
            del self.behind[job]
            self.through[job] = None
            yield job
        self.queued = bool(self.behind)

    def held_back(self) -> Iterator[JobId]:
        """All of those ahead, to where they were."""
        self.queued = True
        if self.through:
            yield from self.through
            # Those ahead go first again when they come back: their turn had come before.
            self.behind = {**self.through, **self.behind}
            self.through = {}


class Priorities:
    """Ranks what waits. The highest rank is the highest priority, then the user who used least for his share.

    ``priorities``: jobs of higher priority go first; without, the policy sees to that itself, and only
    jobs of the same priority are ranked. Without ``shares`` all users are alike.
    """

    def __init__(self, *, priorities: bool, shares: FairShares | None = None) -> None:
        self._priorities = priorities
        self.shares = shares
        self._groups: dict[tuple[float, str, int, Ways], _Group] = {}
        self._group_of: dict[JobId, _Group] = {}
        self._user_of: dict[JobId, str] = {}
        self._waiting: dict[
            str, Counter[tuple[float, int, Ways]]
        ] = {}  # by user: jobs of a priority and nice
        self._ways: dict[tuple[object, ...], Ways] = {}
        self._standing: dict[str, float] = {}
        self._next_look: Seconds = 0.0
        self.due = False
        """Whether jobs that wait could be let through since the last look."""

    # ------------------------------------------------------------------ what happens

    def started(self, placed: Placed, cluster: Cluster, now: Seconds) -> None:
        """A job waits no more, and its user is charged for it."""
        self.left(placed.job.id)
        if self.shares is not None:
            self.shares.started(placed, cluster, now)

    def ended(self, job: JobId, now: Seconds) -> None:
        """A job has ended."""
        if self.shares is not None:
            self.shares.ended(job, now)

    def left(self, job: JobId) -> None:
        """A job waits no more."""
        group = self._group_of.pop(job, None)
        if group is None:
            return
        group.through.pop(job, None)
        group.behind.pop(job, None)
        empty = not (group.through or group.behind)
        if empty:
            del self._groups[group.priority, group.user, group.nice, group.ways]
        last_of_user = self._waits_no_more(job, group)
        # Looked at later, in one go: a batch of ends would otherwise rank all groups for each.
        if empty or last_of_user or len(group.through) < WINDOW // 2:
            self.due = self.due or any(other.behind for other in self._groups.values())

    def _enter_job(self, job: Job) -> None:
        owner, nice, ways = job.user or "", job.options.get(NICE, 0), self._ways_of(job)
        # One group for all users where neither shares nor nice values distinguish them: fewer to rank.
        key = job.priority, owner if nice or self.shares is not None else "", nice, ways
        if job.id not in self._user_of:
            self._user_of[job.id] = owner
            self._waiting.setdefault(owner, Counter())[job.priority, nice, ways] += 1
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(*key)
        group.behind[job.id] = None
        self._group_of[job.id] = group

    def _waits_no_more(self, job: JobId, group: _Group) -> bool:
        """Whether it was the last of its kind that could hold back others of its user."""
        owner = self._user_of.pop(job)
        own, kind = self._waiting[owner], (group.priority, group.nice, group.ways)
        own[kind] -= 1
        if not own[kind]:
            del own[kind]
        held = any(nice > group.nice for _, nice, _ in own)
        if not own:
            del self._waiting[owner]
        return held and kind not in own

    def _is_nice(self, group: _Group) -> bool:
        """Whether it waits for jobs of its user that have a lower nice value, and run in the same places."""
        return group.nice > 0 and any(
            priority == group.priority and nice < group.nice and not _are_disjoint(group.ways, ways)
            for priority, nice, ways in self._waiting[group.user]
        )

    def _ways_of(self, job: Job) -> Ways:
        key = tuple((choice.implementation.kind, choice.request.partition) for choice in job.choices)
        found = self._ways.get(key)
        if found is None:
            pairs = ((part, partition) for kind, partition in key for part in kind.split("+"))
            found = self._ways[key] = frozenset((part, partition or "") for part, partition in pairs)
        return found

    # ------------------------------------------------------------------ whose turn it is

    def in_turn(self, batch: Sequence[Event], now: Seconds, records: Mapping[JobId, Record]) -> list[Event]:
        """The events as the engine is to see them: who has to wait stays out, whose turn it is comes in."""
        arrived = self._taken_in(batch, records)
        has_moved = any(isinstance(event, Moved) for event in batch)
        # Ranking costs a pass over all groups: only where something came, moved, ended or shares have
        # decayed.
        if not (arrived or has_moved or self.due) and (self.shares is None or now < self._next_look):
            return list(batch)
        self.due = False
        moved = dict(self._move_jobs(now))
        released = {event.job for event in batch if isinstance(event, Released)}
        for event in batch:
            if isinstance(event, Moved) and self._is_moved(event):
                moved[event.job] = True
        events: list[Event] = []
        for event in batch:
            if isinstance(event, Submitted) and event.job.id in arrived:
                # Events keep their order, and what each job becomes goes beside its own: the engine sees a
                # job first.
                let_in = moved.pop(event.job.id, False)
                events.append(event if let_in or event.held else replace(event, held=BEHIND))
                if let_in and event.held:  # released at the instant at which it came
                    moved[event.job.id] = True
            elif isinstance(event, Released) and event.job in arrived:
                events.append(event if moved.pop(event.job, False) else Held(event.job, BEHIND))
            elif isinstance(event, Updated) and event.job in arrived and event.job not in released:
                events.append(event)
                events.append(Released(event.job) if moved.pop(event.job, False) else Held(event.job, BEHIND))
            elif isinstance(event, Requeued) and event.job in arrived:
                events.append(event)
                if event.job not in released and not moved.pop(event.job, False):
                    events.append(Held(event.job, BEHIND))
            else:
                events.append(event)
        # Jobs that were not in the batch: let in, or put back, by those that were.
        events += (Released(job) if let_in else Held(job, BEHIND) for job, let_in in moved.items())
        return events

    def _is_moved(self, event: Moved) -> bool:
        """Put a job that is held back at its new place in its group; whether it is let in by that."""
        group = self._group_of.get(event.job)
        if group is None or event.job not in group.behind:
            return False
        del group.behind[event.job]
        if event.after is not None and event.after in group.behind:
            order = list(group.behind)
            order.insert(order.index(event.after) + 1, event.job)
            group.behind = dict.fromkeys(order)
        elif group.through:
            group.through[event.job] = None
            return True
        else:
            group.behind = {event.job: None, **group.behind}
        return False

    def _taken_in(self, batch: Sequence[Event], records: Mapping[JobId, Record]) -> set[JobId]:
        """Note who waits and who does not any more; returns who has come."""
        adopted = {event.job for event in batch if isinstance(event, Adopted)}
        new = {event.job.id: event.job for event in batch if isinstance(event, Submitted)}
        new |= {event.job: event.into for event in batch if isinstance(event, Updated)}
        arrived: set[JobId] = set()
        for kinds in _PASSES:
            for event in batch:
                if not isinstance(event, kinds):
                    continue
                if isinstance(event, Submitted):
                    job = event.job
                    if not (event.held or job.foreign or job.id in adopted):
                        self._enter_job(job)
                        arrived.add(job.id)
                elif isinstance(event, Updated):
                    if event.job in self._group_of:  # one that is held back comes when it is released
                        self.left(event.job)
                        self._enter_job(event.into)
                        arrived.add(event.job)
                elif isinstance(event, Released | Requeued):
                    self._enter_job(new[event.job] if event.job in new else records[event.job].job)
                    arrived.add(event.job)
                elif isinstance(event, Held | Cancelled):
                    self.left(event.job)
                    arrived.discard(event.job)
        return arrived

    def _move_jobs(self, now: Seconds) -> Iterator[tuple[JobId, bool]]:
        """Jobs that are let in, or held back, from now on. O(groups log groups) and O(1) a move."""
        if self.shares is not None and now >= self._next_look:
            self._standing.clear()
            self._next_look = now + LOOK
        ranked = sorted(
            ((self._group_rank(group, now), group) for group in self._groups.values()), key=_rank_of
        )
        for _, apart in groupby(ranked, lambda entry: entry[0][0]):
            higher: set[tuple[str, str]] = set()
            for _, level in groupby(apart, _rank_of):
                groups = [group for _, group in level]
                for group in groups:
                    let_in = _are_disjoint(group.ways, higher) and not self._is_nice(group)
                    for job in group.let_through() if let_in else group.held_back():
                        yield job, let_in
                for group in groups:
                    higher |= group.ways

    def _group_rank(self, group: _Group, now: Seconds) -> tuple[float, float, float]:
        """Ascending; only those whose first numbers are the same wait for each other."""
        standing = 0.0
        if self.shares is not None:
            if group.user not in self._standing:
                self._standing[group.user] = self.shares.standing(group.user, now)
            standing = self._standing[group.user]
        return (0.0, -group.priority, standing) if self._priorities else (-group.priority, 0.0, standing)


def _rank_of(entry: tuple[tuple[float, float, float], _Group]) -> tuple[float, float, float]:
    return entry[0]


def _are_disjoint(ways: Ways, others: Iterable[tuple[str, str]]) -> bool:
    """Whether no job could run where another one could."""
    return not any(
        kind == other and (not where or not there or where == there)
        for other, there in others
        for kind, where in ways
    )
