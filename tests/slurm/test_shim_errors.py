"""What sbatch and srun of slurm-shims end with where they cannot do it."""

from __future__ import annotations

import pytest

from dovetail_slurm.shims.main import status_of


@pytest.mark.parametrize(
    ("command", "words", "given", "status"),
    [
        ("sbatch", ["/nosuch/script"], None, 1),
        ("sbatch", ["/nosuch/script"], "77", 77),
        ("sbatch", ["/nosuch/script"], "0", 1),
        ("sbatch", ["/nosuch/script"], "x", 1),
        ("sbatch", ["--nosuch"], "77", 255),
        ("squeue", ["--nosuch"], "77", 1),
    ],
)
def test_exit_status_of_an_error(
    monkeypatch: pytest.MonkeyPatch, command: str, words: list[str], given: str | None, status: int
) -> None:
    """As Slurm 22.05 ends: wrong options keep their own status."""
    monkeypatch.delenv("SLURM_EXIT_ERROR", raising=False)
    if given is not None:
        monkeypatch.setenv("SLURM_EXIT_ERROR", given)
    assert status_of(command, "", words) == status
