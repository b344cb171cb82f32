"""What srun of the shims keeps of its steps: what others may have written there does no harm."""

from __future__ import annotations

import json
from pathlib import Path

from dovetail_slurm.shims.step_records import MOST_BYTES, add_record, read_records

BEGUN = {"uid": "a", "name": "sh", "start": 1.0, "tasks": 2, "cpus": 2, "nodes": 1, "where": "n0"}
ENDED = {
    "end": 3.0, "code": 1, "signal": 0, "peak": 4096, "mean": 2048, "task": 1, "user": 0.5, "system": 0.25,
}  # fmt: skip


def test_a_step_that_has_begun_and_ended(tmp_path: Path) -> None:
    path = str(tmp_path / "12" / "12345.steps")
    add_record(path, 0, BEGUN)
    assert [one.end for one in read_records(path)] == [None]
    add_record(path, 0, ENDED)
    (one,) = read_records(path)
    assert (one.number, one.name, one.end, one.code, one.peak) == (0, "sh", 3.0, 1, 4096)
    assert Path(path).stat().st_mode & 0o777 == 0o600


def test_a_job_that_begins_again_has_the_steps_of_its_last_start(tmp_path: Path) -> None:
    path = str(tmp_path / "1.steps")
    for number, uid in ((0, "a"), (1, "a"), (0, "b")):
        add_record(path, number, {**BEGUN, "uid": uid})
    assert [(one.number, one.uid) for one in read_records(path)] == [(0, "b")]


def test_what_is_no_record_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "1.steps"
    good = json.dumps({"step": 7, **BEGUN})
    odd = [
        "[" * 100_000, "null", "{}", '{"step": "0"}', '{"step": true, "end": 1.0}', good[:20],
        json.dumps({"step": 1, **BEGUN, "tasks": "many"}), json.dumps({"step": 9, **ENDED}), "\x00\xff",
    ]  # fmt: skip
    path.write_text("\n".join([*odd, good]), encoding="latin-1")
    assert [one.number for one in read_records(str(path))] == [7]


def test_a_link_and_a_missing_file_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "real").write_text(json.dumps({"step": 0, **BEGUN}))
    (tmp_path / "1.steps").symlink_to(tmp_path / "real")
    assert read_records(str(tmp_path / "1.steps")) == []
    assert read_records(str(tmp_path / "2.steps")) == []


def test_records_have_an_end(tmp_path: Path) -> None:
    path = tmp_path / "1.steps"
    path.write_bytes(b" " * (MOST_BYTES - 10))
    add_record(str(path), 0, BEGUN)
    assert path.stat().st_size == MOST_BYTES - 10
