"""Boxes whose devices have memory: nothing above it, nobody starves, and live decides as simulated.

Random devices (with and without memory, some slices of others), and jobs that ask for whole devices, for a
part of one, for memory, and for both.
"""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from two_worlds import Decisions, run_live, run_simulated

from dovetail.engine.journal.journal import JournalWriter, read_journal, replay
from dovetail.interfaces import Policy
from dovetail.model import (
    App,
    Choice,
    Cluster,
    Device,
    Implementation,
    Job,
    Node,
    Request,
    State,
    TableTruth,
    Workload,
    fits_node,
)
from dovetail.plugins import load_policy
from dovetail.testing.builders import full
from dovetail.testing.invariants import check_schedule

POLICIES = (
    *("history", "history-guarded", "best-device", "gpu-only", "fcfs", "sjf", "easy", "conservative"),
    *("lookahead", "min-min", "max-min", "sufferage", "mct", "heteroprio", "brr", "rsa"),
)

MODELS = {"none": None, "T4": 16, "A100": 40, "A100 MIG 3g.20gb": 20, "A100 MIG 1g.5gb": 5, "alone": 16}
"""Bytes of each; ``alone`` is in a compute mode that lets one program at a time compute."""
boxes = st.lists(
    st.tuples(st.integers(1, 6), st.lists(st.sampled_from(sorted(MODELS)), max_size=4)),
    min_size=1,
    max_size=2,
)
requests = st.tuples(
    st.sampled_from([0, 1, 2]),
    st.sampled_from([0.1, 0.25, 0.5, 1.0, 1.0, 2.0]),
    st.sampled_from([0, 0, 1, 5, 13, 20]),
    st.sampled_from([0, 0, 0, 17]),
    st.sampled_from([False, False, True]),
)
rows = st.lists(
    st.tuples(
        requests, st.booleans(), st.sampled_from([0.0, 1.0, 3.0, 10.0]), st.sampled_from([0.0, 0.0, 2.0])
    ),
    min_size=1,
    max_size=14,
)


def box(drawn: list[tuple[int, list[str]]]) -> Cluster:
    return Cluster(
        tuple(
            Node(
                f"n{n}",
                tuple(range(cpus)),
                tuple(
                    Device("gpu", model, d, memory=MODELS[model], exclusive=model == "alone")
                    for d, model in enumerate(models)
                ),
            )
            for n, (cpus, models) in enumerate(drawn)
        )
    )


def jobs(drawn: list[Any], cluster: Cluster) -> Workload:
    """Jobs that some node can run; some can run on CPUs too."""
    made: list[Job] = []
    table: dict[tuple[str, str, int], float] = {}
    for index, ((cpus, gpus, memory, least, shares), either, seconds, submit) in enumerate(drawn):
        asked = (("gpu", 1.0 if shares else gpus),)
        request = Request(1, cpus, asked, 0, (), "", memory, least, shares)
        ways = [Implementation("gpu", "gpu", request)]
        if either:
            ways.append(Implementation("cpu", "cpu", Request(1, 1)))
        ways = [way for way in ways if any(fits_node(way.request, node) for node in cluster.nodes)]
        if not ways:
            continue
        app = App(f"app{gpus}-{memory}-{shares}", tuple(ways))
        name = f"j{index}"
        choices = tuple(Choice(way, way.request) for way in ways)
        made.append(Job(name, app, choices, index=index, submit_time=submit))
        table |= {(name, way.name, 1): seconds * (2 if way.kind == "cpu" else 1) for way in ways}
    made.sort(key=lambda job: (job.submit_time, job.index))
    return Workload("box", made, TableTruth(table))


@given(boxes, rows, st.sampled_from(POLICIES), st.booleans())
@settings(max_examples=full(20_000, 80), deadline=None)
def test_device_memory_is_kept_and_nobody_starves(
    drawn: list[Any], wanted: list[Any], policy: str, learned: bool
) -> None:
    cluster = box(drawn)
    w = jobs(wanted, cluster)
    live, simulated = Decisions(), Decisions()
    one = run_live(w, cluster, policy, learned, live)
    other = run_simulated(w, cluster, policy, learned, simulated)
    assert live.kept == simulated.kept
    for result in (one, other):
        check_schedule(result, w)
        assert all(record.state is State.COMPLETED for record in result.records)
        spans: dict[str, list[tuple[float, float]]] = {}
        for record in result.records:
            for name in record.allocation.device_names(cluster) if record.allocation else ():
                spans.setdefault(name, []).append((record.start or 0.0, record.end or 0.0))
        for node in cluster.nodes:
            for device in node.devices:
                taken = sorted(spans.get(f"{node.name}/{device.name}", ()) if device.exclusive else ())
                assert all(a[1] <= b[0] for a, b in pairwise(taken)), "two at once where one may be"


@given(boxes, rows, st.sampled_from(POLICIES))
@settings(max_examples=full(2_000, 25), deadline=None)
def test_a_journal_with_device_memory_is_replayed(drawn: list[Any], wanted: list[Any], policy: str) -> None:
    cluster = box(drawn)
    w = jobs(wanted, cluster)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        writer = JournalWriter(path, cluster, policy=policy)
        run_simulated(w, cluster, policy, True, writer)
        writer.close()
        journal = read_journal(path)
    loaded = load_policy(policy).policy
    assert isinstance(loaded, Policy)
    assert replay(journal, loaded) == sum(len(batch.decisions) for batch in journal.batches)
    devices = [device.memory for node in journal.cluster.nodes for device in node.devices]
    assert devices == [device.memory for node in cluster.nodes for device in node.devices]


@pytest.mark.parametrize("policy", POLICIES)
def test_eight_jobs_of_a_quarter_and_thirteen_share_as_both_go(policy: str) -> None:
    """Three times 13 of 40 beside each other: as far as memory goes, not four by the quarters."""
    cluster = Cluster((Node("n", tuple(range(16)), (Device("gpu", "A100", 0, memory=40),)),))
    drawn = [((1, 0.25, 13, 0, False), False, 10.0, 0.0)] * 8
    result = run_simulated(jobs(drawn, cluster), cluster, policy, False, None)
    starts = sorted(record.start or 0.0 for record in result.records)
    assert starts == [0.0, 0.0, 0.0, 10.0, 10.0, 10.0, 20.0, 20.0]
