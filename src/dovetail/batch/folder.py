"""What a run keeps of the batch jobs that it handed over, for itself and for the next Dovetail.

``queue/`` in the run folder holds

==================  ==========================================================================
``handed.jsonl``    what was handed over: a line before each submission, one after it with the id,
                    and one for each job whose end the engine knows
``BATCH.json``      the commands of one batch job or array (read on the nodes)
``BATCH.sh``        its batch script: ours, or a user's as it was submitted
``BATCH.log``       what our batch script wrote, where it wrote anything
``runs/BATCH.N``    start and end of its N-th command, written on the node; ``BATCH.N.R`` after the batch
                    system has put it back into its queue R times
==================  ==========================================================================
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dovetail.errors import ExecutorError
from dovetail.files.writing import create_file
from dovetail.model import JobId, Request, Submit
from dovetail.process.notes import line_of, read_notes, refuse_errors, write_private
from dovetail.records import dataclass


@dataclass(eq=False, slots=True)
class HandedOverStart:
    """One start of a job that was handed over, as the ``number``-th command of a batch.

    ``batch_id`` is the batch system's, empty before it is known. ``stop`` is the state in which it is to end,
    empty unless it was stopped, ``reason`` why the system keeps it, where that is out of the ordinary.
    ``restarts`` is how often the system has put it back; ``is_back``: it has just done so. A user's batch
    script has a ``task`` of its array (-1: none) instead of a ``number``, and no record of its runs.
    ``is_ending``: the system has taken its cancel.
    """

    job: JobId
    attempt: int
    uid: str
    batch: str
    number: int
    files: Sequence[str]
    submit: Submit
    kind: str
    count: int
    batch_id: str = ""
    started: bool = False
    reported: bool = False
    stop: str = ""
    reason: str = ""
    missed: int = 0
    restarts: int = 0
    is_back: bool = False
    is_script: bool = False
    task: int = -1
    leaves: bool = False
    is_ending: bool = False

    @property
    def index(self) -> int | None:
        """The number of its task; ``None`` where it goes alone."""
        if self.is_script:
            return self.task if self.task >= 0 else None
        return self.number if self.count > 1 else None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What the node wrote down; ``end`` is ``None`` while it runs, or where the node is gone."""

    start: Mapping[str, Any]
    end: Mapping[str, Any] | None


