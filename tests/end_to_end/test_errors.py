"""What every command has in common: help, version, completion, exit statuses, one sentence an error."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from dovetail_command import DOVETAIL

import dovetail
from dovetail.cli import main

Call = Callable[..., subprocess.CompletedProcess[str]]

COMMANDS = list(main._Dovetail.command_targets())


def ask(*arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main.status_of(list(arguments))
    return status, out.getvalue(), err.getvalue()


def test_version() -> None:
    assert ask("--version") == (0, f"dovetail {dovetail.__version__}\n", "")


def test_help_names_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in (["--help"], ["-h"]):
        status, out, err = ask(*arguments)
        assert (status, err) == (0, "")
        for name in COMMANDS:
            assert f"\n  {name} " in out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_fits_80_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    status, out, err = ask(name, "--help")
    assert (status, err) == (0, "")
    assert out.startswith(f"Usage: dovetail {name} ")
    assert max(map(len, out.splitlines())) <= 80
    assert "``" not in out
    assert "`" not in out  # docstrings of commands are read by people, not by Sphinx


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulat"], ["No such command 'simulat'", "simulate"]),
        (["simulate"], ["Missing argument", "see 'dovetail simulate --help'"]),
        (["simulate", "x", "--seed", "y"], ["--seed: found 'y', expected a whole number"]),
        (["simulate", "x", "--seed=-1"], ["--seed: found '-1', expected at least 0"]),
        (["simulate", "x", "--by", "y"], ["--by: found 'y', expected one of user, group, queue, app"]),
        (["simulate", "x", "--history", "/"], ["--history: found '/', expected a file, not a folder"]),
        (["simulate", "x", "--polcy", "easy"], ["No such option: --polcy", "--policy"]),
        (["schema", "--out", "/dev/null/x"], ["/dev/null/x: cannot be made"]),
        (["simulate", "nowhere.toml", "--cluster", "1x1cpu"], ["nowhere.toml"]),
        (["simulate", "nowhere.swf.gz", "--cluster", "1x1cpu"], ["nowhere.swf.gz"]),
        (["simulate", "published:nothing", "--cluster", "1x1cpu"], ["published:nothing"]),
        (["simulate", "synthetic:nothing", "--cluster", "1x1cpu"], ["synthetic:nothing"]),
        (["simulate", "jobs.xyz", "--cluster", "1x1cpu"], ["jobs.xyz", "'.xyz'"]),
        (["simulate", "published:gregg-table2", "--cluster", "nowhere.toml"], ["nowhere.toml"]),
        (["simulate", "published:gregg-table2", "--cluster", "0x1cpu"], ["0x1cpu"]),
        (["simulate", "published:gregg-table2", "--model", "crystal-ball"], ["--model", "'crystal-ball'"]),
        (["simulate", "published:gregg-table2", "--rates", "nothing"], ["'nothing'"]),
        (["simulate", "published:gregg-table2", "--knowledge", "some"], ["--knowledge", "some"]),
        (["simulate", "published:gregg-table2", "--seed", "-1"], ["--seed"]),
        (["simulate", "published:gregg-table2", "--cluster", "1x1cpu+1gpu", "--gantt", "a.bmp"], ["a.bmp"]),
        (
            ["simulate", "published:gregg-table2", "--cluster", "1x1cpu+1gpu", "--csv", "no/where.csv"],
            ["no/where.csv"],
        ),
        (
            ["simulate", "published:gregg-table2", "--cluster", "1x1cpu+1gpu", "--gantt", "no/where.svg"],
            ["no"],
        ),
        (["simulate", "published:gregg-table2", "--cpus-per-node", "2"], ["cpus_per_node"]),
        (["simulate", "published:gregg-table2", "--colour"], ["--colour"]),
        (["workload", "pack-nodes", "synthetic:rigid", "--cluster", "2x8cpu"], ["a cluster with GPUs"]),
        (
            ["workload", "pack-nodes", "synthetic:rigid", "--cluster", "2x8cpu+1gpu", "--placement", "tight"],
            ["--placement", "'tight'", "spread"],
        ),
        (["replay", "nowhere.jsonl"], ["nowhere.jsonl"]),
        (["schema", "everything"], ["everything"]),
    ],
)
def test_wrong_use_is_one_sentence(
    arguments: list[str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = ask(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("dovetail: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err
    assert list(tmp_path.iterdir()) == []  # and nothing is left behind


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    status, _, err = ask("simulate", str(tmp_path), "--cluster", "1x1cpu")
    assert status == 2
    assert tmp_path.name in err
    (tmp_path / "jobs.toml").mkdir()
    status, _, err = ask("simulate", str(tmp_path / "jobs.toml"), "--cluster", "1x1cpu")
    assert status == 2
    assert "jobs.toml" in err


def test_a_traceback_only_with_debug(dovetail: Call) -> None:
    wrong = ("simulate", "nowhere.toml", "--cluster", "1x1cpu")
    assert "Traceback" not in dovetail(*wrong).stderr
    assert "Traceback" in dovetail(*wrong, "--debug").stderr


def test_a_reader_who_leaves_early_is_no_error(tmp_path: Path, environment: dict[str, str]) -> None:
    workload = "synthetic:rigid?jobs=3000"
    arguments = ["simulate", workload, "--cluster", "64x1cpu", "--policy", "fcfs", "--json"]
    process = subprocess.Popen(
        [*DOVETAIL, *arguments],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 128 + 13
    assert said == b""


@pytest.mark.parametrize(
    ("words", "at", "expected"),
    [
        ("dovetail sim", 1, ["simulate"]),
        ("dovetail ", 1, COMMANDS),
        ("dovetail simulate --po", 2, ["--policy"]),
        ("dovetail workload pa", 2, ["pack-nodes"]),
        ("dovetail simulate --overrun ", 3, ["kill", "run"]),
        ("dovetail simulate jobs.toml --policy his", 4, ["history", "history-guarded"]),
        ("dovetail compare jobs.toml --policy easy,opt", 4, ["easy,optimal"]),
        ("dovetail run --model le", 3, ["least-squares", "learned"]),
        ("dovetail compare pub", 2, ["published:ravi-single", "published:markthub"]),
        ("dovetail\ncompare\npublished\n:\nravi", 4, ["ravi-single", "ravi-multi"]),
    ],
)
def test_shell_completion(
    words: str, at: int, expected: list[str], tmp_path: Path, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        DOVETAIL,
        cwd=tmp_path,
        env={
            **environment,
            "_DOVETAIL_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(at),
        },
        text=True,
        capture_output=True,
        check=False,
        timeout=280,
    )
    assert set(expected) <= set(done.stdout.split())
    assert done.stderr == ""


def test_apps_and_runs_are_completed(dovetail: Call, tmp_path: Path, environment: dict[str, str]) -> None:
    """Bash divides words at colons, and wants what comes behind the last one."""
    (tmp_path / "fit.py").write_text("pass")
    assert dovetail("run", "-q", "--", "python3", "fit.py").returncode == 0

    def offered(*words: str) -> list[str]:
        asked = {"_DOVETAIL_COMPLETE": "complete_bash", "COMP_CWORD": str(len(words) - 1)}
        told = environment | asked | {"COMP_WORDS": "\n".join(words)}
        done = subprocess.run(DOVETAIL, cwd=tmp_path, env=told, text=True, capture_output=True, check=False)
        assert done.stderr == ""
        return done.stdout.split()

    assert offered("dovetail", "history", "show", "py") == ["python:fit.py"]
    assert offered("dovetail", "history", "show", "python", ":", "f") == ["fit.py"]
    last, run = offered("dovetail", "explain", "")
    assert (last, len(run)) == ("last", 8)
    assert offered("dovetail", "compare", run[:3]) == [run]
    assert offered("dovetail", "compare", "") == []  # the shell's own files


def test_what_starts_quickly_loads_little(tmp_path: Path, environment: dict[str, str]) -> None:
    """The slow parts (charts, solvers, kernels, data frames) are imported by what needs them."""
    slow = ("matplotlib", "numba", "pandas", "scipy", "networkx", "ortools", "pyopencl")
    code = (
        "import sys\n"
        "from dovetail.cli.main import status_of\n"
        "assert status_of(sys.argv[1:]) == 0\n"
        f"print([name for name in {slow!r} if name in sys.modules], file=sys.stderr)\n"
    )
    for arguments in (
        ["--version"],
        ["policies", "--json"],
        ["workload", "describe", "published:gregg-table2"],
        ["simulate", "published:gregg-table2", "--cluster", "1x8cpu+1gpu", "--policy", "history"],
        ["compare", "published:gregg-table2", "--cluster", "1x8cpu+1gpu", "--policy", "history,cpu-only"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=tmp_path,
            env=environment,
            text=True,
            capture_output=True,
            check=False,
            timeout=280,
        )
        assert (done.returncode, done.stderr) == (0, "[]\n"), arguments


def test_a_full_disk_under_standard_output_is_said(tmp_path: Path, environment: dict[str, str]) -> None:
    command = [*DOVETAIL, "simulate", "published:gregg-table2", "--cluster", "1x1cpu+1gpu", "--json"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "dovetail: cannot write: No space left on device\n"


def test_whoever_reads_the_output_may_leave(tmp_path: Path, environment: dict[str, str]) -> None:
    """Of tables too, which rich prints; `| head` is no failure and asks for no words."""
    for arguments in (["policies"], ["simulate", "published:gregg-table2", "--cluster", "1x1cpu+1gpu"]):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [*DOVETAIL, *arguments],
            stdout=writer,
            cwd=tmp_path,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=280,
        )
        os.close(writer)
        assert (done.returncode, done.stderr) == (141, ""), arguments


def test_without_a_command_the_help_is_shown() -> None:
    for arguments in ([], ["workload"]):
        status, out, err = ask(*arguments)
        assert (status, out) == (2, "")
        assert err.startswith("Usage: dovetail")


def test_the_package_is_the_command_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dovetail", "--version"],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert (done.returncode, done.stdout) == (0, f"dovetail {dovetail.__version__}\n")


def test_a_closed_output_and_a_lost_folder(tmp_path: Path, environment: dict[str, str]) -> None:
    def shell(line: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", "-c", line, "sh", *DOVETAIL]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=280
        )

    done = shell('"$@" simulate published:gregg-table2 --cluster 1x1cpu+1gpu >&-')
    assert (done.returncode, done.stderr) == (0, "")
    done = shell('mkdir gone && cd gone && rmdir ../gone && "$@" run --quiet -- true')
    assert done.returncode == 2
    assert done.stderr == "dovetail: the current folder cannot be used: No such file or directory\n"
