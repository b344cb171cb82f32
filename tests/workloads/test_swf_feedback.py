"""Fields 17 and 18 of SWF: a job that is submitted some time after the end of another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail import api
from dovetail.workloads.swf import read_swf


def line(job: int, submit: int, run: int, cpus: int = 1, preceding: int = -1, think: float = -1) -> str:
    fields = [job, submit, -1, run, cpus, -1, -1, cpus, run, -1, 1, 1, 1, -1, -1, -1, preceding, think]
    return " ".join(map(str, fields))


def log(folder: Path, *lines: str) -> Path:
    path = folder / "log.swf"
    path.write_text("; MaxProcs: 2\n" + "".join(f"{one}\n" for one in lines))
    return path


@pytest.mark.parametrize("think", [5, 5.0])  # whole numbers and others are parsed in different ways
@pytest.mark.parametrize("policy", ["fcfs", "easy"])
def test_a_job_is_submitted_after_the_end_of_its_preceding_one(
    tmp_path: Path, policy: str, think: float
) -> None:
    path = log(
        tmp_path,
        line(1, 0, 100, 2),
        line(2, 10, 50, 2),  # starts at 100, when the first one has ended
        line(3, 65, 20, 2, preceding=2, think=think),  # the log had job 2 end at 60
        line(4, 90, 1, 1, preceding=3, think=0),
        line(5, 200, 1, 1, preceding=99, think=7),  # no such job: at its own time
    )
    found = {job["id"]: job for job in api.simulate(str(path), policy=policy, cluster="2x1cpu").jobs}
    assert (found["2"]["start"], found["2"]["end"]) == (100.0, 150.0)
    assert (found["3"]["submit"], found["3"]["start"], found["3"]["end"]) == (155.0, 155.0, 175.0)
    assert (found["4"]["submit"], found["4"]["end"]) == (175.0, 176.0)
    assert (found["5"]["submit"], found["5"]["end"]) == (200.0, 201.0)


def test_only_kept_and_earlier_jobs_precede(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        line(1, 0, -1),  # rejected: of unknown length
        line(2, 5, 10, preceding=1, think=3),
        line(3, 6, 10, preceding=4, think=3),  # stands after it
        line(4, 7, 10, preceding=4, think=3),  # itself
        line(5, 8, 10, preceding=2, think=-1),  # no think time: at once
    )
    assert dict(read_swf(path).follows) == {"5": ("2", 0.0)}


def test_a_log_without_feedback_has_none(tmp_path: Path) -> None:
    assert not read_swf(log(tmp_path, line(1, 0, 10), line(2, 5, 10))).follows


def test_a_killed_job_lets_its_follower_go(tmp_path: Path) -> None:
    text = line(1, 0, 100).split()
    text[8] = "30"  # it asked for less than it ran
    path = log(tmp_path, " ".join(text), line(2, 110, 1, preceding=1, think=10))
    jobs = api.simulate(str(path), policy="easy", cluster="2x1cpu").jobs
    assert [(job["submit"], job["end"]) for job in jobs] == [(0.0, 30.0), (40.0, 41.0)]
