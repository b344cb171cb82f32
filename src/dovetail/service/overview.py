"""A service as a whole: how it stands, its nodes, what has changed."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import Any

from dovetail.model import Device
from dovetail.running.device_guard import DeviceSight
from dovetail.service.core import Service
from dovetail.service.gpu_hours import hours_row
from dovetail.version import API, __version__


def service_info(service: Service) -> dict[str, Any]:
    """How the service stands. O(nodes)."""
    engine, about = service.engine, service.about
    cluster = engine.cluster
    # Jobs of other Dovetails hold places here and are none of this queue.
    running = [placed for placed in engine.running.values() if not placed.job.foreign]
    used = sum(part.cpus * part.nodes.bit_count() for placed in running for part in placed.allocation.parts)
    return {
        "version": __version__,
        "api": API,
        "pid": os.getpid(),
        "since": service.began,
        "now": time.time(),
        "uid": about.uid,
        "folder": str(service.folder.path),
        "policy": about.policy,
        "executor": about.executor,
        "model": about.model,
        "cluster": cluster.label,
        "nodes": len(cluster),
        "cpus": cluster.total_cpus,
        "cpus_used": used,
        "devices": cluster.total_devices,
        "jobs": {
            "running": len(running) + len(engine.handed_over),
            "waiting": service.open_count - len(running) - len(engine.handed_over) - len(engine.held),
            "held": len(engine.held),
        },
        "ended": dict(service.figures.ended),
        "elsewhere": service.elsewhere.rows(),
        "draining": service.driver.draining,
        "paused": service.paused_kinds,
        "shared": service.shared,
        "blocked": service.why_blocked,
        "partitions": [
            {
                "name": one.name,
                "default": one.default,
                "walltime": one.walltime,
                "longest": one.longest,
                "most_nodes": one.most_nodes,
            }
            for one in service.options.partitions.values()
        ],
        "user_limit": service.options.user_limit,
        "max_gpus_per_user": service.options.max_gpus_per_user,
        "gpu_hours": hours_row(
            service.driver.admission.hours,
            max(engine.view.now, time.time() - service.driver_epoch),
            service.driver_epoch,
        ),
        "keep": service.options.keep,
        "fair": _fair_share_rows(service),
        "longest_instant": service.longest_instant(),
        "kept": asdict(service.tidying.kept) | asdict(service.tidying.limits),
    }


def _fair_share_rows(service: Service) -> dict[str, Any] | None:
    """What users have used of the machine, those first who go first; ``None`` where there are no shares."""
    shares = None if service.driver.priorities is None else service.driver.priorities.shares
    if shares is None:
        return None
    now = max(service.engine.view.now, time.time() - service.driver_epoch)
    users = [
        {
            "user": user,
            "used": used,
            "share": shares.share_of_user(user),
            "standing": used / shares.share_of_user(user),
        }
        for user, used in shares.all(now).items()
    ]
    return {"half_life": shares.half_life, "users": sorted(users, key=lambda one: one["standing"])}


UNSEEN = DeviceSight()


def _device_row(device: Device, sight: DeviceSight) -> dict[str, Any]:
    """A device with what it holds now; ``idle``: who holds it without using it, and for how many seconds."""
    idle = None
    if sight.idle is not None:
        idle = dict(zip(("job", "user", "seconds"), sight.idle, strict=True))
    return {
        "name": device.name,
        "kind": device.kind,
        "model": device.model,
        "memory": device.memory,
        "memory_used": sight.used,
        "utilisation": sight.utilisation,
        "idle": idle,
        "jobs": [],
    }


def node_rows(service: Service) -> list[dict[str, Any]]:
    """The nodes, what they have, and which jobs use it. O(nodes + running jobs)."""
    engine = service.engine
    cluster = engine.cluster
    rows: list[dict[str, Any]] = []
    sights = service.sights()
    for index, node in enumerate(cluster.nodes):
        state = "lost" if index in engine.lost else "drained" if index in engine.occupancy.drained else "up"
        devices = [_device_row(d, sights.get((index, d.name), UNSEEN)) for d in node.devices]
        rows.append(
            {
                "name": node.name,
                "state": state,
                "cpus": node.cpus,
                "cpus_used": 0,
                "cpu_model": node.cpu_model,
                "memory": node.memory,
                "partitions": list(node.partitions),
                "devices": devices,
                "jobs": [],
            }
        )
    for placed in engine.running.values():
        name = placed.job.name if placed.job.foreign else placed.job.id
        for part in placed.allocation.parts:
            for n in range(len(rows)):
                if not part.nodes >> n & 1:
                    continue
                rows[n]["cpus_used"] += part.cpus
                rows[n]["jobs"].append(name)
                for d in part.devices:
                    rows[n]["devices"][d]["jobs"].append(name)
    return rows


def change_pulse(service: Service) -> dict[str, Any]:
    """The little that a page needs to know whether to look again."""
    now = service_info(service)
    return {
        "changes": service.changes,
        **{name: now[name] for name in ("now", "jobs", "ended", "cpus", "cpus_used")},
    }
