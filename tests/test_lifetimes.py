"""Columns of a sweep: the schedule that a simulation in full has, by both paths."""

from __future__ import annotations

import numpy as np
import pytest

import dovetail
from dovetail.errors import InputError
from dovetail_lab.markthub.lifetimes import simulate_lifetimes

JOBS = "published:markthub?jobs=40&nodes_mean=12&nodes_sd=9&gpu_calls=1e7&seed=3"


@pytest.mark.parametrize("rates", ["remote_gpu", "remote_gpu?processes=gpu"])
def test_columns_are_those_of_the_simulation(rates: str) -> None:
    """Compiled for the first four, in full for the last, which no kernel models."""
    policies = ["fcfs", "rq?local=1", "mrq", "mrq-aware", "mrq?held=true"]
    workload = dovetail.load_workload(JOBS)
    found = list(simulate_lifetimes(workload, policies, rates=rates))
    assert [one.policy for one in found] == policies
    for one in found:
        result = dovetail.simulate(workload, policy=one.policy, rates=rates, compiled="off").result
        assert one.start.tolist() == [record.start for record in result.records]
        assert one.end.tolist() == [record.end for record in result.records]
        assert one.borrowed.tolist() == [record.remote_gpus for record in result.records]
        assert one.migrations == sum(record.migrations for record in result.records)
        assert np.all(one.lifetime_seconds > 0)
        assert one.offered == 300
        assert 0 < one.held_share <= 1
    assert found[2].migrations > 0


def test_a_policy_that_is_not_there() -> None:
    with pytest.raises(InputError, match="nosuch"):
        list(simulate_lifetimes(dovetail.load_workload(JOBS), ["fcfs", "nosuch"]))
