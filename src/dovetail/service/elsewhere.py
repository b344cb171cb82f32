"""Other Dovetails that hold cores or devices of a service's machine: who, what, since when, until when."""

from __future__ import annotations

import time
from typing import Any

from dovetail.local.claims import Holder, list_holders, units_of_cluster
from dovetail.model import Cluster

KEPT = 0.5
"""Seconds for which what was read holds: every row of a table reads it."""


class Elsewhere:
    """What others hold of the machine of a service, whose run is ``uid``.

    Nothing where it is not ``local``: then its jobs do not run on this machine.
    """

    def __init__(self, uid: str, cluster: Cluster, *, local: bool) -> None:
        self._uid, self._local = uid, local
        self._units = units_of_cluster(cluster) if local else {}
        self._found: list[Holder] = []
        self._read = float("-inf")

    def list_holders(self) -> list[Holder]:
        """Who holds some of it now, the one that began first before others. O(Dovetails that live)."""
        if self._local and time.monotonic() - self._read > KEPT:
            try:
                found = list_holders()
            except OSError:
                found = []  # another user's folder has gone meanwhile
            self._found = [h for h in found if h.uid != self._uid and h.units & self._units.keys()]
            self._found.sort(key=lambda one: one.began or 0.0)
            self._read = time.monotonic()
        return self._found

    def reason(self) -> str:
        """Why a job may wait for others: ``run 5e06f86e (process 12) holds 2 cores since 12:01``."""
        return "; ".join(self._holder_sentence(holder) for holder in self.list_holders())

    def rows(self) -> list[dict[str, Any]]:
        """For JSON."""
        return [
            {
                "who": holder.label,
                "units": sorted(holder.units & self._units.keys()),
                "since": holder.began,
                "until": holder.until,
            }
            for holder in self.list_holders()
        ]

    def _holder_sentence(self, holder: Holder) -> str:
        held = holder.units & self._units.keys()
        cores = sum(unit.startswith("core:") for unit in held)
        devices = sorted(unit for unit in held if not unit.startswith("core:"))
        what = [f"{cores} {'core' if cores == 1 else 'cores'}"] if cores else []
        since = "" if holder.began is None else f" since {_format_clock(holder.began)}"
        until = "" if holder.until is None else f", until about {_format_clock(holder.until)}"
        return f"{holder.label} holds {', '.join([*what, *devices])}{since}{until}"


def _format_clock(when: float) -> str:
    at, today = time.localtime(when), time.localtime()
    return time.strftime("%H:%M:%S" if at[:3] == today[:3] else "%Y-%m-%d %H:%M", at)
