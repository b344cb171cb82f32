"""Blind round robin: the counter over batches, skipped resources, several GPUs a node."""

from __future__ import annotations

import pytest

from dovetail.errors import UnsupportedWorkload
from dovetail.model import Cluster, Request
from dovetail.policies.brr import Brr, BrrDynamic
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import TrueTimesModel, rigid, workload
from dovetail.testing.invariants import check_schedule

BOTH = {"cpu": 3.0, "gpu": 2.0}


def units(rows, cluster="2x4cpu+1gpu", policy=None):
    work = workload(rows)
    machine = Cluster.parse(cluster)
    result = simulate(work, machine, policy or Brr(), TrueTimesModel(work.truth))
    check_schedule(result, work)
    found = {}
    for record in result.records:
        names = record.allocation.device_names(machine)
        found[record.job.id] = names[0] if names else record.allocation.node_names(machine)[0]
    return found


def test_node_by_node_the_cpu_first() -> None:
    found = units([(name, BOTH) for name in "abcde"], "2x4cpu+2gpu")
    assert found == {"a": "n0", "b": "n0/gpu0", "c": "n0/gpu1", "d": "n1", "e": "n1/gpu0"}


def test_the_counter_goes_on_in_the_next_batch() -> None:
    rows = [("a", BOTH), ("b", BOTH), ("c", BOTH, 100.0), ("d", BOTH, 200.0), ("e", BOTH, 300.0)]
    assert units(rows) == {"a": "n0", "b": "n0/gpu0", "c": "n1", "d": "n1/gpu0", "e": "n0"}


def test_the_counter_passes_over_what_a_job_cannot_use() -> None:
    gpu_only, cpu_only = {"gpu": 2.0}, {"cpu": 3.0}
    rows = [("a", gpu_only), ("b", gpu_only), ("c", BOTH), ("d", cpu_only), ("e", cpu_only), ("f", BOTH)]
    assert units(rows) == {"a": "n0/gpu0", "b": "n1/gpu0", "c": "n0", "d": "n1", "e": "n0", "f": "n0/gpu0"}


def test_the_counter_passes_over_nodes_that_are_too_small(tmp_path) -> None:
    small_and_large = tmp_path / "cluster.toml"
    small_and_large.write_text('[[node]]\nname = "s"\ncpus = 2\n[[node]]\nname = "l"\ncpus = 8\n')
    machine = Cluster.parse(str(small_and_large))
    work = rigid([(0.0, 1, 5.0, None)] * 3, Request(1, 8))
    result = simulate(work, machine, Brr(), TrueTimesModel(work.truth))
    check_schedule(result, work)
    assert [r.allocation.node_names(machine) for r in result.records] == [["l"], ["l"], ["l"]]


def test_dynamic_takes_jobs_in_order_as_resources_become_free() -> None:
    rows = [
        ("a", {"cpu": 9.0, "gpu": 9.0}),
        ("b", BOTH),
        ("c", {"gpu": 1.0}),
        ("d", BOTH),
        ("e", {"cpu": 1.0}),
    ]
    found = units(rows, "1x4cpu+1gpu", BrrDynamic())
    assert found == {"a": "n0", "b": "n0/gpu0", "c": "n0/gpu0", "d": "n0/gpu0", "e": "n0"}


def test_gangs_are_refused_with_a_sentence() -> None:
    work = rigid([(0.0, 2, 5.0, None)])
    for policy in (Brr(), BrrDynamic()):
        with pytest.raises(UnsupportedWorkload, match="on one node; job 0 needs 2 nodes"):
            simulate(work, Cluster.uniform(4, 1), policy, TrueTimesModel(work.truth))
