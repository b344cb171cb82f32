"""A kill at every step of a run's life, a fault at every system call that writes; enumerated, not at random.

The steps are the calls of Dovetail and of its supervisor that write: data, names, processes. A run of three
jobs makes some hundreds. `make test` strikes at a few of them, DOVETAIL_TEST_FULL=1 at each.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import crashes
import pytest
from crashes import JOBS, check, command, steps, strike, truth
from places import AS_PROCESS_1, BARE_PROCESS_1, bare_containers, containers

from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live"), pytest.mark.timeout(7200)]

ROLES = ("dovetail", "supervisor")
SMALL = pytest.param(BARE_PROCESS_1, marks=bare_containers())
PLACES = ((), pytest.param(AS_PROCESS_1, marks=containers()), *full((SMALL,), ()))
"""On the machine, as process 1 of a PID namespace that is new each time, and in a small container."""
FAULTS = ("enospc", "eio", "eintr", "short", "delay")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = crashes.built(tmp_path_factory.mktemp("faults"))
    if found is None:
        pytest.skip("no C compiler builds what strikes")
    return found


@pytest.fixture(scope="module")
def count(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., int]:
    """Steps of each process; at each place its own, where each is struck."""

    @cache
    def counted(role: str, around: tuple[str, ...] = ()) -> int:
        return steps(tmp_path_factory.mktemp("count") / role, library, role, around=around)

    return lambda role, around=(): counted(role, full(around, ()))


def struck_at(total: int, few: int) -> Iterator[int]:
    """Every step; in short runs some, evenly apart."""
    number = full(total, few)
    yield from (round((i + 0.5) * total / number + 0.5) for i in range(number))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("around", PLACES)
def test_killed_at_every_step(
    around: tuple[str, ...], role: str, library: Path, count: Callable[..., int], tmp_path: Path
) -> None:
    assert count(role, around) > 20
    for number in struck_at(count(role, around), 1):
        check(strike(tmp_path / str(number), library, role, number, "kill", around=around))


@pytest.mark.parametrize("later", [0, 1, 5, 20])
def test_the_supervisor_and_then_dovetail_killed_at_every_step(
    later: int, library: Path, count: Callable[..., int], tmp_path: Path
) -> None:
    for number in struck_at(count("supervisor"), 1):
        check(strike(tmp_path / str(number), library, "supervisor", number, "both", later))


@pytest.mark.parametrize(
    ("what", "around"),
    [
        *((what, ()) for what in FAULTS),
        *(pytest.param(what, AS_PROCESS_1, marks=containers()) for what in full(FAULTS, FAULTS[:1])),
        *(pytest.param(what, BARE_PROCESS_1, marks=bare_containers()) for what in full(FAULTS, ())),
    ],
)
@pytest.mark.parametrize("role", ROLES)
def test_a_fault_at_every_call_that_writes(
    role: str, what: str, around: tuple[str, ...], library: Path, count: Callable[..., int], tmp_path: Path
) -> None:
    for number in struck_at(count(role, around), 1):
        struck = strike(tmp_path / str(number), library, role, number, what, around=around)
        assert struck.status in (0, 1, 2), (number, struck.status, struck.said)
        assert struck.status != 2 or struck.said.splitlines()[-1].startswith("dovetail: "), (
            number,
            struck.said,
        )
        check(struck)
        if what in ("eintr", "short", "delay"):  # these are no failures
            assert struck.status == 0, (number, struck.said)
            started, ended = truth(struck.folder)
            assert len(started) == len(ended) == JOBS


def test_killed_and_taken_up_at_every_step(library: Path, count: Callable[..., int], tmp_path: Path) -> None:
    """What was killed is resumed: each job runs once, and all of them do, but those that were cut short."""
    for number in struck_at(count("dovetail"), 1):
        struck = strike(tmp_path / str(number), library, "dovetail", number, "kill")
        resumed = command(struck.folder, "run", "--resume", "--json")
        started, _ = truth(struck.folder)
        assert not started or max(started.values()) == 1, (number, started)
        if resumed.returncode == 0:
            assert len(started) == JOBS, (number, started)
            assert {job["state"] for job in json.loads(resumed.stdout)["jobs"]} == {"COMPLETED"}
        else:  # nothing had begun, or all had ended
            assert resumed.returncode == 2, (number, resumed.stderr)
            assert len(started) in (0, JOBS), (number, started, resumed.stderr)
        check(struck)


def test_a_write_that_takes_a_part_cuts_no_output(library: Path, tmp_path: Path) -> None:
    def struck_by(fault: str) -> subprocess.CompletedProcess[str]:
        count = str(tmp_path / "count")
        return command(
            tmp_path, "schema", LD_PRELOAD=str(library), DOVETAIL_FAULT=fault, DOVETAIL_COUNT=count
        )

    whole = struck_by("dovetail:0:count")
    assert json.loads(whole.stdout)
    for number in struck_at(int((tmp_path / "count").read_text()), 2):
        struck = struck_by(f"dovetail:{number}:short")
        assert (struck.returncode, struck.stdout) == (0, whole.stdout), number


def test_the_harness_strikes(library: Path, tmp_path: Path) -> None:
    struck = strike(tmp_path / "one", library, "dovetail", 1, "kill")
    assert struck.status == -9
