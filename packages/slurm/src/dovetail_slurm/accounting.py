"""What Slurm's accounting knows of this user's jobs."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.errors import InputError
from dovetail.workloads.sacct_rows import DELIMITER
from dovetail_slurm.commands import SlurmError, run_command


def print_accounting(columns: str, since: str) -> Sequence[str]:
    """The lines that ``sacct`` prints of jobs completed since a date, with these columns.

    Raises `InputError` where there is no Slurm, no accounting, or the date is none.
    """
    words = ["sacct", "--parsable2", f"--delimiter={DELIMITER}", "--state=COMPLETED"]
    words += [f"--starttime={since}", f"--format={columns}"]
    try:
        printed, _ = run_command(words)
    except SlurmError as error:
        raise InputError(str(error)) from error
    return printed.split("\n")
