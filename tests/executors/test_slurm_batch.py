"""What squeue and sacct have said, as recorded: of jobs killed for memory, of walltimes and their use."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dovetail.model import State
from dovetail_slurm import batch as slurm_batch
from dovetail_slurm import commands as slurm_commands
from dovetail_slurm.outcomes import TERMINAL

SQUEUE = (
    "4711|OUT_OF_MEMORY|n3|2026-05-04T12:30:00|OutOfMemory|dovetail-a\n4712|RUNNING|n4|N/A|None|dovetail-a\n"
)
SACCT = "4711_3|OUT_OF_MEMORY|n3|dovetail-a\n4711_4|CANCELLED by 1000|None assigned|dovetail-a\n"


def test_a_kill_for_memory_is_a_state_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(argv: Sequence[str], **_: object) -> tuple[str, str]:
        return (SQUEUE if argv[0] == "squeue" else SACCT), ""

    monkeypatch.setattr(slurm_commands, "call", call)
    seen = slurm_batch.look()
    assert TERMINAL[seen["4711"].state] is State.OUT_OF_MEMORY
    assert "4712" in seen
    again = slurm_batch.look_again(["4711_3", "4711_4"], accounting=True)
    assert [TERMINAL[one.state] for one in again.values()] == [State.OUT_OF_MEMORY, State.CANCELLED]


def test_what_jobs_use_of_their_walltimes_is_told_by_partition_and_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = (
        "cpu|COMPLETED|30|1|billing=1,cpu=1\n"
        "cpu|FAILED|6|1|billing=1,cpu=1\n"
        "cpu|RUNNING|50|1|billing=1,cpu=1\n"
        "cpu|COMPLETED|50|UNLIMITED|billing=1,cpu=1\n"
        "gpu|TIMEOUT|66|1|cpu=1,gres/gpu=1\n"
        "gpu|CANCELLED by 7|0|1|\n"
    )
    monkeypatch.setattr(slurm_commands, "call", lambda argv, **_: (said, ""))
    found = slurm_batch.times_used()
    assert found.keys() == {("cpu", False), ("gpu", True)}
    assert (found["cpu", False].share, found["cpu", False].jobs) == (0.3, 2)
    assert found["gpu", True] == (1.0, 0.0, 1)
