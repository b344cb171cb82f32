"""The journal: events, the predictions used, and decisions, one line of JSON an instant.

Replaying a journal gives identical decisions. A journal is also a workload: what really ran can be
simulated under another policy. A torn last line (the writer was killed) is passed over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from dovetail.engine.journal.checked import DAMAGED, check_fields
from dovetail.engine.journal.codec import Codec, decode_cluster, encode_cluster, encode_json
from dovetail.engine.journal.plausible import Plausible, check_nodes
from dovetail.engine.state.core import Engine
from dovetail.engine.state.predictions import Question
from dovetail.engine.state.progress import Expectations
from dovetail.errors import InputError, JournalError, PolicyError
from dovetail.files.reading import read_text
from dovetail.files.sentences import make_printable, show_value
from dovetail.interfaces import Policy
from dovetail.model import (
    Choice,
    Cluster,
    Decision,
    DeviceClass,
    Ended,
    Event,
    Implementation,
    Job,
    JobId,
    Planned,
    Prediction,
    Request,
    Seconds,
    Start,
    State,
    Submitted,
    TableTruth,
    Workload,
    class_of,
    spelt_out,
)
from dovetail.plugins import hold_moves
from dovetail.records import dataclass

VERSION = 1
MOST_JOURNAL = 1 << 30
"""Bytes of a journal, which is taken in as a whole."""
PLACEMENTS = ("pack", "spread", "first")
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


class JournalWriter:
    """Appends one line an instant; each is handed to the operating system at once.

    ``path`` is created with mode 0600 and must not exist. What a full disk does not take is kept and written
    with a later line, or when the journal is closed.
    """

    def __init__(
        self,
        path: str | Path,
        cluster: Cluster,
        *,
        policy: str,
        placement: str = "pack",
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self._owed = b""
        self.size = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        self._codec = Codec()
        header = {
            "dovetail_journal": VERSION,
            "policy": policy,
            "placement": placement,
            "cluster": encode_cluster(cluster),
            **(about or {}),
        }
        self._write_line(_ENCODE(header).encode())

    def _write_line(self, line: bytes) -> None:
        self.size += len(line) + 1
        owed = self._owed + line + b"\n" if self._owed else line + b"\n"
        try:
            while owed:
                owed = owed[os.write(self._descriptor, owed) :]
        except OSError:  # the disk is full; what decides whether jobs may start is the ledger
            pass
        self._owed = owed

    def write_batch(
        self,
        now: Seconds,
        events: Sequence[Event],
        engine: Engine,
        decisions: Sequence[Decision],
        *,
        ask: bool = True,
        imposed: bool = False,
    ) -> None:
        """One call of the engine; without ``ask`` the policy did not decide.

        ``imposed`` decisions were made before: the engine is to take them as they are (`checkpoint`).
        """
        codec = self._codec
        line: dict[str, Any] = {
            "now": now,
            "events": [codec.encode_event(event) for event in events],
            "asked": [codec.encode_question(question) for question in engine.predictions.take_questions()],
            "decisions": [codec.encode_decision(decision) for decision in spelt_out(decisions)],
        }
        if not ask:
            line["ask"] = False
        if imposed:
            line["imposed"] = True
            line["enqueued"] = engine.last_enqueued
        plans = any(isinstance(event, Planned) for event in events)  # their numbers may be infinite
        self._write_line(_ENCODE(line).encode() if plans else encode_json(line))

    def close(self) -> None:
        """Close the file, with what could not be written before, if that can be done now."""
        if self._owed:
            self._write_line(b"")
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """One instant of a journal."""

    now: Seconds
    events: Sequence[Event]
    asked: Sequence[Question]
    decisions: Sequence[Decision]
    ask: bool = True
    imposed: bool = False
    enqueued: int | None = None


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal read from a file."""

    name: str
    header: Mapping[str, Any]
    cluster: Cluster
    batches: Sequence[JournalBatch]


def read_journal(path: str | Path) -> Journal:
    """Read a journal whole, and check it as any other input. Raises `JournalError` with file and line."""
    name = str(path)
    codec = Codec()
    batches: list[JournalBatch] = []
    header: Mapping[str, Any] | None = None
    plausible: Plausible | None = None
    cluster = Cluster(())
    for number, data in _read_lines(path):
        try:
            if plausible is None:
                header, cluster = _read_header(data, name)
                plausible = Plausible(cluster)
            else:
                batches.append(_read_batch(codec, data, plausible))
        except DAMAGED as error:
            what = "the first line of a journal" if header is None else "an instant"
            raise JournalError(
                f"{name}: line {number}: found {_describe_error(error)}, expected {what}"
            ) from error
    if header is None:
        raise JournalError(f"{name}: the file is empty, expected a Dovetail journal")
    return Journal(name, header, cluster, batches)


