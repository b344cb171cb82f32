"""A first command line that names a program where a file of jobs goes: the answer is what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.cli.main import BESIDE, _Dovetail, status_of
from dovetail.cli.meant import ELSEWHERE, meant_by, missing_program


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "fit.py").write_text("print(1)\n")
    (tmp_path / "bin").mkdir()
    for name in ("python", "solve"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("DOVETAIL_SERVICE", str(tmp_path / "service"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("run python fit.py", "dovetail run -- python fit.py"),
        ("run fit.py", "dovetail run -- python fit.py"),
        ("run|python fit.py --lr 3", "dovetail run -- python fit.py --lr 3"),
        ("submit fit.py", "dovetail submit -- python fit.py"),
        ("submit fit.py --lr 3", "dovetail submit -- python fit.py --lr 3"),
        ("submit python fit.py", "dovetail submit -- python fit.py"),
        ("run -c 2 --on cpu,gpu solve {device}", "dovetail run -c 2 --on cpu,gpu -- solve {device}"),
        ("submit -- nosuchprog", "dovetail submit -- PROGRAM ARGUMENTS"),
        ("submit -- sovle a b", "dovetail submit -- solve a b"),
        ("submit -- fit.py", "dovetail submit -- python fit.py"),
        ("run -- nosuchprog", "dovetail run -- PROGRAM ARGUMENTS"),
        ("run -- fit.py --lr 3", "dovetail run -- python fit.py --lr 3"),
        ("run|solve a && solve b", "dovetail run -- sh -c 'solve a && solve b'"),
        ("submit|--|solve a | solve b", "dovetail submit -- sh -c 'solve a | solve b'"),
        ("run|--|solve a b", "dovetail run -- solve a b"),
        ("submit -J x --wrap solve", "dovetail submit -J x --cpu solve"),
        ("submit --wrap=solve -J x", "dovetail submit --cpu solve -J x"),
        ("python fit.py --lr 3", "dovetail run -- python fit.py --lr 3"),
        ("fit.py", "dovetail run -- python fit.py"),
        ("kill 3", "dovetail cancel 3"),
        ("squeue", "dovetail queue"),
        ("status", "dovetail queue"),
    ],
)
def test_the_answer_is_the_command_that_was_meant(
    here: Path, capsys: pytest.CaptureFixture[str], typed: str, meant: str
) -> None:
    command, bar, text = typed.partition("|")
    dashes = ["--"] if text.startswith("--|") else []
    words = [command, *dashes, text.removeprefix("--|")] if bar else typed.split()
    assert status_of(words) == 2
    said = capsys.readouterr().err
    assert said.endswith(f": {meant}\n")
    assert said.count("\n") == 1
    assert not (here / "service").exists()  # none was started for it


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("pause fit", "found 'fit', expected nothing there (single jobs: dovetail hold fit; see "),
        ("resume 3 4", "found '3 4', expected nothing there (single jobs: dovetail release 3 4; see "),
        ("runs last", "found 'last', expected nothing there (see 'dovetail runs --help')"),
        ("move 3", "move: found no place, expected one of --first and --after JOB"),
        (
            "move 3 --first --after 2",
            "move: found --first and --after, expected one of --first and --after JOB",
        ),
    ],
)
def test_words_that_are_too_many(
    here: Path, capsys: pytest.CaptureFixture[str], typed: str, said: str
) -> None:
    assert status_of(typed.split()) == 2
    assert capsys.readouterr().err.startswith(f"dovetail: {said}")


def test_other_tools_words_are_none_of_our_commands() -> None:
    ours = {*_Dovetail.own, *BESIDE}
    assert not ours & ELSEWHERE.keys()
    assert {words.split()[0] for words in ELSEWHERE.values()} <= {*ours, "--version"}


def test_a_misspelt_command_is_no_program(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "bin" / "quue").write_text("#!/bin/sh\n")
    (here / "bin" / "quue").chmod(0o755)
    assert status_of(["quue"]) == 2
    assert "Did you mean 'queue'" in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["run nothere.txt", "run jobs.toml", "queue python", "run --on cpu", "run"])
def test_what_names_no_program_is_answered_as_it_is(here: Path, typed: str) -> None:
    assert meant_by(typed.split()) == ""


@pytest.mark.parametrize("word", ["solve", "{device}-solve", "./bin/solve", "A=1"])
def test_what_may_be_a_program_is_not_refused(here: Path, word: str) -> None:
    assert missing_program([word, "x"]) == ""


def test_an_empty_word_names_no_program(here: Path) -> None:
    assert meant_by(["run", "--resume", ""]) == ""
    assert meant_by(["run", ""]) == ""


def test_a_number_where_a_program_goes_names_the_other_option(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(["submit", "--cpu", "40", "--", "solve"]) == 2
    note = "--cpu 40 runs a program called 40; --cpus 40 gives a job so many\n"
    assert capsys.readouterr().err.startswith(note)
    assert status_of(["submit", "--cpu", "solve", "--", "solve"]) == 2
    assert "runs a program" not in capsys.readouterr().err
