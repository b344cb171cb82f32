"""A small simulator of rigid jobs on single-CPU nodes that fail and are reserved, to compare with.

Nothing of the engine is in it: time goes from event to event, each node is a row of what holds it when. Times
are whole numbers, so that the two can be compared exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf


@dataclass
class PlainJob:
    """A job, and what became of it: ``stints`` are (start, end, nodes)."""

    name: int
    submit: float
    nodes: int
    work: float
    walltime: float
    stints: list[tuple[float, float, tuple[int, ...]]] = field(default_factory=list)
    done: float = 0.0
    resumes: bool = False


@dataclass
class PlainWorld:
    """What nodes go through: (node, from, to) of failures, (nodes, from, to) of maintenance; checkpoints.

    ``every``, ``cost`` and ``restart`` are those of checkpoints.
    """

    count: int
    failures: list[tuple[int, float, float]] = field(default_factory=list)
    windows: list[tuple[tuple[int, ...], float, float]] = field(default_factory=list)
    every: float = inf
    cost: float = 0.0
    restart: float = 0.0

    def stretched(self, work: float) -> float:
        """A run of so much work, written out: work and checkpoints in turn."""
        total, left = 0.0, work
        while left > self.every:
            total, left = total + self.every + self.cost, left - self.every
        return total + left

    def length(self, job: PlainJob, work: float) -> float:
        """How long the next run of a job is that does so much work."""
        return self.stretched(work) + (self.restart if job.resumes else 0.0)

    def kept(self, job: PlainJob, ran: float) -> float:
        """The work that a run has safe which was cut after so long."""
        ran -= self.restart if job.resumes else 0.0
        safe = 0.0
        while ran >= self.every + self.cost:
            ran, safe = ran - self.every - self.cost, safe + self.every
        return safe

    def down(self, node: int, now: float) -> bool:
        """Whether the node has a failure."""
        return any(n == node and start <= now < end for n, start, end in self.failures)

    def closed(self, node: int, start: float, end: float) -> bool:
        """Whether some maintenance of the node lies in a span."""
        return any(node in nodes and start < to and begin < end for nodes, begin, to in self.windows)


class PlainSimulator:
    """``policy`` is fcfs or easy."""

    def __init__(self, world: PlainWorld, jobs: list[PlainJob], policy: str) -> None:
        self.world, self.jobs, self.policy = world, jobs, policy
        self.running: dict[int, tuple[PlainJob, float, float, float, tuple[int, ...]]] = {}
        self.waiting: list[PlainJob] = []

    def run(self) -> None:
        """Until every job has ended."""
        world = self.world
        times = {job.submit for job in self.jobs}
        times |= {t for _, start, end in world.failures for t in (start, end)}
        times |= {t for _, start, end in world.windows for t in (start, end)}
        todo = sorted(self.jobs, key=lambda job: (job.submit, job.name))
        while times:
            now = min(times)
            times.discard(now)
            for name, (job, start, end, _, nodes) in list(self.running.items()):
                if end <= now:
                    self._stop(name, start, now, nodes)
                elif any(world.down(n, now) for n in nodes):
                    safe = world.kept(job, now - start)
                    self._stop(name, start, now, nodes)
                    job.done, job.resumes = job.done + safe, job.done + safe > 0
                    self.waiting.append(job)
            while todo and todo[0].submit <= now:
                self.waiting.append(todo.pop(0))
            self.waiting.sort(key=lambda job: (job.submit, job.name))
            for end in self._start_jobs(now):
                times.add(end)

    def _stop(self, name: int, start: float, now: float, nodes: tuple[int, ...]) -> None:
        job = self.running.pop(name)[0]
        job.stints.append((start, now, nodes))

    def _able(
        self, now: float, start: float, end: float, slots: list[tuple[float, float, tuple[int, ...]]]
    ) -> list[int]:
        """Nodes that are free from ``start`` to ``end``, as all run to their limits."""
        found = []
        for node in range(self.world.count):
            if self.world.down(node, now) or self.world.closed(node, start, end):
                continue
            if any(node in nodes and begin < end and start < to for begin, to, nodes in slots):
                continue
            found.append(node)
        return found

    def _start_jobs(self, now: float) -> list[float]:
        ends: list[float] = []
        slots = [(now, max(limit, now + 0.5), nodes) for _, _, _, limit, nodes in self.running.values()]

        def begin(job: PlainJob, nodes: tuple[int, ...]) -> None:
            limit = now + self.world.length(job, job.walltime)
            end = now + self.world.length(job, job.work - job.done)
            self.running[job.name] = (job, now, end, limit, nodes)
            self.waiting.remove(job)
            slots.append((now, limit, nodes))
            ends.append(end)

        while self.waiting:
            head = self.waiting[0]
            bound = self.world.length(head, head.walltime)
            able = self._able(now, now, now + bound, slots)
            if len(able) < head.nodes:
                break
            begin(head, tuple(able[: head.nodes]))
        if not self.waiting or self.policy == "fcfs":
            return ends
        head = self.waiting[0]
        bound = self.world.length(head, head.walltime)
        times = sorted({now, *(to for _, to, _ in slots), *(to for _, _, to in self.world.windows)})
        first = next(
            (t for t in times if t >= now and len(self._able(now, t, t + bound, slots)) >= head.nodes), None
        )
        if first is None:
            return ends
        held = tuple(self._able(now, first, first + bound, slots)[: head.nodes])
        for job in list(self.waiting[1:]):
            length = self.world.length(job, job.walltime)
            # On the nodes that it would get without the head, else on others than the head's.
            for also in ([], [(first, first + bound, held)]):
                able = tuple(self._able(now, now, now + length, [*slots, *also])[: job.nodes])
                rest = self._able(now, first, first + bound, [*slots, (now, now + length, able)])
                if len(able) == job.nodes and len(rest) >= head.nodes:
                    begin(job, able)
                    held = tuple(rest[: head.nodes])
                    break
        return ends
