"""Pages of what has not ended are those of the whole list, and do not look at all of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.engine.state.core import Engine
from dovetail.model import Cancelled, Cluster, Event, Held, Job, Released, Submitted, TableTruth
from dovetail.policies.fcfs import Fcfs
from dovetail.service.open_jobs import OpenJobs
from dovetail.testing.builders import TrueTimesModel, full, rigid

USERS, NAMES = ("ann", "bob", None), ("fit", "plot")
step = st.tuples(st.sampled_from(("submit", "hold", "release", "cancel")), st.integers(0, 1000))


def job_of(n: int, pick: int) -> Job:
    (job,) = rigid([(0.0, 1, 10.0, 10.0)]).jobs
    return replace(job, id=str(n), index=n, user=USERS[pick % 3], name=NAMES[pick % 2])


def engine_of() -> Engine:
    """One core, on which the first job runs for ever."""
    engine = Engine(Cluster.parse("1x1cpu"), Fcfs(), TrueTimesModel(TableTruth({})))
    engine.handle_events(0.0, [Submitted(job_of(0, 0))])
    return engine


@settings(deadline=None, max_examples=full(300, 60))
@given(st.lists(step, max_size=60), st.booleans(), st.integers(0, 12), st.integers(0, 60))
def test_pages_are_parts_of_the_list(
    steps: list[tuple[str, int]], early: bool, limit: int, offset: int
) -> None:
    """Also where holds, releases and cancellations came before anybody asked."""
    engine, count = engine_of(), 1
    early_pages = OpenJobs(engine) if early else None
    for now, (what, pick) in enumerate(steps, 1):
        some = str(pick % count)
        events: dict[str, Event] = {
            "hold": Held(some, "held"),
            "release": Released(some),
            "cancel": Cancelled(some, ""),
        }
        event = events.get(what)
        if event is None:
            event, count = Submitted(job_of(count, pick), "held" if pick % 4 == 0 else ""), count + 1
        engine.handle_events(float(now), [event])
        engine.validate_books()
    pages = early_pages or OpenJobs(engine)
    runs = [placed.job for placed in engine.at_work]
    waits = [*engine.queue, *(engine.records[job].job for job in engine.held)]
    assert len(pages) == len(runs) + len(waits)
    for user in (*USERS, "nobody"):
        for name in (*NAMES, None):
            for running, waiting in ((True, True), (False, True), (True, False)):
                jobs = runs * running + waits * waiting
                jobs = [job for job in jobs if user in (None, job.user) and name in (None, job.name)]
                found, total = pages.page(user, name, limit, offset, running=running, waiting=waiting)
                assert [record.job for record in found] == jobs[offset : offset + limit]
                assert total == len(jobs)


class Counted(dict[str, Any]):
    """Counts who is looked at."""

    looked = 0

    def __getitem__(self, key: str) -> Any:
        self.looked += 1
        return super().__getitem__(key)


def test_a_page_looks_at_no_other_jobs() -> None:
    """However many wait or are held back, and whoever's are asked for."""
    engine = engine_of()
    engine.handle_events(1.0, [Submitted(job_of(n, n), "held" if n % 2 else "") for n in range(1, 3000)])
    pages = OpenJobs(engine)
    records = engine.records = Counted(engine.records)
    for user in (*USERS, "nobody"):
        for name in (*NAMES, None):
            for offset in (0, 700, 2000, 2900):
                records.looked = 0
                pages.page(user, name, 10, offset, running=True, waiting=True)
                assert records.looked <= 10
