"""Other Dovetails on this machine: what they use is taken, as if a job that is not ours ran there."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from dovetail.engine.driver import Driver
from dovetail.executors.claims import Claims, Holder, units_of, units_of_cluster
from dovetail.model import (
    FRACTION_UNITS,
    Adopted,
    Allocation,
    App,
    Choice,
    Cluster,
    Ended,
    Implementation,
    Job,
    JobId,
    Part,
    Request,
    Seconds,
    State,
)

__all__ = ["Neighbours"]

POLL: Seconds = 0.25
"""Between looks whether others have ended, while somebody waits for that."""


class Neighbours:
    """Keeps claims before and after each instant of a live run (`dovetail.engine.live.LiveRun`).

    Before it, where something may start, all units are claimed that nobody else has; those of others become
    foreign jobs, which hold their places in the engine. After it, what is idle is given back. ``due`` is when
    to look again. ``tell`` gets one sentence when somebody waits for others.
    """

    def __init__(self, claims: Claims, cluster: Cluster, tell: Callable[[str], None]) -> None:
        self.due: Seconds = inf
        self._claims, self._cluster, self._tell = claims, cluster, tell
        self._units = units_of_cluster(cluster)
        self._foreign: dict[tuple[int, str], JobId] = {}  # by node, and device or core
        self._count = 0
        self._said = self._broken = False

    def before(self, driver: Driver, now: Seconds) -> None:
        """Something is about to be decided."""
        engine = driver.engine
        if not (driver.pending or engine.queue or engine.device_queues):
            self.due = inf
            return
        if self._broken or (not self._foreign and self._claims.held >= self._units.keys()):
            return
        try:
            others = self._claims.take(self._units)
        except OSError as error:
            self._broken, self.due = True, inf
            for place in list(self._foreign):  # nobody would say when they end
                driver.happened(Ended(self._foreign.pop(place), State.COMPLETED))
            self._tell(f"other Dovetails on this machine are not seen: {error.strerror or error}")
            return
        taken = self._taken({unit: who for unit, who in others.items() if unit not in self._claims.held})
        for place in [place for place in self._foreign if place not in taken]:
            driver.happened(Ended(self._foreign.pop(place), State.COMPLETED))
        for place, holder in taken.items():
            if place not in self._foreign:
                self._enter(driver, place, holder, now)
        self.due = now + POLL if self._foreign else inf
        if taken and not self._said:
            self._said = True
            units = ", ".join(sorted(f"{name}" for _, name in taken))
            who = ", ".join(sorted({holder.label for holder in taken.values()}))
            self._tell(f"{units} in use by {who}: jobs here take what is free, and wait for the rest")

    def _taken(self, others: dict[str, Holder]) -> dict[tuple[int, str], Holder]:
        """Places in the cluster that others use: cores of pools, and devices (also by one of their cores)."""
        found: dict[tuple[int, str], Holder] = {}
        for unit, holder in others.items():
            node, device = self._units[unit]
            name = unit if device is None else self._cluster.nodes[node].devices[device].name
            found[node, name] = holder
        return found

    def _enter(self, driver: Driver, place: tuple[int, str], holder: Holder, now: Seconds) -> None:
        """A job of somebody else that holds one core, or one device."""
        n, name = place
        node = self._cluster.nodes[n]
        device = next((d for d, one in enumerate(node.devices) if one.name == name), None)
        if device is None:
            kind, request = "cpu", Request(1, 1)
            part, cores = Part(1 << n, 1), {n: (int(name.partition(":")[2]),)}
        else:
            kind = node.devices[device].kind
            request = Request(1, 0, ((kind, 1.0),))
            part, cores = Part(1 << n, 0, (device,), FRACTION_UNITS), {}
        implementation = Implementation(kind, kind, request)
        self._count += 1
        id = f"elsewhere-{self._count}"
        app = App("elsewhere", (implementation,))
        job = Job(
            id, app, (Choice(implementation, request),), submit_time=now, name=holder.label, foreign=True
        )
        self._foreign[place] = id
        driver.adopt(job, Adopted(id, kind, Allocation(request, (part,), cores), now))

    def after(self, driver: Driver) -> None:
        """Give back what no job of ours uses."""
        held = self._claims.held
        if not held or self._broken:
            return
        unused = set(held)
        for placed in driver.engine.at_work:
            if not placed.job.foreign:
                unused.difference_update(units_of(placed, self._cluster))
            if not unused:
                return
        try:
            self._claims.keep(held - unused)
        except OSError:  # another one has the folder's lock: they are given back at the next instant
            self.due = min(self.due, driver.engine.view.now + POLL)

    def adopted(self, driver: Driver) -> None:
        """Jobs run already that an earlier Dovetail of this run has started."""
        running = driver.engine.running.values()
        try:
            self._claims.adopt(u for placed in running for u in units_of(placed, self._cluster))
        except OSError as error:
            self._broken = True
            self._tell(f"other Dovetails on this machine are not seen: {error.strerror or error}")
