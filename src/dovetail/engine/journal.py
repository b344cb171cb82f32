"""The journal: events, the predictions used, and decisions, one line of JSON an instant.

Replaying a journal gives identical decisions. A journal is also a workload: what really ran can be
simulated under another policy. A torn last line (the writer was killed) is passed over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from dovetail.engine.codec import Codec, decode_cluster, encode_cluster
from dovetail.engine.core import Engine
from dovetail.engine.predictions import Asked
from dovetail.errors import JournalError
from dovetail.interfaces import Policy
from dovetail.model import (
    Cluster,
    Decision,
    DeviceClass,
    Ended,
    Event,
    Implementation,
    Job,
    JobId,
    Prediction,
    Request,
    Seconds,
    Start,
    State,
    Submitted,
    TableTruth,
    Workload,
)

__all__ = [
    "Journal",
    "JournalBatch",
    "JournalWriter",
    "read_journal",
    "read_journal_workload",
    "replay",
    "workload_from_journal",
]

VERSION = 1
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


class JournalWriter:
    """Appends one line an instant; each is handed to the operating system at once.

    ``path`` is created with mode 0600 and must not exist, unless ``file`` gives an open stream.
    """

    def __init__(
        self,
        path: str | Path | None,
        cluster: Cluster,
        *,
        policy: str,
        placement: str = "pack",
        about: Mapping[str, Any] | None = None,
        file: IO[str] | None = None,
    ) -> None:
        if file is None:
            assert path is not None
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            file = os.fdopen(descriptor, "w", encoding="utf-8")
        self._file = file
        self._codec = Codec()
        header = {
            "dovetail_journal": VERSION,
            "policy": policy,
            "placement": placement,
            "cluster": encode_cluster(cluster),
            **(about or {}),
        }
        self._line(header)

    def _line(self, data: Mapping[str, Any]) -> None:
        self._file.write(_ENCODE(data) + "\n")
        self._file.flush()

    def batch(
        self,
        now: Seconds,
        events: Sequence[Event],
        engine: Engine,
        decisions: Sequence[Decision],
        *,
        ask: bool = True,
    ) -> None:
        """One call of the engine; without ``ask`` the policy was not asked."""
        codec = self._codec
        line = {
            "now": now,
            "events": [codec.event(event) for event in events],
            "asked": [codec.asked(asked) for asked in engine.predictions.take_asked()],
            "decisions": [codec.decision(decision) for decision in decisions],
        }
        self._line(line if ask else {**line, "ask": False})

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """One instant of a journal."""

    now: Seconds
    events: Sequence[Event]
    asked: Sequence[Asked]
    decisions: Sequence[Decision]
    ask: bool = True


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal read from a file."""

    name: str
    header: Mapping[str, Any]
    cluster: Cluster
    batches: Sequence[JournalBatch]


def read_journal(path: str | Path) -> Journal:
    """Read a journal whole. Raises `JournalError` with file and line."""
    name = str(path)
    codec = Codec()
    batches: list[JournalBatch] = []
    header: Mapping[str, Any] | None = None
    for number, data in _lines(path):
        try:
            if header is None:
                if data.get("dovetail_journal") != VERSION:
                    raise JournalError(f"{name}: line 1: expected a Dovetail journal of version {VERSION}")
                header = data
            else:
                batches.append(_batch(codec, data))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise JournalError(f"{name}: line {number}: found {error}, expected an instant") from error
    if header is None:
        raise JournalError(f"{name}: the file is empty, expected a Dovetail journal")
    return Journal(name, header, decode_cluster(header["cluster"]), batches)


