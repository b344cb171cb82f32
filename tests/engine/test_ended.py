"""Jobs that have ended are kept as columns: nothing that anybody can ask for is another one then."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from twins_compared import check_same, check_same_reports

from dovetail.interfaces import Policy, View
from dovetail.model import Cluster, Decision, Result, Start, Wait, Workload
from dovetail.model.tables import RecordTable
from dovetail.policies.conservative import Conservative
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.policies.sjf import Sjf
from dovetail.report.json_form import text_of, to_json
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import full
from dovetail.testing.invariants import check_schedule
from dovetail.workloads.swf import swf_cluster, swf_workload
from dovetail.workloads.swf_arrays import parse_swf, read_swf_arrays

TRACES = Path(__file__).parents[3] / "shared" / "traces"
POLICIES: list[Policy] = [Easy(), Easy(order="sjf", placement="spread"), Fcfs(), Conservative(), Sjf()]


def log(rng: np.random.Generator, processors: int, cpus_per_node: int = 1) -> Workload:
    """Jobs of an SWF file: out of order, too large, without walltimes, killed, of no length."""
    lines = []
    for number in range(1, int(rng.integers(2, 120))):
        run, size = int(rng.integers(0, 60)), int(rng.integers(1, processors + 2))
        walltime = -1 if rng.random() < 0.2 else max(1, int(run * rng.uniform(0.5, 4)))
        submit = int(rng.integers(0, 300))
        lines.append(
            f"{number} {submit} -1 {run} {size} -1 -1 {size} {walltime} -1 1 {number % 4} 1 2 1 1 -1 -1"
        )
    cluster = Cluster.uniform(-(-processors // cpus_per_node), cpus_per_node)
    arrays = parse_swf("\n".join(lines).encode(), "here")
    return swf_workload(arrays, cluster, cpus_per_node=cpus_per_node)


def both(workload: Workload, cluster: Cluster, policy: Policy, **options: Any) -> tuple[Result, Result]:
    """The result as columns, and that of the same jobs where each is an object from the beginning."""
    asked = SimulationOptions(**options)
    listed = replace(workload, jobs=list(workload.jobs))
    assert listed.table is None
    first, second = (
        simulate(each, cluster, policy, PerfectModel(each.truth), options=asked)
        for each in (workload, listed)
    )
    assert isinstance(second.records, list)
    return first, second


@pytest.mark.parametrize("block", range(2))
def test_random_logs(block: int) -> None:
    for seed in range(block, full(2_000, 60), 2):
        rng = np.random.Generator(np.random.PCG64([seed, 18]))
        nodes = int(rng.integers(1, 12)) if rng.random() < 0.5 else int(rng.integers(12, 200))
        workload = log(rng, nodes)
        if not len(workload.jobs):
            continue
        options: dict[str, Any] = {"overrun": ("kill", "run")[seed % 3 == 0]}
        if rng.random() < 0.3:
            options["default_walltime"] = 30.0
        columns, objects = both(workload, Cluster.uniform(nodes, 1), POLICIES[seed // 2 % 5], **options)
        assert isinstance(columns.records, RecordTable)
        assert list(columns.decision_seconds) == list(objects.decision_seconds)
        check_same(columns, objects)
        check_schedule(columns, workload)
        if seed % 8 < 2:
            check_same_reports(columns, objects)


@pytest.mark.skipif(not TRACES.is_dir(), reason="needs the sample traces")
@pytest.mark.parametrize("policy", POLICIES[:4], ids=str)
def test_sample_trace(policy: Policy) -> None:
    arrays = read_swf_arrays(TRACES / "hpc2n-2002-2.1.first3170.swf.gz")
    cluster = swf_cluster(arrays)
    assert cluster is not None
    columns, objects = both(swf_workload(arrays, cluster), cluster, policy)
    assert isinstance(columns.records, RecordTable)
    check_same(columns, objects)
    check_same_reports(columns, objects)


def test_a_wide_machine() -> None:
    rng = np.random.Generator(np.random.PCG64(5))
    columns, objects = both(log(rng, 5000), Cluster.uniform(5000, 1), Easy())
    assert isinstance(columns.records, RecordTable)
    check_same(columns, objects)
    sent = pickle.loads(pickle.dumps(columns))
    assert text_of(to_json(sent)) == text_of(to_json(columns)) == text_of(to_json(objects))


@dataclass(frozen=True, slots=True)
class Halting:
    """Starts what fits, in order, but never a job of this number of nodes; wakes itself up meanwhile."""

    never: int = 3

    def decide(self, view: View) -> Iterable[Decision]:
        free, decisions = view.free(), list[Decision]()
        for job in view.queue:
            choice = job.choices[0]
            allocation = None if job.nodes == self.never else free.claim(choice.request)
            if allocation is None:
                decisions.append(Wait(job.id, "not yet", view.now + 1.0 if len(view.running) else None))
            else:
                decisions.append(Start(job.id, choice.implementation.name, allocation))
        return decisions


def test_jobs_that_never_started_are_on_record() -> None:
    workload = log(np.random.Generator(np.random.PCG64(11)), 8)
    columns, objects = both(workload, Cluster.uniform(8, 1), Halting())
    assert any(record.start is None for record in objects.records)
    assert any(record.start is not None for record in objects.records)
    check_same(columns, objects)
    check_same_reports(columns, objects)


@dataclass(frozen=True, slots=True)
class InParts:
    """First come, first served; a gang is given as one part for each of its nodes."""

    def decide(self, view: View) -> Iterable[Decision]:
        free = view.free()
        for job in view.queue:
            choice = job.choices[0]
            found = free.claim(choice.request)
            if found is None:
                return
            parts = tuple(found.parts[0]._replace(nodes=1 << n) for n in found.nodes)
            yield Start(job.id, choice.implementation.name, replace(found, parts=parts))


def test_what_the_columns_do_not_tell_stays_a_record() -> None:
    workload = log(np.random.Generator(np.random.PCG64(13)), 8)
    columns, objects = both(workload, Cluster.uniform(8, 1), InParts())
    assert not isinstance(columns.records, RecordTable)
    assert any(len(r.allocation.parts) > 1 for r in columns.records if r.allocation is not None)
    check_same(columns, objects)


@pytest.mark.parametrize("options", [{"keep_considered": True}, {"validate": True}], ids=str)
def test_where_more_is_kept_there_are_records(options: dict[str, Any]) -> None:
    columns, objects = both(
        log(np.random.Generator(np.random.PCG64(2)), 8), Cluster.uniform(8, 1), Easy(), **options
    )
    assert isinstance(columns.records, list)
    check_same(columns, objects)


def test_shared_nodes_have_records() -> None:
    workload = log(np.random.Generator(np.random.PCG64(4)), 32, cpus_per_node=8)
    columns, objects = both(workload, Cluster.uniform(4, 8), Easy())
    assert isinstance(columns.records, list)
    check_same(columns, objects)


@dataclass(frozen=True, slots=True)
class Watching:
    """EASY, which looks whether jobs that were submitted are still known."""

    submitted: set[str]

    def decide(self, view: View) -> Iterable[Decision]:
        self.submitted.update(job.id for job in view.changes.submitted)
        kept = {job for job in self.submitted if _knows(view, job)}
        now = {placed.job.id for placed in view.changes.ended}
        assert kept == {job.id for job in view.queue} | view.running.keys() | now
        return Easy().decide(view)


def _knows(view: View, job: str) -> bool:
    try:
        return view.job(job).id == job
    except KeyError:
        return False


def test_the_engine_keeps_what_waits_and_runs() -> None:
    """Of what is over nothing is left but numbers."""
    workload = log(np.random.Generator(np.random.PCG64(3)), 8)
    policy = Watching(set())
    result = simulate(workload, Cluster.uniform(8, 1), policy, PerfectModel(workload.truth))
    assert len(policy.submitted) == len(result.records) == len(workload.jobs)
    assert "made" not in vars(workload.jobs)  # nor was any job made to stay
