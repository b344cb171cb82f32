"""A small simulator of one-node jobs with classes that preempt, under fcfs: to compare with.

Nothing of the engine is in it. Nodes have one CPU; a preempted job begins anew (requeue), or stands still
until its own node is free and no job waits that might preempt it (suspend).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class PlainJob:
    """A job; ``stints`` are (start, end, node)."""

    name: int
    submit: float
    work: float
    priority: int
    preempts: bool
    preemptable: bool
    stints: list[tuple[float, float, int]] = field(default_factory=list)
    done: float = 0.0


def run_plain(jobs: list[PlainJob], nodes: int, *, suspends: bool) -> None:
    """Go from event to event until all have ended."""
    todo = sorted(jobs, key=lambda job: (job.submit, job.name))
    waiting: list[PlainJob] = []
    still: dict[int, tuple[PlainJob, int, float]] = {}
    running: dict[int, tuple[PlainJob, float]] = {}  # by node: who, since when
    rank = lambda job: (-job.priority, job.submit, job.name)  # noqa: E731
    while todo or running:
        now = min(
            [since + job.work - job.done for job, since in running.values()]
            + [job.submit for job in todo[:1]]
        )
        for node, (job, since) in list(running.items()):
            if since + job.work - job.done <= now:
                job.stints.append((since, now, node))
                del running[node]
        while todo and todo[0].submit <= now:
            waiting.append(todo.pop(0))
        looked: set[int] = set()
        while True:
            for name, (job, node, _) in sorted(
                still.items(), key=lambda entry: (-entry[1][0].priority, entry[1][2])
            ):
                threats = [one for one in waiting if one.preempts and one.priority > job.priority]
                if node not in running and not threats:
                    running[node] = (job, now)
                    del still[name]
            for job in sorted(waiting, key=rank):
                idle = [node for node in range(nodes) if node not in running]
                if idle:
                    running[idle[0]] = (job, now)
                    waiting.remove(job)
            stopped: list[int] = []
            for job in sorted(waiting, key=rank):
                if not job.preempts or job.name in looked:
                    continue
                looked.add(job.name)
                victims = [
                    (other.priority, -since, -other.name, node)
                    for node, (other, since) in running.items()
                    if other.preemptable and other.priority < job.priority and node not in stopped
                ]
                if victims:
                    stopped.append(min(victims)[3])
            if not stopped:
                break
            for node in stopped:
                job, since = running.pop(node)
                job.stints.append((since, now, node))
                if suspends:
                    job.done += now - since
                    still[job.name] = (job, node, since)
                else:
                    waiting.append(job)
