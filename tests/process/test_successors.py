"""Jobs that begin when others have ended, with real processes and a real supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from waiting import until as soon

from dovetail.interfaces import RunFolder, StartsAfter
from dovetail.local.executor import Local, LocalExecutor
from dovetail.model import Ended, Event, Lingering, State, Withdrawn
from dovetail.process.spawn_log import read_log
from dovetail.process.successors import Successor, Successors
from dovetail.testing.processes import cpu_cluster, is_running, placed, wait_until
from dovetail_remote.lending.lent import LentExecutor
from dovetail_slurm.allocation import SlurmExecutor

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

SLEEP = ("/bin/sleep", "300")
LEAVES = """
import asyncio, sys
from pathlib import Path
from dovetail.local.executor import LocalExecutor
from dovetail.interfaces import RunFolder
from dovetail.process.spawn_log import read_log
from dovetail.testing.processes import cpu_cluster, placed, wait_until

async def main():
    run = Path(sys.argv[1])
    executor = LocalExecutor(RunFolder(run, uid="uid"), cpu_cluster())
    await executor.launch(placed("a", "/bin/sh", "-c", sys.argv[2]))
    await executor.launch_after(placed("b", "/bin/true"), ["a"])
    await wait_until(lambda: bool(read_log(run / "spawn.log").starts))
    await executor.leave()

