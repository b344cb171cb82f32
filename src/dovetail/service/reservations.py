"""The reservations of a service: made, kept in its folder over restarts, cancelled, and shown.

A reservation is of single devices, chosen when it is made: those that are least in use by the time it begins.
Which jobs stay off them until when is the driver's (`dovetail.driver.reservations`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dovetail.client.errors import Forbidden, NotFound
from dovetail.client.folder import ServiceFolder, read_form
from dovetail.driver.reservations import MOST_RESERVATIONS
from dovetail.engine.state.core import Engine
from dovetail.errors import InputError
from dovetail.files.writing import replace_file
from dovetail.model import Cluster, Job, Reservation, Reserved, Seconds, avoids_of
from dovetail.records import dataclass
from dovetail.service.gpu_hours import format_moment
from dovetail.service.people import Principal

GPU = "gpu"
LONGEST: Seconds = 7 * 86400.0
"""A reservation of a user who is no operator lasts so long at most."""
MOST_OF_A_USER = 5
"""And has so many beside it at most."""


@dataclass(frozen=True, slots=True)
class Booking:
    """A reservation as it is kept; ``devices`` are pairs of names of a node and of a device of it.

    ``start`` and ``end`` are seconds since the epoch; ``by`` made it, for ``users``.
    """

    id: str
    users: tuple[str, ...]
    by: str
    name: str
    devices: tuple[tuple[str, str], ...]
    start: Seconds
    end: Seconds
    bit: int

    def overlaps(self, start: Seconds, end: Seconds) -> bool:
        """Whether it and the time between these moments have something in common."""
        return self.start < end and start < self.end


class ReservationBook:
    """What is reserved, on disk before it holds."""

    def __init__(self, folder: ServiceFolder) -> None:
        self._path = folder.path / "reservations.json"
        self._next, self._bookings = 1, list[Booking]()
        self._read()

    def _read(self) -> None:
        """What an earlier service of this folder has kept. Raises `InputError` for a file that is damaged."""
        try:
            found = read_form(self._path)
        except FileNotFoundError:
            return
        except (OSError, ValueError):
            found = None
        try:
            self._next = int(found["next"])
            self._bookings = [_booking_of(one) for one in found["reservations"]]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(
                "is damaged: expected reservations; without the file there is none", where=str(self._path)
            ) from None

    def _write(self, bookings: Sequence[Booking]) -> None:
        """Keep these. Raises `OSError`."""
        kept = {"next": self._next, "reservations": [asdict(one) for one in bookings]}
        replace_file(self._path, json.dumps(kept, indent=1))
        self._bookings = list(bookings)

    def open(self, now: Seconds) -> list[Booking]:
        """Those that are not over, by their start."""
        return sorted((one for one in self._bookings if one.end > now), key=lambda one: (one.start, one.id))

    def reserve(
        self,
        gpus: int,
        start: Seconds,
        span: Seconds,
        user: str | None,
        name: str,
        person: Principal,
        engine: Engine,
        epoch: Seconds,
    ) -> Booking:
        """Reserve so many GPUs. Raises `InputError`, `Forbidden`, `OSError`."""
        now = time.time()
        start, end = max(start, now), start + span
        if end <= now:
            raise InputError(
                f"from: found a reservation that was over {now - end:.0f} s ago, expected a later one"
            )
        if not person.admin:
            self._check_rights(user, end - start, person, now)
        known = self.open(now)
        bits = sorted(set(range(MOST_RESERVATIONS)) - {one.bit for one in known})
        if not bits:
            raise InputError(f"reservations: found {len(known)}, expected fewer than {MOST_RESERVATIONS}")
        devices = self._choose(gpus, start, end, engine, epoch, known)
        made = Booking(
            str(self._next), (user or person.name,), person.name, name, devices, start, end, bits[0]
        )
        self._next += 1
        self._write([*known, made])
        return made

    def _check_rights(self, user: str | None, span: Seconds, person: Principal, now: Seconds) -> None:
        if user not in (None, person.name):
            raise Forbidden(f"only the service's own account may reserve for {user}")
        if span > LONGEST:
            raise InputError(f"for: found {span / 86400:.1f} days, expected {LONGEST / 86400:.0f} at most")
        own = sum(one.by == person.name for one in self.open(now))
        if own >= MOST_OF_A_USER:
            raise Forbidden(f"{person.name} has {own} reservations already, as many as one may have")

    def _choose(
        self,
        gpus: int,
        start: Seconds,
        end: Seconds,
        engine: Engine,
        epoch: Seconds,
        known: Iterable[Booking],
    ) -> tuple[tuple[str, str], ...]:
        """The devices that are least in use by then: of one node if one has enough, else of several."""
        cluster = engine.cluster
        there = [
            (n, d)
            for n, node in enumerate(cluster.nodes)
            for d, device in enumerate(node.devices)
            if device.kind == GPU and n not in engine.lost
        ]
        if len(there) < gpus:
            most = f"at most {len(there)}, all that there are" if there else "a node with GPUs: there is none"
            raise InputError(f"gpus: found {gpus}, expected {most} here")
        others = [one for one in known if one.overlaps(start, end)]
        taken = {place for one in others for place in one.devices}
        free = [(n, d) for n, d in there if _named(cluster, n, d) not in taken]
        if len(free) < gpus:
            whose = ", ".join(f"reservation {one.id} of {', '.join(one.users)}" for one in others)
            most = f"at most {len(free)}" if free else "another time"
            raise InputError(
                f"gpus: found {gpus}, expected {most}: {len(there) - len(free)} of {len(there)} are reserved "
                f"then ({whose})"
            )
        held = _held_until(engine)
        # The latest index first: jobs that need one device take the first that is free.
        order = sorted(free, key=lambda at: (max(held.get(at, 0.0) + epoch - start, 0.0), -at[0], -at[1]))
        for n in dict.fromkeys(n for n, _ in order):
            own = [at for at in order if at[0] == n]
            if len(own) >= gpus:
                order = own
                break
        return tuple(sorted(_named(cluster, n, d) for n, d in order[:gpus]))

    def cancel(self, id: str, person: Principal) -> Booking:
        """Give one up. Raises `NotFound`, `Forbidden`, `OSError`."""
        known = self.open(time.time())
        found = next((one for one in known if one.id == id), None)
        if found is None:
            raise NotFound(f"found no reservation {id!r:.40} that is not over")
        if not (person.admin or person.name in (found.by, *found.users)):
            raise Forbidden(f"reservation {id} belongs to {', '.join(found.users)}")
        self._write([one for one in known if one is not found])
        return found

    def event(self, cluster: Cluster, epoch: Seconds) -> Reserved:
        """All that are not over, for the driver whose time 0 is ``epoch``; devices that are gone left out."""
        places = _places_of(cluster)
        return Reserved(
            tuple(
                Reservation(
                    one.id,
                    one.users,
                    tuple(places[at] for at in one.devices if at in places),
                    one.start - epoch,
                    one.end - epoch,
                    one.bit,
                    one.name,
                )
                for one in self.open(time.time())
            )
        )

    def rows(self, engine: Engine) -> list[dict[str, Any]]:
        """Those that are not over, for clients; ``devices`` with the jobs that hold them now."""
        cluster = engine.cluster
        places = _places_of(cluster)
        holders = _holders(engine)
        return [
            {
                "id": one.id,
                "name": one.name,
                "users": list(one.users),
                "by": one.by,
                "start": one.start,
                "end": one.end,
                "devices": [cluster.short_name(cluster.index_of.get(n, 0), d) for n, d in one.devices],
                "jobs": sorted(
                    {job for at in one.devices for job in holders.get(places.get(at, (-1, -1)), ())}
                ),
            }
            for one in self.open(time.time())
        ]


def _booking_of(form: Mapping[str, Any]) -> Booking:
    """A reservation of the file. Raises `ValueError`, `TypeError`, `KeyError`."""
    devices = tuple((str(node), str(device)) for node, device in form["devices"])
    users = tuple(map(str, form["users"]))
    start, end, bit = float(form["start"]), float(form["end"]), int(form["bit"])
    if not (0 <= bit < MOST_RESERVATIONS and start < end):
        raise ValueError("no reservation")
    return Booking(str(form["id"]), users, str(form["by"]), str(form["name"]), devices, start, end, bit)


def _named(cluster: Cluster, node: int, device: int) -> tuple[str, str]:
    """A device by names, which mean the same after a restart."""
    return cluster.nodes[node].name, cluster.nodes[node].devices[device].name


def _places_of(cluster: Cluster) -> dict[tuple[str, str], tuple[int, int]]:
    """The indices of each device's node and of the device there, by their names."""
    return {
        _named(cluster, n, d): (n, d)
        for n, node in enumerate(cluster.nodes)
        for d in range(len(node.devices))
    }


