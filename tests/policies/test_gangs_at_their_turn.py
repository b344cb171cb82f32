"""Jobs on several nodes under policies whose papers have one node a job: first fit at their turn."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dovetail
from dovetail import api
from dovetail.errors import DovetailWarning, UnsupportedWorkload
from dovetail.model import (
    App,
    Choice,
    Cluster,
    Implementation,
    Job,
    Node,
    Request,
    Result,
    TableTruth,
    Workload,
)
from dovetail.testing.builders import rigid
from dovetail.testing.invariants import check_schedule

PLACED = ("history", "history-guarded", "cpu-only", "gpu-only", "best-device")
REFUSED = ("min-min", "max-min", "sufferage", "brr", "asjf", "heteroprio")


def scheduled(work: Workload, policy: str, cluster: Cluster) -> Result:
    result = api.simulate_result(work, policy=policy, cluster=cluster)
    check_schedule(result, work)
    return result


@pytest.mark.parametrize("policy", PLACED)
def test_a_gang_starts_at_its_turn_and_those_behind_it_wait(policy: str) -> None:
    """Four nodes. 0 and 1 run to 10 and 20; the gang of three waits for 0's node, 3 for the gang."""
    work = rigid([(0, 1, 10, None), (0, 1, 20, None), (1, 3, 5, None), (2, 1, 1, None), (2, 4, 2, None)])
    result = scheduled(work, policy, Cluster.parse("4x1cpu"))
    starts = {record.job.id: record.start for record in result.records}
    assert starts == {"0": 0, "1": 0, "2": 10, "3": 15, "4": 20}


@pytest.mark.parametrize("policy", PLACED)
def test_gangs_and_single_jobs_on_a_partitioned_cluster(policy: str) -> None:
    """Nothing overlaps, all jobs end, requests stay in their partition, and a policy keeps to its kind."""
    fat = Node("f", (0, 1), (), partitions=("fat",))
    thin = Node("t", (0, 1), Cluster.parse("1x2cpu+1gpu").nodes[0].devices, partitions=("thin",))
    nodes = [replace(fat, name=f"f{n}") for n in range(4)] + [replace(thin, name=f"t{n}") for n in range(4)]
    cluster = Cluster(tuple(nodes))
    rng = np.random.Generator(np.random.PCG64(5))
    jobs, times = [], {}
    for number in range(120):
        partition, count = ("fat", "thin")[int(rng.integers(2))], int(rng.integers(1, 4))
        ways = [Implementation("cpu", "cpu", Request(1, 1, partition=partition))]
        if partition == "thin":
            ways.append(Implementation("gpu", "gpu", Request(1, 0, (("gpu", 1),), partition=partition)))
        app = App(f"a{partition}", tuple(ways))
        choices = tuple(Choice(way, way.request.on(count)) for way in ways)
        job = Job(
            f"{number}", app, choices, index=number, submit_time=float(rng.integers(0, 300)), nodes=count
        )
        jobs.append(job)
        times |= {(job.id, way.name, count): float(rng.integers(1, 40)) for way in ways}
    jobs.sort(key=lambda job: (job.submit_time, job.index))
    work = Workload("mixed", jobs, TableTruth(times))
    result = scheduled(work, policy, cluster)
    assert len(result.records) == 120
    for record in result.records:
        assert record.end is not None
        assert record.allocation is not None
        assert record.implementation is not None
        wanted = {choice.request.partition for choice in record.job.choices}
        names = {cluster.nodes[n].partitions[0] for n in record.allocation.nodes}
        assert names == wanted
        if policy == "cpu-only":
            assert record.implementation.kind == "cpu"
        if policy == "gpu-only" and wanted == {"thin"}:
            assert record.implementation.kind == "gpu"


SACCT = """\
JobID|User|Partition|Submit|Start|End|Elapsed|State|NNodes|NCPUS|Timelimit|ReqTRES
1|a|batch|2026-01-01T00:00:00|2026-01-01T00:00:05|2026-01-01T00:10:05|00:10:00|COMPLETED|2|8|01:00:00|cpu=8,node=2
2|b|batch|2026-01-01T00:01:00|2026-01-01T00:01:05|2026-01-01T00:03:05|00:02:00|COMPLETED|1|2|00:30:00|cpu=2,node=1
3|a|gpu|2026-01-01T00:02:00|2026-01-01T00:02:05|2026-01-01T00:09:05|00:07:00|COMPLETED|1|2|00:30:00|cpu=2,node=1,gres/gpu=1
4|c|batch|2026-01-01T00:03:00|2026-01-01T00:10:05|2026-01-01T00:20:05|00:10:00|COMPLETED|4|16|01:00:00|cpu=16,node=4
"""


def test_most_policies_serve_an_export_of_sacct_and_the_others_are_named(tmp_path: Path) -> None:
    """Of the policies that decide by themselves on one machine, those that place one node a job are left."""
    (tmp_path / "export.txt").write_text(SACCT)
    plain = Cluster.parse("4x4cpu+1gpu").nodes
    cluster = Cluster(tuple(replace(node, partitions=("batch", "gpu")) for node in plain))
    policies = ["fcfs", "easy", "conservative", "sjf", "lookahead", *PLACED, *REFUSED]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DovetailWarning)
        found = dovetail.compare(tmp_path / "export.txt", policies, cluster=cluster, jitter=0.0, replicates=1)
    served = {report.policy for report in found}
    assert served == set(policies) - set(REFUSED)
    said = [str(one.message) for one in caught if issubclass(one.category, DovetailWarning)]
    for name in REFUSED:
        (why,) = [text for text in said if text.startswith(f"policy {name} ")]
        assert why.endswith("left out of the comparison")
        assert "places each job on one node; job 1 needs 2 nodes" in why
    with pytest.raises(UnsupportedWorkload, match="policy min-min places each job on one node"):
        dovetail.simulate(rigid([(0, 2, 1, None)]), policy="min-min", cluster="4x1cpu")