def _describe_error(error: Exception) -> str:
    """What is wrong, on one line."""
    if isinstance(error, KeyError):
        return f"no field {show_value(str(error.args[0]))}"
    return make_printable(str(error)) if type(error) is ValueError else "something of another form"


def _read_header(data: Any, name: str) -> tuple[Mapping[str, Any], Cluster]:
    if not isinstance(data, dict) or data.get("dovetail_journal") != VERSION:
        raise JournalError(f"{name}: line 1: expected a Dovetail journal of version {VERSION}")
    for field, kind in (("policy", str), ("placement", str), ("hold_moves", bool)):
        if not isinstance(data.get(field, False if kind is bool else None), kind):
            raise ValueError(f"{field} {show_value(data.get(field))}")
    if data["placement"] not in PLACEMENTS:
        raise ValueError(f"placement {show_value(data['placement'])}")
    return data, check_nodes(check_fields(decode_cluster(data["cluster"])))


def _read_lines(path: str | Path) -> Iterator[tuple[int, Any]]:
    try:
        text = read_text(path, "a Dovetail journal", most=MOST_JOURNAL)
    except InputError as error:
        raise JournalError(str(error)) from error
    lines = text.split("\n")
    # Split here rather than read by lines: only the last one may be torn, and its end shows which it is.
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            data = json.loads(line, parse_constant=_no_number)
        except (ValueError, RecursionError):
            if number == len(lines):
                return  # torn by a kill: everything before it is whole
            raise JournalError(f"{path}: line {number}: found no JSON, expected an instant") from None
        yield number, data


def _no_number(text: str) -> float:
    # JSON has no infinity, but Python writes one.
    if text == "Infinity":  # plans have bounds that are
        return float("inf")
    raise ValueError(text)


def _read_batch(codec: Codec, data: Mapping[str, Any], plausible: Plausible) -> JournalBatch:
    """One instant; events are checked one by one, since jobs are known from their submission on."""
    now = plausible.check_moment(data["now"])
    events = [plausible.check_event(codec.event_from(event)) for event in data["events"]]
    batch = JournalBatch(
        now,
        events,
        [plausible.check_question(_read_question(question)) for question in data["asked"]],
        [plausible.check_decision(codec.decision_from(decision)) for decision in data["decisions"]],
        data.get("ask", True),
        data.get("imposed", False),
        data.get("enqueued"),
    )
    if not all(type(data.get(name, True)) is bool for name in ("ask", "imposed")):
        raise ValueError("a switch that is neither true nor false")
    if batch.enqueued is not None and type(batch.enqueued) is not int:
        raise ValueError(f"enqueued {show_value(batch.enqueued)}")
    return batch


def _read_question(data: list[Any]) -> Question:
    if data[0] == "predict":
        _, job, name, nodes, device, found = data
        if found is not None:
            upper = float("inf") if found["upper"] is None else found["upper"]
            found = Prediction(**{**found, "upper": upper})
        return ("predict", job, name, nodes, DeviceClass(*device), found)
    if data[0] in ("runs", "untried"):
        word, app, name, device, answer = data
        return (word, app, name, DeviceClass(*device), answer)
    return tuple(data)


class _JournalledAnswers:
    """Answers as the model and the bounds gave them, from the journal."""

    def __init__(self) -> None:
        self.version = 0
        self._answers: dict[tuple[Any, ...], Any] = {}

    def learn(self, asked: Sequence[Question]) -> None:
        self.version += 1
        for *question, answer in asked:
            self._answers[tuple(question)] = answer

    def _find_answer(self, *question: Any) -> Any:
        if question not in self._answers:
            raise JournalError(f"the replay needs an answer that the journal lacks: {question}")
        return self._answers[question]

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        return cast(
            "Prediction | None",
            self._find_answer("predict", job.id, implementation.name, request.nodes, device),
        )

    def runs(self, app: str, implementation: str, device: DeviceClass) -> int:
        return cast(int, self._find_answer("runs", app, implementation, device))

    def untried(self, app: str, implementation: str, device: DeviceClass) -> bool:
        key = (app, implementation, device)
        return bool(self._answers.get(("untried", *key), not self._answers.get(("runs", *key), 1)))

    def bound(self, job: Job, implementation: Implementation, request: Request) -> Seconds:
        found = self._find_answer("bound", job.id, implementation.name, request.nodes)
        return float("inf") if found is None else cast(Seconds, found)


