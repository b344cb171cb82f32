"""The arrays of a simulation of gangs on borrowed GPUs: jobs, nodes, and all that changes.

Jobs are rows, in order of submission. Running jobs sit in slots, kept in order of their starts. GPUs of
a node are bits of a mask. A `State` is everything that changes; a roll-out runs on a copy of it.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.model.cluster import Cluster
from dovetail.model.job import Communication, Job, Request, Seconds
from dovetail.model.node import Node
from dovetail.model.remote_costs import CONSTANTS, RemoteCosts

MOST_DEVICES = 62
"""GPUs of a node, and its cores, that fit into a mask."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Costs = namedtuple("Costs", tuple(CONSTANTS))  # type: ignore[misc]  # no literal
"""The constants of `RemoteCosts`, by their names."""


class Row(NamedTuple):
    """One job: what it requests on each of ``nodes``, its seconds alone, and its communication."""

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


class Columns(NamedTuple):
    """Jobs as arrays, by submission: the fields of `Row`."""

    submit: Floats
    nodes: Ints
    gpus: Ints
    cpus: Ints
    memory: Floats
    base: Floats
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
    # By job, where it has started: when, and with how many GPUs of others; its end; GPUs that moved home.
    starts: Floats
    borrowed: Ints
    ends: Floats
    moves: Ints


RUNNING, SPARES, FIRST, LAST, ARRIVED = range(5)
"""Places in `State.at`."""


def new_state(jobs: Columns, machine: Machine) -> State:
    """Nothing runs, nothing waits."""
    nodes, total = len(machine.cpus), len(jobs.submit)
    gpus = sum(int(mask).bit_count() for mask in machine.gpus)
    slots = (total if (jobs.gpus == 0).any() else min(total, gpus)) + 1
    most = max(1, int((jobs.nodes * jobs.gpus).max(initial=0)))

    def zero_rows(width: int) -> Ints:
        return np.zeros((slots, width), np.int64)

    def empty_lists() -> Lent:
        return Lent(np.zeros(slots, np.int64), zero_rows(2 * most), zero_rows(2 * most), zero_rows(2 * most))

    times = {name: np.zeros(slots) for name in ("left", "since", "rate", "due", "took", "stall")}
    return State(
        at=np.array([0, slots, 0, 0, 0]),
        free=machine.gpus.copy(),
        cpus=machine.cpus.copy(),
        memory=machine.memory.copy(),
        idle=np.array([int(mask).bit_count() for mask in machine.gpus], np.int64),
        rest=np.zeros(nodes, np.int64),
        processes=np.zeros(nodes, np.int64),
        touched=np.zeros(nodes, np.bool_),
        held=Held(np.zeros(slots, np.int64), zero_rows(nodes), zero_rows(nodes), zero_rows(nodes)),
        lent=empty_lists(),
        before=empty_lists(),
        order=np.zeros(slots, np.int64),
        spare=np.arange(slots)[::-1].copy(),
        job=np.zeros(slots, np.int64),
        **times,
        moved=np.zeros(slots, np.bool_),
        queue=np.zeros(total, np.int64),
        starts=np.full(total, np.nan),
        borrowed=np.zeros(total, np.int64),
        ends=np.full(total, np.nan),
        moves=np.zeros(total, np.int64),
    )


def costs_of(costs: RemoteCosts) -> Costs:
    """The constants as compiled code takes them."""
    return Costs(*[float(getattr(costs, name)) for name in CONSTANTS])


def rows_to_columns(rows: Sequence[Row]) -> Columns:
    """Rows as columns. O(rows)."""
    return Columns(*_column_arrays(rows, "fiii" + "f" * 7))


def own_devices(node: Node, kind: str, models: Sequence[str] = ()) -> int:
    """Mask of a node's devices of a kind (and of these models, where there are any)."""
    return sum(
        1 << d
        for d, device in enumerate(node.devices)
        if device.kind == kind and (not models or device.model in models)
    )


def row_of(job: Job, request: Request, communication: Communication, base: Seconds, cpus: int) -> Row:
    """A job that takes ``base`` seconds alone, as a row."""
    count = request.devices[0][1] if len(request.devices) == 1 else 0
    rest = communication.gpu_calls, communication.gpu_bytes, communication.net_calls, communication.net_bytes
    wanted = job.submit_time, request.nodes, int(count), cpus, float(request.memory)
    return Row(*wanted, base, communication.other, *rest)


def machine_of(cluster: Cluster, costs: RemoteCosts, kind: str, models: Sequence[str] = ()) -> Machine:
    """The nodes that are there, with devices of a kind; ``costs`` has bandwidths where they give none."""
    rows = []
    for n, node in enumerate(cluster.nodes):
        memory = float("inf") if node.memory is None else float(node.memory)
        there = (node.cpus, own_devices(node, kind, models), memory)
        bandwidths = (
            node.network_bandwidth or costs.network_bandwidth,
            node.gpu_bandwidth or costs.gpu_bandwidth,
        )
        rows.append((*((0, 0, -1.0) if n in cluster.gone else there), *bandwidths))
    return Machine(*_column_arrays(rows, "iifff"))


def _column_arrays(rows: Sequence[Sequence[float]], kinds: str) -> list[Any]:
    """Columns of rows: whole numbers (``i``) and others (``f``)."""
    columns = zip(*rows, strict=True) if rows else [()] * len(kinds)
    return [
        np.array(column, np.int64 if kind == "i" else np.float64)
        for column, kind in zip(columns, kinds, strict=True)
    ]
