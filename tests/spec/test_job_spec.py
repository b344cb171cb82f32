"""One specification of a job: every place in which one can be written has every option, but for named ones.

The recipe for a further option is tested here too: a field in `dovetail.spec.jobs` that becomes
``Job.options`` goes by itself from each place into the job, the ledger and the journal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from option_values import value_of

from dovetail.cli.options import part_of_options
from dovetail.client.requests import request_of_file, request_of_parts, request_of_script
from dovetail.engine.journal.codec import Codec, decode_job, encode_job
from dovetail.errors import InputError
from dovetail.files.fields import validate_data
from dovetail.model import EMPTY, Cluster, Job, Submitted
from dovetail.running.ledger import Ledger
from dovetail.service.forms import SubmitForm
from dovetail.service.submission import Submitter, submission_of
from dovetail.spec.jobs import (
    JOB_OPTIONS,
    KEPT,
    OF_PYTHON,
    SPEC,
    check_values,
    job_option,
    laid_over,
    read_texts,
)
from dovetail.spec.option import Option
from dovetail.workloads.batch.opening import open_script
from dovetail.workloads.batch.script import read_script
from dovetail.workloads.commands import command_workload, load_commands
from dovetail.workloads.job_builder import JobBuilder, depends_of
from dovetail.workloads.jobfile import load_jobfile

# -- every option in every place -----------------------------------------------------------------------

PLACES: Mapping[str, Callable[[Option], bool]] = {
    "run": lambda option: "run" in option.commands,
    "submit": lambda option: "submit" in option.commands,
    "line of a script": lambda option: bool(option.lines),
    "HTTP": lambda option: bool(option.http),
    "job file": lambda option: bool(option.file),
    "Client": lambda option: option.http in OF_PYTHON and bool(option.http),
}
ON_LINES = ("run", "submit", "line of a script")
OF_TEXTS = (*ON_LINES, "Client")
OF_A_FILE = ("run", "submit", "line of a script", "HTTP", "Client")

EXCEPTIONS: Mapping[tuple[str, ...], tuple[tuple[str, ...], str]] = {
    ("id",): (OF_TEXTS, "one job alone needs no name to be waited for; a service gives it a number"),
    ("command", "script", "arguments"): (OF_TEXTS, "it is what is given there, not an option beside it"),
    ("implementations",): (
        OF_TEXTS,
        "--cpu and --gpu on command lines; a script and a function are one program",
    ),
    ("script", "arguments"): (("job file",), "a file names its programs: command = ['./job.sh', 'word']"),
    ("env",): (ON_LINES, "a shell sets variables before the command, and a script in its own lines"),
    ("singleton",): (ON_LINES, "spelt --depends singleton there, as in sbatch"),
    ("hold",): (("run", "job file"), "a run has no command that releases its jobs"),
    ("mail_type", "mail_user", "notify"): (
        ("run",),
        "a service sends mail; a run ends in front of who started it",
    ),
    ("every",): (("run", "job file"), "a run ends; what comes again needs a queue that stays"),
    ("batch_variables", "from_script", "variables"): (
        ("run", "submit", "line of a script", "job file", "Client"),
        "a script has it by its #SBATCH lines",
    ),
    ("begin",): (("job file",), "moments of a file count from its first submission: submit"),
    ("implementation", "sequential"): (ON_LINES, "what the papers' policies go by is known of a file's jobs"),
    ("sequential",): (("Client",), "what the papers' policies go by is known of a file's jobs"),
    ("speedup", "times", "communication"): (OF_A_FILE, "true times: a simulation's, which reads files"),
    ("submit", "group", "queue"): (OF_A_FILE, "of a trace; jobs come now, and a queue is a partition"),
    ("user",): (OF_A_FILE, "a service knows who submits, and a run is its account's"),
    ("count", "grid"): (OF_A_FILE, "--each and --array there; HTTP and Python have loops"),
}
"""Options that a place does not have, and why."""

MISSING = {(name, place) for names, (places, _) in EXCEPTIONS.items() for name in names for place in places}


@pytest.mark.parametrize("place", PLACES)
def test_every_option_is_in_every_place_but_for_the_exceptions(place: str) -> None:
    lacking = {option.name for option in SPEC if not PLACES[place](option)}
    assert lacking == {name for name, there in MISSING if there == place}


def test_every_exception_has_a_reason() -> None:
    assert all(reason for _, reason in EXCEPTIONS.values())


def test_every_field_becomes_something_and_is_explained() -> None:
    for option in SPEC:
        assert option.becomes
        assert option.about or option.help, option.name
        assert option.kind is not None


# -- the recipe ----------------------------------------------------------------------------------------


def flag_of(option: Option) -> str:
    value = value_of(option)
    return option.spellings[0] if value is True else f"{option.spellings[0]}={value}"


def texts(option: Option) -> dict[str, Any]:
    value = value_of(option)
    return {option.name: value if value is True else str(value)}


def submitted(request: Mapping[str, Any], tmp_path: Path) -> Job:
    """The job of a request, as the next start of the service reads it from its ledger."""
    form = validate_data(SubmitForm, {"folder": "/", **json.loads(json.dumps(request))}, "request")
    found = submission_of(form, Submitter("ann"), Cluster.parse("1x2cpu"), 1, "/scripts", EMPTY)
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.submit(found.jobs, 0.0, batch=1, numbers=found.numbers)
    with Ledger(tmp_path / "ledger.db") as ledger:
        (entry,) = ledger.open_entries()
    return entry.job


def of_run(option: Option, tmp_path: Path) -> Job:
    part = part_of_options(texts(option))
    return command_workload(["true"], part).jobs[0]


def of_list(option: Option, tmp_path: Path) -> Job:
    (tmp_path / "list.txt").write_text("true\n")
    return load_commands(tmp_path / "list.txt", part_of_options(texts(option))).jobs[0]


def of_submit(option: Option, tmp_path: Path) -> Job:
    return submitted(request_of_parts({"command": ["true"], **part_of_options(texts(option))}), tmp_path)


def of_script(option: Option, tmp_path: Path) -> Job:
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n#DOVETAIL {flag_of(option)}\ntrue\n")
    opened = open_script(str(script), {})
    assert opened is not None
    return submitted(request_of_script(opened, [], {}, pytest.fail), tmp_path)


def of_file(option: Option, tmp_path: Path) -> Job:
    path = tmp_path / "jobs.toml"
    path.write_text(f'[[job]]\ncommand = "true"\n{option.file} = {json.dumps(value_of(option))}\n')
    job = load_jobfile(path).jobs[0]
    sent = submitted(request_of_file(str(path), {}), tmp_path)
    assert dict(sent.options) == dict(job.options)
    return job


def of_python(option: Option, tmp_path: Path) -> Job:
    return submitted(
        request_of_parts({"command": ["true"], **check_values({option.name: value_of(option)})}), tmp_path
    )


OF_PLACES: Mapping[Callable[[Option, Path], Job], str] = {
    of_run: "run",
    of_list: "run",
    of_submit: "submit",
    of_script: "line of a script",
    of_file: "job file",
    of_python: "Client",
}


@pytest.mark.parametrize("place", OF_PLACES)
@pytest.mark.parametrize("name", KEPT)
def test_an_option_goes_from_every_place_into_the_job_and_the_journal(
    name: str, place: Callable[[Option, Path], Job], tmp_path: Path
) -> None:
    """The recipe of docs/explanation/architecture.md: a field of the table, and what gives it meaning."""
    option = job_option(name)
    if (name, OF_PLACES[place]) in MISSING:
        pytest.skip(f"{OF_PLACES[place]} has no --{name}")
    job = place(option, tmp_path)
    assert option.kind is not None
    assert option.kind.check is not None
    value = option.kind.check(value_of(option))
    assert job.options[name] == value
    line = json.loads(json.dumps(Codec().encode_event(Submitted(job))))
    again = Codec().event_from(line)
    assert isinstance(again, Submitted)
    assert again.job.options[name] == value


def test_a_default_is_not_kept() -> None:
    for name in KEPT:
        assert command_workload(["true"], {name: job_option(name).default}).jobs[0].options == {}


def test_options_that_are_kept_are_those_of_the_table() -> None:
    assert set(KEPT) == {option.name for option in SPEC if option.becomes == JOB_OPTIONS}


# -- texts and parts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"nodes": "0"}, "--nodes: found '0', expected a whole number of at least 1"),
        ({"nodes": "two"}, "--nodes: found 'two', expected a whole number of at least 1"),
        ({"cpus": "0"}, "--cpus: found '0', expected a whole number of at least 1, or 'all'"),
        ({"walltime": "soon"}, "--walltime: found 'soon', expected seconds, or a duration such as"),
        ({"memory": "8XB"}, "--memory: found '8XB', expected bytes, or a size such as 8GB"),
        ({"gpus": "1.5"}, "--gpus: found '1.5', expected a number of devices"),
        ({"on": "cpu,,gpu"}, "--on: found 'cpu,,gpu', expected kinds of device joined by commas"),
        ({"inputs": ["n"]}, "--input: found 'n', expected NAME=VALUE"),
        ({"inputs": ["n=1", "n=2"]}, "--input: found n twice"),
        ({"retry_memory": "1"}, "--retry-memory: found '1', expected learned, no, or a factor above 1"),
        ({"priority": "1e3"}, "--priority: found '1e3', expected a whole number within 1000000"),
    ],
)  # fmt: skip
def test_a_text_that_cannot_be_is_refused_with_its_option(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError) as refused:
        read_texts(given)
    assert str(refused.value).startswith(expected)


def test_texts_become_values() -> None:
    assert read_texts(
        {
            "depends": "afterok:3:4,singleton", "gpus": "gpu:a100:2", "memory": "8GB", "walltime": "1h30m",
            "cpus": "all", "on": ["cpu,gpu"], "inputs": ["n=10k", "t=-2", "w=word"], "gpu": "./g",
        }
    ) == {
        "depends": ["afterok:3", "afterok:4"], "singleton": True, "gpus": 2.0, "memory": 8_000_000_000,
        "walltime": 5400.0, "cpus": "all", "on": ["cpu", "gpu"],
        "inputs": {"n": 10_000.0, "t": -2.0, "w": "word"}, "implementations": {"gpu": "./g"},
    }  # fmt: skip


def test_what_is_laid_over_wins_and_dependencies_add_up() -> None:
    below = {"nodes": 1, "depends": ["afterok:a"], "inputs": {"n": 1.0}, "batch_options": ["-x"]}
    above = {"nodes": 2, "depends": ["afterok:b"], "inputs": {"m": 2.0}}
    assert laid_over(below, above) == {
        "nodes": 2, "depends": ["afterok:a", "afterok:b"], "inputs": {"n": 1.0, "m": 2.0},
        "batch_options": ["-x"],
    }  # fmt: skip


def test_a_line_that_cannot_be_is_named() -> None:
    with pytest.raises(InputError, match=r"^job\.sh: line 3: found 'soon', expected seconds"):
        read_script("#!/bin/sh\n#\n#DOVETAIL -t soon\n", "job.sh", environ={}).check()


# -- jobs ----------------------------------------------------------------------------------------------


def test_a_job_of_a_file_may_be_an_array_with_files_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(
        '[[job]]\nid = "a_b"\ncommand = "echo {index}"\narray = "1-2%1"\nstdout = "%x-%A-%a"\nname = "n"\n'
        '[[job]]\ncommand = "true"\ndepends = ["afterok:a_b"]\n'
    )
    one, two, last = load_jobfile(path).jobs
    assert [one.id, two.id, last.id] == ["a_b_1", "a_b_2", "true-1"]
    assert [dict(job.inputs)["index"] for job in (one, two)] == [1.0, 2.0]
    assert [throttle.limit for throttle in one.throttles] == [1]
    assert one.launch is not None
    assert one.launch.files(one, "/w") == ("/w/n-a_b-1",) * 2
    assert [each.job for each in last.depends] == ["a_b_1", "a_b_2"]


def test_cpus_of_a_job_that_runs_on_devices_alone_are_beside_them() -> None:
    both = command_workload(["true"], {"cpus": 4, "on": ["cpu", "gpu"]}, on=["cpu", "gpu"], cpus=4).jobs[0]
    alone = command_workload(["true"], {"cpus": 4, "gpus": 2.0}, cpus=4).jobs[0]
    assert [choice.request.cpus for choice in both.choices] == [4, -2]
    assert [(c.request.cpus, c.request.devices) for c in alone.choices] == [(4, (("gpu", 2.0),))]


def test_a_ledger_of_an_earlier_version_is_read() -> None:
    """Options for the batch system had its name there, in jobs and in launches."""
    job = command_workload(["true"], {"batch_options": ["-x"]}).jobs[0]
    data = encode_job(job)
    assert data["slurm"] == ["-x"]
    assert decode_job(data, job.app).batch_options == ("-x",)


def test_a_file_is_sent_as_it_is_written(tmp_path: Path) -> None:
    """A service makes the jobs: apps travel as they are, and an entry as a job for each combination."""
    path = tmp_path / "jobs.toml"
    path.write_text(
        '[[app]]\nname = "m"\non = ["cpu"]\ncommand = "./m {n}"\n'
        '[[job]]\nid = "g"\napp = "m"\ngrid = { n = [1, 2] }\nqueue = "q"\nuser = "u"\nwalltime = "1h"\n'
        '[[job]]\napp = "m"\ninputs = { n = 3 }\ndepends = ["afterok:g"]\n'
    )
    sent = request_of_file(str(path), {"depends": ["afterok:9"], "retries": 2})
    assert sent["apps"] == [{"name": "m", "on": ["cpu"], "command": "./m {n}"}]
    first, _, last = sent["jobs"]
    assert first == {
        "id": "g-1", "app": "m", "inputs": {"n": 1.0}, "walltime": 3600.0, "retries": 2, "nodes": 1,
        "partition": "q", "depends": ["afterok:9"],
    }  # fmt: skip
    assert last["depends"] == ["afterok:g-1", "afterok:g-2", "afterok:9"]


def test_a_builder_names_what_a_spec_lacks() -> None:
    from dovetail.spec.jobs import JobSpec

    with pytest.raises(InputError, match="found nothing to run"):
        JobBuilder().build(JobSpec(), "")
    assert depends_of(JobSpec(depends=("afterany:x",)))[0].job == "x"