def _held_until(engine: Engine) -> dict[tuple[int, int], Seconds]:
    """Until when what runs may hold devices, by (node, device)."""
    found: dict[tuple[int, int], Seconds] = {}
    for placed in engine.running.values():
        for at in placed.allocation.device_places():
            found[at] = max(found.get(at, 0.0), placed.bound)
    return found


def _holders(engine: Engine) -> dict[tuple[int, int], list[str]]:
    """The jobs that hold devices now, by (node, device)."""
    found: dict[tuple[int, int], list[str]] = {}
    for placed in engine.running.values():
        for at in placed.allocation.device_places():
            if not placed.job.foreign:
                found.setdefault(at, []).append(placed.job.id)
    return found


def reserved_words(
    job: Job, reservations: Iterable[Reservation], cluster: Cluster, epoch: Seconds | None
) -> str:
    """Which devices a waiting job stays off, and for which users; empty where there is none.

    With ``epoch`` (the wall-clock time of time 0) the sentence has the times.
    """
    avoids = avoids_of(job)
    words = []
    for one in reservations if avoids else ():
        if one.mask & avoids:
            names = ", ".join(cluster.short_name(n, cluster.nodes[n].devices[d].name) for n, d in one.devices)
            times = [] if epoch is None else [format_moment(epoch + at) for at in (one.start, one.end)]
            when = f" from {times[0]} to {times[1]}" if times else ""
            words.append(f"{names} reserved for {', '.join(one.users)}{when} (reservation {one.id})")
    return "; ".join(words)
