"""The one cache of a history database: what this process has read, carried forward run by run.

What this process records is added to what it has read, so that nothing is read twice; when another process
has written, stamps and counts are read anew, and of an app what its new stamp shows to have changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence

from dovetail.history.base import Aggregate, Group, InputsKey, RequestKey, canonical_inputs, request_key
from dovetail.model import DeviceClass, Run, State

_Place = tuple[str, DeviceClass]
Stamp = tuple[tuple[int, int], ...]
"""(id, changes) of every group of an app."""


class AppCache:
    """Averages, newest runs and, once read, groups of one app, as of ``stamp``."""

    def __init__(self, stamp: Hashable) -> None:
        self.stamp = stamp
        self.groups: dict[tuple[str, DeviceClass, RequestKey], Group] | None = None
        self._aggregates: dict[_Place, tuple[int | None, dict[tuple[RequestKey, InputsKey], Aggregate]]] = {}
        self._recent: dict[_Place, deque[Run]] = {}

    def newest_aggregates(
        self, implementation: str, device: DeviceClass, limit: int | None
    ) -> Sequence[Aggregate] | None:
        """The newest ``limit`` keys, or ``None`` where they were not read with this limit. O(limit)."""
        kept = self._aggregates.get((implementation, device))
        if kept is None or kept[0] != limit:
            return None
        found = list(kept[1].values())
        return found if limit is None else found[-limit:]

    def known_aggregate(
        self, implementation: str, device: DeviceClass, request: RequestKey, inputs: InputsKey
    ) -> tuple[bool, Aggregate | None]:
        """Whether it is known what the averages of this key are, and what they are. O(1)."""
        kept = self._aggregates.get((implementation, device))
        if kept is None:
            return False, None
        limit, keys = kept
        found = keys.get((request, inputs))
        return found is not None or limit is None or len(keys) < limit, found

    def keep_aggregates(
        self, implementation: str, device: DeviceClass, limit: int | None, found: Sequence[Aggregate]
    ) -> None:
        """Remember what was read."""
        keys = {(a.request, a.inputs): a for a in found}
        self._aggregates[implementation, device] = (limit, keys)

    def recent(self, implementation: str, device: DeviceClass, limit: int) -> Sequence[Run] | None:
        """The newest ``limit`` runs, or ``None`` where they were not read with this limit. O(limit)."""
        kept = self._recent.get((implementation, device))
        return None if kept is None or kept.maxlen != limit else list(kept)

    def keep_recent(self, implementation: str, device: DeviceClass, limit: int, runs: Sequence[Run]) -> None:
        """Remember what was read."""
        self._recent[implementation, device] = deque(runs, maxlen=limit)

    def add(self, run: Run, stamp: Hashable) -> None:
        """Take in a run that this process has just recorded; ``stamp`` is that after it. O(1)."""
        self.stamp = stamp
        place = (run.implementation, run.device_class)
        completed = run.state is State.COMPLETED
        if self.groups is not None:
            request = request_key(run)
            old = self.groups.get((*place, request)) or Group(run.app, *place, request, 0, 0)
            counted = (old.completed + completed, old.failed + (not completed))
            self.groups[*place, request] = Group(run.app, *place, request, *counted)
        if place in self._recent and completed:
            self._recent[place].append(run)
        if place in self._aggregates:
            limit, keys = self._aggregates[place]
            key = (request_key(run), canonical_inputs(run.inputs))
            if key not in keys:
                if limit is not None and len(keys) >= limit:
                    # Whether the key is new or older than the window is not known: read anew.
                    del self._aggregates[place]
                    return
                keys[key] = Aggregate(run.app, *place, *key)
            keys[key].add(run)


class Cache:
    """What a process has read of all apps; its owner reads what is missing, and puts it here.

    ``stamps`` of apps, ``counts`` of completed runs by (app, implementation, class), their ``total``, and the
    ``latest`` runs of any app. ``version`` grows with every change by this process or another.
    """

    def __init__(self) -> None:
        self.version = 0
        self.stamps: dict[str, Stamp] = {}
        self.counts: dict[tuple[str, str, DeviceClass], int] = {}
        self.total: int | None = None
        self.latest: deque[Run] | None = None
        self._apps: dict[str, AppCache] = {}
        self._seen = -1

    def notice_version(self, data_version: int) -> bool:
        """Whether another process has written since the last time, by SQLite's ``data_version``.

        What only a read can show is dropped then; an app's part stays until its stamp differs.
        """
        if data_version == self._seen:
            return False
        # It moves when another connection commits, never for our own commits.
        self.version += self._seen != -1
        self._seen = data_version
        self._drop_all_but_apps()
        return True

    def forget_all(self) -> None:
        """Drop everything, after a change that is not carried forward."""
        self.version += 1
        self._apps.clear()
        self._drop_all_but_apps()

    def _drop_all_but_apps(self) -> None:
        self.stamps.clear()
        self.counts.clear()
        self.total = self.latest = None

    def find_app(self, app: str, stamp: Hashable) -> AppCache:
        """What has been read of an app, if it has not changed since; else an empty one."""
        found = self._apps.get(app)
        if found is None or found.stamp != stamp:
            found = self._apps[app] = AppCache(stamp)
        return found

    def carry_forward(
        self, runs: Sequence[Run], before: Mapping[str, Stamp], after: Mapping[str, Stamp]
    ) -> None:
        """Add runs that this process has just recorded, with the stamps of their apps before and after."""
        self.version += 1
        self.stamps.update(after)
        for run in runs:
            completed = run.state is State.COMPLETED
            if completed and self.total is not None:
                self.total += 1
            if completed and self.latest is not None:
                self.latest.append(run)
            place = (run.app, run.implementation, run.device_class)
            if place in self.counts:
                self.counts[place] += completed
            app = self._apps.get(run.app)
            # ``before`` for the first run of an app in this batch, ``after`` for its others.
            if app is not None and app.stamp in (before[run.app], after[run.app]):
                app.add(run, after[run.app])
