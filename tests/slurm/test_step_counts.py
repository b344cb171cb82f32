"""The count of a job's steps under the srun shim."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dovetail_slurm.shims import srun


def test_steps_are_counted_and_counts_of_a_month_ago_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = tmp_path / "dovetail-steps"
    folder.mkdir(mode=0o700)
    old, new = folder / "1.steps", folder / "2.steps"
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    monkeypatch.setenv("DOVETAIL_UID", "a")
    assert [srun._next_step() for _ in range(3)] == [0, 1, 2]
    assert sorted(folder.iterdir()) == [new, folder / "a.steps"]
