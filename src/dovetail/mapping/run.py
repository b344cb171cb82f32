"""A map is a job of the driver: its run folder, ledger and journal, and what people see of its items.

``dovetail runs`` and ``explain`` find a map as they find any run; the history learns how long it took as a
whole, under ``map NAME``, so that the next one is predicted. What a map has of its own, which kind of worker
did how many items and why one was suspended, lies in ``map.json`` of the run folder.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.engine.journal.journal import JournalWriter
from dovetail.engine.state.core import no_bound
from dovetail.files.writing import create_file
from dovetail.history.sqlite import SqliteHistory
from dovetail.mapping.crew import Slot
from dovetail.mapping.items import FILE
from dovetail.model import (
    CPU,
    App,
    Choice,
    Cluster,
    Device,
    Ended,
    Event,
    Implementation,
    Job,
    Node,
    Request,
    State,
    Submitted,
)
from dovetail.model.node import HERE
from dovetail.policies.fcfs import Fcfs
from dovetail.process.processes import process_origin, started_at
from dovetail.running.folder import MAP, RunSettings, new_run_folder, write_about
from dovetail.running.ledger import Ledger
from dovetail.runtimes.registry import make_model
from dovetail.spec.values import DEFAULT_MODEL

PULSE = 1.0
"""Seconds between two notes of how far a map is."""


class MapRun:
    """The run of some workers: a folder, and a job of the driver for each map that they do, one at a time.

    ``began`` is when the first of them began, by the monotonic clock. The driver's clock is the map's: it is
    given two instants, and has no others.
    """

    def __init__(self, slots: Sequence[Slot], name: str, rule: str, history: Path, began: float) -> None:
        self.uid = uuid.uuid4().hex
        self.began = began
        self.epoch = time.time() - (time.monotonic() - began)
        self.cluster = cluster_of(slots)
        self.jobs = 0
        about = RunSettings(
            uid=self.uid, created=self.epoch, workload=app_name(name), policy=rule, executor=MAP,
            model=DEFAULT_MODEL, history=str(history.absolute()), cwd=os.getcwd(), grace=0.0, overrun="run",
            default_walltime=None, seed=None, cluster=self.cluster,
        )  # fmt: skip
        with new_run_folder(None, self.uid) as folder:
            self.folder = folder
            write_about(folder, about)
            self.journal = JournalWriter(
                folder / "journal.jsonl",
                self.cluster,
                policy="fcfs",
                about={"run": self.uid, "workload": about.workload},
            )

    def begin_run(
        self, name: str, inputs: Mapping[str, float], slots: Sequence[Slot], history: SqliteHistory,
        began: float,
    ) -> None:  # fmt: skip
        """A map is submitted, and started at once."""
        self._written = time.monotonic()
        self.jobs += 1
        self._ledger = Ledger(self.folder / "ledger.db", epoch=self.epoch)
        with ExitStack() as undo:
            undo.callback(self._ledger.close)
            self._driver = Driver(
                self.cluster,
                Fcfs(),
                make_model(DEFAULT_MODEL, history),
                bound=no_bound,
                history=history,
                journal=self.journal,
                ledger=self._ledger,
                options=DriverOptions(overrun="run", policy_name="fcfs", run_uid=self.uid),
            )
            self._driver.epoch = self.epoch
            self._job = _job_of_map(self, name, inputs, slots)
            self._ledger.submit([self._job], self.epoch)
            self._process_event(began - self.began, Submitted(self._job))
            undo.pop_all()

    def _process_event(self, now: float, event: Event) -> None:
        self._driver.process_instant(now, (event,))
        self._driver.write_last_instant()

    def note_progress(self, form: Callable[[], Mapping[str, Any]], *, at_once: bool = False) -> None:
        """Write down how far the map is, every `PULSE` seconds at most."""
        now = time.monotonic()
        if not at_once and now - self._written < PULSE:
            return
        self._written = now
        pid = os.getpid()
        claimed = {"job": self._job.id, **process_origin(), "pid": pid, "boot": started_at(pid), **form()}
        part = self.folder / f"{FILE}.part"
        # A full disk: the map goes on all the same.
        with suppress(OSError):
            part.unlink(missing_ok=True)
            with create_file(part) as file:
                file.write(json.dumps(claimed).encode())
            part.rename(self.folder / FILE)

    def end(self, state: State, detail: str, form: Callable[[], Mapping[str, Any]]) -> None:
        """The map has ended. Raises `HistoryError` where that cannot be kept."""
        with ExitStack() as stack:
            stack.callback(self._ledger.close)
            self.note_progress(form, at_once=True)
            code = 0 if state is State.COMPLETED else None
            self._process_event(time.monotonic() - self.began, Ended(self._job.id, state, code, detail))


def app_name(name: str) -> str:
    """What the whole map of a function is called in the history."""
    return f"{MAP} {name}" if name else MAP


def cluster_of(slots: Sequence[Slot]) -> Cluster:
    """What the workers hold together, as one node: this machine, or a Ray cluster."""
    cores = sorted({core for slot in slots for core in slot.place.cores})
    # Ray does not report on which cores a worker runs.
    if not cores:
        cores = list(range(sum(slot.kind == CPU for slot in slots)))
    devices: dict[tuple[str, int], Device] = {}
    for slot in slots:
        place = slot.place
        if place.kind != CPU:
            devices.setdefault((place.kind, place.device), Device(place.kind, place.model, place.device))
    model = next((slot.place.model for slot in slots if slot.kind == CPU), "")
    name = "ray" if any(slot.node for slot in slots) else HERE
    return Cluster((Node(name, tuple(cores), tuple(devices.values()), cpu_model=model),))


def _job_of_map(run: MapRun, name: str, inputs: Mapping[str, float], slots: Sequence[Slot]) -> Job:
    """Everything that the workers hold, for this map."""
    (node,) = run.cluster.nodes
    counts = Counter(device.kind for device in node.devices)
    request = Request(1, node.cpus, tuple((kind, float(count)) for kind, count in counts.items()))
    kinds = list(dict.fromkeys(slot.kind for slot in slots))
    others = [kind for kind in kinds if kind != CPU]
    kind = CPU if not others else f"{CPU}+{others[0]}" if CPU in kinds else others[0]
    implementation = Implementation("+".join(kinds), kind, request)
    app = App(app_name(name), (implementation,), restartable=False)
    return Job(f"map-{run.jobs}", app, (Choice(implementation, request),), run.jobs - 1, inputs=dict(inputs))
