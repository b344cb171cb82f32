"""The frozen vocabulary: jobs, clusters, allocations, decisions, events, plans, records.

The names are those of the parts below, by their ``__all__``. A part is imported when one of its names is
first used: who reads a cluster file waits for no event.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.model.allocation import *
    from dovetail.model.cluster import *
    from dovetail.model.conditions import *
    from dovetail.model.decision import *
    from dovetail.model.device_classes import *
    from dovetail.model.event import *
    from dovetail.model.fitting import *
    from dovetail.model.job import *
    from dovetail.model.node import *
    from dovetail.model.note import *
    from dovetail.model.outside import *
    from dovetail.model.plan import *
    from dovetail.model.promise import *
    from dovetail.model.record import *
    from dovetail.model.reservation import *
    from dovetail.model.result import *
    from dovetail.model.ways import *
    from dovetail.model.workload import *

_PARTS = (
    *(
        "job",
        "node",
        "note",
        "cluster",
        "conditions",
        "allocation",
        "outside",
        "plan",
        "decision",
        "event",
        "record",
    ),
    *("result", "workload", "promise", "device_classes", "fitting", "ways", "reservation"),
)
"""In this order: what is used most, and imports least, first."""


# Else a type checker would take any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return sorted(one for part in _PARTS for one in import_module(f"{__name__}.{part}").__all__)
        for part in () if name.startswith("_") else _PARTS:
            module = import_module(f"{__name__}.{part}")
            if name in module.__all__:
                found = globals()[name] = getattr(module, name)
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
