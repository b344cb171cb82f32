"""One suite for every batch system: what `dovetail.batch` relies on, shown by the system itself.

A new batch system is a file with a `BatchSystem` and a line in ``SYSTEMS``.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from batch_worlds import BatchWorld, slurming, spooling
from slurm_cluster import needs_slurm

from dovetail.batch.executor import BatchExecutor
from dovetail.batch.folder import QueueFolder
from dovetail.batch.system import BatchError, BatchJob, Phase, UserScript
from dovetail.interfaces import RunFolder
from dovetail.model import (
    App,
    Choice,
    Command,
    Ended,
    Event,
    Foreseen,
    Implementation,
    Job,
    Request,
    Requeued,
    Shape,
    Started,
    State,
    Submit,
    Withdrawn,
)
from dovetail.model.batch_options import script_options
from dovetail.testing.builders import full

SYSTEMS = [
    "spool",
    pytest.param(
        "slurm",
        marks=[
            needs_slurm,
            pytest.mark.live,
            pytest.mark.xdist_group("live"),
            pytest.mark.skipif(not full(1, 0), reason="takes its time: DOVETAIL_TEST_FULL=1"),
        ],
    ),
]
PATIENCE = 240.0
"""Seconds; Slurm keeps a job that was put back in its queue for two minutes."""


@pytest.fixture(scope="module", params=SYSTEMS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BatchWorld]:
    if request.param == "spool":
        with spooling(tmp_path_factory.mktemp("spool") / "line") as found:
            yield found
    else:
        with slurming() as found:
            yield found


def until(ready: Callable[[], object]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ----------------------------------------------------------------------- the system by itself


class Submitted:
    """Batch jobs of one test, written where the executor writes them."""

    def __init__(self, world: BatchWorld, folder: Path) -> None:
        self.world, self.system = world, world.system
        self.folder = folder / "queue"
        self.folder.mkdir()
        self.count = 0

    def submit(self, text: str, *, cpus: int = 1, script: UserScript | None = None) -> tuple[str, str]:
        """Hand a script over; its batch and its id."""
        self.count += 1
        batch = f"{os.getpid() % 0xFFFFFF:08x}{self.count:04x}"
        path = self.folder / f"{batch}.sh"
        path.write_text(text)
        shape = Shape(self.world.target, Request(cpus=cpus), 600.0)
        if script is not None:
            shape = Shape(self.world.target, Request(cpus=cpus), None, script_options([], []))
        environ = self.system.clean_environment(os.environ)
        log = self.folder / f"{batch}.log"
        job = BatchJob(batch, path, log, "one", shape, 1, None, environ, script)
        return batch, self.system.submit(job)

    def phase(self, id: str) -> Phase | None:
        """Where a job is now."""
        found = self.system.look().get(id)
        return None if found is None else found.phase


@pytest.fixture
def submitted(world: BatchWorld, tmp_path: Path) -> Submitted:
    return Submitted(world, tmp_path)


def test_a_job_is_seen_by_its_batch_and_runs_to_its_end(submitted: Submitted, tmp_path: Path) -> None:
    go = tmp_path / "go"
    batch, id = submitted.submit(f"#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.1; done\n")
    until(lambda: submitted.phase(id) is Phase.RUNNING)
    seen = submitted.system.look()[id]
    assert (seen.batch, seen.end, seen.has_begun) == (batch, None, True)
    assert submitted.world.cluster.index_of.keys() >= {seen.nodes}
    assert seen.start is not None
    assert abs(seen.start - time.time()) < PATIENCE
    go.touch()
    until(lambda: submitted.system.look()[id].end)
    assert submitted.system.look()[id].end is State.COMPLETED


def test_a_failure_and_a_cancel_are_told_apart(submitted: Submitted) -> None:
    _, failed = submitted.submit("#!/bin/sh\nexit 3\n")
    _, cancelled = submitted.submit("#!/bin/sh\nexec sleep 600\n")
    until(lambda: submitted.phase(cancelled) is Phase.RUNNING)
    submitted.system.cancel([cancelled])
    until(lambda: all(submitted.system.look()[id].end for id in (failed, cancelled)))
    seen = submitted.system.look()
    assert (seen[failed].end, seen[cancelled].end) == (State.FAILED, State.CANCELLED)
    assert submitted.system.describe_jobs(failed)[failed].exit_code == 3


def test_only_a_job_that_waits_is_taken_out(submitted: Submitted) -> None:
    world = submitted.world
    _, first = submitted.submit("#!/bin/sh\nexec sleep 600\n", cpus=world.cpus)
    until(lambda: submitted.phase(first) is Phase.RUNNING)
    _, second = submitted.submit("#!/bin/sh\nexec sleep 600\n", cpus=world.cpus)
    until(lambda: submitted.phase(second) is Phase.WAITING)
    for id in (first, second):
        world.system.cancel_waiting(id)
    until(lambda: world.system.look()[second].end is State.CANCELLED)
    assert submitted.phase(first) is Phase.RUNNING
    world.system.cancel([first])
    until(lambda: world.system.look()[first].end)


def test_a_users_script_runs_in_its_folder_with_its_arguments_and_variables(
    submitted: Submitted, tmp_path: Path
) -> None:
    text = '#!/bin/sh\necho "$PWD $1 $WORD"\n'
    out = tmp_path / "out.txt"
    files = str(out), str(out)
    script = UserScript(text, ("a b",), str(tmp_path), {"WORD": "x"}, files, None)
    _, id = submitted.submit(text, script=script)
    until(lambda: submitted.system.look()[id].end is State.COMPLETED)
    until(lambda: out.exists() and out.read_text())
    assert out.read_text() == f"{tmp_path} a b x\n"


def test_what_does_not_exist_is_an_error_of_the_seam(submitted: Submitted, tmp_path: Path) -> None:
    missing = tmp_path / "no" / "folder"
    script = UserScript("#!/bin/sh\n", (), str(missing), {}, None, None)
    with pytest.raises(BatchError) as refused:
        submitted.submit("#!/bin/sh\ntrue\n", script=script)
    assert (refused.value.passing, refused.value.no_place) == (False, False)


# ----------------------------------------------------------------------- the executor over it


class Guest:
    """An executor, what it reports, and jobs for it."""

    def __init__(self, world: BatchWorld, folder: Path, *, resumed: bool = False) -> None:
        self.world = world
        self.events: list[Event] = []
        self.executor = BatchExecutor(world.system, RunFolder(folder, uid="0" * 32), world.cluster)
        if not resumed:
            self.executor.files.create()

    def job(self, id: str, *words: str, cpus: int = 1) -> Job:
        """A job of one command."""
        chosen = Implementation("cpu", "cpu", Request(cpus=cpus), Command(tuple(words)))
        return Job(id, App("one", (chosen,)), (Choice(chosen, chosen.request),))

    async def submit(self, job: Job, attempt: int = 1) -> Job:
        """Hand it over."""
        request = job.app.implementations[0].request
        await self.executor.submit(job, Submit(job.id, "cpu", request, self.world.target), attempt)
        return job

    async def wait_for(self, kind: type[Event], *jobs: Job) -> list[Event]:
        """The last event of this kind of each job."""
        ids = [job.id for job in jobs]
        deadline = time.monotonic() + PATIENCE
        while True:
            last = {
                one.job: one
                for one in self.events
                if isinstance(one, kind) and getattr(one, "job", "") in ids
            }
            if len(last) == len(ids):
                return [last[id] for id in ids]
            assert time.monotonic() < deadline, self.events
            await asyncio.sleep(0.05)

    async def wait_for_id(self, job: Job) -> str:
        """The id of its batch job, once that is noted."""
        deadline = time.monotonic() + PATIENCE
        while True:
            for handed in self.executor.files.handed():
                if handed.job == job.id and handed.batch_id:
                    return handed.batch_id
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)

    async def wait_for_ends(self, *jobs: Job) -> list[Ended]:
        """How jobs ended."""
        return [one for one in await self.wait_for(Ended, *jobs) if isinstance(one, Ended)]


@asynccontextmanager
async def guest(world: BatchWorld, folder: Path) -> AsyncIterator[Guest]:
    """An executor that is closed at the end, and has let go of everything then."""
    one = Guest(world, folder)
    one.executor.listen(one.events.append)
    try:
        yield one
    finally:
        await one.executor.close()
        assert one.executor.settle()


def test_jobs_run_once_and_their_ends_come_from_their_nodes(world: BatchWorld, tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    async def main() -> None:
        async with guest(world, tmp_path) as one:
            line = f"echo $DOVETAIL_JOB $DOVETAIL_NODES >> {ran}"
            good = [await one.submit(one.job(f"j{n}", "sh", "-c", line)) for n in range(5)]
            bad = await one.submit(one.job("bad", "sh", "-c", "exit 7"))
            none = await one.submit(one.job("none", "no-such-program-here"))
            ends = await one.wait_for_ends(*good, bad, none)
            assert [end.state for end in ends] == [State.COMPLETED] * 5 + [State.FAILED] * 2
            assert ends[5].exit_code == 7
            assert "no-such-program-here" in (ends[6].detail or "")
            starts = await one.wait_for(Started, *good)
            assert all(isinstance(start, Started) and start.allocation for start in starts)

    asyncio.run(main())
    lines = [line.split() for line in ran.read_text().splitlines()]
    assert sorted(job for job, _ in lines) == [f"j{n}" for n in range(5)]
    assert {node for _, node in lines} <= world.cluster.index_of.keys()


def test_a_stop_ends_a_job_that_runs_and_one_that_waits(world: BatchWorld, tmp_path: Path) -> None:
    async def main() -> None:
        async with guest(world, tmp_path) as one:
            runs = await one.submit(one.job("runs", "sleep", "600", cpus=world.cpus))
            await one.wait_for(Started, runs)
            waits = await one.submit(one.job("waits", "sleep", "600", cpus=world.cpus))
            for job, reason in ((waits, "CANCELLED"), (runs, "TIMEOUT")):
                await one.executor.stop(job.id, reason)
            ends = await one.wait_for_ends(runs, waits)
            assert [end.state for end in ends] == [State.TIMEOUT, State.CANCELLED]

    asyncio.run(main())


def test_a_job_that_waits_goes_another_way_and_never_runs(world: BatchWorld, tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    async def main() -> None:
        async with guest(world, tmp_path) as one:
            runs = await one.submit(one.job("runs", "sleep", "600", cpus=world.cpus))
            await one.wait_for(Started, runs)
            waits = await one.submit(one.job("waits", "touch", str(ran), cpus=world.cpus))
            await one.wait_for_id(waits)
            await one.executor.withdraw(waits.id)
            await one.wait_for(Withdrawn, waits)
            await one.executor.withdraw(runs.id)
            await one.executor.stop(runs.id, "CANCELLED")
            await one.wait_for_ends(runs)
            after = await one.submit(one.job("after", "true", cpus=world.cpus))
            await one.wait_for_ends(after)
            assert not any(isinstance(event, Withdrawn) and event.job == "runs" for event in one.events)

    asyncio.run(main())
    assert not ran.exists()


def test_a_question_for_a_start_is_answered(world: BatchWorld, tmp_path: Path) -> None:
    async def main() -> None:
        async with guest(world, tmp_path) as one:
            await one.executor.inquire(Shape(world.target, Request(cpus=1), 60.0))
            deadline = time.monotonic() + PATIENCE
            while not any(isinstance(event, Foreseen) for event in one.events):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            answer = next(event for event in one.events if isinstance(event, Foreseen))
            assert answer.wait is not None
            assert answer.wait < PATIENCE

    asyncio.run(main())


def test_what_was_put_back_runs_again_as_a_further_start(world: BatchWorld, tmp_path: Path) -> None:
    """The second start begins a record of its own, and the job is one that was requeued."""
    ran = tmp_path / "ran"
    line = f"echo began >> {ran}; if [ $(wc -l < {ran}) = 1 ]; then sleep 600; fi"

    async def main() -> None:
        async with guest(world, tmp_path) as one:
            job = await one.submit(one.job("again", "sh", "-c", line))
            await one.wait_for(Started, job)
            id = next(handed.batch_id for handed in one.executor.files.handed())
            await asyncio.to_thread(world.requeue, id)
            await one.wait_for(Requeued, job)
            await one.executor.stop(job.id, "CANCELLED")  # as the engine answers
            await one.submit(job, attempt=2)
            deadline = time.monotonic() + PATIENCE
            while True:
                ends = [event for event in one.events if isinstance(event, Ended)]
                if ends and ends[-1].state is State.COMPLETED:
                    break
                assert time.monotonic() < deadline, one.events
                await asyncio.sleep(0.05)

    asyncio.run(main())
    assert ran.read_text().split() == ["began", "began"]


def test_the_next_dovetail_finds_what_runs_what_ended_and_what_had_no_answer(
    world: BatchWorld, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    line = f"while [ ! -e {go} ]; do sleep 0.1; done"

    async def first() -> None:
        one = Guest(world, tmp_path)
        one.executor.listen(one.events.append)
        runs = await one.submit(one.job("runs", "sh", "-c", line))
        short = await one.submit(one.job("short", "true"))
        await one.wait_for(Started, runs)
        await one.wait_for_ends(short)
        await one.executor.leave()

    async def second() -> None:
        one = Guest(world, tmp_path, resumed=True)
        found = one.executor.take_up()
        # A job that has run is reported once more: the engine may not have noted its end.
        assert [decision.job for decision, _ in found.handed_over] == ["runs", "short"]
        one.executor.listen(one.events.append)
        go.touch()
        ends = await one.wait_for_ends(one.job("runs", "true"), one.job("short", "true"))
        assert [end.state for end in ends] == [State.COMPLETED] * 2
        await one.executor.close()
        assert one.executor.settle()

    asyncio.run(first())
    # As a kill between the submission and its answer leaves it: the id was never noted.
    path = tmp_path / "queue" / "handed.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines() if line]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines if one["t"] != "sent"))
    asyncio.run(second())


def test_a_job_that_the_system_lost_is_handed_over_again(world: BatchWorld, tmp_path: Path) -> None:
    if world.forget is None:
        pytest.skip("this system forgets no job that waits")
    forget = world.forget

    async def main() -> None:
        async with guest(world, tmp_path) as one:
            runs = await one.submit(one.job("runs", "sleep", "600", cpus=world.cpus))
            await one.wait_for(Started, runs)
            waits = await one.submit(one.job("waits", "true", cpus=world.cpus))
            await asyncio.to_thread(forget, await one.wait_for_id(waits))
            await one.executor.stop(runs.id, "CANCELLED")
            (end,) = await one.wait_for_ends(waits)
            assert end.state is State.COMPLETED

    asyncio.run(main())
    handed = [one for one in QueueFolder(tmp_path).handed() if one.job == "waits"]
    assert len(handed) == 2


def test_a_job_that_would_never_start_ends_with_the_reason(world: BatchWorld, tmp_path: Path) -> None:
    if not world.keeps_the_impossible:
        pytest.skip("it refuses such a job at once, or Dovetail does: test_slurm_guest has what Slurm keeps")

    async def main() -> None:
        async with guest(world, tmp_path) as one:
            large = await one.submit(one.job("large", "true", cpus=1000 * world.cpus))
            (end,) = await one.wait_for_ends(large)
            assert end.state is State.FAILED
            assert not any(isinstance(event, Started) for event in one.events)
            assert end.detail == f"{world.system.title} would never start it: TooLarge"

    asyncio.run(main())
