"""A long queue rolled out by compiled code starts as the engine starts it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.forecasts.long_queue import Hold, IdlePlaces, roll_out_queue
from dovetail.model import Cluster, Dependency
from dovetail.policies.conservative import Conservative
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import full, rigid

NODES = 6
row = st.tuples(
    st.just(0.0), st.integers(1, NODES), st.integers(1, 50).map(float), st.integers(50, 90).map(float)
)


@given(st.lists(row, min_size=1, max_size=30), st.sampled_from([Fcfs(), Easy()]))
@settings(max_examples=full(500, 40), deadline=None, derandomize=True)
def test_starts_are_those_of_the_engine(rows: list[tuple[float, int, float, float]], policy: Fcfs) -> None:
    workload, cluster = rigid(rows), Cluster.uniform(NODES, 1)
    result = simulate(workload, cluster, policy, PerfectModel(workload.truth))
    engine = {record.job.id: (record.start, record.end) for record in result.records}
    found = roll_out_queue(workload.jobs, policy, IdlePlaces(cluster), workload.truth, [], None)
    assert found is not None
    assert {job: (run.start, run.end) for job, run in found.items()} == engine


def test_what_runs_holds_its_nodes_and_priority_goes_first() -> None:
    workload, cluster = rigid([(0.0, 2, 5.0, 10.0), (0.0, 2, 5.0, 10.0)]), Cluster.uniform(2, 1)
    jobs = [workload.jobs[0], replace(workload.jobs[1], priority=1)]
    places = IdlePlaces(cluster)
    held = places.find_place(jobs[0].choices[0].request)
    assert held is not None
    holds = [Hold(replace(held, parts=(held.parts[0]._replace(nodes=0b11),)), 7.0, 20.0)]
    found = roll_out_queue(jobs, Easy(), places, workload.truth, holds, None)
    assert found is not None
    assert {job: run.start for job, run in found.items()} == {"1": 7.0, "0": 12.0}


@pytest.mark.parametrize(
    ("policy", "change"),
    [
        (Conservative(), {}),
        (Easy(order="sjf"), {}),
        (Easy(), {"depends": (Dependency("afterok", "0"),)}),
        (Easy(), {"submit_time": 5.0}),
        (Easy(), {"options": {"nice": 3}}),
    ],
)
def test_what_is_not_modelled_is_the_engines(policy: Easy, change: dict[str, object]) -> None:
    workload = rigid([(0.0, 1, 5.0, 10.0), (0.0, 1, 5.0, 10.0)])
    jobs = [workload.jobs[0], replace(workload.jobs[1], **change)]  # type: ignore[arg-type]
    places = IdlePlaces(Cluster.uniform(2, 1))
    assert roll_out_queue(jobs, policy, places, workload.truth, [], None) is None


def test_who_fits_nowhere_is_left_out() -> None:
    workload = rigid([(0.0, 1, 5.0, 10.0), (0.0, 3, 5.0, 10.0)])
    found = roll_out_queue(workload.jobs, Easy(), IdlePlaces(Cluster.uniform(2, 1)), workload.truth, [], None)
    assert found is not None
    assert list(found) == ["0"]
    assert np.isfinite(found["0"].start)
