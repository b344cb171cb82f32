"""``dovetail explain``: what a command is taken for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.cli.explain import spell_interval
from dovetail.cli.main import status_of


@pytest.fixture
def nothing_known(tmp_path: Path) -> list[str]:
    return ["explain", "--cluster", "1x1cpu", "--history", str(tmp_path / "none.sqlite")]


@pytest.mark.parametrize("name", ["x[/bold]y", "[red]x", "a\x1b[2Jb"])
def test_names_are_text_not_markup(
    nothing_known: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of([*nothing_known, "--app", name, "--add", "k=[/dim]", "--", "ls"]) == 0
    said = capsys.readouterr().out
    shown = name.replace("\x1b", "?")
    assert said.startswith(f"{shown}-1  {shown}  k=[/dim]\n")


def test_options_name_the_app_drop_and_add_features(
    nothing_known: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.csv"
    data.write_bytes(b"12345")
    command = ["--", "train", "--rows", "1e6", "--mode", "fast", str(data)]
    options = ["--on", "cpu", "--json"]
    assert status_of([*nothing_known, *options, *command]) == 0
    plain = json.loads(capsys.readouterr().out)[0]
    assert (plain["app"], plain["features"]) == ("train", {"rows": 1e6, "mode": "fast", "arg1_bytes": 5.0})
    chosen = ["--app", "mine", "--drop", "rows", "--drop", "mode", "--add", "k=3", "--add", "where=here"]
    assert status_of([*nothing_known, *options, *chosen, *command]) == 0
    named = json.loads(capsys.readouterr().out)[0]
    assert (named["app"], named["features"]) == ("mine", {"arg1_bytes": 5.0, "k": 3.0, "where": "here"})
    assert not (tmp_path / "none.sqlite").exists()


def test_an_interval_that_says_nothing_is_called_a_guess() -> None:
    upper = {"lower": 1.2, "upper": 29.1, "predicted": 6.0}
    assert spell_interval(upper) == "1.2 to 29.1"
    for end in (2880.0, None):
        assert spell_interval(upper | {"upper": end}) == "a guess: too few runs for an interval"


@pytest.mark.parametrize(
    ("policy", "reasons"),
    [
        ("brr-dynamic", ["not compared with gpu", *["free when cpu was busy"] * 2]),
        ("gpu-only", ["not compared with cpu"] * 3),
        ("history", ["fastest there (2 s against 9 s on cpu)"] * 3),
    ],
)
def test_a_device_that_was_busy_is_not_called_impossible(
    policy: str, reasons: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs, journal = tmp_path / "jobs.toml", tmp_path / "journal.jsonl"
    jobs.write_text(
        '[[app]]\nname = "a"\n[[app.implementation]]\nname = "cpu"\ntime = 9.0\n'
        '[[app.implementation]]\nname = "gpu"\ntime = 2.0\n[[job]]\napp = "a"\ncount = 3\n'
    )
    run = ["simulate", str(jobs), "--cluster", "1x1cpu+1gpu", "--policy", policy]
    assert status_of([*run, "--journal", str(journal), "--quiet"]) == 0
    capsys.readouterr()
    assert status_of(["explain", str(journal), "--json"]) == 0
    told = [row["reason"].partition(",")[0] for row in json.loads(capsys.readouterr().out)]
    assert told == reasons


def test_a_policy_that_is_not_there_and_a_journal_without_jobs(
    nothing_known: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of([*nothing_known, "--policy", "nope", "--", "ls"]) == 2
    assert "found policy 'nope'" in capsys.readouterr().err
    jobs, journal = tmp_path / "jobs.toml", tmp_path / "journal.jsonl"
    jobs.write_text(
        '[[app]]\nname = "a"\n[[app.implementation]]\nname = "cpu"\ntime = 1.0\n[[job]]\napp = "a"\n'
    )
    assert (
        status_of(["simulate", str(jobs), "--cluster", "1x1cpu", "--journal", str(journal), "--quiet"]) == 0
    )
    journal.write_text(journal.read_text().splitlines(keepends=True)[0])
    capsys.readouterr()
    assert status_of(["explain", str(journal)]) == 0
    assert capsys.readouterr().out == "No job was submitted yet.\n"
