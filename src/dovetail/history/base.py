"""What every history keeps: the averages of Gregg 2011, Table 1, and how inputs become a key.

A *key* is (app, implementation, device class, request, inputs). `Aggregate` holds the running figures of
one key over its completed runs. Runs that failed or hit their walltime are kept raw and counted, but
never enter an average: how long a failure took predicts no success.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from dovetail.errors import InputError
from dovetail.interfaces import History
from dovetail.model import DeviceClass, Run, Seconds, State
from dovetail.model.frozen import frozen
from dovetail.records import dataclass

RequestKey = tuple[int, int, float]
"""(nodes, cpus, gpus), each per node, as `Run.resolved_request` gives it."""
InputsKey = tuple[tuple[str, float | str], ...]
"""Inputs sorted by name, numbers as floats."""


def canonical_inputs(inputs: Mapping[str, float | str]) -> InputsKey:
    """Inputs as a hashable key: sorted by name, 2048 and 2048.0 alike. O(k log k).

    >>> canonical_inputs({"n": 2048, "kind": "dense"})
    (('kind', 'dense'), ('n', 2048.0))
    """
    # The two common cases without a sort: this is called once for each run that a model reads.
    if not inputs:
        return ()
    if len(inputs) == 1:
        ((name, value),) = inputs.items()
        return ((name, value if isinstance(value, str) else float(value)),)
    return tuple((k, v if isinstance(v, str) else float(v)) for k, v in sorted(inputs.items()))


def inputs_text(key: InputsKey) -> str:
    """Canonical JSON of an inputs key; whole numbers are written as integers.

    >>> inputs_text((("kind", "dense"), ("n", 2048.0)))
    '{"kind":"dense","n":2048}'
    """
    plain = {
        name: int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
        for name, value in key
    }
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=True)


def inputs_from_text(text: str) -> InputsKey:
    """Inverse of `inputs_text`."""
    return canonical_inputs(json.loads(text))


def request_key(run: Run) -> RequestKey:
    """The request of a run as history keys it."""
    return run.nodes, run.cpus, float(run.gpus)


def check_run(run: Run) -> None:
    """Raises `InputError` for a run that no average could take."""
    where = f"run {run.uid or run.job or run.app}"
    if not run.app:
        raise InputError("app is empty, expected a name", where=where)
    if not run.implementation:
        raise InputError("implementation is empty, expected a name", where=where)
    try:
        f"{run.app}{run.implementation}{run.uid}{run.job}{run.user}".encode()
    except UnicodeEncodeError:
        raise InputError("a name holds bytes that are no text, expected UTF-8", where=ascii(where)) from None
    if not (math.isfinite(run.seconds) and run.seconds >= 0):
        raise InputError(f"seconds is {run.seconds}, expected a finite number of at least 0", where=where)
    for name, value in run.inputs.items():
        if not isinstance(value, str) and not math.isfinite(value):
            raise InputError(f"input {name} is {value}, expected a finite number or a word", where=where)


@dataclass(slots=True)
class Aggregate:
    """Running figures of one key over its completed runs (Gregg 2011, Table 1).

    ``mean``, ``minimum``, ``maximum`` are the paper's appAvg, appMin, appMax in seconds; ``m2`` is appM2,
    the sum of squared differences from the mean. ``sent`` and ``received`` (bytes to and from the device)
    and their seconds are means over the ``transfers`` runs that reported them. ``failed`` counts runs of the
    key that did not complete.
    """

    app: str
    implementation: str
    device_class: DeviceClass
    request: RequestKey
    inputs: InputsKey
    count: int = 0
    mean: Seconds = 0.0
    minimum: Seconds = math.inf
    maximum: Seconds = 0.0
    m2: float = 0.0
    transfers: int = 0
    sent: float = 0.0
    sent_time: Seconds = 0.0
    received: float = 0.0
    received_time: Seconds = 0.0
    failed: int = 0

    @property
    def sample_deviation(self) -> Seconds:
        """Sample standard deviation (appStdev); 0 for fewer than two runs."""
        return math.sqrt(self.m2 / (self.count - 1)) if self.count > 1 else 0.0

    def add(self, run: Run) -> None:
        """Take one more run in. O(1), numerically stable (Welford 1962)."""
        if run.state is not State.COMPLETED:
            self.failed += 1
            return
        self.count += 1
        delta = run.seconds - self.mean
        self.mean += delta / self.count
        self.m2 += delta * (run.seconds - self.mean)
        self.minimum = min(self.minimum, run.seconds)
        self.maximum = max(self.maximum, run.seconds)
        usage = run.usage
        if usage is None or (usage.sent is None and usage.received is None):
            return
        self.transfers += 1
        # Means of the runs that reported transfers: others must not pull them towards 0.
        share = 1.0 / self.transfers
        self.sent += share * ((usage.sent or 0.0) - self.sent)
        self.sent_time += share * ((usage.sent_time or 0.0) - self.sent_time)
        self.received += share * ((usage.received or 0.0) - self.received)
        self.received_time += share * ((usage.received_time or 0.0) - self.received_time)

    def merge_with(self, other: Aggregate) -> Aggregate:
        """Both together, as if the runs of ``other`` had been added (Chan et al. 1979)."""
        count = self.count + other.count
        transfers = self.transfers + other.transfers
        delta = other.mean - self.mean
        share = other.count / count if count else 0.0
        moved = other.transfers / transfers if transfers else 0.0
        return Aggregate(
            self.app,
            self.implementation,
            self.device_class,
            self.request,
            self.inputs,
            count,
            self.mean + delta * share,
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
            # The mean of both moves by delta · share; Chan's term keeps the squares about the new mean.
            self.m2 + other.m2 + delta * delta * self.count * share,
            transfers,
            self.sent + (other.sent - self.sent) * moved,
            self.sent_time + (other.sent_time - self.sent_time) * moved,
            self.received + (other.received - self.received) * moved,
            self.received_time + (other.received_time - self.received_time) * moved,
            self.failed + other.failed,
        )


@frozen(frozen=True, slots=True)
class Group:
    """The runs of one app and implementation on one device class under one request, counted."""

    app: str
    implementation: str
    device_class: DeviceClass
    request: RequestKey
    completed: int
    failed: int


@runtime_checkable
class MeasuredHistory(History, Protocol):
    """A history that also keeps Table 1's averages, so that a prediction need not read every run."""

    def app_stamp(self, app: str) -> Hashable:
        """Changes whenever anything about this app has changed; cheap enough for each prediction."""
        ...

    def hold_still(self) -> AbstractContextManager[object]:
        """For several questions at one moment: within, what other processes record may go unseen."""
        ...

    def list_groups(self, app: str | None = None) -> Sequence[Group]:
        """What there is, by app, implementation, class, request."""
        ...

    def list_aggregates(
        self, app: str, implementation: str, device: DeviceClass, limit: int | None = None
    ) -> Sequence[Aggregate]:
        """Averages by key, in the order in which keys appeared; the newest ``limit`` keys."""
        ...

    def find_aggregate(
        self, app: str, implementation: str, device: DeviceClass, request: RequestKey, inputs: InputsKey
    ) -> Aggregate | None:
        """The averages of one key. O(log n)."""
        ...

    def recent(self, app: str, implementation: str, device: DeviceClass, limit: int) -> Sequence[Run]:
        """The last ``limit`` completed runs, oldest first."""
        ...

    def device_kills(self, app: str, implementation: str, limit: int) -> Sequence[Run]:
        """The last ``limit`` runs, on any class, that a device had too little memory for, oldest first.

        ``usage.gpu_memory`` is what was too little.
        """
        ...

    def total(self) -> int:
        """Number of completed runs of all apps. O(1)."""
        ...

    def latest_runs(self, limit: int) -> Sequence[Run]:
        """The last ``limit`` completed runs of any app on any device, in order of recording, oldest first."""
        ...