def _lines(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise JournalError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise JournalError(f"{path}: found bytes that are no UTF-8, expected a Dovetail journal") from error
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            yield number, json.loads(line)
        except ValueError:
            if number == len(lines):
                return  # torn by a kill: everything before it is whole
            raise JournalError(f"{path}: line {number}: found no JSON, expected an instant") from None


def _batch(codec: Codec, data: Mapping[str, Any]) -> JournalBatch:
    return JournalBatch(
        data["now"],
        [codec.event_from(event) for event in data["events"]],
        [_asked(asked) for asked in data["asked"]],
        [codec.decision_from(decision) for decision in data["decisions"]],
        data.get("ask", True),
    )


def _asked(data: list[Any]) -> Asked:
    if data[0] == "predict":
        _, job, name, nodes, device, found = data
        return ("predict", job, name, nodes, DeviceClass(*device), found and Prediction(**found))
    if data[0] == "runs":
        _, app, name, device, count = data
        return ("runs", app, name, DeviceClass(*device), count)
    return tuple(data)


class _Remembered:
    """Answers as the journal says the model and the bounds answered."""

    def __init__(self) -> None:
        self.version = 0
        self._answers: dict[tuple[Any, ...], Any] = {}

    def learn(self, asked: Sequence[Asked]) -> None:
        self.version += 1
        for *question, answer in asked:
            self._answers[tuple(question)] = answer

    def _answer(self, *question: Any) -> Any:
        if question not in self._answers:
            raise JournalError(f"the replay asks what the journal has no answer to: {question}")
        return self._answers[question]

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        return cast(
            "Prediction | None", self._answer("predict", job.id, implementation.name, request.nodes, device)
        )

    def runs(self, app: str, implementation: str, device: DeviceClass) -> int:
        return cast(int, self._answer("runs", app, implementation, device))

    def bound(self, job: Job, implementation: Implementation, request: Request) -> Seconds:
        found = self._answer("bound", job.id, implementation.name, request.nodes)
        return float("inf") if found is None else cast(Seconds, found)


def replay(journal: Journal, policy: Policy) -> int:
    """Feed the journal's events to a fresh engine; returns the number of decisions, all identical.

    Raises `JournalError` at the first difference.
    """
    remembered = _Remembered()
    engine = Engine(
        journal.cluster,
        policy,
        remembered,
        policy_name=journal.header["policy"],
        bound=remembered.bound,
        placement=journal.header["placement"],
    )
    total = 0
    for number, batch in enumerate(journal.batches, 1):
        remembered.learn(batch.asked)
        decided = engine.handle(batch.now, batch.events, ask=batch.ask)
        if list(decided) != list(batch.decisions):
            raise JournalError(
                f"{journal.name}: the decisions at {batch.now:g} s (instant {number}) differ: "
                f"the journal has {len(batch.decisions)}, the replay {len(decided)}"
            )
        total += len(decided)
    return total


def workload_from_journal(journal: Journal) -> Workload:
    """What ran, as a workload: measured times where a job completed, else predictions that were used.

    Times of implementations that did not run are the journal's last predictions for them.
    """
    jobs: list[Job] = []
    table: dict[tuple[JobId, str, int], Seconds] = {}
    started: dict[JobId, tuple[Seconds, str, int]] = {}
    measured: dict[tuple[JobId, str, int], Seconds] = {}
    for batch in journal.batches:
        for event in batch.events:
            if isinstance(event, Submitted):
                jobs.append(event.job)
            elif isinstance(event, Ended) and event.state is State.COMPLETED and event.job in started:
                start, name, nodes = started[event.job]
                took = batch.now - start
                if event.started_at is not None and event.ended_at is not None:
                    took = event.ended_at - event.started_at
                measured[event.job, name, nodes] = took
        for asked in batch.asked:
            if asked[0] == "predict" and asked[5] is not None:
                table[asked[1], asked[2], asked[3]] = asked[5].expected
        for decision in batch.decisions:
            if isinstance(decision, Start):
                nodes = decision.allocation.request.nodes
                started[decision.job] = (batch.now, decision.implementation, nodes)
    jobs.sort(key=lambda job: (job.submit_time, job.index))
    return Workload(journal.name, jobs, TableTruth({**table, **measured}))


def read_journal_workload(path: str, cluster: Cluster, *, lenient: bool = False) -> Workload:
    """A journal as a workload (`WorkloadReader`): jobs as submitted, times as measured, else as predicted."""
    return workload_from_journal(read_journal(path))
