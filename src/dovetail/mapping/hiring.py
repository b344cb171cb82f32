"""Workers that are there for one map, or stay for several."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from dovetail.errors import InputError
from dovetail.extras import DISTRIBUTIONS
from dovetail.local.discovery import usable_cores
from dovetail.mapping.crew import Crew
from dovetail.mapping.local import LocalCrew
from dovetail.mapping.places import ThisMachine, parse_workers
from dovetail.plugins import load_named, registered_entries

if TYPE_CHECKING:
    from dovetail.mapping.run import MapRun

CREWS = "dovetail.crews"
"""The entry points of engines that are not this machine."""
HERE = "local"


def engine_names() -> list[str]:
    """Where workers can run: this machine, and what our distributions and others register."""
    ours = {name for doors in DISTRIBUTIONS.values() for name in doors.get(CREWS, ())}
    return [HERE, *sorted(ours | registered_entries(CREWS).keys())]


class Workers:
    """Workers that stay for several maps: ``with dovetail.Workers("cpu:6,gpu:1") as workers: …``.

    They are started by the first map and keep what functions keep in their modules (data, contexts, built
    kernels). One map at a time. ``memory`` is the most bytes that one may allocate. Raises
    `InputError` for workers that cannot be had.
    """

    def __init__(
        self,
        workers: str | None = None,
        *,
        engine: str = HERE,
        address: str | None = None,
        memory: int | None = None,
    ) -> None:
        self._asked = None if workers is None else parse_workers(workers)
        self._engine, self._address, self._memory = engine, address, memory
        if engine != HERE and engine not in (known := engine_names()):
            raise InputError(f"found {engine!r}, expected one of {', '.join(known)}", where="engine")
        if address is not None and engine == HERE:
            raise InputError(
                f"found {address!r}, expected it with another engine than local", where="address"
            )
        self.run: MapRun | None = None
        """The run whose jobs the maps on these workers are, once one has begun."""
        self._crew: Crew | None = None
        self._busy = threading.Lock()
        self._kept = False

    def __enter__(self) -> Workers:
        self._kept = True
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers. A map that still runs on them ends with an error."""
        with self._busy:
            if self._crew is not None:
                self._crew.close()
                self._crew = None

    @property
    def kinds(self) -> list[str]:
        """Kinds that were requested; none where that was left open."""
        return [wanted.kind for wanted in self._asked or ()]

    def crew_for_kinds(self, kinds: Sequence[str]) -> Crew:
        """The workers for a function with implementations for these kinds. Raises `InputError`."""
        if not self._busy.acquire(blocking=False):
            raise InputError(
                "these workers are used by another map, expected one map at a time", where="workers"
            )
        with ExitStack() as undo:
            undo.callback(self._busy.release)
            if self._crew is None:
                self._crew = self._hire_crew(kinds)
            undo.pop_all()
        return self._crew

    def _hire_crew(self, kinds: Sequence[str]) -> Crew:
        if self._engine != HERE:
            hire = load_named(CREWS, self._engine, "map engine")
            crew: Crew = hire(self._asked, kinds, address=self._address, kept=self._kept)
            return crew
        machine = ThisMachine()
        count = self._asked or machine.default_workers(kinds)
        memory = usable_cores().memory if self._memory is None else self._memory
        return LocalCrew(machine, count, memory=memory, kept=self._kept)

    def release(self) -> None:
        """A map has ended; workers of one map only end with it."""
        if self._crew is not None:
            if self._kept:
                self._crew.rest()
            else:
                self._crew.close()
                self._crew = None
        self._busy.release()
