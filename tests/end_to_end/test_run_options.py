"""``dovetail run`` as people use it: how many at once, again after a failure, in order, until one fails."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from dovetail_command import load

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

Call = Callable[..., subprocess.CompletedProcess[str]]


def listed(tmp_path: Path, *lines: str) -> str:
    (tmp_path / "list.txt").write_text("\n".join(lines) + "\n")
    return "list.txt"


def cores(tmp_path: Path) -> str:
    """This machine's first two cores, as a machine of its own."""
    path = tmp_path / "cluster.toml"
    path.write_text(f'[[node]]\nname = "here"\ncores = {sorted(os.sched_getaffinity(0))[:2]}\n')
    return str(path)


def together(jobs: list[dict[str, float]]) -> int:
    """The most jobs that ran at one time."""
    return max(sum(a["start"] <= b["start"] < a["end"] for a in jobs) for b in jobs)


def test_a_plain_command_asks_for_one_core(dovetail: Call, tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    file, cluster = listed(tmp_path, *["sleep 0.3"] * 4), cores(tmp_path)
    for asked, most in (((), 2), (("-j", "1"), 1), (("-c", "all"), 1)):
        found = load(dovetail("run", file, "--cluster", cluster, *asked, "--json"))
        assert together(found["jobs"]) == most


def test_an_unknown_kind_is_refused_before_anything_runs(dovetail: Call, tmp_path: Path) -> None:
    found = dovetail("run", "--on", "cpu,gppu", "--", "touch", "made")
    assert found.returncode == 2
    assert "found the unknown kind of device 'gppu'" in found.stderr
    assert "did you mean 'gpu'?" in found.stderr
    assert not (tmp_path / "made").exists()


def test_an_absent_kind_is_said_once(dovetail: Call, tmp_path: Path) -> None:
    found = dovetail(
        "run", listed(tmp_path, "true", "true"), "--on", "cpu,opencl", "--cluster", cores(tmp_path)
    )
    assert found.returncode == 0
    assert found.stderr.count("no device of kind opencl is here to be scheduled: 2 jobs cannot use one") == 1


def test_what_is_missing_is_said(dovetail: Call, tmp_path: Path) -> None:
    found = dovetail("run", "-c", "64", "--cluster", cores(tmp_path), "--", "true")
    assert found.returncode == 2
    assert "true-1: needs 64 CPUs on a node, and no node has more than " in found.stderr


def test_a_failed_job_starts_again_as_often_as_it_may(dovetail: Call, tmp_path: Path) -> None:
    attempt = "echo x >> tries; test $(wc -l < tries) -ge 3"
    assert dovetail("run", "--retries", "1", "--", "sh", "-c", attempt).returncode == 1
    (tmp_path / "tries").unlink()
    assert dovetail("run", "--retries", "2", "--", "sh", "-c", attempt).returncode == 0
    assert (tmp_path / "tries").read_text() == "x\n" * 3


def test_outputs_come_in_the_order_of_the_list(dovetail: Call, tmp_path: Path) -> None:
    file = listed(
        tmp_path,
        "sh -c 'sleep 0.5; echo one'",
        "sh -c 'echo two; echo oops >&2; exit 3'",
        "sh -c 'printf three'",
    )
    found = dovetail("run", "-k", file, "--cluster", cores(tmp_path))
    assert found.stdout == "one\ntwo\nthree"
    assert found.stderr.startswith("oops\n2 of 3 jobs done")
    assert found.returncode == 1
    refused = dovetail("run", "-k", "--json", file)
    assert refused.returncode == 2
    assert "expected one of them" in refused.stderr


def test_soon_lets_what_runs_end_and_starts_nothing_more(dovetail: Call, tmp_path: Path) -> None:
    # The first job ends when the second is gone and taken in, however busy the machine is.
    waits = "until test -s bad; do sleep 0.05; done; while kill -0 $(cat bad); do sleep 0.05; done"
    fails = "until test -e begun; do sleep 0.05; done; echo $$ > bad; exit 1"
    file = listed(tmp_path, f"sh -c 'touch begun; {waits}; touch long'", f"sh -c '{fails}'", "touch never")
    found = dovetail("run", "--halt", "soon,fail=1", "--json", file, "--cluster", cores(tmp_path), "-j", "2")
    assert [job["state"] for job in load(found)["jobs"]] == ["COMPLETED", "FAILED", "CANCELLED"]
    assert (tmp_path / "long").exists()
    assert not (tmp_path / "never").exists()
    assert found.returncode == 1
    assert "1 job never started; 'dovetail run --resume " in found.stderr


def test_now_stops_what_runs(dovetail: Call, tmp_path: Path) -> None:
    file = listed(tmp_path, "sleep 600", "sh -c 'sleep 0.2; exit 0'", "touch never")
    found = dovetail(
        "run", "--halt", "now,success=1", "--json", file, "--cluster", cores(tmp_path), "-j", "2"
    )
    assert [job["state"] for job in load(found)["jobs"]] == ["CANCELLED", "COMPLETED", "CANCELLED"]
    assert not (tmp_path / "never").exists()
    assert found.returncode == 0


def test_a_halt_that_makes_no_sense_is_refused(dovetail: Call) -> None:
    found = dovetail("run", "--halt", "fail=1", "--", "true")
    assert found.returncode == 2
    assert "--halt: found 'fail=1', expected never, or soon or now" in found.stderr


def test_the_outcome_comes_first_then_what_failed_then_where_it_lies(dovetail: Call, tmp_path: Path) -> None:
    file = listed(tmp_path, "true", "ls nowhere")
    found = dovetail("run", file, "--cluster", cores(tmp_path), "-q")
    assert found.stdout.startswith("1 of 2 jobs done in ")
    assert ", 1 failed" in found.stdout.splitlines()[0]
    told = found.stderr.splitlines()
    assert told[0] == "ls-1: FAILED: exit code 2"
    assert "nowhere" in told[1]
    verbose = dovetail("run", file, "--cluster", cores(tmp_path), "-v").stdout
    assert "Decision" in verbose
    assert "Decision" not in found.stdout


def test_outputs_have_readable_names_and_the_json_has_their_paths(dovetail: Call, tmp_path: Path) -> None:
    found = load(dovetail("run", "--json", "--", "echo", "hello"))
    (job,) = found["jobs"]
    assert Path(job["stdout"]).name == "echo-1.out"
    assert Path(job["stdout"]).read_text() == "hello\n"
    assert Path(job["stderr"]).read_text() == ""


def test_a_run_is_known_by_its_short_id(dovetail: Call, tmp_path: Path) -> None:
    first = dovetail("run", "--", "echo", "1")
    short = first.stderr.partition("journal of run ")[2].partition(":")[0]
    assert len(short) == 8
    dovetail("run", "--", "ls")
    for name, app in ((short, "echo-1"), ("last", "ls-1")):
        assert app in dovetail("explain", name).stdout
        assert "all identical" in dovetail("replay", name).stdout
        assert "policy" in dovetail("compare", name, "--policy", "history,cpu-only").stdout
    missing = dovetail("explain", "0123abcd")
    assert missing.returncode == 2
    assert "found no run whose id begins with '0123abcd'" in missing.stderr


def test_a_dependency_that_fails_is_no_interrupt(dovetail: Call, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(
        '[[app]]\nname = "a"\n[[app.implementation]]\nname = "cpu"\ncommand = ["false"]\n'
        '[[job]]\nid = "first"\napp = "a"\n[[job]]\nid = "then"\napp = "a"\ndepends = ["afterok:first"]\n'
    )
    found = dovetail("run", "jobs.toml", "--json")
    assert [job["state"] for job in load(found)["jobs"]] == ["FAILED", "CANCELLED"]
    assert found.returncode == 1
    assert "never started" not in found.stderr
