"""Device classes: on which ones a choice can run, and on which one it does.

History is kept apart by them. An implementation that uses CPUs and a device has a class of its own kind
with the device's model, e.g. ``cpu+gpu:A100``.
"""

from __future__ import annotations

from dovetail.model.allocation import Allocation
from dovetail.model.cluster import Cluster, Unit
from dovetail.model.job import Choice, Implementation
from dovetail.model.node import DeviceClass

__all__ = ["class_of", "class_on", "classes_for"]


def classes_for(cluster: Cluster, choice: Choice) -> tuple[DeviceClass, ...]:
    """The classes of the cluster on which a choice can run, in node order: of its kind, and its models."""
    classes = cluster.device_classes(choice.implementation.kind)
    models = choice.request.models
    if not models or not choice.request.devices:
        return classes
    return tuple(device for device in classes if device.model in models)


def class_on(implementation: Implementation, unit: Unit) -> DeviceClass:
    """The class in which an implementation runs on a unit."""
    if implementation.kind == unit.kind:
        return unit.device_class
    return DeviceClass(implementation.kind, unit.device_class.model)


def class_of(cluster: Cluster, implementation: Implementation, allocation: Allocation) -> DeviceClass:
    """The class in which an implementation runs on an allocation, by its first node. O(1) mostly.

    A gang whose devices are all borrowed has the class of the first one.
    """
    classes = cluster.device_classes(implementation.kind)
    if len(classes) == 1:
        return classes[0]
    first = allocation.first_node
    part = allocation.part_on(first)
    if part is not None and part.devices:
        model = cluster.nodes[first].devices[part.devices[0]].model
    elif allocation.donors:
        donor = allocation.donors[0]
        model = cluster.nodes[donor.donor].devices[donor.device].model
    else:
        model = cluster.nodes[first].cpu_model
    return DeviceClass(implementation.kind, model)
