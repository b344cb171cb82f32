"""Node counts and true times of a job, from what it and its app give.

True times, for simulation, are taken in this order: the job's ``times``; its ``sequential`` over its
``speedup``; the implementation's ``times``; its ``time``. A job that names the times of some implementations
leaves the others without a true time: they can run live, not in a simulation with perfect knowledge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dovetail.errors import InputError
from dovetail.files.units import LONGEST
from dovetail.model import Seconds
from dovetail.spec.jobs import JobSpec
from dovetail.workloads.app_builder import KnownApp


def nodes_asked(spec: JobSpec, known: KnownApp) -> int:
    """The nodes that a job wants: by default 1, or the fewest for which it has a time."""
    if spec.nodes is not None:
        return spec.nodes
    if not (spec.times or known.times):
        return 1
    timed = [
        spec.times.get(i.name) is not None or i.name in known.times.keys() | known.time.keys()
        for i in known.app.implementations
    ]
    counts = [c if t else () for c, t in zip(_node_counts(spec, 1, known), timed, strict=True)]
    there = {n for c in _requested_counts(counts, spec, known) for n in c} or {1}
    # One node if any implementation has a time for it: more are taken only where they must be.
    return 1 if 1 in there else min(there)


def node_counts(spec: JobSpec, nodes: int, known: KnownApp, where: str) -> list[tuple[int, ...]]:
    """The node counts that exist for each implementation, ascending.

    Raises `InputError` where a job wants a count that none of its times has.
    """
    counts = _node_counts(spec, nodes, known)
    if not any(nodes in c for c in _requested_counts(counts, spec, known)):
        there = sorted({n for c in _requested_counts(counts, spec, known) for n in c})
        raise InputError(
            f"nodes: found {nodes}, expected a node count that times gives: {', '.join(map(str, there))}",
            where=where,
        )
    return counts


def _node_counts(spec: JobSpec, nodes: int, known: KnownApp) -> list[tuple[int, ...]]:
    counts: list[tuple[int, ...]] = []
    for implementation in known.app.implementations:
        own = spec.times.get(implementation.name)
        if isinstance(own, dict):
            counts.append(tuple(sorted(own)))
        elif own is None and implementation.name in known.times:
            counts.append(tuple(known.times[implementation.name]))
        else:
            # A single time holds for the requested number of nodes.
            counts.append((nodes,))
    return counts


def _requested_counts(
    counts: Sequence[tuple[int, ...]], spec: JobSpec, known: KnownApp
) -> list[tuple[int, ...]]:
    """The counts of the implementation that the job names, or of all."""
    return [
        c
        for c, i in zip(counts, known.app.implementations, strict=True)
        if spec.implementation is None or i.name == spec.implementation
    ]


def true_seconds(spec: JobSpec, nodes: int, known: KnownApp, where: str) -> dict[str, dict[int, Seconds]]:
    """True seconds by implementation and node count."""
    found: dict[str, dict[int, Seconds]] = {}
    for implementation in known.app.implementations:
        name = implementation.name
        own = spec.times.get(name)
        # The job's own times go before the app's, and a table before a single time.
        if own is not None:
            found[name] = dict(own) if isinstance(own, dict) else {nodes: own}
        elif name in known.times:
            found[name] = dict(known.times[name])
        elif name in known.time:
            found[name] = {nodes: known.time[name]}
    sequential = _sequential_seconds(spec, nodes, known, found)
    if sequential is None:
        return found
    for name, speedup in spec.speedup.items():
        # A speedup fills in what has no time; given for the job, sequential seconds go before the app's
        # times.
        if name in spec.times or (spec.sequential is None and name in found):
            continue
        time = sequential / speedup
        # Tiny speedups make times that no file can hold.
        if not math.isfinite(time) or time > LONGEST:
            raise InputError(
                f"speedup, {name}: found {speedup!r}, which makes {time:g} seconds, "
                f"expected at most {LONGEST:g}",
                where=where,
            )
        found.setdefault(name, {})[nodes] = time
    return found


def _sequential_seconds(
    spec: JobSpec, nodes: int, known: KnownApp, found: Mapping[str, Mapping[int, Seconds]]
) -> Seconds | None:
    """Seconds on one core; by default its time on the CPU."""
    if spec.sequential is not None:
        return spec.sequential
    for implementation in known.app.implementations:
        if implementation.kind == "cpu" and nodes in found.get(implementation.name, {}):
            return found[implementation.name][nodes]
    return None
