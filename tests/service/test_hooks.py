"""Hooks: what gets jobs as JSON when they begin, end or fail, and that it never holds anything up."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
from services import Serving, serving
from waiting import until

from dovetail.errors import InputError
from dovetail.service.hooks import CommandHook, HookError, Hooks, JobEvent

EVENT = JobEvent("END", {"id": "7", "name": "a"}, 12.5, {"mail": {"user": "ada"}})


class Gate:
    """A hook that holds its thread until it is opened."""

    name = "gate"

    def __init__(self) -> None:
        self.entered, self.open = threading.Semaphore(0), threading.Event()
        self.seen: list[str] = []

    def deliver_event(self, event: JobEvent) -> None:
        self.entered.release()
        self.open.wait(60)
        self.seen.append(event.job["id"])


def numbered(number: int) -> JobEvent:
    return JobEvent("END", {"id": str(number)}, 0.0)


def test_a_command_gets_the_job_as_json_and_no_shell_reads_its_words(tmp_path: Path) -> None:
    program = "import sys; open(sys.argv[1], 'w').write(sys.argv[2] + sys.stdin.read())"
    hook = CommandHook.parse_command(
        f"{sys.executable} -c \"{program}\" {tmp_path}/out '$HOME; '", "--mail-command"
    )
    hook.deliver_event(EVENT)
    words, _, document = (tmp_path / "out").read_text().partition("; ")
    assert words == "$HOME"
    assert json.loads(document) == {
        "event": "END", "time": 12.5, "job": {"id": "7", "name": "a"}, "mail": {"user": "ada"}
    }  # fmt: skip


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("sh -c 'echo no such user >&2; exit 3'", "ended with status 3: no such user"),
        ("sh -c 'kill -9 $$'", "was ended by signal 9"),
        ("/nowhere/at/all", "cannot be started: No such file or directory"),
        ("sh -c 'yes >&2'", "ran longer than 0.5 s and was killed"),
        ("sleep 60", "ran longer than 0.5 s and was killed"),
        ("sh -c 'exec 2>&-; sleep 60'", "ran longer than 0.5 s and was killed"),
    ],
)
def test_a_delivery_that_fails_is_named(command: str, sentence: str) -> None:
    hook = CommandHook(CommandHook.parse_command(command, "").words, seconds=0.5)
    with pytest.raises(HookError) as failed:
        hook.deliver_event(EVENT)
    assert str(failed.value) == sentence


def test_a_command_that_reads_nothing_and_leaves_a_child_behind_holds_nothing_up(tmp_path: Path) -> None:
    large, child = JobEvent("END", {"id": "7", "name": "x" * 1_000_000}, 0.0), tmp_path / "child"
    CommandHook.parse_command(f"sh -c 'sleep 600 & echo $! > {child}'", "").deliver_event(large)
    os.kill(int(child.read_text()), signal.SIGKILL)  # it ran on


@pytest.mark.parametrize("text", ["", "  ", "sh -c 'open"])
def test_a_command_without_words_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--mail-command: found .*expected a command"):
        CommandHook.parse_command(text, "--mail-command")


def test_events_beyond_the_bound_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    hooks, gate = Hooks(most_waiting=2, threads=1), Gate()
    hooks.post_event(gate, numbered(0))
    assert gate.entered.acquire(timeout=60)  # it is delivered now, and waits no more
    with caplog.at_level(logging.INFO, "dovetail.service.hooks"):
        for number in range(1, 5):
            hooks.post_event(gate, numbered(number))
        dropped = [record.getMessage() for record in caplog.records]
        assert dropped == [
            "hook gate: END of job 3 is dropped, since 2 events wait (1 dropped so far)",
            "hook gate: END of job 4 is dropped, since 2 events wait (2 dropped so far)",
        ]
        gate.open.set()
        hooks.close(60)
    assert gate.seen == ["0", "1", "2"]
    hooks.post_event(gate, numbered(9))  # of a service that ends
    assert gate.seen == ["0", "1", "2"]


def test_what_is_left_at_the_end_is_named(caplog: pytest.LogCaptureFixture) -> None:
    hooks, gate = Hooks(threads=1), Gate()
    hooks.post_event(gate, numbered(0))
    assert gate.entered.acquire(timeout=60)
    hooks.post_event(gate, numbered(1))
    with caplog.at_level(logging.WARNING, "dovetail.service.hooks"):
        hooks.close(0.05)
    gate.open.set()
    assert "hooks: 1 events are dropped: the service ends" in caplog.messages


# ------------------------------------------------------------------------------------------------- mail

KEEP = """\
import json, sys
document = json.load(sys.stdin)
line = [document["event"], document["job"]["id"], document["job"]["state"], document["mail"]["user"]]
with open(sys.argv[1], "a") as file:
    file.write(json.dumps([*line, document.get("array", {}).get("states")]) + "\\n")
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Serving, Path]]:
    root = tmp_path_factory.mktemp("mail")
    (root / "keep.py").write_text(KEEP)
    command = f"{sys.executable} -S {root}/keep.py {root}/mails"
    with serving(root, "--cluster", "1x2cpu", "--mail-command", command) as service:
        yield service, root / "mails"


