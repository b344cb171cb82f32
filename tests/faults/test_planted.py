"""Folders of others: nothing in them is overwritten, no link that somebody planted is followed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from dovetail_command import DOVETAIL, load

from dovetail.files.writing import private_folder

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

Call = Callable[..., subprocess.CompletedProcess[str]]

JOBS = """
[[app]]
name = "say"
[[app.implementation]]
name = "cpu"
command = ["sh", "-c", "echo $DOVETAIL_JOB"]
"""
IDS = [
    "a b",
    "a_b",
    "supervisor",
    "run",
    "x" * 150,
    "x" * 149 + "y",
    ".hidden",
    "-dash",
    "a/b",
    "../up",
    "job",
]


def jobs(tmp_path: Path, ids: list[str]) -> tuple[str, ...]:
    path = tmp_path / "jobs.toml"
    path.write_text(JOBS + "".join(f'[[job]]\nid = "{id}"\napp = "say"\n' for id in ids))
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(f'[[node]]\nname = "here"\ncores = [{min(os.sched_getaffinity(0))}]\n')
    return ("run", "jobs.toml", "--cluster", "cluster.toml", "--history", "h.sqlite", "--json")


def test_every_job_has_an_output_of_its_own(dovetail: Call, tmp_path: Path) -> None:
    found = load(dovetail(*jobs(tmp_path, IDS), "--run-dir", "out"))
    assert {job["state"] for job in found["jobs"]} == {"COMPLETED"}
    outputs = list((tmp_path / "out").glob("*.out"))
    assert sorted(path.read_text() for path in outputs) == sorted(f"{id}\n" for id in IDS)
    assert all(path.with_suffix(".err").is_file() for path in outputs)


def test_nothing_in_a_folder_that_is_there_is_touched(dovetail: Call, tmp_path: Path) -> None:
    out, precious = tmp_path / "out", tmp_path / "precious"
    out.mkdir()
    precious.write_text("precious")
    for name in ("job.out", "a_b.err", "journal.jsonl"):
        (out / name).symlink_to(precious)
    for name in ("a_b.out", "job-2.err", "notes"):
        (out / name).write_text("precious")
    found = load(dovetail(*jobs(tmp_path, ["a b", "job"]), "--run-dir", "out"))
    assert {job["state"] for job in found["jobs"]} == {"COMPLETED"}
    said = [path.read_text() for path in out.glob("*.out") if not path.is_symlink()]
    assert sorted(said) == ["a b\n", "job\n", "precious"]
    assert precious.read_text() == "precious"
    assert all((out / name).read_text() == "precious" for name in ("a_b.out", "job-2.err", "notes"))


@pytest.mark.parametrize(
    "name", ["spawn.log", "run.json", "ledger.db", "ledger.db-wal", "supervisor.err", "supervisor.sock"]
)
def test_a_link_of_a_name_that_a_run_uses_is_refused(dovetail: Call, tmp_path: Path, name: str) -> None:
    out, precious = tmp_path / "out", tmp_path / "precious"
    out.mkdir()
    precious.write_text("precious")
    (out / name).symlink_to(precious)
    done = dovetail(*jobs(tmp_path, ["job"]), "--run-dir", "out")
    assert done.returncode == 2
    assert done.stderr.startswith("dovetail: out: found ")
    assert precious.read_text() == "precious"
    assert os.listdir(out) == [name]
    assert not (tmp_path / "h.sqlite").exists()


def test_a_refused_run_leaves_nothing(dovetail: Call, tmp_path: Path, state: Path) -> None:
    (tmp_path / "file").write_text("")
    arguments = jobs(tmp_path, ["job"])
    for folder in ("file/out", "file"):
        assert dovetail(*arguments, "--run-dir", folder).returncode == 2
    (tmp_path / "cluster.toml").write_text('[[node]]\nname = "here"\ncores = [4095]\n')
    assert dovetail(*arguments, "--run-dir", "new").returncode == 2
    assert sorted(os.listdir(tmp_path)) == [
        "cluster.toml",
        "file",
        "h.sqlite",
        "jobs.toml",
        "state",
    ] or sorted(path for path in os.listdir(tmp_path) if not path.startswith("h.sqlite")) == [
        "cluster.toml",
        "file",
        "jobs.toml",
        "state",
    ]
    assert not list(state.glob("dovetail/runs/*"))


def test_state_folders_are_their_owners_own_whatever_the_umask(
    tmp_path: Path, environment: dict[str, str], state: Path
) -> None:
    done = subprocess.run(
        ["sh", "-c", 'umask 000; exec "$@"', "sh", *DOVETAIL, *jobs(tmp_path, ["job"])[:-3],
         "--run-dir", "one/two/three"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = [path for top in (state / "dovetail", tmp_path / "one") for path in (top, *top.rglob("*"))]
    assert len(made) > 8
    for path in made:
        if not path.is_symlink():
            assert path.stat().st_mode & 0o077 == 0, path


def test_folders_above_are_private_too(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert private_folder(tmp_path / "a" / "b")
        assert not private_folder(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o700, 0o700]


def test_an_export_follows_no_planted_part(dovetail: Call, tmp_path: Path) -> None:
    dovetail(*jobs(tmp_path, ["job"]))
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "runs.jsonl.part").symlink_to(tmp_path / "precious")
    assert dovetail("history", "export", "runs.jsonl", "--history", "h.sqlite").returncode == 0
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / "runs.jsonl").read_text().startswith("{")
