"""A cluster that names no models, such as ``1x4cpu``: whose run times are its devices to have?

Device classes share no history, and a class without a model has hardly ever run anything. Where the history
knows one model of a kind, and no other, that one is meant: "this machine, with four cores".
"""

from __future__ import annotations

from dataclasses import replace

from dovetail.history.base import MeasuredHistory
from dovetail.model import CPU, Cluster, DeviceClass, Node, Note, Workload

MOST_NODES = 20_000
"""Larger clusters stay as they are."""


def named_as_known(cluster: Cluster, history: MeasuredHistory, jobs: Workload) -> tuple[Cluster, list[Note]]:
    """The cluster with models for its unnamed devices, of which the jobs' history knows a single one.

    Also a note about each. A class without a model that has runs of its own stays as it is.
    """
    unnamed = {device.kind for device in cluster.classes if not device.model}
    if not unnamed or len(cluster) > MOST_NODES:
        return cluster, []
    apps = dict.fromkeys(job.app.name for job in jobs.jobs)
    known: dict[str, set[DeviceClass]] = {}
    for app in apps:
        for group in history.list_groups(app):
            known.setdefault(group.device_class.kind, set()).add(group.device_class)
    models = {
        kind: only.model
        for kind in unnamed
        for only in known.get(kind, ())
        if len(known[kind]) == 1 and only.model
    }
    if not models:
        return cluster, []
    nodes = tuple(_name_models(node, models) for node in cluster.nodes)
    notes = [
        Note(
            f"{cluster.label or 'The cluster'} names no model of {kind}: the run times are those of {model}.",
            "model",
        )
        for kind, model in sorted(models.items())
    ]
    return replace(cluster, nodes=nodes), notes


def _name_models(node: Node, models: dict[str, str]) -> Node:
    devices = tuple(
        replace(device, model=models.get(device.kind, "")) if not device.model else device
        for device in node.devices
    )
    return replace(node, devices=devices, cpu_model=node.cpu_model or models.get(CPU, ""))
