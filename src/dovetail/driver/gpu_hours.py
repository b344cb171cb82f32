"""How many GPU hours each user's jobs may use within a window of time, and when hours come back.

A job that has been let through counts with what it may still use (its *claim*: devices times walltime, or the
upper bound of its prediction), and from its start on with what it has used. So a user whose jobs all keep to
their walltimes is never above the limit, in whatever window of that length. A job that outruns its claim goes
on; those of its user that were let through and have not started wait again for it.

What was used is kept in pieces of the window, each of which counts until all of it has left the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from math import floor, inf

from dovetail.model import Job, JobId, Placed, Seconds
from dovetail.records import dataclass

PIECES = 168
"""Of a window: of a week each is an hour."""
UNKNOWN: Seconds = 3600.0
"""The claim on a device of a job of which nothing is known."""
LEAST_WAIT: Seconds = 1.0
"""Between two looks at a user of whom nothing else has changed."""


@dataclass(frozen=True, slots=True)
class HourLimit:
    """At most so many seconds on devices for each user within ``window`` seconds."""

    most: Seconds
    window: Seconds


def devices_of_job(job: Job) -> float:
    """The most devices that any way of the job takes; 0 for a job without one."""
    return max((choice.request.gpus * choice.request.nodes for choice in job.choices), default=0.0)


def excess_of(job: Job, length: Seconds | None, limit: HourLimit) -> str:
    """Why a job that takes so long at most could never keep to the limit; empty where it can.

    Without a length nothing is known, and the job may come.
    """
    fewest = min((choice.request.gpus * choice.request.nodes for choice in job.choices), default=0.0)
    if length is None or fewest * length <= limit.most:
        return ""
    devices, most = f"{fewest:g} GPU{'' if fewest == 1 else 's'}", f"{limit.most / 3600:g}"
    hours = length / 3600
    return (
        f"found a job for {devices} and up to {hours:.4g} hours, that is {fewest * hours:.4g} GPU hours, and "
        f"one user may use at most {most} in {describe_window(limit.window)} here"
    )


def describe_window(window: Seconds) -> str:
    """A length of time in the largest unit of which it is a whole number.

    >>> describe_window(604800.0), describe_window(3600.0), describe_window(90.0)
    ('7 days', '1 hour', '90 s')
    """
    for unit, seconds in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if window % seconds == 0:
            count = int(window // seconds)
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{window:g} s"


@dataclass(slots=True)
class _Run:
    """A job that runs: on how many devices, since when, and up to when that has been charged."""

    devices: float
    since: Seconds
    charged: Seconds


@dataclass(slots=True)
class _Account:
    """A user: what was used, by piece; what jobs that are let through may use; who waits for hours."""

    pieces: dict[int, float] = field(default_factory=dict)
    claims: dict[JobId, float] = field(default_factory=dict)  # of all that are let through
    runs: dict[JobId, _Run] = field(default_factory=dict)
    unstarted: float = 0.0  # the sum of the claims of those that do not run
    waiting: dict[JobId, Job] = field(default_factory=dict)


class GpuHours:
    """The accounts of all users. Times are the driver's, whose time 0 is ``epoch`` seconds since the epoch.

    ``used`` is what was used before, by user and by moment since the epoch; ``charged`` the moment up to
    which that is so, also of jobs that run now. ``length_of`` is the time that a job takes at most, ``None``
    where nothing is known of it. Costs O(running jobs of the user) a call, and O(`PIECES`) a piece of time.
    """

    def __init__(
        self,
        limit: HourLimit,
        epoch: Seconds = 0.0,
        used: Mapping[str, Mapping[Seconds, Seconds]] | None = None,
        charged: Seconds = -inf,
    ) -> None:
        self.limit = limit
        self.length_of: Callable[[Job], Seconds | None] = lambda job: job.walltime
        self._epoch, self._width, self._charged = epoch, limit.window / PIECES, charged - epoch
        self._accounts: dict[str, _Account] = {}
        self._user_of: dict[JobId, str] = {}
        for user, moments in (used or {}).items():
            for moment, seconds in moments.items():
                self._add(self._account(user), moment - epoch, seconds)

    # ------------------------------------------------------------------ who may start

    def admits(self, job: Job, now: Seconds) -> bool:
        """Whether the job's claim has room beside what its user has used and claims already."""
        if job.foreign or not devices_of_job(job):
            return True
        account = self._account(job.user or "")
        return self._committed(account, now) + self._claim(job) <= self._most

    def admit(self, job: Job) -> None:
        """The job has been let through: it claims its time until `drop`."""
        if job.foreign or not devices_of_job(job):
            return
        user = job.user or ""
        account = self._account(user)
        self._user_of[job.id] = user
        account.waiting.pop(job.id, None)
        account.unstarted -= account.claims.get(job.id, 0.0)
        account.claims[job.id] = claim = self._claim(job)
        account.unstarted += claim

    def wait(self, job: Job) -> None:
        """The job waits for hours, behind those of its user that do."""
        self._user_of[job.id] = job.user or ""
        self._account(job.user or "").waiting[job.id] = job

    def drop(self, job: JobId) -> str | None:
        """The job claims nothing any more and waits for no hours; its user, where it did."""
        user = self._user_of.pop(job, None)
        if user is None:
            return None
        account = self._accounts[user]
        account.waiting.pop(job, None)
        claim = account.claims.pop(job, None)
        if claim is not None and job not in account.runs:
            account.unstarted = account.unstarted - claim if len(account.claims) > len(account.runs) else 0.0
        return user

    def next_waiting(self, user: str, now: Seconds) -> JobId | None:
        """The first job of the user that waits for hours, where there is room for it."""
        job = next(iter(self._account(user).waiting.values()), None)
        return job.id if job is not None and self.admits(job, now) else None

    def put_back(self, user: str, now: Seconds) -> Iterator[JobId]:
        """Jobs that were let through and have not started, the last ones first, until there is no excess."""
        account = self._account(user)
        if self._committed(account, now) <= self._most or not account.unstarted:
            return
        for job in reversed([job for job in account.claims if job not in account.runs]):
            account.unstarted -= account.claims.pop(job)
            yield job
            if self._committed(account, now) <= self._most:
                break

    def wait_first(self, job: Job) -> None:
        """The job waits for hours, before those of its user that do: it has been let through before."""
        account = self._account(job.user or "")
        self._user_of[job.id] = job.user or ""
        account.waiting = {job.id: job, **account.waiting}

    # ------------------------------------------------------------------ what runs

    def started(self, placed: Placed, now: Seconds, since: Seconds | None = None) -> str | None:
        """The job runs (one that is taken up: ``since`` a moment before), and its user is charged for it."""
        request = placed.allocation.request
        devices = request.gpus * request.nodes
        if placed.job.foreign:
            return None
        if not devices:
            return self.drop(placed.job.id)
        user = placed.job.user or ""
        account = self._account(user)
        if placed.job.id not in account.claims:
            self.admit(placed.job)
        if placed.job.id not in account.runs:
            account.unstarted -= account.claims[placed.job.id]
        begun = now if since is None else since
        account.runs[placed.job.id] = _Run(devices, begun, max(begun, self._charged))
        return user

    def change_claim(self, job: Job) -> None:
        """A job that runs may take longer, or less long, than before."""
        account = self._account(job.user or "")
        if job.id in account.runs:
            account.claims[job.id] = self._claim(job)

    def stopped(self, job: JobId, at: Seconds) -> str | None:
        """The job does not run any more since ``at``; its user, where that has been charged."""
        user = self._user_of.get(job)
        run = None if user is None else self._accounts[user].runs.pop(job, None)
        if user is None or run is None:
            return None
        account = self._accounts[user]
        self._charge(account, run, at)
        account.unstarted += account.claims.get(job, 0.0)
        return user

    # ------------------------------------------------------------------ what is shown and kept

    @property
    def users(self) -> list[str]:
        """All users of whom anything is known."""
        return list(self._accounts)

    def used(self, user: str, now: Seconds) -> Seconds:
        """Seconds on devices within the window."""
        account = self._account(user)
        self._bring(account, now)
        return sum(account.pieces.values())

    def claimed(self, user: str, now: Seconds) -> Seconds:
        """Seconds on devices that the user's jobs may still use which run or have been let through."""
        account = self._account(user)
        return self._committed(account, now) - sum(account.pieces.values())

    def pieces(self, user: str, now: Seconds) -> dict[Seconds, Seconds]:
        """What was used, by the middle of each piece of time, in seconds since the epoch."""
        account = self._account(user)
        self._bring(account, now)
        # The middle: the begin of a piece may be rounded into the one before.
        return {(piece + 0.5) * self._width: used for piece, used in sorted(account.pieces.items())}

    def next_room(self, user: str, now: Seconds) -> Seconds | None:
        """When so much has left the window that the next waiting job has room; ``None``: ends decide that.

        Without a waiting job: when the first hours come back.
        """
        account = self._account(user)
        committed = self._committed(account, now)
        job = next(iter(account.waiting.values()), None)
        lacking = 0.0 if job is None else committed + self._claim(job) - self._most
        for piece in sorted(account.pieces):
            lacking -= account.pieces[piece]
            if lacking <= 0:
                # A moment later, so that rounding does not leave the piece in the window.
                return max(now, (piece + 1) * self._width + self.limit.window - self._epoch + 1e-3)
        return None

    def next_look(self, user: str, now: Seconds) -> Seconds:
        """When the user's jobs are to be looked at again if nothing else happens; infinite: never."""
        account = self._account(user)
        found = inf
        if account.waiting:
            room = self.next_room(user, now)
            found = inf if room is None else room
        if account.unstarted > 0 and account.runs:
            rate = 0.0
            for job, run in account.runs.items():
                outruns = run.since + account.claims.get(job, 0.0) / run.devices
                rate += run.devices if outruns <= now else 0.0
                found = min(found, outruns) if outruns > now else found
            if rate:
                slack = max(0.0, self._most - self._committed(account, now))
                found = min(found, now + slack / rate)
        return max(found, now + LEAST_WAIT)

    # ------------------------------------------------------------------ arithmetic

    @property
    def _most(self) -> Seconds:
        # A little more than the limit, for sums of fractions.
        return self.limit.most * (1 + 1e-9)

    def _account(self, user: str) -> _Account:
        return self._accounts.setdefault(user, _Account())

    def _claim(self, job: Job) -> Seconds:
        """What the job may use; never more than the limit, so that it can start at all."""
        length = self.length_of(job)
        return min(devices_of_job(job) * (UNKNOWN if length is None else length), self.limit.most)

    def _committed(self, account: _Account, now: Seconds) -> Seconds:
        self._bring(account, now)
        running = sum(
            max(0.0, account.claims.get(job, 0.0) - (now - run.since) * run.devices)
            for job, run in account.runs.items()
        )
        return sum(account.pieces.values()) + running + max(0.0, account.unstarted)

    def _bring(self, account: _Account, now: Seconds) -> None:
        """Charge what runs up to now, and let go what has left the window."""
        for run in account.runs.values():
            self._charge(account, run, now)
        oldest = floor((self._epoch + now - self.limit.window) / self._width)
        for piece in [piece for piece in account.pieces if piece < oldest]:
            del account.pieces[piece]

    def _charge(self, account: _Account, run: _Run, upto: Seconds) -> None:
        # Nothing before the window is of use: a job that has run for months costs as many pieces as one.
        at = max(run.charged, upto - self.limit.window)
        while at < upto:
            following = (self._piece(at) + 1) * self._width - self._epoch
            # Rounding may give a moment that is not later: time must go on.
            end = min(upto, following if following > at else at + self._width)
            self._add(account, at, (end - at) * run.devices)
            at = end
        run.charged = max(run.charged, upto)

    def _add(self, account: _Account, at: Seconds, seconds: float) -> None:
        piece = self._piece(at)
        account.pieces[piece] = account.pieces.get(piece, 0.0) + seconds

    def _piece(self, at: Seconds) -> int:
        return floor((self._epoch + at) / self._width)
