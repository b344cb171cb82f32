"""The frozen vocabulary: jobs, clusters, allocations, decisions, events, plans, records.

Parts are imported when they are first used: who reads a cluster file waits for no event.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.model.allocation import Allocation, Donor, Part, bits, together, without_nodes
    from dovetail.model.cluster import Cluster, Unit
    from dovetail.model.decision import (
        Decision,
        Dequeue,
        Enqueue,
        Inquire,
        Intend,
        Migrate,
        Preempt,
        Renew,
        Reserve,
        Start,
        Submit,
        Wait,
        spelt_out,
    )
    from dovetail.model.device_classes import class_of, class_on, classes_for
    from dovetail.model.event import (
        Adopted,
        Came,
        Cancelled,
        ClusterEnds,
        Delayed,
        Ended,
        Ending,
        Estimated,
        Event,
        Foreseen,
        Held,
        Lingering,
        Migrated,
        NodeDrained,
        NodeJoined,
        NodeLost,
        Planned,
        Ran,
        Recalled,
        Released,
        Requeued,
        Sized,
        Started,
        State,
        Submitted,
        Usage,
        Withdrawn,
        Woken,
    )
    from dovetail.model.fitting import device_kind, fits_node, fits_unit, units_for
    from dovetail.model.job import (
        EMPTY,
        FRACTION_UNITS,
        HOST_CPUS,
        WHOLE_POOL,
        App,
        Choice,
        Command,
        Communication,
        Dependency,
        Implementation,
        Job,
        JobId,
        Launch,
        Request,
        Seconds,
        Sizing,
        Throttle,
        request_for,
    )
    from dovetail.model.node import CPU, Device, DeviceClass, Node, NodeGroup
    from dovetail.model.note import Note
    from dovetail.model.outside import Begun, HandedOver, Outlook, Shape, TimeUsed
    from dovetail.model.plan import Plan, PlanItem
    from dovetail.model.promise import Promise
    from dovetail.model.record import Placed, Prediction, Record, Run, Span
    from dovetail.model.result import Replicate, Result
    from dovetail.model.ways import (
        Foresight,
        Way,
        fastest,
        one_node_choices,
        predicted_seconds,
        seconds_on,
        way,
        way_as_told,
    )
    from dovetail.model.workload import Rejected, TableTruth, Truth, Workload

__all__ = [
    "CPU",
    "EMPTY",
    "FRACTION_UNITS",
    "HOST_CPUS",
    "WHOLE_POOL",
    "Adopted",
    "Allocation",
    "App",
    "Begun",
    "Came",
    "Cancelled",
    "Choice",
    "Cluster",
    "ClusterEnds",
    "Command",
    "Communication",
    "Decision",
    "Delayed",
    "Dependency",
    "Dequeue",
    "Device",
    "DeviceClass",
    "Donor",
    "Ended",
    "Ending",
    "Enqueue",
    "Estimated",
    "Event",
    "Foreseen",
    "Foresight",
    "HandedOver",
    "Held",
    "Implementation",
    "Inquire",
    "Intend",
    "Job",
    "JobId",
    "Launch",
    "Lingering",
    "Migrate",
    "Migrated",
    "Node",
    "NodeDrained",
    "NodeGroup",
    "NodeJoined",
    "NodeLost",
    "Note",
    "Outlook",
    "Part",
    "Placed",
    "Plan",
    "PlanItem",
    "Planned",
    "Prediction",
    "Preempt",
    "Promise",
    "Ran",
    "Recalled",
    "Record",
    "Rejected",
    "Released",
    "Renew",
    "Replicate",
    "Request",
    "Requeued",
    "Reserve",
    "Result",
    "Run",
    "Seconds",
    "Shape",
    "Sized",
    "Sizing",
    "Span",
    "Start",
    "Started",
    "State",
    "Submit",
    "Submitted",
    "TableTruth",
    "Throttle",
    "TimeUsed",
    "Truth",
    "Unit",
    "Usage",
    "Wait",
    "Way",
    "Withdrawn",
    "Woken",
    "Workload",
    "bits",
    "class_of",
    "class_on",
    "classes_for",
    "device_kind",
    "fastest",
    "fits_node",
    "fits_unit",
    "one_node_choices",
    "predicted_seconds",
    "request_for",
    "seconds_on",
    "spelt_out",
    "together",
    "units_for",
    "way",
    "way_as_told",
    "without_nodes",
]

_PARTS = (
    "job", "node", "note", "cluster", "allocation", "outside", "plan", "decision", "event", "record",
    "result", "workload", "promise", "device_classes", "fitting", "ways",
)  # fmt: skip
"""In this order: what is asked for most, and imports least, first."""


def __getattr__(name: str) -> Any:
    for part in _PARTS if name in __all__ else ():
        found = getattr(import_module(f"{__name__}.{part}"), name, None)
        if found is not None:
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
