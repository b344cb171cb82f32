"""What a supervisor and its client know of each other stays right, whatever happens in whatever order."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail.interfaces import RunFolder
from dovetail.local.executor import LocalExecutor
from dovetail.model import Ended, Launch, Placed, State
from dovetail.process import link
from dovetail.process.processes import started_at
from dovetail.process.recovery import recover_run
from dovetail.process.spawn_log import read_log
from dovetail.testing.builders import full
from dovetail.testing.processes import cpu_cluster, ends, placed, wait_until

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

LIMIT = 4
Step = tuple[str, int, int]
NONSENSE: tuple[dict[str, object], ...] = (
    {"t": "nonsense"},
    {"t": "setup", "setup": 10**6, "outer": 10**6, "env": {}, "unset": [], "cores": [], "cwd": "/"},
    {"t": "environ", "environ": 10**7, "vars": {"A": "\ud800"}},
    {"t": "forget"},
    {"t": "stop", "uid": "nobody"},
    {"t": "stop"},
    {"t": "shorten"},
    {"t": "intent", "uid": "r/x", "setup": -1},
)
JOBS = st.tuples(st.sampled_from(("short", "long")), st.integers(0, 5), st.integers(0, 3))
OTHERS = st.tuples(
    st.sampled_from(("shorten", "restart", "die", "nonsense")), st.integers(0, len(NONSENSE) - 1), st.just(0)
)


def marked(name: str, command: str, mark: int, folder: Path) -> Placed:
    """A job with an environment of its own (none is brought along with ``mark`` 0)."""
    job = placed(name, "/bin/sh", "-c", command)
    environ = (("PATH", "/bin:/usr/bin"), ("MARK", str(mark))) if mark else None
    return replace(job, job=replace(job.job, launch=Launch(folder=str(folder), environ=environ)))


class Run:
    """One run, restarted now and then, with what its jobs should find and how they should end."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.executor = LocalExecutor(RunFolder(root / "run", uid="r"), cpu_cluster())
        self.lasting: set[str] = set()
        self.left: list[LocalExecutor] = []
        self.number = 0

    async def heard(self, count: int) -> dict[str, Ended]:
        return await asyncio.wait_for(ends(self.executor, count), 200)

    async def take(self, step: Step) -> None:
        what, mark, where = step
        if what in ("short", "long"):
            await self.job(mark, where, lasting=what == "long")
        elif what == "shorten":
            log = self.executor.run_dir / "spawn.log"
            before = log.stat().st_ino
            if self.number and self.executor._last_end and self.executor._link.is_attached:
                self.executor.shorten_log()
                await wait_until(lambda: log.stat().st_ino != before)
        elif what == "restart":
            await self.executor.leave()
            self.left.append(self.executor)
            await wait_until(
                lambda: not recover_run(self.root / "run").in_use
            )  # its process lives: it is ours
            self.executor = LocalExecutor(RunFolder(self.root / "run", uid="r"), cpu_cluster(), resume=True)
            assert {one.job for one in self.executor.left_behind.running} == self.lasting
            self.executor._attach_to_loop()
        elif what == "die":
            await self.die()
        else:
            self.executor._link.send_line(dict(NONSENSE[mark]))

    async def job(self, mark: int, where: int, *, lasting: bool) -> None:
        self.number += 1
        name, folder = f"j{self.number}", self.root / str(where)
        folder.mkdir(exist_ok=True)
        command = "exec sleep 300" if lasting else 'echo "$MARK" "$PWD"'
        await self.executor.launch(marked(name, command, mark, folder))
        if lasting:
            self.lasting.add(name)
            return
        end = (await self.heard(1))[name]
        assert end.state is State.COMPLETED, end
        paths = self.executor.output_paths(name)
        assert paths is not None
        assert paths[0].read_text() == f"{mark or ''} {folder}\n"

    async def die(self) -> None:
        """The supervisor is killed: its jobs end with it, and no other does."""
        path = self.executor.run_dir / "spawn.log"

        def living() -> list[int]:
            pids = [one["pid"] for one in read_log(path).supervisors[-1:]]
            return [pid for pid in pids if started_at(pid) is not None]

        if self.executor._link.is_attached:
            await wait_until(
                lambda: bool(living()) and len(read_log(path).unended_uids()) == len(self.lasting)
            )
            os.kill(living()[0], signal.SIGKILL)
            found = await self.heard(len(self.lasting))
            assert {end.state for end in found.values()} <= {State.NODE_FAIL}
            assert found.keys() == self.lasting
            self.lasting.clear()
            await wait_until(lambda: not self.executor._link.is_connected)

    async def over(self) -> None:
        """What lasted is there to the end, and the log says all."""
        for name in self.lasting:
            await self.executor.stop(name, "CANCELLED")
        found = await self.heard(len(self.lasting))
        assert {end.state for end in found.values()} <= {State.CANCELLED}
        await self.executor.close()
        assert self.executor.settle()
        log = read_log(self.executor.run_dir / "spawn.log")
        assert log.describe_damage() == ""
        assert set(log.ends) == set(log.intents)


LIST = [("short", 1, 0), ("long", 1, 0), *(("short", 1, n % 4) for n in range(12))]


@settings(max_examples=full(500, 10), deadline=None)
@example([*LIST, ("short", 2, 0), *(("short", n % 6, n % 4) for n in range(24))])
@given(st.lists(JOBS | JOBS | JOBS | OTHERS, max_size=30))
def test_jobs_get_what_they_brought_along_in_any_order_of_events(steps: list[Step]) -> None:
    """Setups and environments are forgotten, clients and supervisors come and go, the log is shortened."""

    async def main(root: Path) -> None:
        run = Run(root)
        try:
            for step in steps:
                await run.take(step)
            await run.over()
        finally:
            await run.executor.close()
            for one in run.left:
                if one._process is not None:
                    one._process.wait(100)

    before = link.MOST_SETUPS
    logging.disable(logging.ERROR)  # of nonsense and of deaths, which are meant here
    try:
        link.MOST_SETUPS = LIMIT
        with TemporaryDirectory() as root:
            asyncio.run(main(Path(root)))
    finally:
        link.MOST_SETUPS = before
        logging.disable(logging.NOTSET)
