"""What one process has read of an app, carried forward run by run so that nothing is read twice."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence

from dovetail.history.base import Aggregate, Group, InputsKey, RequestKey, canonical_inputs, request_key
from dovetail.model import DeviceClass, Run, State

_Place = tuple[str, DeviceClass]


class Mirror:
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
