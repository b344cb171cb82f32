"""What became of a live run, in a few lines for its user: the outcome first, then what failed."""

from __future__ import annotations

import os
from collections.abc import Iterator

from dovetail.files.sentences import make_printable
from dovetail.model import Record, Result, Seconds, State
from dovetail.report import wording
from dovetail.report.metrics import TOLD_FROM, final_metrics, prediction_error

FAILED = (State.FAILED, State.OUT_OF_MEMORY, State.TIMEOUT, State.NODE_FAIL)
MOST_FAILURES, LAST_LINES = 10, 3
LOOKED_AT = 4096
"""Bytes at the end of a job's standard error in which its last lines are looked for."""
WORTH_SAYING = 0.005


def outcome_line(result: Result, alone: Seconds | None = None) -> str:
    """``6 of 6 jobs done in 4.1 s, 25 % faster than the CPU alone, predictions off by 4 %``.

    ``alone`` is the makespan on CPUs alone, where it is known.
    """
    found = final_metrics(result)
    total = len(result.records) + len(result.rejected)
    done = sum(record.state is State.COMPLETED for record in result.records)
    text = f"{done:,} of {wording.count_things(total, 'job')} done"
    makespan = found["makespan"]
    # `done` may be 0 with a makespan, where jobs ran and failed: their time is not the time of anything done.
    if done and makespan is not None:
        text += f" in {wording.spell_seconds_shortly(makespan)}"
    parts = [text]
    for state in (*FAILED, State.CANCELLED, State.PENDING):
        count = sum(record.state is state for record in result.records)
        if count:
            parts.append(f"{count:,} {_STATES[state]}")
    if result.rejected:
        parts.append(f"{len(result.rejected):,} cannot run here")
    if alone is not None and makespan:
        parts += _acceleration_remark(alone / makespan)
    error = prediction_error(result, TOLD_FROM)
    if error is not None:
        parts.append(f"predictions off by {wording.format_percent(error.median)}")
    return ", ".join(parts)


_STATES = {
    State.FAILED: "failed",
    State.OUT_OF_MEMORY: "killed for memory",
    State.TIMEOUT: "ended at their walltime",
    State.NODE_FAIL: "lost",
    State.CANCELLED: "cancelled",
    State.PENDING: "not started",
}


def _acceleration_remark(ratio: float) -> list[str]:
    """How much sooner it was done than on CPUs alone, if it makes a difference."""
    if ratio >= 2:
        return [f"{ratio:.1f} times as fast as the CPU alone"]
    if abs(ratio - 1) < WORTH_SAYING:
        return []
    return [f"{abs(ratio - 1):.0%} {'faster' if ratio > 1 else 'slower'} than the CPU alone"]


def failure_lines(result: Result) -> Iterator[str]:
    """For each of the first failed jobs what happened, and the last lines of its standard error."""
    failed = [record for record in result.records if record.state in FAILED]
    for record in failed[:MOST_FAILURES]:
        lines = _last_lines(record.stderr)
        yield make_printable(f"{record.job.id}: {record.state}{_failure_reason(record, lines)}")
        for line in lines:
            yield f"    {make_printable(line)}"
    if len(failed) > MOST_FAILURES:
        yield f"… and {len(failed) - MOST_FAILURES:,} more; the JSON form has them all"


def completion_remarks(result: Result) -> Iterator[str]:
    """Notes on jobs that completed: a report of theirs that was ignored, processes left over."""
    detailed = [r for r in result.records if r.state is State.COMPLETED and r.detail]
    for record in detailed[:MOST_FAILURES]:
        yield make_printable(f"{record.job.id}: {record.detail}")
    if len(detailed) > MOST_FAILURES:
        yield f"… and {len(detailed) - MOST_FAILURES:,} more; the JSON form has them all"


def _failure_reason(record: Record, lines: list[str]) -> str:
    """Exit code and reason, without what the last lines of the output show anyway."""
    if record.state is State.TIMEOUT and record.run_time is not None:
        return f" after {wording.spell_seconds_shortly(record.run_time)}: its walltime"
    code = f"exit code {record.exit_code}" if record.exit_code else ""
    why = record.detail or code
    # A program's error often ends with the line that is also the job's reason; it is shown once.
    if lines and make_printable(why).endswith(make_printable(lines[-1].strip())):
        why = code
    return f": {why}" if why else ""


def _last_lines(path: str | None) -> list[str]:
    """The last lines of a file, without empty ones; none where it cannot be read."""
    if path is None:
        return []
    try:
        with open(path, "rb") as file:
            # Only the end of the file is read: output can be gigabytes.
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOOKED_AT))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-LAST_LINES:]