class QueueFolder:
    """The files. Raises `ExecutorError` where they cannot be written or read."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / "queue"
        self._owed: list[bytes] = []
        self._is_torn = False  # a write failed, perhaps after half a line

    def create(self) -> None:
        """A new run."""
        with refuse_errors(self.path, "made"):
            (self.path / "runs").mkdir(mode=0o700, parents=True, exist_ok=True)

    def note(self, **record: Any) -> None:
        """Append a line to what was handed over."""
        self._append([*self._owed, line_of(record)])

    def note_later(self, **record: Any) -> None:
        """The same of what has been done already: where it cannot be written now, with the next one."""
        self._owed.append(line_of(record))
        with contextlib.suppress(ExecutorError):  # the next Dovetail finds it out by a look at the queue
            self._append(self._owed)

    def _append(self, lines: Sequence[bytes]) -> None:
        # After what a full disk has torn, the next line begins anew.
        data = b"\n" * self._is_torn + b"".join(lines)
        self._is_torn = True
        write_private(self.path / "handed.jsonl", data, os.O_APPEND)
        self._is_torn = False
        self._owed.clear()

    def write_batch(self, batch: str, spec: Mapping[str, Any]) -> Path:
        """The commands of a batch, for the nodes."""
        path = self.path / f"{batch}.json"
        write_private(path, line_of(spec), os.O_EXCL)
        return path

    def write_script(self, batch: str, text: bytes) -> Path:
        """The script that is handed over."""
        path = self.path / f"{batch}.sh"
        write_private(path, text, os.O_EXCL)
        return path

    def note_batch(self, batch: str, handed: Sequence[HandedOverStart]) -> None:
        """These are about to be handed over."""
        first = handed[0].submit
        jobs = [[one.job, one.attempt, one.uid, list(one.files), one.submit.reason] for one in handed]
        request = first.request
        shape = [request.nodes, request.cpus, request.devices, request.memory, request.models]
        self.note(
            t="batch",
            batch=batch,
            jobs=jobs,
            implementation=first.implementation,
            kind=handed[0].kind,
            request=[*shape, request.partition],
            target=first.target,
            walltime=first.walltime,
            tasks=[one.task for one in handed] if handed[0].is_script else None,
        )

    def note_again(self, handed: HandedOverStart) -> None:
        """A start that was put back into the queue is a further start of its job."""
        self.note(
            t="again",
            batch=handed.batch,
            number=handed.number,
            attempt=handed.attempt,
            uid=handed.uid,
            restarts=handed.restarts,
        )

    def handed(self) -> list[HandedOverStart]:
        """All that was handed over, in that order; a batch that was refused was not.

        ``is_back`` are those that were put back of which no further start was noted.
        """
        batches: dict[str, list[HandedOverStart]] = {}
        reported: set[str] = set()
        back: set[str] = set()
        for record in read_notes(self.path / "handed.jsonl"):
            kind = record.get("t")
            if kind == "batch":
                batches[record["batch"]] = list(_handed(record))
            elif kind == "sent":
                for one in batches.get(record["batch"], ()):
                    one.batch_id = record["id"]
            elif kind == "refused":
                batches.pop(record["batch"], None)
            elif kind == "withdrawn":
                left = batches.get(record["batch"], [])
                batches[record["batch"]] = [one for one in left if one.job != record["job"]]
            elif kind == "told":
                reported.add(record["uid"])
            elif kind == "back":
                back.add(record["uid"])
            elif kind == "again":
                number = record["number"]
                for one in [one for one in batches.get(record["batch"], ()) if one.number == number]:
                    one.attempt, one.uid, one.restarts = record["attempt"], record["uid"], record["restarts"]
        found = [one for batch in batches.values() for one in batch]
        for one in found:
            one.reported, one.is_back = one.uid in reported, one.uid in back
        return found

    def run_of(self, handed: HandedOverStart) -> RunRecord | None:
        """What its node wrote down; ``None`` if it has never started, as far as can be seen from here."""
        if handed.is_script:
            return None
        start: Mapping[str, Any] | None = None
        end: Mapping[str, Any] | None = None
        for record in read_notes(self._run_path(handed)):
            if record.get("t") == "start":
                start = record
            elif record.get("t") == "end":
                end = record
        return None if start is None else RunRecord(start, end)

    def has_started_again(self, handed: HandedOverStart) -> bool:
        """Whether there is a record of a later start than the one that we know of."""
        return not handed.is_script and os.path.exists(self._run_path(handed, 1))

    def claim(self, handed: HandedOverStart) -> bool:
        """Make the record of its run before its node does, which will not run it then; whether we did."""
        with refuse_errors(self._run_path(handed)):
            try:
                with create_file(self._run_path(handed)) as file:
                    file.write(b'{"t":"withdrawn"}\n')
            except FileExistsError:
                return False
        self.fence(handed)  # also should it be started more than once
        return True

    def is_claimed(self, handed: HandedOverStart) -> bool:
        """Whether it was withdrawn before it began, though this may not have been noted any more."""
        return any(record.get("t") == "withdrawn" for record in read_notes(self._run_path(handed)))

    def fence(self, handed: HandedOverStart) -> None:
        """Have the node end the command, should it still run there."""
        with contextlib.suppress(OSError):
            (self.path / "runs" / f"{handed.batch}.{handed.number}.stop").touch(mode=0o600)

    def fence_start(self, handed: HandedOverStart) -> None:
        """Have the node end this start alone: the batch system is to begin another one."""
        with contextlib.suppress(OSError):
            stem = f"{handed.batch}.{handed.number}.{handed.restarts}"
            (self.path / "runs" / f"{stem}.stop").touch(mode=0o600)

    def read_log(self, batch: str) -> list[str]:
        """The lines that a batch's script wrote, and the batch system's own processes beside it."""
        try:
            lines = (self.path / f"{batch}.log").read_text(errors="replace").strip().splitlines()
        except OSError:
            return []
        return [line[:200] for line in lines]

    def tidy(self) -> None:
        """Remove logs in which nothing is."""
        for path in self.path.glob("*.log"):
            with contextlib.suppress(OSError):
                if not path.stat().st_size:
                    path.unlink()

    def _run_path(self, handed: HandedOverStart, later: int = 0) -> Path:
        restarts = handed.restarts + later
        return self.path / "runs" / f"{handed.batch}.{handed.number}{f'.{restarts}' if restarts else ''}"


def _handed(record: Mapping[str, Any]) -> Iterator[HandedOverStart]:
    nodes, cpus, devices, memory, models, partition = record["request"]
    kinds = tuple((kind, count) for kind, count in devices)
    request = Request(nodes, cpus, kinds, memory, tuple(models), partition)
    name, target, walltime = record["implementation"], record["target"], record["walltime"]
    jobs, tasks = record["jobs"], record.get("tasks")
    for number, (job, attempt, uid, files, reason) in enumerate(jobs):
        submit = Submit(job, name, request, target, walltime, reason)
        yield HandedOverStart(
            job,
            attempt,
            uid,
            record["batch"],
            number,
            files,
            submit,
            record["kind"],
            len(jobs),
            is_script=tasks is not None,
            task=-1 if tasks is None else tasks[number],
        )


def find_outputs(folder: Path, job: str) -> dict[int, Sequence[str]]:
    """Standard output and error of each attempt of a job that a run's folder notes as handed over."""
    return {one.attempt: one.files for one in QueueFolder(folder).handed() if one.job == job}
