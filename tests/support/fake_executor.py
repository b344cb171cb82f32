"""An executor that runs nothing: jobs take their true time on the loop's clock.

Under a virtual-time loop it shows that a live run and a simulation decide identically.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from operator import itemgetter

from dovetail.model import Allocation, Ended, Event, JobId, Migrated, Placed, Seconds, Started, State, Truth

__all__ = ["FakeExecutor"]


class FakeExecutor:
    """Implements `Executor` and `MigratesJobs` over a table of true times.

    ``incidents`` are what happens beside the jobs (nodes that leave, drain, return, are new; what people
    say), by time; a migration takes ``stall`` seconds, in which the job does not go on.
    """

    def __init__(
        self, truth: Truth, incidents: Sequence[tuple[Seconds, Event]] = (), stall: Seconds = 0.0
    ) -> None:
        self._truth = truth
        self._stall = stall
        self._incidents = incidents
        self._happened: asyncio.Queue[Event] = asyncio.Queue()
        self._started = 0
        self._jobs: dict[JobId, tuple[int, int, Seconds]] = {}  # number of its start, attempt, end
        self._moments: dict[Seconds, list[tuple[int, Event]]] = {}  # what is due, by number of the start
        self._timers: list[asyncio.TimerHandle] = []

    async def launch(self, placed: Placed) -> None:
        """Report the start now and the end after the true time."""
        job = placed.job
        seconds = self._truth.seconds(job, placed.implementation, placed.allocation.request)
        self._happened.put_nowait(Started(job.id))
        if seconds is None:
            self._happened.put_nowait(Ended(job.id, State.FAILED, None, "its run time is unknown"))
            return
        self._started += 1
        # From the start as the engine has it, so that the sum is the very float of a simulation.
        self._end_at(job.id, self._started, placed.attempt, placed.start_time + seconds)

    def _end_at(self, job: JobId, number: int, attempt: int, when: Seconds) -> None:
        self._jobs[job] = number, attempt, when
        self._at(when, number, Ended(job, attempt=attempt))

    def _at(self, when: Seconds, number: int, event: Event) -> None:
        """Tell of it then; what is due at one moment is told in order of starts (timers have none)."""
        due = self._moments.get(when)
        if due is None:
            due = self._moments[when] = []
            self._timers.append(asyncio.get_running_loop().call_at(when, self._tell, when))
        due.append((number, event))

    def _tell(self, when: Seconds) -> None:
        for number, event in sorted(self._moments.pop(when), key=itemgetter(0)):
            if isinstance(event, Ended):
                if self._jobs.get(event.job) != (number, event.attempt, when):
                    continue  # stopped, or moved meanwhile
                del self._jobs[event.job]
            self._happened.put_nowait(event)

    async def stop(self, job: JobId, reason: str) -> None:
        """End the job at once with the state ``reason``."""
        if job in self._jobs:
            _, attempt, _ = self._jobs.pop(job)
            self._happened.put_nowait(Ended(job, State(reason), None, "stopped", attempt=attempt))

    async def migrate(self, placed: Placed, target: Allocation) -> None:
        """The job stands still for the stall, then it has moved."""
        job = placed.job.id
        number, attempt, when = self._jobs[job]
        self._end_at(job, number, attempt, when + self._stall)
        self._at(asyncio.get_running_loop().time() + self._stall, number, Migrated(job))

    async def events(self) -> AsyncIterator[Event]:
        """What happens, in order."""
        for when, event in self._incidents:
            self._at(when, 0, event)
        self._incidents = ()
        while True:
            yield await self._happened.get()

    async def close(self) -> None:
        """Forget all timers."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
