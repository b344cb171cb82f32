"""What is taken in can be read back, and run; what cannot is refused in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dovetail.errors import InputError
from dovetail.files.fields import validate_data
from dovetail.model import EMPTY, Cluster
from dovetail.running.ledger import Ledger
from dovetail.service.forms import SubmitForm
from dovetail.service.selectors import parse_selectors
from dovetail.service.submission import Submission, Submitter, submission_of


def made(job: dict[str, Any], known: Mapping[str, Sequence[str]] = EMPTY, **around: Any) -> Submission:
    form = validate_data(
        SubmitForm, {"folder": "/", "jobs": [{"command": ["true"]} | job], **around}, "request"
    )
    return submission_of(form, Submitter("ann", None), Cluster.parse("1x2cpu"), 1, "/scripts", known)


@pytest.mark.parametrize(
    "job",
    [
        {"inputs": {"n": 1e300}},
        {"inputs": {"n": 1.7e308}},
        {"inputs": {"a\x1b[2J": 1}},
        {"inputs": {"a\x1b[2J" + "x" * 10_000: 1}},
        {"inputs": {f"i{n}": n for n in range(101)}},
        {"env": {"A=B": "x"}},
        {"env": {"": "x"}},
        {"env": {"A": "\0"}},
        {"stdout": "a\0b"},
        {"script": "#!/bin/sh", "arguments": ["\0"]},
        {"name": "\0"},
    ],
)
def test_what_cannot_be_kept_or_run_is_refused(job: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refused:
        made(job)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


def test_an_environment_of_all_jobs_is_checked_as_that_of_one() -> None:
    with pytest.raises(InputError, match=r"^environment: found 'A=B' = 'x', expected"):
        made({}, environment={"A=B": "x"})


@pytest.mark.parametrize(
    "job",
    [{"inputs": {"n": 2**70}}, {"inputs": {"n": 9e299, "t": "ü\x1b"}}, {"memory": 1e18}, {"array": "0-9%2"}],
)
def test_what_is_taken_in_can_be_read_by_the_next_start(job: dict[str, Any], tmp_path: Path) -> None:
    found = made(job)
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.submit(found.jobs, 0.0, batch=1, numbers=found.numbers)
    with Ledger(tmp_path / "ledger.db") as ledger:
        kept = [entry.job for entry in ledger.open_entries()]
    assert [(job.id, dict(job.inputs)) for job in kept] == [(job.id, dict(job.inputs)) for job in found.jobs]


def test_of_a_command_with_very_many_arguments_the_first_are_features() -> None:
    """A model of run times with 200,000 features needs 300 GB: the service ended of one such job."""
    (job,) = made({"command": ["true", *("x" for _ in range(20_000)), *["-f", "1"] * 10_000]}).jobs
    assert len(job.inputs) == 100


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"depends": ["afterok:other"]}, "have one job wait for all of these"),
        ({"inputs": {"text": "x" * 1_000_000}}, "fewer elements"),
        ({"sbatch": ["--comment=" + "x" * 1_000_000]}, "fewer elements"),
    ],
)
def test_an_array_that_would_fill_disk_and_memory_is_refused(job: dict[str, Any], said: str) -> None:
    """10,000 jobs that each wait for 10,000 others took 4 GB of the ledger, and the service for minutes."""
    known = {"other": [f"1_{n}" for n in range(1001)]}
    with pytest.raises(InputError, match=said):
        made({"array": "0-999", **job}, known=known)


def test_elements_of_an_array_share_what_they_start_in() -> None:
    """With a file of its own for each, an environment of 5 kB was on record 100,000 times: 1 GB."""
    jobs = made({"array": "0-9", "stdout": "%x-%A_%a.%j"}, environment={"A": "x" * 5000}).jobs
    assert len({id(job.launch) for job in jobs}) == 1
    assert jobs[7].launch is not None
    assert jobs[7].launch.files(jobs[7], "/home") == ("/true-1_7.1_7",) * 2


def test_a_job_that_is_named_a_thousand_times_is_looked_for_once() -> None:
    assert len(parse_selectors("1," * 1000 + "2")) == 2