asyncio.run(main())
"""


def until_touched(folder: Path) -> str:
    """What lasts until there is a file ``over``."""
    return f"until test -e {folder}/over; do sleep 0.01; done"


async def heard(executor: LocalExecutor, count: int) -> list[Event]:
    """The next ``count`` events."""
    found: list[Event] = []
    async for event in executor.events():
        found.append(event)
        if len(found) == count:
            break
    return found


def names(events: list[Event]) -> list[tuple[str, str]]:
    return [(type(event).__name__, getattr(event, "job", "")) for event in events]


def test_the_book_starts_who_waits_for_nobody_else() -> None:
    book = Successors()
    for uid, before in (("b", {"a"}), ("c", {"a", "b"}), ("d", {"z"}), ("e", {"d"})):
        book.add(uid, Successor({"uid": uid}, b"", before))
    assert book.followers_of("a") == ["b", "c"]
    assert book.followers_of("z") == ["d", "e"]
    assert [one.request["uid"] for one in book.release_followers("a")] == ["b"]
    assert [one.request["uid"] for one in book.release_followers("b")] == ["c"]
    assert book.before(["d"], {"z"}.__contains__) == {"d"}
    book.drop_jobs(["d", "e"])
    assert not book.waiting
    assert book.before(["e"], {"z"}.__contains__) == {"z"}, "who was dropped counts for whom it waited for"
    assert book.before(["e"], set().__contains__) == set(), "as long as that one has not ended"
    list(book.release_followers("z"))
    assert book.before(["e"], {"z"}.__contains__) == set(), "it is another one that runs under that name"


def test_only_who_asks_for_no_more_than_a_process_offers_it() -> None:
    """Before a job is started on a lent device its server is seen to, and its credentials are made."""
    assert issubclass(LocalExecutor, StartsAfter)
    assert not issubclass(LentExecutor, StartsAfter)
    assert not issubclass(SlurmExecutor, StartsAfter)


def test_jobs_follow_each_other_and_never_meet(tmp_path: Path) -> None:
    """Each notes when it begins and ends; all ends are told, with moments that do not overlap."""

    async def main() -> list[Event]:
        executor = LocalExecutor(RunFolder(tmp_path / "run"), cpu_cluster())
        before: list[str] = []
        for i in range(30):
            await executor.launch_after(placed(f"j{i}", "/bin/sleep", "0.003"), before[-3:])
            before.append(f"j{i}")
        found = await asyncio.wait_for(heard(executor, 30), 200)
        await executor.close()
        return found

    found = asyncio.run(main())
    ended = [event for event in found if isinstance(event, Ended)]
    assert [end.job for end in ended] == [f"j{i}" for i in range(30)]
    assert all(end.state is State.COMPLETED for end in ended)
    moments = [(end.started_at or 0.0, end.ended_at or 0.0) for end in ended]
    assert all(begun >= last for (_, last), (begun, _) in pairwise(moments))
    log = read_log(tmp_path / "run" / "spawn.log")
    assert len(log.ends) == len(log.starts) == 30


CHAINS = [
    # a program that cannot start, then one behind both; one that follows nobody who is known
    ([("b", "no-such-program", ["a"]), ("c", "/bin/true", ["a", "b"]), ("d", "/bin/true", ["nobody"])], "b"),
    # commands that name an input which the job lacks: nothing of them ever reaches the supervisor
    ([("b", "{n}", ["a"]), ("c", "{n}", ["b"]), ("d", "/bin/true", ["c"])], "bc"),
]


@pytest.mark.parametrize(("chain", "fail"), CHAINS)
def test_who_follows_one_that_cannot_begin_waits_for_those_before_it(
    tmp_path: Path, chain: list[tuple[str, str, list[str]]], fail: str
) -> None:
    async def main() -> list[Event]:
        executor = LocalExecutor(RunFolder(tmp_path / "run"), cpu_cluster())
        await executor.launch(placed("a", "/bin/sleep", "0.3"))
        for job, program, after in chain:
            await executor.launch_after(placed(job, program), after)
        found = await asyncio.wait_for(heard(executor, 4), 200)
        await executor.close()
        return found

    found = {event.job: event for event in asyncio.run(main()) if isinstance(event, Ended)}
    states = {job: State.FAILED if job in fail else State.COMPLETED for job in "abcd"}
    assert {job: end.state for job, end in found.items()} == states
    for job, _, after in chain:
        if job not in fail and after != ["nobody"]:
            assert (found[job].started_at or 0.0) >= (found["a"].ended_at or 0.0)


def test_what_follows_a_job_that_goes_on_is_withdrawn(tmp_path: Path) -> None:
    """Also what follows indirectly; what is withdrawn leaves no trace, and can be started again."""

    async def main() -> tuple[list[Event], list[Event], list[Event]]:
        executor = LocalExecutor(RunFolder(tmp_path / "run"), cpu_cluster())
        await executor.launch(placed("a", *SLEEP))
        await executor.launch_after(placed("b", "/bin/true"), ["a"])
        await executor.launch_after(placed("c", "/bin/true"), ["b"])
        await executor.withdraw("a")
        first = await asyncio.wait_for(heard(executor, 3), 200)
        await executor.launch(placed("b", "/bin/echo", "b"))
        second = await asyncio.wait_for(heard(executor, 1), 200)
        paths = executor.output_paths("b")
        assert paths is not None
        assert paths[0].name == "b.out"
        await executor.stop("a", "CANCELLED")
        third = await asyncio.wait_for(heard(executor, 1), 200)
        await executor.withdraw("a")  # long gone: nothing happens
        await executor.close()
        return first, second, third

    first, second, third = asyncio.run(main())
    assert names(first) == [("Withdrawn", "b"), ("Withdrawn", "c"), ("Lingering", "a")]
    assert names(second) == [("Ended", "b")]
    assert names(third) == [("Ended", "a")]
    log = read_log(tmp_path / "run" / "spawn.log")
    assert sorted(intent["job"] for intent in log.intents.values()) == ["a", "b"]


def test_a_job_that_is_stopped_before_it_begins_never_runs(tmp_path: Path) -> None:
    async def main() -> list[Event]:
        executor = LocalExecutor(RunFolder(tmp_path / "run"), cpu_cluster())
        await executor.launch(placed("a", "/bin/sh", "-c", until_touched(tmp_path)))
        await executor.launch_after(placed("b", "/bin/true"), ["a"])
        await executor.launch_after(placed("c", "/bin/true"), ["b"])
        await executor.stop("b", "CANCELLED")
        (tmp_path / "over").touch()
        found = await asyncio.wait_for(heard(executor, 3), 200)
        await executor.close()
        return found

    found = asyncio.run(main())
    assert found[0] == Withdrawn("b")
    assert sorted(event.job for event in found if isinstance(event, Ended)) == ["a", "c"]
    assert not any(isinstance(event, Lingering) for event in found)


def test_closing_ends_what_runs_and_begins_nothing(tmp_path: Path) -> None:
    async def main() -> list[Event]:
        executor = LocalExecutor(RunFolder(tmp_path / "run"), cpu_cluster())
        await executor.launch(placed("a", *SLEEP))
        await executor.launch_after(placed("b", "/bin/true"), ["a"])
        await executor.close()
        return [event async for event in executor.events()]

    assert names(asyncio.run(main())) == [("Withdrawn", "b"), ("Ended", "a")]
    assert len(read_log(tmp_path / "run" / "spawn.log").intents) == 1


def test_a_killed_supervisor_takes_nobody_along_who_had_not_begun(tmp_path: Path) -> None:
    async def main() -> dict[str, Ended]:
        executor = LocalExecutor(RunFolder(tmp_path / "run"), cpu_cluster())
        log = tmp_path / "run" / "spawn.log"
        await executor.launch(placed("a", *SLEEP))
        await executor.launch_after(placed("b", "/bin/true"), ["a"])
        await executor.launch_after(placed("c", "/bin/true"), ["a", "b"])
        await wait_until(lambda: bool(read_log(log).starts))
        os.kill(read_log(log).supervisors[0]["pid"], signal.SIGKILL)
        found = await asyncio.wait_for(heard(executor, 3), 200)
        await executor.close()
        return {event.job: event for event in found if isinstance(event, Ended)}

    found = asyncio.run(main())
    assert found["a"].state is State.NODE_FAIL
    assert found["b"].state is found["c"].state is State.COMPLETED
    assert (found["c"].started_at or 0.0) >= (found["b"].ended_at or 0.0)


def test_who_takes_up_a_run_finds_nothing_of_what_had_not_begun(tmp_path: Path) -> None:
    """The supervisor forgets it with its client: so nobody else can start it too."""
    folder = RunFolder(tmp_path / "run", "uid", str(tmp_path))
    log = folder.path / "spawn.log"
    lasts = until_touched(tmp_path)
    subprocess.run([sys.executable, "-c", LEAVES, folder.path, lasts], check=True, timeout=100)

    async def second() -> list[Event]:
        executor, left = Local().resume(folder, cpu_cluster())
        assert [still.job for still in left.running] == ["a"]
        assert not left.ended
        assert not left.unknown
        (tmp_path / "over").touch()
        found = await asyncio.wait_for(heard(executor, 1), 200)
        await asyncio.sleep(0.2)
        await executor.close()
        return found

    assert names(asyncio.run(second())) == [("Ended", "a")]
    assert sorted(intent["job"] for intent in read_log(log).intents.values()) == ["a"]
    soon(lambda: not is_running(next(iter(read_log(log).starts.values()))["pid"]))
