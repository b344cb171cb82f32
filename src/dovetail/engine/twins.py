"""Compiled simulations that stand in for the engine where they model all that was asked for.

A twin takes what a simulation was asked and returns its result, or ``None`` where it does not model some of
it: then the next one is asked, and in the end the engine. Whatever a twin returns is what the engine would
have returned, job by job, but for the times of decisions: property tests hold it to that. A new twin is a
function in a module of its own and a name in `TWINS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dovetail.engine.asked import Asked
from dovetail.engine.node_twin import node_twin
from dovetail.engine.rigid_twin import rigid_twin
from dovetail.extras import present
from dovetail.model import Result
from dovetail.workers import interrupts_later

__all__ = ["TWINS", "Twin", "compiled"]


Twin = Callable[[Asked], Result | None]

TWINS: Sequence[Twin] = (rigid_twin, node_twin)


def compiled(asked: Asked) -> Result | None:
    """The result of the first twin that models what was asked, ``None`` where none does.

    Journals, incidents and histories are the engine's: `dovetail.engine.simulate` asks no twin
    then.
    """
    if asked.options.validate or not present("numba"):
        return None
    for twin in TWINS:
        with interrupts_later():  # where numba makes a named tuple, an interrupt would crash the process
            found = twin(asked)
        if found is not None:
            if asked.options.progress is not None:
                asked.options.progress(len(found.records), len(found.records))
            return found
    return None
