"""A service's record as a workload: ``dovetail simulate service:last-30-days``.

What ran is known as it was; what another implementation would have taken is what the history expects.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from dovetail.client.connection import VARIABLE
from dovetail.client.folder import ServiceFolder
from dovetail.errors import InputError
from dovetail.history.sqlite import SqliteHistory
from dovetail.interfaces import RuntimeModel
from dovetail.model import Allocation, Cluster, Job, JobId, Seconds, State, TableTruth, Workload
from dovetail.running.folder import read_about
from dovetail.running.ledger import Entry
from dovetail.runtimes.expected import expected_seconds
from dovetail.runtimes.registry import make_model
from dovetail.service.archive import Archive

_SPAN = re.compile(r"last-([1-9][0-9]{0,5})-(hour|day|week)s?")
_SECONDS = {"hour": 3600.0, "day": 86400.0, "week": 604800.0}
_RAN = (State.COMPLETED, State.FAILED, State.TIMEOUT, State.OUT_OF_MEMORY)


def read_service(path: str, cluster: Cluster | None, *, lenient: bool = False) -> Workload:
    """Jobs of this account's service (or of ``$DOVETAIL_SERVICE``) that ran to an end of their own.

    ``path`` is ``all``, or ``last-30-days``, ``last-12-hours``, ``last-2-weeks``: those submitted since.
    Raises `InputError` where there is no service, or nothing ran.
    """
    named = os.environ.get(VARIABLE, "")
    folder = ServiceFolder(named if os.path.isabs(named) else None)
    since = _parse_since(path)
    if not folder.ledger_path.exists():
        raise InputError("found no record of a service, expected one to have run", where=f"service:{path}")
    about = read_about(folder.path)
    archive = Archive(folder.ledger_path, lambda: about.cluster)
    try:
        ran = ", ".join(f"'{state}'" for state in _RAN)
        where = f"submitted >= ? AND started IS NOT NULL AND state IN ({ran}) ORDER BY submitted, seq"
        entries = archive.ask_here(where, (since,))
    finally:
        archive.close()
    if not entries:
        raise InputError("found no job that ran to an end, expected one at least", where=f"service:{path}")
    known = Path(about.history).exists()
    if not known:
        return _make_workload(path, entries, about.cluster, None)
    with SqliteHistory(about.history) as history:
        return _make_workload(path, entries, about.cluster, make_model(about.model, history))


def _parse_since(path: str) -> Seconds:
    if path == "all":
        return 0.0
    match = _SPAN.fullmatch(path)
    if match is None:
        raise InputError(f"found {path!r}, expected all, or e.g. last-30-days", where="service")
    return time.time() - int(match[1]) * _SECONDS[match[2]]


def _make_workload(path: str, entries: list[Entry], cluster: Cluster, model: RuntimeModel | None) -> Workload:
    ids = {entry.job.id for entry in entries}
    first = entries[0].submitted
    table: dict[tuple[JobId, str, int], Seconds] = {}
    starts: dict[JobId, Seconds] = {}
    placed: dict[JobId, tuple[str, Allocation]] = {}
    jobs: list[Job] = []
    guesses: dict[tuple[Any, ...], Seconds | None] = {}
    for index, entry in enumerate(entries):
        job, place = entry.job, entry.allocation
        assert entry.started is not None
        assert entry.ended is not None
        depends = tuple(one for one in job.depends if one.job in ids)
        submit = max(entry.submitted, job.begin or 0.0) - first
        own = replace(job, submit_time=submit, index=index, depends=depends, launch=None, begin=None)
        jobs.append(own)
        for choice in job.choices:
            one, request = choice.implementation, choice.request
            if one.name == entry.implementation and place is not None and request == place.request:
                table[job.id, one.name, request.nodes] = entry.ended - entry.started
                continue
            key = (job.app.name, one.name, request.nodes, tuple(sorted(job.inputs.items(), key=str)))
            if key not in guesses:
                guesses[key] = None if model is None else expected_seconds(job, one, request, cluster, model)
            seconds = guesses[key]
            if seconds is not None:
                table[job.id, one.name, request.nodes] = seconds
        starts[job.id] = entry.started - first
        if place is not None and entry.implementation is not None:
            placed[job.id] = entry.implementation, place
    truth = TableTruth(table)
    jobs.sort(key=lambda job: job.submit_time)
    return Workload(f"service:{path}", jobs, truth, machine=cluster, recorded=starts, placed=placed)
