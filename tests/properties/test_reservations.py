"""Reservations: what others may still run before a window, what its users get, and how it replays."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dovetail.driver.reservations import LEAD
from dovetail.engine.journal.journal import JournalWriter, read_journal, replay
from dovetail.history.memory import MemoryHistory
from dovetail.model import (
    App,
    Choice,
    Cluster,
    Device,
    Event,
    Implementation,
    Job,
    Node,
    NodeDrained,
    NodeJoined,
    NodeLost,
    Record,
    Request,
    Reservation,
    Reserved,
    TableTruth,
    Workload,
    bit_indices,
)
from dovetail.plugins import load_policy
from dovetail.policies.follow_plan import FollowPlan
from dovetail.runtimes.registry import make_model
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import full
from dovetail.testing.invariants import check_schedule

POLICIES = (
    *("history", "lookahead", "fcfs", "easy", "conservative", "min-min", "best-device", "mct", "sjf", "rsa"),
)
USERS = ("ana", "ben", "eva")
Incidents = list[tuple[float, Event]]


def drawn_reservations(rng: random.Random, cluster: Cluster) -> list[Reservation]:
    """One to three, which may be of the same devices, one after the other or at once."""
    places = [(n, d) for n, node in enumerate(cluster.nodes) for d in range(len(node.devices))]
    found = []
    for bit in range(rng.randint(1, 3)):
        start = float(rng.randint(0, 60))
        devices = tuple(sorted(rng.sample(places, rng.randint(1, len(places)))))
        users = tuple(rng.sample(USERS, rng.randint(1, 2)))
        found.append(Reservation(str(bit), users, devices, start, start + rng.randint(1, 40), bit))
    return found


def drawn_jobs(rng: random.Random, count: int) -> tuple[list[Job], TableTruth]:
    """Jobs of some users with and without walltimes; all fit the smallest node."""
    jobs: list[Job] = []
    table: dict[tuple[str, str, int], float] = {}
    for index in range(count):
        request = Request(
            1, 0, (("gpu", rng.choice((1.0, 1.0, 0.5, 2.0))),), gpu_memory=rng.choice((0, 0, 4))
        )
        seconds = float(rng.randint(1, 20))
        way, host = Implementation("gpu", "gpu", request), Implementation("cpu", "cpu", Request(1, 1))
        ways = (way, host) if rng.random() < 0.2 else (way,)
        name = f"j{index}"
        walltime = seconds + rng.randint(0, 10) if rng.random() < 0.7 else None
        made = Job(
            name,
            App(f"app{rng.randrange(3)}", ways),
            tuple(Choice(one, one.request) for one in ways),
            index=index,
            submit_time=float(rng.choice((0, 0, rng.randint(0, 80)))),
            walltime=walltime,
            user=rng.choice((*USERS, "kim")),
        )
        jobs.append(made)
        table |= {(name, one.name, 1): seconds for one in ways}
    return sorted(jobs, key=lambda job: (job.submit_time, job.index)), TableTruth(table)


def devices_of(record: Record) -> set[tuple[int, int]]:
    """The devices that a job has held."""
    assert record.allocation is not None
    return {(n, d) for part in record.allocation.parts for n in bit_indices(part.nodes) for d in part.devices}


def intrusion(record: Record, one: Reservation, known_from: float) -> str:
    """What is wrong with the place that a job has had; empty where nothing is.

    A job that began before the reservation was known is no intrusion.
    """
    job, start, end = record.job, record.start, record.end
    assert start is not None
    assert end is not None
    if job.user in one.users or not devices_of(record) & set(one.devices):
        return ""
    if start < known_from or start >= one.end:
        return ""
    if one.start <= start:
        return "started within the window"
    if job.walltime is not None:
        return "may run into the window" if start + job.walltime > one.start + 1e-9 else ""
    if record.predicted is None or record.predicted.samples < 1:
        return "of unknown length" if start + LEAD > one.start else ""
    return ""


@pytest.mark.parametrize("policy", POLICIES)
def test_no_job_of_others_is_on_reserved_devices(policy: str, tmp_path: Path) -> None:
    kept = used = 0
    for seed in range(full(300, 12)):
        rng = random.Random(seed)
        nodes = tuple(
            Node(f"n{n}", (0, 1), tuple(Device("gpu", "A", d, memory=16) for d in range(rng.randint(2, 4))))
            for n in range(rng.randint(1, 2))
        )
        cluster = Cluster(nodes)
        jobs, truth = drawn_jobs(rng, rng.randint(3, 40))
        reservations = drawn_reservations(rng, cluster)
        known_from = float(rng.choice((0, 0, rng.randint(0, 20))))
        incidents: Incidents = [(known_from, Reserved(tuple(reservations)))]
        if len(nodes) > 1 and rng.random() < 0.4:
            low = float(rng.randint(0, 40))
            gone = rng.choice((NodeLost(1), NodeDrained(1)))
            incidents += [(low, gone), (low + 9, NodeJoined(1))]
            incidents.sort(key=lambda pair: pair[0])
        path = tmp_path / f"{seed}.jsonl"
        workload = Workload("box", jobs, truth)
        journal = JournalWriter(path, cluster, policy=policy)
        result = simulate(
            workload,
            cluster,
            load_policy(policy).policy,
            make_model("mean", MemoryHistory()),
            options=SimulationOptions(validate=True, policy_name=policy),
            journal=journal,
            follow=FollowPlan(),
            incidents=incidents,
        )
        journal.close()
        bad = [r for r in result.records if str(r.state) not in ("COMPLETED", "NODE_FAIL")]
        assert not bad, (seed, [(r.job.id, r.state, r.start, r.end, r.detail, r.job.walltime) for r in bad])
        for record in result.records:
            for one in reservations:
                if record.state == "COMPLETED":
                    assert not intrusion(record, one, known_from), (seed, record.job.id, one)
                    inside = devices_of(record) & set(one.devices)
                    used += bool(inside) and record.job.user in one.users
                    kept += record.job.user not in one.users
        if not any(isinstance(event, NodeLost) for _, event in incidents):
            check_schedule(result, workload, work=False)
        replay(read_journal(path), load_policy(policy).policy)
    assert kept, "there were jobs of others"
    assert used, "users of reservations had their devices"
