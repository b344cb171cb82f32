"""`rigid.c` from Python: a whole simulation of rigid jobs on like nodes, on arrays.

Where `dovetail.native.library` finds nothing the engine simulates everything.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.native.interrupts import interrupts_later
from dovetail.native.library import load_library

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

POLICIES = ("fcfs", "easy", "conservative")
PLACEMENTS = ("pack", "spread", "first")


class Columns(NamedTuple):
    """Jobs by submission; all arrays have shape (jobs,), times are in seconds.

    ``bound`` is what is known beforehand of the run time (infinite: nothing), at ``limit`` after its start a
    job is ended (infinite: never). ``cpus``, ``devices`` and ``memory`` (bytes, 0 where it is not counted)
    are taken from each of ``nodes`` nodes. ``by_rank`` are the jobs in the order of the queue; ``line``
    is the same number, from 0 on, for jobs with equal requests.
    """

    submit: Floats
    seconds: Floats
    bound: Floats
    limit: Floats
    nodes: Ints
    cpus: Ints
    devices: Ints
    memory: Ints
    by_rank: Ints
    line: Ints


class Machine(NamedTuple):
    """How many nodes, what each has, and the placement rule; ``counted``: every job takes whole nodes."""

    nodes: int
    cpus: int
    devices: int
    memory: int
    placement: str
    counted: bool


class Schedule(NamedTuple):
    """What came of it, job by job.

    ``promised`` is the start that was promised, NaN where none was; ``killed`` means that the limit ended the
    job. Of ``node`` and ``devices`` (as bits) a job has those from ``first`` on, up to the next job's first.
    ``events``, shape (2 · jobs,), are starts and ends as they came: the job, or ``~job`` for its end.
    ``broken`` and ``by_overrun`` count broken promises.
    """

    start: Floats
    end: Floats
    promised: Floats
    killed: npt.NDArray[np.bool_]
    first: Ints
    node: Ints
    devices: Ints
    events: Ints
    broken: int
    by_overrun: int


_ARRAY = ctypes.c_void_p
_NUMBER = ctypes.c_int64


class _Simulation(ctypes.Structure):
    """The struct of that name in `rigid.c`."""

    _fields_ = (
        ("jobs", _NUMBER),
        *((name, _ARRAY) for name in ("submit", "seconds", "bound", "limit")),
        *((name, _ARRAY) for name in ("nodes", "cpus", "devices", "memory", "by_rank", "line")),
        *((name, _NUMBER) for name in ("lines", "machine_nodes", "machine_cpus", "machine_devices")),
        *((name, _NUMBER) for name in ("machine_memory", "placement", "counted", "policy", "skip")),
        *((name, _ARRAY) for name in ("start", "end", "promised", "killed", "first", "node")),
        *((name, _ARRAY) for name in ("device_bits", "events")),
        *((name, _NUMBER) for name in ("broken", "by_overrun")),
    )


def _placement_number(machine: Machine) -> int:
    """The placement's number in `rigid.c`: without devices, nodes are packed by their free CPUs."""
    packs_cpus = machine.placement == "pack" and not machine.devices
    return len(PLACEMENTS) if packs_cpus else PLACEMENTS.index(machine.placement)


def simulate_rigid(jobs: Columns, machine: Machine, policy: str, skip: int = 0) -> Schedule:
    """Simulate jobs, each of which fits, under one of `POLICIES`; ``skip`` is an option of FCFS.

    Under ``conservative`` every job has a bound above zero and none runs past it. There must be a
    `load_library`.
    An interrupt waits until it is over. Raises `MemoryError`.
    """
    count = len(jobs.submit)
    # Held by name until the call is over: the struct has only addresses.
    given = {name: np.ascontiguousarray(column) for name, column in jobs._asdict().items()}
    # Where each job's nodes begin, with the total as the last entry: C writes nodes one after the other.
    first = np.concatenate(([0], np.cumsum(jobs.nodes)))
    made: dict[str, npt.NDArray[Any]] = {
        "start": np.zeros(count),
        "end": np.zeros(count),
        "promised": np.full(count, np.nan),
        "killed": np.zeros(count, np.bool_),
        "first": first,
        "node": np.zeros(first[-1], np.int64),
        "device_bits": np.zeros(first[-1], np.int64),
        # One start and one end a job.
        "events": np.zeros(2 * count, np.int64),
    }
    simulation = _Simulation(
        jobs=count,
        lines=int(jobs.line.max(initial=-1)) + 1,
        machine_nodes=machine.nodes,
        machine_cpus=machine.cpus,
        machine_devices=machine.devices,
        machine_memory=machine.memory,
        placement=_placement_number(machine),
        counted=machine.counted,
        policy=POLICIES.index(policy),
        skip=skip,
        **{name: column.ctypes.data for name, column in {**given, **made}.items()},
    )
    found = load_library()
    assert found is not None
    # Python sees Ctrl-C only when the C call is over, and would raise it in any of the lines that follow; so
    # it is raised here, at one place.
    with interrupts_later():
        status = found.dovetail_simulate(ctypes.byref(simulation))
    if status:
        raise MemoryError(f"a simulation of {count} jobs on {machine.nodes} nodes")
    made["devices"] = made.pop("device_bits")
    return Schedule(**made, broken=int(simulation.broken), by_overrun=int(simulation.by_overrun))
