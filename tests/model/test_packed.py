"""Allocations that are only kept take the memory of their runs, and are what they were."""

from __future__ import annotations

import pickle
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dovetail.model import Allocation, Donor, Part, Request
from dovetail.model.allocation import Packed
from dovetail.policies.easy import Easy
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import rigid_workload

REQUEST = Request(3, 1)


@given(
    masks=st.lists(st.integers(1, 1 << 5000), min_size=1, max_size=3),
    cores=st.booleans(),
    donors=st.booleans(),
)
def test_a_packed_allocation_is_what_it_was(masks: list[int], cores: bool, donors: bool) -> None:
    parts = tuple(Part(mask, 2 + i, (i,), 7, 9) for i, mask in enumerate(masks))
    given_cores = {"cores": {0: (1, 2)}} if cores else {}
    given_donors = {"donors": (Donor(0, 1, 2),)} if donors else {}
    allocation = Allocation(REQUEST, parts, **given_cores, **given_donors)  # type: ignore[arg-type]
    packed = Packed(REQUEST, parts, **given_cores, **given_donors)  # type: ignore[arg-type]
    assert packed == allocation
    assert allocation == packed
    assert (packed.mask, packed.nodes, packed.first_node) == (
        allocation.mask,
        allocation.nodes,
        allocation.first_node,
    )
    assert pickle.loads(pickle.dumps(packed)) == allocation
    assert replace(packed, request=Request(1, 1)) == replace(allocation, request=Request(1, 1))
    assert allocation.pack_runs() == allocation
    if not cores:
        assert hash(packed) == hash(allocation)


def test_narrow_and_scattered_ones_stay_as_they_are() -> None:
    narrow = Allocation(REQUEST, (Part(1 << 2000, 1),))
    scattered = Allocation(REQUEST, (Part(int("10" * 3000, 2), 1),))
    assert narrow.pack_runs() is narrow
    assert scattered.pack_runs() is scattered
    assert isinstance(Allocation(REQUEST, (Part(1 << 9000, 1),)).pack_runs(), Packed)


def test_ended_jobs_of_a_wide_machine_are_packed() -> None:
    jobs, cluster = rigid_workload([(0.0, 3000, 5.0, None), (0.0, 1, 5.0, None)], nodes=4000)
    result = simulate(jobs, cluster, Easy(), PerfectModel(jobs.truth))
    assert [type(record.allocation) for record in result.records] == [Packed, Packed]
    assert [record.allocation.nodes for record in result.records if record.allocation] == [
        list(range(3000)),
        [3000],
    ]
