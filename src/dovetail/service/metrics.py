"""Figures of a service in the text form of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.service import overview
from dovetail.service.core import Service

__all__ = ["exposition"]

_STATES = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY")


def exposition(service: Service) -> str:
    """All figures. O(nodes)."""
    return "\n".join(_lines(service)) + "\n"


def _lines(service: Service) -> Iterator[str]:
    info = overview.info(service)
    yield "# HELP dovetail_jobs Jobs that have not ended."
    yield "# TYPE dovetail_jobs gauge"
    for what, count in info["jobs"].items():
        yield f'dovetail_jobs{{state="{what}"}} {count}'
    yield "# HELP dovetail_jobs_ended_total Jobs that have ended since the service was started."
    yield "# TYPE dovetail_jobs_ended_total counter"
    for state in _STATES:
        yield f'dovetail_jobs_ended_total{{state="{state}"}} {info["ended"].get(state, 0)}'
    for name, what in (("cpus", "CPUs of the cluster."), ("cpus_used", "CPUs that jobs hold.")):
        yield f"# HELP dovetail_{name} {what}"
        yield f"# TYPE dovetail_{name} gauge"
        yield f"dovetail_{name} {info[name]}"
    yield "# HELP dovetail_devices Devices of the cluster."
    yield "# TYPE dovetail_devices gauge"
    yield f"dovetail_devices {info['devices']}"
    yield "# HELP dovetail_start_time_seconds When the service was started."
    yield "# TYPE dovetail_start_time_seconds gauge"
    yield f"dovetail_start_time_seconds {info['since']:.3f}"
    yield "# HELP dovetail_blocked Whether nothing starts now: a full disk, or no claims on this machine."
    yield "# TYPE dovetail_blocked gauge"
    yield f"dovetail_blocked {int(info['blocked'] is not None)}"