def replay(journal: Journal, policy: Policy) -> int:
    """Feed the journal's events to a fresh engine; returns the number of decisions, all identical.

    Raises `JournalError` at the first difference.
    """
    from dovetail.plugins import load_named  # only a replay waits for them
    from dovetail.rates.communication import BORROWING

    remembered = _JournalledAnswers()
    header, holds = journal.header.get("forecast"), journal.header.get("hold_moves", False)
    rates = None
    if header is not None:
        rates = load_named("dovetail.rates", BORROWING, "rate model").from_json(header, journal.cluster)
    engine = Engine(
        journal.cluster,
        cast(Policy, hold_moves(policy)) if holds else policy,
        remembered,
        forecast=None if rates is None else Expectations(rates),
        policy_name=journal.header["policy"],
        bound=remembered.bound,
        placement=journal.header["placement"],
        hold_moves=holds,
    )
    total = 0
    for number, batch in enumerate(journal.batches, 1):
        remembered.learn(batch.asked)
        try:
            decided = engine.handle_events(batch.now, batch.events, ask=batch.ask)
            if batch.imposed:
                engine.impose_decisions(batch.now, batch.decisions, batch.enqueued)
                decided = batch.decisions
        except (*DAMAGED, PolicyError) as error:  # what cannot have happened, on the journal's own terms
            # The engine's own errors on a damaged journal are the journal's errors, not ours.
            raise JournalError(
                f"{journal.name}: instant {number} (at {batch.now:g} s) cannot be replayed: "
                f"{make_printable(str(error)) or type(error).__name__}"
            ) from error
        if spelt_out(decided) != list(batch.decisions):
            raise JournalError(
                f"{journal.name}: the decisions at {batch.now:g} s (instant {number}) differ: "
                f"the journal has {len(batch.decisions)}, the replay {len(spelt_out(decided))}"
            )
        total += len(batch.decisions)
    return total


def workload_from_journal(journal: Journal, cluster: Cluster | None = None) -> Workload:
    """What ran, as a workload: measured times where a job completed, else predictions that were used.

    Times of implementations that did not run are the journal's last predictions for them. A job has all the
    choices that its app has, also those that were impossible where it ran. With a ``cluster`` times of a
    device class that has a model count only if it has that class, or one of the kind without a model.
    """
    jobs: list[Job] = []
    meant = partial(_is_meant, cluster)
    table: dict[tuple[JobId, str, int], Seconds] = {}
    started: dict[JobId, tuple[Seconds, str, int, DeviceClass | None]] = {}
    of_job: dict[JobId, Job] = {}
    measured: dict[tuple[JobId, str, int], Seconds] = {}
    for batch in journal.batches:
        for event in batch.events:
            if isinstance(event, Submitted):
                if not event.job.foreign:
                    # Without a begin time: the workload's submit times already hold what happened.
                    jobs.append(replace(_with_all_choices(event.job), begin=None))
                    of_job[event.job.id] = event.job
            elif isinstance(event, Ended) and event.state is State.COMPLETED and event.job in started:
                start, name, nodes, device = started[event.job]
                took = batch.now - start
                if event.started_at is not None and event.ended_at is not None:
                    # The supervisor's own times where it had them: the engine saw the end a little later.
                    took = event.ended_at - event.started_at
                if meant(device):
                    measured[event.job, name, nodes] = took
        for question in batch.asked:
            if question[0] == "predict" and question[5] is not None and meant(question[4]):
                table[question[1], question[2], question[3]] = question[5].expected
        for decision in batch.decisions:
            if isinstance(decision, Start):
                nodes, job = decision.allocation.request.nodes, of_job.get(decision.job)
                device = None if job is None else _class_of(journal.cluster, job, decision)
                started[decision.job] = (batch.now, decision.implementation, nodes, device)
    jobs.sort(key=lambda job: (job.submit_time, job.index))
    # Measured times win over predictions.
    truth = TableTruth({**table, **measured})
    return Workload(journal.name, jobs, truth, machine=journal.cluster, ran=True)


def _with_all_choices(job: Job) -> Job:
    """The job with the choices that it lost, since there was no such device where it ran."""
    there = {choice.implementation.name for choice in job.choices}
    if len(there) == len(job.app.implementations):
        return job
    counts = sorted({choice.request.nodes for choice in job.choices})
    choices = [
        choice
        for one in job.app.implementations
        for choice in (
            [c for c in job.choices if c.implementation.name == one.name]
            or [Choice(one, one.request.on(nodes)) for nodes in counts]
        )
    ]
    return replace(job, choices=tuple(choices))


def _class_of(cluster: Cluster, job: Job, start: Start) -> DeviceClass | None:
    """The device class on which a job started; ``None`` on a node that joined later."""
    if start.allocation.first_node >= len(cluster.nodes):
        return None
    return class_of(cluster, job.app.implementation(start.implementation), start.allocation)


def _is_meant(cluster: Cluster | None, device: DeviceClass | None) -> bool:
    """Whether times of a device class are those of the cluster: of one that it has, or does not name."""
    if cluster is None or device is None or not device.model:
        return True
    classes = cluster.device_classes(device.kind)
    return not classes or any(one.model in ("", device.model) for one in classes)


def read_journal_workload(path: str, cluster: Cluster | None, *, lenient: bool = False) -> Workload:
    """A journal as a workload (`WorkloadReader`): jobs as submitted, times as measured, else as predicted."""
    return workload_from_journal(read_journal(path), cluster)
