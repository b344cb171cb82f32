"""The arrays of a simulation of gangs on borrowed GPUs: jobs, nodes, and all that changes.

Jobs are rows, in order of submission. Running jobs sit in slots, kept in order of their starts. GPUs of
a node are bits of a mask. A `State` is everything that changes; a roll-out runs on a copy of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "Borrowing",
    "Columns",
    "Held",
    "Lent",
    "Machine",
    "Moves",
    "Outcome",
    "Row",
    "State",
    "columns",
    "machine",
    "new_moves",
    "new_outcome",
    "new_state",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Columns of ``costs``, in the order of `RemoteCosts`.
(
    REMOTE_LATENCY,
    REMOTE_OVERHEAD,
    NETWORK_LATENCY,
    NETWORK_BANDWIDTH,
    GPU_LATENCY,
    GPU_BANDWIDTH,
    RECORD_PER_CALL,
    RECORD_CONSTANT,
    REPLAY_PER_CALL,
    REPLAY_CONSTANT,
    COPY_PER_BYTE,
    COPY_BANDWIDTH,
    SYNC_PER_BYTE,
    SYNC_CONSTANT,
    HELPER_PER_BYTE,
    HELPER_PER_CALL,
    HELPER_CONSTANT,
    ACTIVE_MEMORY,
) = range(18)


class Columns(NamedTuple):
    """Jobs as arrays, by submission: what they ask for on each of ``nodes``, and their communication."""

    submit: Floats
    nodes: Ints
    gpus: Ints
    cpus: Ints
    memory: Floats
    base: Floats  # seconds alone
    other: Floats
    calls: Floats
    size: Floats
    net_calls: Floats
    net_size: Floats


class Machine(NamedTuple):
    """Nodes as arrays: CPUs, mask of GPUs, bytes of memory, bandwidths of network and GPUs."""

    cpus: Ints
    gpus: Ints
    memory: Floats
    network: Floats
    gpu: Floats


class Borrowing(NamedTuple):
    """How it is scheduled: see the options of ``rq``, ``mrq``, ``mrq-aware`` and of the rates ``remote_gpu``.

    ``looks`` is the number of waiting jobs over which ``mrq-aware`` looks ahead; 0 for the others.
    """

    borrows: bool
    migrates: bool
    local: int
    skip: int
    recorded: bool
    per_gpu: bool
    looks: int


class Moves(NamedTuple):
    """GPUs that moved home, ``made[0]`` of them in order: whose and when (seconds); ``gpu`` of ``donor``
    was given back for ``home`` of ``client`` (masks of one bit)."""

    made: Ints
    job: Ints
    time: Floats
    client: Ints
    donor: Ints
    gpu: Ints
    home: Ints


class Outcome(NamedTuple):
    """By job: start and end (seconds), how many GPUs it has borrowed then, and where it starts.

    From place ``first_node[j]`` on ``node`` and ``mask`` list the nodes of job ``j`` and their GPUs, from
    ``first_lent[j]`` on ``client``, ``donor`` and ``gpu`` what it borrows. ``moves`` are what changes later.
    """

    start: Floats
    end: Floats
    borrowed: Ints
    first_node: Ints
    node: Ints
    mask: Ints
    first_lent: Ints
    client: Ints
    donor: Ints
    gpu: Ints
    moves: Moves


class Held(NamedTuple):
    """Nodes of the job in each slot, their local GPUs, how many of these have come home."""

    nodes: Ints
    node: Ints
    gpus: Ints
    home: Ints


class Lent(NamedTuple):
    """Borrowed GPUs of the job in each slot; the second half of a row is room to work in."""

    borrowed: Ints
    client: Ints
    donor: Ints
    gpu: Ints


class State(NamedTuple):
    """What changes while jobs run. ``at``: running, spare slots, first and last in ``queue``, arrived."""

    at: Ints
    free: Ints
    cpus: Ints
    memory: Floats
    idle: Ints  # free GPUs of each node
    rest: Ints  # room to work in: what a job that borrows leaves free
    processes: Ints
    touched: npt.NDArray[np.bool_]
    held: Held
    lent: Lent
    before: Lent
    order: Ints
    spare: Ints
    job: Ints
    left: Floats
    since: Floats
    rate: Floats
    due: Floats
    took: Floats
    stall: Floats
    moved: npt.NDArray[np.bool_]
    queue: Ints
    ends: Floats  # by job, of those that have ended


RUNNING, SPARES, FIRST, LAST, ARRIVED = range(5)
"""Places in `State.at`."""


def new_state(jobs: Columns, machine: Machine) -> State:
    """Nothing runs, nothing waits."""
    nodes, total = len(machine.cpus), len(jobs.submit)
    gpus = sum(int(mask).bit_count() for mask in machine.gpus)
    slots = (total if (jobs.gpus == 0).any() else min(total, gpus)) + 1
    most = max(1, int((jobs.nodes * jobs.gpus).max(initial=0)))

    def rows(width: int) -> Ints:
        return np.zeros((slots, width), np.int64)

    def lists() -> Lent:
        return Lent(np.zeros(slots, np.int64), rows(2 * most), rows(2 * most), rows(2 * most))

    def floats() -> Floats:
        return np.zeros(slots)

    return State(
        at=np.array([0, slots, 0, 0, 0]),
        free=machine.gpus.copy(),
        cpus=machine.cpus.copy(),
        memory=machine.memory.copy(),
        idle=np.array([int(mask).bit_count() for mask in machine.gpus], np.int64),
        rest=np.zeros(nodes, np.int64),
        processes=np.zeros(nodes, np.int64),
        touched=np.zeros(nodes, np.bool_),
        held=Held(np.zeros(slots, np.int64), rows(nodes), rows(nodes), rows(nodes)),
        lent=lists(),
        before=lists(),
        order=np.zeros(slots, np.int64),
        spare=np.arange(slots)[::-1].copy(),
        job=np.zeros(slots, np.int64),
        left=floats(),
        since=floats(),
        rate=floats(),
        due=floats(),
        took=floats(),
        stall=floats(),
        moved=np.zeros(slots, np.bool_),
        queue=np.zeros(total, np.int64),
        ends=np.full(total, np.nan),
    )


def new_moves(most: int) -> Moves:
    """None yet, at most so many."""
    job, client, donor, gpu, home = np.zeros((5, most), np.int64)
    return Moves(np.zeros(1, np.int64), job, np.zeros(most), client, donor, gpu, home)


def new_outcome(jobs: Columns) -> Outcome:
    """To be filled in; what is never used of it takes no memory."""
    total, nodes, gpus = len(jobs.submit), jobs.nodes, jobs.nodes * jobs.gpus
    places, lent = int(nodes.sum()), int(gpus.sum())
    return Outcome(
        start=np.full(total, np.nan),
        end=np.full(total, np.nan),
        borrowed=np.zeros(total, np.int64),
        first_node=np.cumsum(nodes) - nodes,
        node=np.zeros(places, np.int64),
        mask=np.zeros(places, np.int64),
        first_lent=np.cumsum(gpus) - gpus,
        client=np.zeros(lent, np.int64),
        donor=np.zeros(lent, np.int64),
        gpu=np.zeros(lent, np.int64),
        moves=new_moves(lent),
    )


class Row(NamedTuple):
    """One job: what it asks for on each of ``nodes``, its seconds alone, and its communication."""

    submit: float
    nodes: int
    gpus: int
    cpus: int
    memory: float
    base: float
    other: float
    calls: float
    size: float
    net_calls: float
    net_size: float


def columns(rows: Sequence[Row]) -> Columns:
    """Rows as columns. O(rows)."""

    def whole(values: Iterable[int]) -> npt.NDArray[np.int64]:
        return np.array(list(values), dtype=np.int64)

    def real(values: Iterable[float]) -> npt.NDArray[np.float64]:
        return np.array(list(values), dtype=np.float64)

    return Columns(
        submit=real(row.submit for row in rows),
        nodes=whole(row.nodes for row in rows),
        gpus=whole(row.gpus for row in rows),
        cpus=whole(row.cpus for row in rows),
        memory=real(row.memory for row in rows),
        base=real(row.base for row in rows),
        other=real(row.other for row in rows),
        calls=real(row.calls for row in rows),
        size=real(row.size for row in rows),
        net_calls=real(row.net_calls for row in rows),
        net_size=real(row.net_size for row in rows),
    )


def machine(rows: Sequence[tuple[int, int, float, float, float]]) -> Machine:
    """Nodes from (CPUs, mask of GPUs, bytes of memory, bandwidths of network and GPUs in bytes a second)."""
    return Machine(
        np.array([cpus for cpus, *_ in rows], dtype=np.int64),
        np.array([gpus for _, gpus, *_ in rows], dtype=np.int64),
        np.array([memory for _, _, memory, *_ in rows], dtype=np.float64),
        np.array([network for *_, network, _ in rows], dtype=np.float64),
        np.array([gpu for *_, gpu in rows], dtype=np.float64),
    )
