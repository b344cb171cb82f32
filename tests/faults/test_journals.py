"""Journals come from strangers: nothing that they name is executed unasked, and what they say is checked."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.main import status_of

Call = Callable[..., subprocess.CompletedProcess[str]]

POLICY = """
from pathlib import Path
from dataclasses import dataclass
Path("executed").write_text("")
from dovetail.policies.fcfs import Fcfs
Mine = Fcfs
"""


@pytest.fixture
def journal(dovetail: Call, tmp_path: Path) -> Path:
    path = tmp_path / "j.jsonl"
    done = dovetail(
        "simulate",
        "published:gregg-table2",
        "--cluster",
        "1x1cpu+1gpu",
        "--policy",
        "history",
        "--journal",
        "j.jsonl",
    )
    assert done.returncode == 0, done.stderr
    return path


def edited(path: Path, line: int, change: Callable[[Any], None]) -> None:
    lines = path.read_text().splitlines()
    form = json.loads(lines[line])
    change(form)
    lines[line] = json.dumps(form)
    path.write_text("\n".join(lines) + "\n")


def test_answers_that_no_model_gives_are_refused(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each field of a question and of its answer, with what a field of another type holds."""
    whole = journal.read_text()
    header, *batches = map(json.loads, whole.splitlines())
    seen: set[str] = set()
    for batch in batches:
        for number, asked in enumerate(batch.get("asked", ())):
            if asked[0] in seen or asked[-1] is None:
                continue
            seen.add(asked[0])
            places: list[tuple[Any, Any]] = [(asked, n) for n in range(len(asked))]
            places += [(part, key) for part in asked if isinstance(part, dict) for key in part]
            for place, key in places:
                kept = place[key]
                for odd in (None, "x", 7, -1.5, [], {}, True):
                    place[key] = odd
                    journal.write_text("\n".join(map(json.dumps, [header, *batches])))
                    status = status_of(["explain", str(journal)])
                    said = capsys.readouterr().err
                    assert status in (0, 2), (batch["asked"][number], said)
                    assert said.count("\n") == (status == 2), (batch["asked"][number], said)
                place[key] = kept
    assert seen == {"bound", "predict", "runs"}


def test_a_journal_executes_a_program_only_when_trusted(
    dovetail: Call, tmp_path: Path, journal: Path
) -> None:
    policy = tmp_path / "evil.py"
    policy.write_text(POLICY)
    edited(journal, 0, lambda header: header.update(policy=f"{policy}:Mine"))
    refused = dovetail("replay", "j.jsonl")
    assert refused.returncode == 2
    assert refused.stderr.startswith("dovetail: j.jsonl: found the policy ")
    assert "--trust executes it" in refused.stderr
    assert not (tmp_path / "executed").exists()
    dovetail("replay", "j.jsonl", "--trust")
    assert (tmp_path / "executed").exists()


def first_job(form: Any) -> Any:
    return next(event[1] for event in form["events"] if event[0] == "submitted")


@pytest.mark.parametrize(
    ("line", "change", "words"),
    [
        (0, lambda form: form.update(placement="anywhere"), "placement 'anywhere'"),
        (0, lambda form: form.update(policy=7), "policy 7"),
        (0, lambda form: form["cluster"].update(nodes=[]), "a cluster without nodes"),
        (0, lambda form: form["cluster"]["nodes"][0].update(cores=["x"]), "whose cores is"),
        (0, lambda form: form.pop("cluster"), "no field 'cluster'"),
        (1, lambda form: form.update(now="soon"), "the moment 'soon'"),
        (1, lambda form: first_job(form).update(nodes=0), "whose nodes is 0"),
        (1, lambda form: first_job(form).update(walltime=-1), "whose walltime is -1"),
        (1, lambda form: first_job(form).update(id=[1]), "found "),
        (1, lambda form: form["events"].append(form["events"][0]), "found "),
        (1, lambda form: form["events"].append(["exploded"]), "'exploded', expected one of"),
        (1, lambda form: form["events"].append(["node_lost", 99]), "node 99 of 1"),
        (1, lambda form: form["decisions"].append(["dequeue", "nobody"]), "which was not submitted"),
        (2, lambda form: form.update(now=-1), "the moment -1, expected one from"),
    ],
)
@pytest.mark.parametrize(
    "command", [("replay",), ("simulate", "--cluster", "1x1cpu+1gpu", "--policy", "fcfs")]
)
def test_what_cannot_be_is_named_with_its_line(
    dovetail: Call,
    journal: Path,
    line: int,
    change: Callable[[Any], None],
    words: str,
    command: tuple[str, ...],
) -> None:
    edited(journal, line, change)
    done = dovetail(command[0], "j.jsonl", *command[1:])
    assert done.returncode == 2
    assert done.stderr.startswith(f"dovetail: j.jsonl: line {line + 1}: found "), done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