def submit(service: Serving, folder: Path, *lines: str, words: tuple[str, ...] = ()) -> str:
    path = folder / "job.sh"
    path.write_text("".join(f"{line}\n" for line in ("#!/bin/sh", *lines)))
    done = service.dovetail("submit", "--parsable", *words, path.name, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "mail" not in done.stderr
    return done.stdout.strip()


def mails(file: Path, job: str, count: int) -> list[list[Any]]:
    """The mails about a job or its array, once there are so many."""

    def found() -> list[list[Any]]:
        text = file.read_text() if file.exists() else ""
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return sorted(line for line in lines if line[1].partition("_")[0] == job)

    until(lambda: len(found()) >= count, f"no {count} mails about job {job}")
    return found()


@pytest.mark.live
@pytest.mark.xdist_group("live")
class TestMail:
    def test_a_job_that_begins_and_ends(self, site: tuple[Serving, Path], tmp_path: Path) -> None:
        service, file = site
        job = submit(service, tmp_path, "#SBATCH --mail-type=all --mail-user=ada@example.org", "true")
        assert mails(file, job, 2) == [
            ["BEGIN", job, "RUNNING", "ada@example.org", None],
            ["END", job, "COMPLETED", "ada@example.org", None],
        ]

    def test_a_failure_is_an_end_where_no_other_mail_of_it_is_wanted(
        self, site: tuple[Serving, Path], tmp_path: Path
    ) -> None:
        service, file = site
        first = submit(service, tmp_path, "#SBATCH --mail-type=END", "false")
        second = submit(
            service, tmp_path, "#SBATCH --mail-type=BEGIN", "exit 3", words=("--mail-type", "FAIL")
        )
        third = submit(service, tmp_path, "#SBATCH --mail-type=NONE", "false")
        fourth = submit(service, tmp_path, "#SBATCH --mail-type=FAIL,END,BEGIN", "true")
        assert [line[:3] for line in mails(file, first, 1)] == [["FAIL", first, "FAILED"]]
        assert [line[:3] for line in mails(file, second, 1)] == [["FAIL", second, "FAILED"]]
        assert len(mails(file, fourth, 2)) == 2
        assert mails(file, third, 0) == []

    def test_an_array_has_one_mail_of_its_begin_and_one_of_its_end(
        self, site: tuple[Serving, Path], tmp_path: Path
    ) -> None:
        service, file = site
        body = "test $SLURM_ARRAY_TASK_ID != 2"
        job = submit(service, tmp_path, "#SBATCH --mail-type=BEGIN,END -a 1-4", body)
        begin, fail = mails(file, job, 2)
        assert (begin[0], begin[4]) == ("BEGIN", {})
        assert (fail[0], fail[4]) == ("FAIL", {"COMPLETED": 3, "FAILED": 1})
        each = submit(service, tmp_path, "#SBATCH --mail-type=END,ARRAY_TASKS -a 1-3", "true")
        assert [line[:2] for line in mails(file, each, 3)] == [["END", f"{each}_{i}"] for i in (1, 2, 3)]
        assert len(mails(file, job, 2)) == 2

    def test_parts_of_the_walltime_and_its_end(self, site: tuple[Serving, Path], tmp_path: Path) -> None:
        service, file = site
        types = "#SBATCH --mail-type=TIME_LIMIT_50,TIME_LIMIT_90,TIME_LIMIT -t 0:02"
        job = submit(service, tmp_path, types, "exec sleep 60")
        events = [(line[0], line[2]) for line in mails(file, job, 3)]
        assert events == [
            ("TIME_LIMIT", "TIMEOUT"),
            ("TIME_LIMIT_50", "RUNNING"),
            ("TIME_LIMIT_90", "RUNNING"),
        ]

    def test_a_job_that_begins_again(self, site: tuple[Serving, Path], tmp_path: Path) -> None:
        service, file = site
        body = "#SBATCH --requeue --mail-type=REQUEUE,BEGIN"
        job = submit(service, tmp_path, body, "test -e go || exec sleep 60")
        mails(file, job, 1)
        (tmp_path / "go").touch()
        assert service.dovetail("requeue", job).returncode == 0
        assert [line[0] for line in mails(file, job, 3)] == ["BEGIN", "BEGIN", "REQUEUE"]

    def test_a_dependency_that_cannot_come_true(self, site: tuple[Serving, Path], tmp_path: Path) -> None:
        service, file = site
        first = submit(service, tmp_path, "false")
        job = submit(service, tmp_path, f"#SBATCH -d afterok:{first} --mail-type=INVALID_DEPEND", "true")
        assert [line[:3] for line in mails(file, job, 1)] == [["END", job, "CANCELLED"]]

    def test_each_delivery_is_in_the_log(self, site: tuple[Serving, Path], tmp_path: Path) -> None:
        service, file = site
        job = submit(service, tmp_path, "#SBATCH --mail-type=END", "true")
        mails(file, job, 1)
        until(
            lambda: f": END of job {job} delivered" in service.folder.log.read_text(), "it is not in the log"
        )


@pytest.mark.live
@pytest.mark.xdist_group("live")
def test_without_a_command_a_job_that_wants_mail_is_warned(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/sh\n#SBATCH --mail-type=END,FAIL --mail-user=ada\ntrue\n")
    with serving(tmp_path, "--cluster", "1x1cpu") as service:
        done = service.dovetail("submit", "--hold", path.name, cwd=tmp_path)
        assert done.returncode == 0
        assert (
            "job.sh: line 2: --mail-type=END,FAIL has no meaning here and is passed over: no mail is sent: "
            "the service has no --mail-command"
        ) in done.stderr
        plain = service.dovetail("submit", "--hold", "--mail-type", "end", "--", "true", cwd=tmp_path)
        assert "--mail-type has no meaning here and is passed over: no mail is sent" in plain.stderr


@pytest.mark.parametrize(("array", "subject"), [(None, "Job 7 (a b): FAIL"), ("5", "Job 5 (a b): FAIL")])
def test_the_example_hands_a_mail_to_sendmail(tmp_path: Path, array: str | None, subject: str) -> None:
    sendmail = tmp_path / "sendmail"
    sendmail.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\nexec cat > {tmp_path}/mail\n')
    sendmail.chmod(0o755)
    job = {"id": "7", "name": "a\nb", "state": "FAILED", "start": 1.0, "end": 4.0, "reason": "exit 3"}
    more: dict[str, Any] = {"mail": {"user": "ada@example.org"}}
    if array is not None:
        more["array"] = {"id": array, "states": {"COMPLETED": 2, "FAILED": 1}}
    event = JobEvent("FAIL", job, 5.0, more)
    program = Path(__file__).parents[2] / "examples" / "mail" / "by_sendmail.py"
    done = subprocess.run(
        [sys.executable, program],
        input=event.encode_document(),
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=False,
    )
    assert done.returncode == 0
    assert (tmp_path / "words").read_text() == "-t -i\n"
    message = message_from_bytes((tmp_path / "mail").read_bytes())
    assert (message["To"], message["Subject"]) == ("ada@example.org", subject)
    states = "1 FAILED" if array is None else "2 COMPLETED, 1 FAILED"
    assert message.get_payload() == f"{states}\nIt ran 3 s.\nexit 3\n"
