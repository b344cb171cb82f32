"""`borrowing.c` from Python: a whole simulation of gangs that may borrow devices of other nodes.

The specification is the engine with the policies ``fcfs``, ``rq`` and ``mrq`` and the rate model
``remote_gpu`` of dovetail-remote, which calls this.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.native.interrupts import interrupts_later
from dovetail.native.library import load_library

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

STARTED, ENDED, MOVED = range(3)
"""What an entry of a `Schedule`'s log begins with."""


class Columns(NamedTuple):
    """Jobs by submission; all arrays have shape (jobs,).

    ``gang`` is the number of nodes, of each of which ``gpus``, ``cpus`` and ``memory`` (bytes) are requested;
    ``base`` is the run time alone in seconds. The others are the job's communication.
    """

    submit: Floats
    gang: Ints
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
    """Nodes as arrays of shape (nodes,): CPUs, devices as bits, bytes, bandwidths of network and devices."""

    node_cpus: Ints
    node_gpus: Ints
    node_memory: Floats
    network: Floats
    gpu: Floats


class Rules(NamedTuple):
    """The options of ``rq`` and ``mrq`` and of the rate model ``remote_gpu``."""

    borrows: bool
    migrates: bool
    local: int
    skip: int
    recorded: bool
    per_gpu: bool


class Schedule(NamedTuple):
    """What came of it: starts and ends by job, and a log of what each held from when on.

    Entries of the log: ``ENDED, job``; ``STARTED`` or ``MOVED, job, borrowed devices, time`` (the bits of a
    float) and the number of groups of nodes; for each group its devices and its nodes, `WORD` nodes a number;
    client, donor and device for each borrowed one; for a start the number of nodes of which cores are named,
    and these with their cores. Devices and cores are bits.
    """

    start: Floats
    end: Floats
    log: Ints


_ARRAY = ctypes.c_void_p
_NUMBER = ctypes.c_int64
COSTS = 18
WORD = 62
"""Nodes in a number of the log."""


class _Borrowing(ctypes.Structure):
    """The struct of that name in `borrowing.c`."""

    _fields_ = (
        *((name, _NUMBER) for name in ("jobs", "nodes")),
        *((name, _ARRAY) for name in (*Columns._fields, *Machine._fields)),
        *((name, _NUMBER) for name in Rules._fields),
        ("costs", ctypes.c_double * COSTS),
        *((name, _ARRAY) for name in ("start", "end", "log")),
        *((name, _NUMBER) for name in ("logged", "room")),
    )


def simulate_borrowing(jobs: Columns, machine: Machine, costs: Sequence[float], rules: Rules) -> Schedule:
    """Simulate jobs, each of which fits the idle machine. There must be a `load_library`.

    ``costs`` are the constants in the order of `dovetail.model.remote_costs.CONSTANTS`. O(jobs · (nodes +
    running jobs · their nodes and devices)). An interrupt waits until it is over. Raises `MemoryError`.
    """
    found = load_library()
    assert found is not None
    # Kept in a name until C has returned: the struct below holds addresses alone.
    columns = {
        name: np.ascontiguousarray(column) for name, column in {**jobs._asdict(), **machine._asdict()}.items()
    }
    start, end = np.full(len(jobs.submit), np.nan), np.full(len(jobs.submit), np.nan)
    wanted = _Borrowing(
        jobs=len(start),
        nodes=len(machine.network),
        costs=(ctypes.c_double * COSTS)(*costs),
        start=start.ctypes.data,
        end=end.ctypes.data,
        **{name: column.ctypes.data for name, column in columns.items()},
        **rules._asdict(),
    )
    # Without it the address would be cut to 32 bits.
    found.dovetail_forget.argtypes = [_ARRAY]
    with interrupts_later():
        status = found.dovetail_borrow(ctypes.byref(wanted))
    # The log lies in C's memory, as its length is known only at the end: copied, then freed in any case.
    try:
        if status:
            raise MemoryError(f"a simulation of {len(start)} gangs on {wanted.nodes} nodes")
        if not wanted.logged:
            return Schedule(start, end, np.zeros(0, np.int64))
        log = np.ctypeslib.as_array((_NUMBER * wanted.logged).from_address(wanted.log)).copy()
    finally:
        found.dovetail_forget(wanted.log)
    return Schedule(start, end, log)
