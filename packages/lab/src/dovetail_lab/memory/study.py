"""What reserving memory wastes: ``dovetail reproduce memory FILE…``, a row a rule on traces with peaks.

The main table lets rules know what a task reads (``rchar``), as the literature does; it is known only when
the task has ended, so a second table does without. What Sizey itself reserves is not computed: its published
code retrains several models of scikit-learn at each task.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import typer

from dovetail.cli import options as opt
from dovetail.errors import InputError
from dovetail.files.sentences import file_name
from dovetail.files.writing import write_text
from dovetail.report.progress import Bar
from dovetail.runtimes.peaks import KILL_RISK
from dovetail.workloads.nextflow import Task, read_nextflow
from dovetail_lab.memory.replay import Attempt, Row, replay_tasks
from dovetail_lab.memory.rules import ROWS, make_rules
from dovetail_lab.study import Out, Study, Table, prepare_folder, publish_study

COLUMNS = ("file", "task", "row", "attempt", "reserved", "peak", "seconds", "killed")
"""Of the CSV: bytes, seconds; ``killed`` is true or false."""
WITHOUT_SIZE = " without rchar"
"""What follows the name of a row in the CSV where rules do not know what a task reads."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A trace under every rule; ``without`` where rules do not know what a task reads."""

    file: str
    rows: dict[str, Row]
    without: dict[str, Row]

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        forms = [{name: asdict(row) for name, row in rows.items()} for rows in (self.rows, self.without)]
        return {"file": self.file, "rows": forms[0], "rows_without_rchar": forms[1]}


def measured_tasks(path: str | Path) -> list[Task]:
    """The tasks of a trace with a known peak and request. Raises `InputError`."""
    tasks = [task for task in read_nextflow(path) if task.peak]
    if not tasks:
        raise InputError("found no task with a peak_rss, expected at least one", where=file_name(path))
    lacking = next((task for task in tasks if not task.requested), None)
    if lacking is not None:
        raise InputError(
            f"task {lacking.id} has no memory, expected the bytes requested in the column memory",
            where=file_name(path),
        )
    return tasks


def replay_file(
    path: str | Path,
    on_attempt: Callable[[str, Attempt], None] | None = None,
    *,
    at_limit: bool = False,
    risk: float = KILL_RISK,
) -> Replayed:
    """Replay a trace under every rule; ``on_attempt`` gets each attempt with the name of its row."""
    tasks = measured_tasks(path)
    found: list[dict[str, Row]] = []
    # Twice: a rule may use what a task reads, which a workflow does not always know beforehand.
    for by_size, after in ((True, ""), (False, WITHOUT_SIZE)):
        rows: dict[str, Row] = {}
        for name, rule in make_rules(by_size=by_size, risk=risk).items():
            # The default binds this turn's name, as the loop goes on before the closure is called again.
            def note(attempt: Attempt, name: str = name + after) -> None:
                if on_attempt is not None:
                    on_attempt(name, attempt)

            rows[name] = replay_tasks(tasks, rule, note, at_limit=at_limit)
        found.append(rows)
    return Replayed(str(path), *found)


def make_study(found: Sequence[Replayed], cpu_seconds: float, *, at_limit: bool) -> Study:
    """Both tables, and the figures for JSON."""
    charged = "until what was reserved is reached" if at_limit else "its whole run time"
    return Study(
        "memory",
        "What reserving memory wastes",
        f"{len(found)} traces, tasks in order of their start; a killed try is charged {charged}.",
        (
            _waste_table("What a task reads is known", [(each.file, each.rows) for each in found]),
            _waste_table("Without it", [(each.file, each.without) for each in found]),
        ),
        numbers={
            "files": [each.as_dict() for each in found],
            "killed_at": "limit" if at_limit else "end",
            "cpu_seconds": cpu_seconds,
        },
    )


def _waste_table(title: str, found: Sequence[tuple[str, dict[str, Row]]]) -> Table:
    lines = []
    for file, rows in found:
        # Rules differ once they have some history; cold tasks, which have none, would blur that.
        warm = {name: row.wasted_gb_hours - row.wasted_cold_gb_hours for name, row in rows.items()}
        for name in ROWS:
            row = rows[name]
            lines.append(
                (
                    Path(file).name,
                    name,
                    f"{row.wasted_gb_hours:,.1f}",
                    f"{row.wasted_cold_gb_hours:,.1f}",
                    _ratio_text(warm[name], warm["largest"]),
                    f"{row.kills}",
                    f"{row.killed_twice}",
                    "-" if row.coverage is None else f"{row.coverage:.1%}",
                )
            )
    columns = ("trace", "rule", "GB h wasted", "cold", "warm/largest", "kills", "twice", "in 90 %")
    note = (
        "Cold: tasks with fewer than 5 completed runs of their process; warm: the others, beside those of "
        "'largest'. Twice: tasks killed more than once."
    )
    return Table(title, columns, tuple(lines), names=2, note=note)


def _ratio_text(own: float, other: float) -> str:
    return f"{own / other:.2f}" if other > 0 and math.isfinite(own) else "-"


def command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Nextflow's traces, also .gz.")],
    table: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write a line for each attempt there.")
    ] = None,
    at_limit: Annotated[
        bool,
        typer.Option(
            "--killed-at-limit",
            help="Charge a killed try until it reaches what was reserved.",
        ),
    ] = False,
    risk: Annotated[
        float, typer.Option("--kill-risk", min=0.0, max=1.0, help="Largest probability of a kill.")
    ] = KILL_RISK,
    as_json: opt.Json = False,
    out: Out = None,
    quiet: opt.Quiet = False,
) -> None:
    """What reserving memory wastes, on traces of workflows.

    Each task is reserved for at its start, from the tasks that had completed by then.
    """
    out = prepare_folder(out)
    began = time.process_time()
    lines = StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(COLUMNS)
    found: list[Replayed] = []
    with Bar("memory", hidden=quiet or as_json) as bar:
        for place, path in enumerate(files):

            def write(row: str, attempt: Attempt, file: str = str(path)) -> None:
                killed = "true" if attempt.killed else "false"
                amounts = (f"{attempt.reserved:.0f}", attempt.peak, f"{attempt.seconds:.3f}")
                writer.writerow((file, attempt.task, row, attempt.number, *amounts, killed))

            writes = None if table is None else write
            found.append(replay_file(path, writes, at_limit=at_limit, risk=risk))
            bar.tell(place + 1, len(files))
    if table is not None:
        write_text(table, lines.getvalue())
    publish_study(make_study(found, time.process_time() - began, at_limit=at_limit), as_json=as_json, out=out)
