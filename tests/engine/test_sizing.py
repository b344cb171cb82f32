"""How much memory jobs ask for: learned before a try, more after a kill, the same after a replay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.engine.capacity.sizing import MOST_KILLS
from dovetail.engine.journal.codec import Codec, decode_job, encode_job
from dovetail.engine.state.core import no_bound
from dovetail.history.memory import MemoryHistory
from dovetail.model import (
    App,
    Choice,
    Cluster,
    DeviceClass,
    Ended,
    Implementation,
    Job,
    Node,
    Request,
    Run,
    Sized,
    Sizing,
    State,
    Usage,
)
from dovetail.policies.fcfs import Fcfs
from dovetail.runtimes.mean import MeanModel

GB = 1_000_000_000
AUTO = Sizing(auto=("cpu",))
CPU = DeviceClass("cpu")
IMPLEMENTATION = Implementation("cpu", "cpu", Request(cpus=1))
APP = App("sort", (IMPLEMENTATION,))


def a_job(id: str, *, memory: int = 0, sizing: Sizing = AUTO, n: float = 1.0) -> Job:
    choices = (Choice(IMPLEMENTATION, Request(cpus=1, memory=memory)),)
    return Job(id, APP, choices, inputs={"n": n}, sizing=sizing)


def a_driver(*runs: Run, memory: int | None = 8 * GB, cpus: int = 4) -> Driver:
    history = MemoryHistory(runs)
    return Driver(
        Cluster((Node("n0", tuple(range(cpus)), (), memory),)),
        Fcfs(),
        MeanModel(history),
        options=DriverOptions(run_uid="u"),
        bound=no_bound,
        history=history,
    )


def a_run(peak: float, n: float = 1.0) -> Run:
    return Run("sort", "cpu", CPU, 1, 1, 0.0, {"n": n}, 5.0, usage=Usage(peak_memory=int(peak)))


def asked(driver: Driver, job: str) -> int:
    return driver.engine.records[job].job.choices[0].request.memory


def ends(driver: Driver, now: float, job: str, state: State, peak: float = 0.0) -> None:
    driver.queue_events(Ended(job, state, 0, "", Usage(peak_memory=int(peak))))
    driver.process_instant(now)


def begins(driver: Driver, *jobs: Job) -> None:
    for job in jobs:
        driver.submit(job)
    driver.process_instant(0.0)


def test_a_job_of_which_nothing_is_known_gets_its_share_of_a_node() -> None:
    driver = a_driver()
    begins(driver, *(a_job(f"{i}") for i in range(4)))
    assert len(driver.engine.running) == 4
    assert asked(driver, "0") == pytest.approx(2 * GB, rel=1e-3)


def test_waiting_jobs_are_sized_anew_when_runs_of_their_app_have_ended() -> None:
    driver = a_driver(cpus=1)
    begins(driver, a_job("a"), a_job("b"))
    assert asked(driver, "b") == pytest.approx(8 * GB, rel=1e-3)
    ends(driver, 5.0, "a", State.COMPLETED, peak=1 * GB)
    assert GB < asked(driver, "b") < 1.5 * GB
    assert driver.engine.running["b"].allocation.request.memory == asked(driver, "b")


def test_more_run_together_once_their_peak_is_known() -> None:
    driver = a_driver(*(a_run(GB) for _ in range(20)), cpus=8)
    begins(driver, *(a_job(f"{i}") for i in range(8)))
    assert len(driver.engine.running) == 7


def test_a_kill_for_memory_is_tried_again_with_the_machine_and_no_retry_is_used_up() -> None:
    driver = a_driver(*(a_run(GB) for _ in range(20)))
    begins(driver, a_job("a"))
    before = asked(driver, "a")
    ends(driver, 5.0, "a", State.OUT_OF_MEMORY, peak=1.1 * GB)
    record = driver.engine.records["a"]
    assert (record.attempts, record.failures, record.job.sizing.kills) == (2, 0, 1)
    assert asked(driver, "a") == 8 * GB > before
    assert [span.state for span in record.earlier] == [State.OUT_OF_MEMORY]
    ends(driver, 9.0, "a", State.COMPLETED, peak=2 * GB)
    assert record.state is State.COMPLETED


def test_what_fits_nowhere_ends_with_a_sentence() -> None:
    driver = a_driver()
    begins(driver, a_job("a", memory=8 * GB, sizing=Sizing()))
    ends(driver, 5.0, "a", State.OUT_OF_MEMORY, peak=8 * GB)
    record = driver.engine.records["a"]
    assert record.state is State.OUT_OF_MEMORY
    assert record.detail == "it needs more than 8,000 MB on a node, and no node has more for it"
    assert driver.ended() == [record]


@pytest.mark.parametrize(("retry", "then"), [("learned", 64 * GB), (2.0, 2 * GB), (1.5, 1_500_512_256)])
def test_retry_memory_says_what_comes_next(retry: Any, then: int) -> None:
    driver = a_driver(memory=64 * GB)
    begins(driver, a_job("a", memory=GB, sizing=Sizing(retry=retry)))
    ends(driver, 5.0, "a", State.OUT_OF_MEMORY)
    assert asked(driver, "a") == pytest.approx(then, rel=1e-3)
    assert driver.engine.running["a"].attempt == 2


def test_without_another_try_it_stays_killed() -> None:
    driver = a_driver()
    begins(driver, replace(a_job("a", memory=GB, sizing=Sizing(retry="no")), retries=3))
    ends(driver, 5.0, "a", State.OUT_OF_MEMORY)
    record = driver.engine.records["a"]
    assert (record.state, record.detail) == (State.OUT_OF_MEMORY, "retry_memory is no")


def test_it_is_tried_again_at_most_so_often() -> None:
    driver = a_driver(memory=10**15)
    begins(driver, a_job("a", memory=GB, sizing=Sizing(retry=1.1)))
    for n in range(MOST_KILLS):
        ends(driver, 5.0 + n, "a", State.OUT_OF_MEMORY)
        assert driver.engine.records["a"].job.sizing.kills == n + 1
    ends(driver, 50.0, "a", State.OUT_OF_MEMORY)
    assert driver.engine.records["a"].state is State.OUT_OF_MEMORY


def test_a_killed_job_is_never_sized_down_again() -> None:
    driver = a_driver(cpus=1, memory=16 * GB)
    killed = replace(a_job("k", memory=9 * GB), sizing=replace(AUTO, kills=1))
    begins(driver, a_job("a"), killed)
    ends(driver, 5.0, "a", State.COMPLETED, peak=GB)
    assert asked(driver, "k") == 9 * GB


def test_nodes_that_do_not_say_how_much_they_have_reserve_nothing() -> None:
    driver = a_driver(memory=None)
    begins(driver, a_job("a"))
    assert asked(driver, "a") == 0


def test_a_job_and_its_sizes_are_written_and_read() -> None:
    job = a_job("a", memory=5, sizing=Sizing(("cpu",), 1.5, 0.01, 2))
    again = decode_job(encode_job(job), APP)
    assert again.sizing == job.sizing
    assert "sizing" not in encode_job(a_job("b", sizing=Sizing()))
    codec, event = Codec(), Sized("a", (1, 2), 3)
    assert codec.event_from(codec.encode_event(event)) == event
