"""History in memory: for simulations, as an overlay on a database, and for histories that keep runs alone."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

from dovetail.history.base import (
    Aggregate,
    Group,
    InputsKey,
    MeasuredHistory,
    RequestKey,
    canonical_inputs,
    check_run,
    request_key,
)
from dovetail.interfaces import History
from dovetail.model import DeviceClass, Run, State

_Place = tuple[str, DeviceClass]
_NOTHING: AbstractContextManager[object] = nullcontext()


class _App:
    """Runs and averages of one app by (implementation, class)."""

    __slots__ = ("aggregates", "changes", "counts", "kills", "runs")

    def __init__(self) -> None:
        self.kills: dict[str, list[Run]] = {}  # for the memory of a device, by implementation
        self.runs: dict[_Place, list[Run]] = {}
        self.aggregates: dict[_Place, dict[tuple[RequestKey, InputsKey], Aggregate]] = {}
        self.counts: dict[tuple[str, DeviceClass, RequestKey], tuple[int, int]] = {}
        self.changes = 0


def is_device_kill(run: Run) -> bool:
    """Whether a device had too little memory for a run, or may have had: then its usage holds how much."""
    return run.state is State.OUT_OF_MEMORY and run.usage is not None and run.usage.gpu_memory is not None


class MemoryHistory:
    """Measured runs, kept in memory.

    With ``base`` it shows the base's runs too and keeps new ones to itself: a simulation that starts from
    a real history learns on, and the database stays as it was. ``_lock`` is held while a question is
    answered, for a kind of history that several threads share (`dovetail.history.buffered`).

    >>> cpu = DeviceClass("cpu")
    >>> history = MemoryHistory([Run("mm", "cpu", cpu, 1, 1, 0.0, {"n": 512.0}, 1.5)])
    >>> history.count("mm", "cpu", cpu), history.list_aggregates("mm", "cpu", cpu)[0].mean
    (1, 1.5)
    """

    def __init__(self, runs: Iterable[Run] = (), *, base: MeasuredHistory | None = None) -> None:
        self._base = base
        self._lock = _NOTHING
        self._apps: dict[str, _App] = {}
        self._uids: set[str] = set()
        self._version = 0
        self._completed: list[Run] = []
        for run in runs:
            self.record(run)

    @property
    def version(self) -> int:
        """Grows with every change, the base's included."""
        with self._lock:
            return self._version if self._base is None else self._version + self._base.version

    def _find_app(self, name: str) -> _App | None:
        """What is kept of an app."""
        return self._apps.get(name)

    def record(self, run: Run) -> bool:
        """Keep a run; ``False`` if its ``uid`` was there already. O(1). Raises `InputError`.

        A uid that only the base has is not looked up: what is recorded here never reaches the base.
        """
        check_run(run)
        if run.uid:
            if run.uid in self._uids:
                return False
            self._uids.add(run.uid)
        app = self._apps.setdefault(run.app, _App())
        place = (run.implementation, run.device_class)
        key = (request_key(run), canonical_inputs(run.inputs))
        kept = app.aggregates.setdefault(place, {})
        if key not in kept:
            kept[key] = Aggregate(run.app, run.implementation, run.device_class, *key)
        kept[key].add(run)
        app.runs.setdefault(place, [])
        completed = run.state is State.COMPLETED
        if completed:
            app.runs[place].append(run)
            self._completed.append(run)
        elif is_device_kill(run):
            app.kills.setdefault(run.implementation, []).append(run)
        group = (*place, key[0])
        good, bad = app.counts.get(group, (0, 0))
        app.counts[group] = (good + completed, bad + (not completed))
        app.changes += 1
        self._version += 1
        return True

    def _restart_with(self, runs: Sequence[Run]) -> None:
        """Keep these alone: the base has the others now. `version` is not lowered."""
        version = self._version
        self._apps.clear()
        self._uids.clear()
        self._completed.clear()
        for run in runs:
            MemoryHistory.record(self, run)
        self._version = version

    def app_stamp(self, app: str) -> Hashable:
        """Changes whenever anything about this app has changed. O(1)."""
        with self._lock:
            own = self._find_app(app)
            changes = own.changes if own else 0
            return changes if self._base is None else (changes, self._base.app_stamp(app))

    def hold_still(self) -> AbstractContextManager[object]:
        """For several questions at one moment (see the base)."""
        return _NOTHING if self._base is None else self._base.hold_still()

    def count(self, app: str, implementation: str, device: DeviceClass) -> int:
        """Number of completed runs. O(1)."""
        with self._lock:
            own = self._find_app(app)
            found = len(own.runs.get((implementation, device), ())) if own else 0
            return found if self._base is None else found + self._base.count(app, implementation, device)

    def total(self) -> int:
        """Number of completed runs of all apps. O(1)."""
        with self._lock:
            return len(self._completed) + (0 if self._base is None else self._base.total())

    def latest_runs(self, limit: int) -> Sequence[Run]:
        """The last ``limit`` completed runs of any app, in order of recording, oldest first. O(limit)."""
        with self._lock:
            found = self._completed[-limit:] if limit > 0 else []
            if self._base is not None and len(found) < limit:
                # Always of this length: the base keeps one answer at hand.
                found = [*self._base.latest_runs(limit), *found][-limit:]
            return found

    def runs(
        self, app: str, implementation: str | None = None, device: DeviceClass | None = None
    ) -> Sequence[Run]:
        """Completed runs, oldest first (by time, then order of recording). O(n log n)."""
        with self._lock:
            found = list(self._base.runs(app, implementation, device)) if self._base is not None else []
            own = self._find_app(app)
            if own:
                for (name, where), runs in own.runs.items():
                    if implementation in (None, name) and device in (None, where):
                        found.extend(runs)
            found.sort(key=lambda run: run.when)
            return found

    def recent(self, app: str, implementation: str, device: DeviceClass, limit: int) -> Sequence[Run]:
        """The last ``limit`` completed runs, oldest first. O(limit)."""
        with self._lock:
            own = self._find_app(app)
            found = list(own.runs.get((implementation, device), ())[-limit:]) if own and limit > 0 else []
            if self._base is not None and len(found) < limit:
                before = self._base.recent(app, implementation, device, limit)
                found = [*before[-(limit - len(found)) :], *found]
            return found

    def device_kills(self, app: str, implementation: str, limit: int) -> Sequence[Run]:
        """The last ``limit`` runs that a device had too little memory for, oldest first. O(limit)."""
        with self._lock:
            own = self._find_app(app)
            found = list(own.kills.get(implementation, ())[-limit:]) if own and limit > 0 else []
            if self._base is not None and len(found) < limit:
                before = self._base.device_kills(app, implementation, limit - len(found))
                found = [*before, *found]
            return found

    def list_aggregates(
        self, app: str, implementation: str, device: DeviceClass, limit: int | None = None
    ) -> Sequence[Aggregate]:
        """Averages by key, in the order in which keys appeared; the newest ``limit`` keys. O(keys)."""
        with self._lock:
            own = self._find_app(app)
            kept = own.aggregates.get((implementation, device), {}) if own else {}
            if self._base is None:
                found = list(kept.values())
            else:
                # Merged, not overwritten: a simulation learns on from the real averages.
                both = {
                    (a.request, a.inputs): a
                    for a in self._base.list_aggregates(app, implementation, device, limit)
                }
                for key, aggregate in kept.items():
                    its = self._base.find_aggregate(app, implementation, device, *key)
                    both[key] = aggregate if its is None else its.merge_with(aggregate)
                found = list(both.values())
            return found if limit is None else found[-limit:]

    def find_aggregate(
        self, app: str, implementation: str, device: DeviceClass, request: RequestKey, inputs: InputsKey
    ) -> Aggregate | None:
        """The averages of one key. O(1) beside the base's."""
        with self._lock:
            own = self._find_app(app)
            found = own.aggregates.get((implementation, device), {}).get((request, inputs)) if own else None
            if self._base is None:
                return found
            below = self._base.find_aggregate(app, implementation, device, request, inputs)
            if below is None or found is None:
                return found or below
            return below.merge_with(found)

    def list_groups(self, app: str | None = None) -> Sequence[Group]:
        """What there is, by app, implementation, class, request. O(groups)."""
        with self._lock:
            counts: dict[tuple[str, str, DeviceClass, RequestKey], tuple[int, int]] = {}
            if self._base is not None:
                for group in self._base.list_groups(app):
                    place = (group.app, group.implementation, group.device_class, group.request)
                    counts[place] = (group.completed, group.failed)
            for name, own in self._apps.items():
                if app not in (None, name):
                    continue
                for counted, (good, bad) in own.counts.items():
                    completed, failed = counts.get((name, *counted), (0, 0))
                    counts[name, *counted] = (completed + good, failed + bad)
            return [Group(*place, *both) for place, both in sorted(counts.items())]


class AveragedHistory(MemoryHistory):
    """Averages of a history that keeps raw runs only (a user's own): worked out anew when it changes."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history, self._seen = history, -1

    @property
    def version(self) -> int:
        """Grows with every change of the history."""
        return self._history.version

    def _find_app(self, name: str) -> _App | None:
        if self._seen != self._history.version:
            self._apps.clear()
            self._uids.clear()
            self._seen = self._history.version
        if name not in self._apps:
            for run in self._history.runs(name):
                super().record(run)
        return self._apps.get(name)

    def record(self, run: Run) -> bool:
        """Into the history."""
        return self._history.record(run)

    def app_stamp(self, app: str) -> Hashable:
        """Changes with anything in the history."""
        return self._history.version

    def list_groups(self, app: str | None = None) -> Sequence[Group]:
        """Of one app; a history of this kind cannot list all of them at once."""
        return () if app is None else super().list_groups(app)

    def total(self) -> int:
        """Not known of all apps."""
        return 0

    def latest_runs(self, limit: int) -> Sequence[Run]:
        """Not known of all apps."""
        return ()
