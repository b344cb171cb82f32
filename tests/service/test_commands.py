"""The commands, as people type them, against a real service."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from dovetail_command import DOVETAIL
from services import Serving, serving
from waiting import until

from dovetail.client.connection import open_connection
from dovetail.testing.processes import is_running

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("service"), "--cluster", "1x2cpu") as found:
        yield found


def submitted(service: Serving, *arguments: str, **more: Any) -> str:
    done = service.dovetail("submit", "--parsable", *arguments, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def row(service: Serving, job: str) -> dict[str, Any]:
    found = json.loads(service.dovetail("info", job, "--json").stdout)
    assert isinstance(found, dict)
    return found


def test_a_job_runs_in_the_folder_and_environment_of_its_submitter(service: Serving, tmp_path: Path) -> None:
    environment = {**service.environment, "COLOUR": "blue"}
    job = submitted(service, "--", "sh", "-c", "pwd; echo $COLOUR", cwd=tmp_path, env=environment)
    assert service.dovetail("wait", job).returncode == 0
    assert service.dovetail("logs", job).stdout == f"{tmp_path}\nblue\n"


def test_who_finds_nothing_is_told_where_to_look(service: Serving, tmp_path: Path) -> None:
    """A list of commands that all failed within a second left "The queue is empty." and an empty log."""
    job = submitted(service, "-J", "quiet", "--", "sh", "-c", "echo no such thing >&2; exit 3", cwd=tmp_path)
    assert service.dovetail("wait", job).returncode == 1
    shown = service.dovetail("logs", job)
    assert (shown.stdout, shown.stderr) == (
        "",
        "nothing on standard output, 14 bytes on standard error: --err shows them\n",
    )
    assert service.dovetail("logs", job, "--err").stdout == "no such thing\n"
    assert "dovetail queue --ended" in service.dovetail("queue").stdout
    assert service.dovetail("queue", "--name", "unheard").stdout == (
        "No such job runs or waits (--ended lists those that have ended).\n"
    )
    assert service.dovetail("whatif").stdout == "Nothing runs or waits.\n"


def test_names_that_are_no_utf8_are_submitted_as_they_are(service: Serving, tmp_path: Path) -> None:
    """One such variable in an environment had every submission refused as "no JSON"."""
    folder = tmp_path / os.fsdecode(b"d\xff")
    folder.mkdir()
    script = "printf '%s\\n' $0 $COLOUR; touch $0.there"
    words = [*DOVETAIL, "submit", "--parsable", "--", "sh", "-c", script]
    done = subprocess.run(
        [*map(os.fsencode, words), b"a\xe9"],
        cwd=folder,
        env={**service.environment, "COLOUR": os.fsdecode(b"r\xf6t")},
        capture_output=True,
        check=True,
        timeout=280,
    )
    job = done.stdout.decode().strip()
    assert service.dovetail("wait", job).returncode == 0
    with open_connection(service.folder.path) as client:
        assert client.ask("GET", f"/api/v1/jobs/{job}/log").body == b"a\xe9\nr\xf6t\n"
    assert (folder / os.fsdecode(b"a\xe9.there")).exists()
    assert service.dovetail("info", job).returncode == 0


def test_an_array_has_a_job_for_each_index_and_a_limit(service: Serving) -> None:
    done = service.dovetail("submit", "-a", "0-3%1", "--json", "--cpu", "sh -c 'echo {index}; sleep 0.1'")
    found = json.loads(done.stdout)
    assert found["ids"] == [f"{found['id']}_{n}" for n in range(4)]
    assert service.dovetail("wait", found["id"]).returncode == 0
    jobs = json.loads(service.dovetail("queue", "--json", found["id"]).stdout)
    spans = sorted((job["start"], job["end"]) for job in jobs)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert [service.dovetail("logs", id).stdout for id in found["ids"]] == [f"{n}\n" for n in range(4)]


def test_the_json_of_the_queue_has_the_fields_of_the_contract(service: Serving) -> None:
    job = submitted(service, "--hold", "-J", "waits", "--", "true")
    (found,) = json.loads(service.dovetail("queue", "--json", "--name", "waits").stdout)
    assert {
        "id", "name", "state", "user", "submit", "start", "end", "predicted_start", "predicted_end", "reason",
        "implementation", "nodes", "devices",
    } <= found.keys()  # fmt: skip
    assert (found["id"], found["state"], found["reason"]) == (job, "PENDING", "held")
    assert abs(found["submit"] - time.time()) < 60
    assert service.dovetail("release", job).returncode == 0
    assert service.dovetail("wait", job).returncode == 0


def test_wait_tells_of_failures_and_gives_up(service: Serving) -> None:
    bad = submitted(service, "--", "sh", "-c", "exit 3")
    done = service.dovetail("wait", bad)
    assert (done.returncode, done.stderr) == (1, f"job {bad}: FAILED\n")
    assert row(service, bad)["exit_code"] == 3
    held = submitted(service, "--hold", "--", "true")
    assert service.dovetail("wait", held, "--timeout", "0.2").returncode == 124
    assert service.dovetail("cancel", held).stdout == f"Cancelled: {held}\n"
    assert service.dovetail("cancel", held).returncode == 1, "it has ended"
    assert row(service, held)["state"] == "CANCELLED"


def test_of_chosen_jobs_those_that_have_ended(service: Serving) -> None:
    first, second = (submitted(service, "-J", "past", "--", "true") for _ in range(2))
    held = submitted(service, "--hold", "--", "true")
    service.dovetail("wait", first, second)
    shown = service.dovetail("queue", "--ended", "--json", f"{first},{second},{held}")
    assert [one["id"] for one in json.loads(shown.stdout)] == [second, first]
    shown = service.dovetail("queue", "--ended", "--json", "--state", "failed", first)
    assert json.loads(shown.stdout) == []
    assert service.dovetail("queue", "--ended", held).stdout == "No such job has ended.\n"
    done = service.dovetail("requeue", held)
    assert (done.returncode, done.stderr) == (1, f"job {held} was not requeued: it waits already\n")
    service.dovetail("cancel", held)


def test_dependencies_hold_jobs_back_and_cancel_what_cannot_come_true(service: Serving) -> None:
    first = submitted(service, "--hold", "--", "false")
    after_ok = submitted(service, "-d", f"afterok:{first}", "--", "true")
    after_any = submitted(service, "-d", f"afterany:{first}", "--", "true")
    assert row(service, after_ok)["reason"] == f"depends on afterok:{first}"
    service.dovetail("release", first)
    assert service.dovetail("wait", after_any).returncode == 0
    found = row(service, after_ok)
    assert (found["state"], found["start"]) == ("CANCELLED", None)
    assert "cannot come true" in str(found["detail"])


def test_a_waiting_job_that_is_cancelled_has_ended_for_all_who_wait_for_it(service: Serving) -> None:
    """`wait` was told nothing, and looked again a minute later; `info` did not count it."""
    with open_connection(service.folder.path) as client:
        before = client.get("/api/v1/info")["ended"].get("CANCELLED", 0)
        job = submitted(service, "--hold", "--", "true")
        other = submitted(service, "-d", f"afterok:{job}", "--", "true")
        assert service.dovetail("cancel", job).returncode == 0
        until(lambda: client.get("/api/v1/info")["ended"].get("CANCELLED", 0) == before + 2)
        assert client.get("/api/v1/info")["jobs"]["held"] == 0
        assert row(service, other)["state"] == "CANCELLED"


def test_requeue_is_another_attempt_and_each_is_recorded(service: Serving) -> None:
    job = submitted(service, "--", "sh", "-c", "echo $DOVETAIL_UID; exit 1")
    service.dovetail("wait", job)
    assert service.dovetail("requeue", job).stdout == f"Requeued: {job}\n"
    service.dovetail("wait", job)
    found = row(service, job)
    assert found["attempts"] == 2
    assert [one["state"] for one in found["earlier"]] == ["FAILED"]
    first, second = (service.dovetail("logs", job, "--attempt", n).stdout for n in "12")
    assert first
    assert second
    assert first != second


def test_a_running_job_is_cancelled_with_its_children(service: Serving) -> None:
    job = submitted(service, "--", "sh", "-c", "sleep 100 & echo $!; wait")
    told = until(lambda: service.dovetail("logs", job).stdout)
    assert service.dovetail("cancel", job).returncode == 0
    assert service.dovetail("wait", job).returncode == 1
    assert row(service, job)["state"] == "CANCELLED"
    until(lambda: not is_running(int(told)))


def test_logs_follow_until_the_end(service: Serving) -> None:
    job = submitted(service, "--", "sh", "-c", "echo one; sleep 0.5; echo two; echo err >&2")
    assert service.dovetail("logs", "-f", job).stdout == "one\ntwo\n"
    assert service.dovetail("logs", "--err", job).stdout == "err\n"


def test_output_goes_where_the_user_wants_it(service: Serving, tmp_path: Path) -> None:
    job = submitted(
        service, "-a", "3", "-J", "a/b", "-o", "%x-%A-%a.txt", "--cpu", "echo {index}", cwd=tmp_path
    )
    assert service.dovetail("wait", job).returncode == 0
    assert (tmp_path / f"a_b-{job}-3.txt").read_text() == "3\n"


def test_a_batch_script_is_kept_as_it_was_and_its_lines_are_read(service: Serving, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/sh\n#SBATCH --job-name=named --time=1:00 --mail-type=END\n#DOVETAIL -c 2\n"
        "echo $1 $SLURM_JOB_ID $SLURM_JOB_NAME\n#SBATCH --hold\n"
    )
    held = submitted(service, "--hold", "--", "true")
    done = service.dovetail("submit", "--parsable", "-d", f"afterany:{held}", str(script), "word")
    job = done.stdout.strip()
    assert "--mail-type=END has no meaning here" in done.stderr
    script.write_text("#!/bin/sh\necho changed\n")
    service.dovetail("cancel", held)
    assert service.dovetail("wait", job).returncode == 0
    assert service.dovetail("logs", job).stdout == f"word {job} named\n"
    found = row(service, job)
    assert (found["name"], found["walltime"]) == ("named", 60.0)
    (cores,) = found["cores"].values()
    assert len(cores) == 2


def test_job_files_and_lists_of_commands(service: Serving, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(
        '[[app]]\nname = "say"\n[[app.implementation]]\nname = "cpu"\ncpus = 1\ncommand = "echo {n}"\n'
        '[[job]]\nid = "one"\napp = "say"\ninputs = {n = 1}\n'
        '[[job]]\napp = "say"\ngrid = {n = "2..3"}\ndepends = ["afterok:one"]\n'
    )
    done = json.loads(service.dovetail("submit", "--json", str(tmp_path / "jobs.toml")).stdout)
    assert len(done["ids"]) == 3
    assert service.dovetail("wait", *done["ids"]).returncode == 0
    assert [service.dovetail("logs", id).stdout for id in done["ids"]] == ["1\n", "2\n", "3\n"]
    commands = "echo a\n# a comment\necho 'b c'\n"
    done = json.loads(service.dovetail("submit", "--json", "-", input=commands).stdout)
    assert service.dovetail("wait", *done["ids"]).returncode == 0
    assert [service.dovetail("logs", id).stdout for id in done["ids"]] == ["a\n", "b c\n"]


def test_selectors(service: Serving) -> None:
    one, two, three = (submitted(service, "--hold", "-J", name, "--", "true") for name in ("x", "y", "y"))
    ids = lambda *words: [r["id"] for r in json.loads(service.dovetail("queue", "--json", *words).stdout)]  # noqa: E731
    assert ids(f"{one}-{three}") == [one, two, three]
    assert ids(f"{one},{three}") == [one, three]
    assert ids("y") == [two, three]
    assert ids("last") == [three]
    assert service.dovetail("cancel", "all").returncode == 0
    done = service.dovetail("cancel", "999999")
    assert (done.returncode, done.stderr) == (2, "dovetail: found no job 999999\n")


def test_a_partition_where_there_is_none_is_passed_over(service: Serving) -> None:
    done = service.dovetail("submit", "-p", "fast", "--", "true")
    assert done.returncode == 0
    passed_over = "--partition has no meaning here and is passed over"
    assert done.stderr == f"{passed_over}: the cluster has no partitions\n"


def test_bad_input_is_one_sentence(service: Serving) -> None:
    for words, said in (
        (("-c", "99", "--", "true"), "dovetail: cpus: found 99, the largest node has 2\n"),
        (("--on", "gpu", "--", "true"), "dovetail: found a job for gpu, and there is only cpu\n"),
        (("-a", "5-1", "--cpu", "true"), "dovetail: array: found '5-1', expected the lower index first"),
        (("-d", "afterok:999999", "--", "true"), "dovetail: depends: found 'afterok:999999'"),
        ((), "dovetail: found nothing to run, expected one of a command after '--'"),
    ):
        done = service.dovetail("submit", *words)
        assert done.returncode == 2
        assert done.stderr.startswith(said), done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_only_its_owner_can_reach_the_socket_and_the_folder(service: Serving) -> None:
    address = service.folder.address()
    assert address is not None
    assert stat.S_IMODE(os.stat(address.socket).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(service.folder.path).st_mode) == 0o700
    for path in service.folder.path.rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077 or path.suffix == ".log", path


def test_explain_says_how_a_job_was_placed_and_how_long_it_took(service: Serving) -> None:
    """Also of short jobs that follow each other: their times are those of their processes."""
    job = submitted(service, "-a", "0-79", "--on", "cpu", "--", "/bin/true")
    assert service.dovetail("wait", job).returncode == 0
    told = service.dovetail("explain", f"{job}_70")
    assert (told.returncode, told.stderr) == (0, "")
    assert "COMPLETED on" in told.stdout
    rows = json.loads(service.dovetail("explain", job, "--json").stdout)
    assert len(rows) == 80
    assert all(0.0001 < row["actual"] < 5 for row in rows), sorted(row["actual"] for row in rows)


def test_explain_takes_names_as_all_commands_do(service: Serving) -> None:
    for name in ("memhog", "train.py"):
        job = submitted(service, "-J", name, "--hold", "--on", "cpu", "--", "/bin/true")
        (row,) = json.loads(service.dovetail("explain", name, "--json").stdout)
        assert (row["id"], row["reason"]) == (job, "held")
    assert "no job" in service.dovetail("explain", "nobody").stderr
    assert "expected a job file" in service.dovetail("explain", "no_file.toml").stderr


def test_info_and_nodes(service: Serving) -> None:
    found = json.loads(service.dovetail("info", "--json").stdout)
    assert (found["nodes"], found["cpus"], found["policy"]) == (1, 2, "history")
    (node,) = json.loads(service.dovetail("nodes", "--json").stdout)
    assert (node["state"], node["cpus"]) == ("up", 2)


def test_without_a_service_commands_say_so_and_submit_starts_one(tmp_path: Path) -> None:
    service = Serving(tmp_path)
    done = service.dovetail("queue")
    assert (done.returncode, done.stderr) == (
        2,
        "dovetail: no service runs here; 'dovetail serve' or 'dovetail submit' starts one\n",
    )
    done = service.dovetail("submit", "-W", "--", "true")
    assert done.returncode == 0, done.stderr
    assert "no service was running: started one" in done.stderr
    assert done.stdout == "Submitted job 1\n"
    assert service.dovetail("serve").returncode == 2, "one is enough"
    assert service.dovetail("serve", "--drain").returncode == 0
    assert service.dovetail("queue").returncode == 2
    for _ in range(3):
        assert service.dovetail("submit", "--", "true").returncode == 0
        done = service.dovetail("serve", "--stop")
        assert (done.returncode, done.stderr) == (0, "")


def test_memory_is_watched(service: Serving) -> None:
    hungry = "sh -c 'x=$(head -c 300000000 /dev/zero | tr \"\\\\0\" y); sleep 30'"
    job = submitted(service, "--mem", "50MB", "--retry-memory", "no", "--cpu", hungry)
    assert service.dovetail("wait", job).returncode == 1
    found = row(service, job)
    assert (found["state"], found["reason"]) == ("OUT_OF_MEMORY", "memory")
    assert found["detail"].startswith("memory: its processes held")
    modest = submitted(service, "--mem", "500MB", "--", "sleep", "1")
    assert service.dovetail("wait", modest).returncode == 0


def test_a_signal_comes_before_the_walltime(service: Serving) -> None:
    script = "trap 'echo told; exit 0' USR1; echo begun; while :; do sleep 0.05; done"
    job = submitted(service, "-t", "30", "--signal", "USR1@29", "--", "sh", "-c", script)
    assert service.dovetail("wait", job).returncode == 0
    assert service.dovetail("logs", job).stdout == "begun\ntold\n"
    late = submitted(service, "-t", "1", "--", "sleep", "30")
    assert service.dovetail("wait", late).returncode == 1
    assert row(service, late)["state"] == "TIMEOUT"


def test_a_singleton_waits_for_the_one_of_its_name(service: Serving) -> None:
    jobs = [submitted(service, "-J", "only", "-d", "singleton", "--", "sleep", "0.3") for _ in range(3)]
    assert service.dovetail("wait", *jobs).returncode == 0
    spans = sorted((row(service, job)["start"], row(service, job)["end"]) for job in jobs)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_a_singleton_waits_for_jobs_of_its_name_that_are_none(service: Serving) -> None:
    """As in sbatch, where only the later ones of a chain need the option."""
    held = submitted(service, "-J", "chain", "--hold", "--", "true")
    other = submitted(service, "-J", "other", "--hold", "--", "true")
    last = submitted(service, "-J", "chain", "-d", "singleton", "--", "true")
    after = submitted(service, "-J", "elsewhere", "--", "true")
    assert service.dovetail("wait", after).returncode == 0
    assert row(service, last)["state"] == "PENDING"
    service.dovetail("release", held)
    assert service.dovetail("wait", last).returncode == 0
    assert row(service, last)["start"] >= row(service, held)["end"]
    assert row(service, other)["state"] == "PENDING"
    service.dovetail("cancel", other)


def test_what_failed_is_listed_and_runs_again(service: Serving, tmp_path: Path) -> None:
    flag = tmp_path / "now"
    command = ["sh", "-c", f"test -e {flag}"]
    bad = submitted(service, "-J", "brittle", "--", *command)
    good = submitted(service, "-J", "brittle", "--", "true")
    assert service.dovetail("wait", "brittle").returncode == 1
    rows = json.loads(
        service.dovetail("queue", "--since", "1h", "--failed", "--name", "brittle", "--json").stdout
    )
    assert [row["id"] for row in rows] == [bad]
    again = json.loads(service.dovetail("queue", "brittle", "--failed", "--json").stdout)
    assert [row["id"] for row in again] == [bad]
    flag.touch()
    done = json.loads(service.dovetail("requeue", "--failed", "brittle", "--json").stdout)
    assert done == {"jobs": [bad], "refused": {}}
    assert service.dovetail("wait", bad, good).returncode == 0
    none = service.dovetail("requeue", "--failed", "brittle")
    assert (none.returncode, none.stderr) == (2, "dovetail: found no job that has failed\n")
    flag.unlink()
    assert service.dovetail("requeue", bad).returncode == 0
    assert service.dovetail("wait", bad).returncode == 1
    flag.touch()
    assert bad in json.loads(service.dovetail("requeue", "--failed", "--json").stdout)["jobs"]
    assert service.dovetail("wait", bad).returncode == 0
    assert service.dovetail("requeue").returncode == 2


def test_the_queue_shows_what_runs_in_the_columns_that_are_wanted(service: Serving) -> None:
    words = ["sh", "-c", "exit 0 # " + "x" * 60]
    plain, named = submitted(service, "--", *words), submitted(service, "-J", "fit", "--", *words)
    assert service.dovetail("wait", plain, named).returncode == 0
    shown = service.dovetail("queue", f"{plain},{named}", "-o", "id,name,state,exit_code").stdout.splitlines()
    assert shown[0].split() == ["ID", "NAME", "STATE", "EXIT", "CODE"]
    assert shown[1].split()[0] == plain
    assert "…" in shown[1]
    assert shown[2].split()[:3] == [named, "fit", "COMPLETED"]
    as_squeue = service.dovetail("queue", plain, named, "-o", "%.18i|%j %T", "--parsable").stdout.splitlines()
    assert as_squeue[1] == f"{named}|fit|COMPLETED"
    assert as_squeue[0].startswith(f"{plain}|sh -c 'exit 0 # xxx")
    refused = service.dovetail("queue", "-o", "id,stat")
    assert (refused.returncode, "expected one of id, name" in refused.stderr) == (2, True)
    assert "found %Z" in service.dovetail("queue", "-o", "%i %Z").stderr
