"""Throttles with weights: GPUs of one user, not jobs."""

from __future__ import annotations

from dovetail.driver.admission import Admission
from dovetail.engine.journal.codec import decode_fields, encode_value
from dovetail.model import App, Choice, Event, Implementation, Job, Request, State, Submitted, Throttle


def job(name: str, gpus: float, most: int = 4, user: str = "ana") -> Job:
    way = Implementation("gpu", "gpu", Request(1, 0, (("gpu", gpus),)))
    throttles = (Throttle(f"gpus:{user}", most, gpus),)
    return Job(name, App("a", (way,)), (Choice(way, way.request),), throttles=throttles)


def held(events: list[Event]) -> list[str]:
    return [event.job.id for event in events if isinstance(event, Submitted) and event.held]


def test_a_users_jobs_have_so_many_gpus_and_no_more() -> None:
    admission = Admission(lambda name: None)
    jobs = {
        one.id: one
        for one in (job("a", 2), job("b", 1.5), job("c", 1), job("d", 0.5), job("e", 4, user="bob"))
    }
    admission.begin_instant()
    waits = {name: held(list(admission.submitted(Submitted(one), 0.0, 0.0))) for name, one in jobs.items()}
    assert [name for name, found in waits.items() if found] == ["c"], "0.5 are left, and d has room"
    freed = list(admission.ended(jobs["b"], State.COMPLETED, 1.0))
    assert [getattr(event, "job", None) for event in freed] == ["c"]


def test_a_small_job_does_not_overtake_a_large_one_of_the_same_user_for_ever() -> None:
    admission = Admission(lambda name: None)
    first, large, small = job("first", 3), job("large", 4), job("small", 2)
    admission.begin_instant()
    for one in (first, large, small):
        list(admission.submitted(Submitted(one), 0.0, 0.0))
    freed = list(admission.ended(first, State.COMPLETED, 1.0))
    assert [getattr(event, "job", None) for event in freed] == ["large"]


def test_journals_have_throttles_of_weight_one_as_before() -> None:
    assert encode_value(Throttle("user:ana", 2)) == ["user:ana", 2]
    assert encode_value(Throttle("gpus:ana", 2, 0.5)) == ["gpus:ana", 2, 0.5]
    for one in (Throttle("user:ana", 2), Throttle("gpus:ana", 2, 0.5)):
        assert decode_fields(Throttle, encode_value(one)) == one
