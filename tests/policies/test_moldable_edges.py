"""Moldable policies beyond the paper's cluster: several GPUs, host CPUs, memory, learning, lost nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from dovetail import api
from dovetail.history.memory import MemoryHistory
from dovetail.model import (
    App,
    Choice,
    Cluster,
    Implementation,
    Job,
    NodeJoined,
    NodeLost,
    Request,
    State,
    TableTruth,
    Workload,
)
from dovetail.plugins import load_policy
from dovetail.policies.fms import Fms
from dovetail.runtimes.least_squares import LeastSquaresModel
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import TrueTimesModel, full
from dovetail.testing.invariants import check_schedule

POLICIES = ("torque", "torque-plan", "mct", "fms", "fms?score=area", "fms-type", "fms-nodes", "fms-order")
CLUSTERS = (
    '[[node]]\nname = "n[0-4]"\ncpus = 8\ngpus = 2\nmemory = 64\n',
    '[[node]]\nname = "n[0-4]"\ncpus = 8\ngpus = 1\nhost_cpus = 1\n',
    '[[node]]\nname = "c[0-3]"\ncpus = 16\n[[node]]\nname = "g[0-3]"\ncpus = 4\ngpus = 4\nmemory = 32\n'
    'devices = [{ kind = "opencl", model = "pocl" }]\n',
)


def cluster_of(text: str, tmp_path) -> Cluster:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    return Cluster.parse(str(path))


def drawn(seed: int, jobs: int = 14) -> Workload:
    """Apps with odd requests: part of a pool, two GPUs, shares of one, memory, OpenCL."""
    rng = np.random.Generator(np.random.PCG64(seed))
    made, table = [], {}
    for index in range(jobs):
        nodes = int(rng.integers(1, 5))
        forms = [
            Implementation(
                "cpu", "cpu", Request(cpus=int(rng.choice([-1, 2, 4])), memory=int(rng.integers(0, 40)))
            ),
            Implementation(
                "gpu", "gpu", Request(cpus=-2, devices=(("gpu", float(rng.choice([0.5, 1, 2]))),))
            ),
            Implementation("both", "cpu+gpu", Request(devices=(("gpu", 1),), memory=8)),
            Implementation("opencl", "opencl", Request(cpus=1, devices=(("opencl", 1),))),
        ]
        forms = [form for form in forms if rng.random() < 0.7] or forms[:1]
        app = App(f"app{index % 4}", tuple(forms))
        sizes = sorted({nodes, max(1, nodes // 2)})
        choices = tuple(Choice(form, form.request.on(n)) for form in forms for n in sizes)
        submit = float(rng.choice([0.0, 0.0, 7.5]))
        made.append(Job(f"j{index}", app, choices, index=index, submit_time=submit, nodes=nodes))
        for c in choices:
            seconds = float(rng.integers(0, 80)) / 8
            table[f"j{index}", c.implementation.name, c.request.nodes] = seconds
    return Workload("drawn", sorted(made, key=lambda j: (j.submit_time, j.index)), TableTruth(table))


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("text", CLUSTERS, ids=["two GPUs", "host CPUs", "unlike nodes"])
def test_every_schedule_is_valid(name: str, text: str, tmp_path) -> None:
    cluster = cluster_of(text, tmp_path)
    for seed in range(full(60, 5)):
        work = drawn(seed)
        result = simulate(work, cluster, load_policy(name).policy, TrueTimesModel(work.truth))
        check_schedule(result, work)
        assert result.promises_broken == 0


@pytest.mark.parametrize("name", POLICIES)
def test_while_learning_promises_are_broken_only_with_an_excuse(name: str, tmp_path) -> None:
    """A promise may rest on the bound of a job that waits itself; by its start more may have been learned."""
    cluster = cluster_of(CLUSTERS[0], tmp_path)
    for seed in range(full(40, 4)):
        work = drawn(seed, 24)
        history = MemoryHistory()
        policy = load_policy(name).policy
        result = simulate(work, cluster, policy, LeastSquaresModel(history), observe=history)
        check_schedule(result, work)
        assert result.promises_broken == result.broken_by_overrun


def test_one_node_jobs_are_moldable_in_type() -> None:
    report = api.simulate("published:ravi-single-table?jobs=24", cluster="2x1cpu+1gpu", policy="fms")
    kinds = {job["implementation"] for job in report.jobs}
    assert kinds == {"cpu", "gpu"}
    assert report.makespan < api.simulate(
        "published:ravi-single-table?jobs=24", cluster="2x1cpu+1gpu", policy="torque"
    ).makespan  # fmt: skip


def test_what_was_asked_for_is_obeyed_by_three_policies_only(tmp_path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(
        '[[app]]\nname = "x"\n'
        '[[app.implementation]]\nname = "cpu"\ntimes = { 1 = 40.0, 2 = 20.0 }\n'
        '[[app.implementation]]\nname = "gpu"\ntimes = { 1 = 8.0, 2 = 4.0 }\n'
        '[[job]]\napp = "x"\nnodes = 2\nimplementation = "cpu"\n'
    )
    ran = {
        name: api.simulate(path, cluster="2x4cpu+1gpu", policy=name).jobs[0]["implementation"]
        for name in ("torque", "torque-plan", "fms-nodes", "mct", "fms", "fms-type", "fms-order")
    }
    assert ran == {
        "torque": "cpu",
        "torque-plan": "cpu",
        "fms-nodes": "cpu",
        "mct": "gpu",
        "fms": "gpu",
        "fms-type": "gpu",
        "fms-order": "gpu",
    }


@pytest.mark.parametrize("name", POLICIES)
def test_a_node_is_lost_and_comes_back(name: str) -> None:
    forms = (Implementation("cpu", "cpu", Request()),)
    app = App("x", forms)
    jobs = [
        Job(str(i), app, (Choice(forms[0], forms[0].request.on(n)),), index=i, nodes=n)
        for i, n in enumerate((2, 3, 1, 2))
    ]
    work = Workload("lost", jobs, TableTruth(fixed={str(i): 10.0 for i in range(4)}))
    incidents = [(3.0, NodeLost(0)), (15.0, NodeJoined(0))]
    result = simulate(
        work, Cluster.uniform(3, 2), load_policy(name).policy, TrueTimesModel(work.truth), incidents=incidents
    )
    check_schedule(result, work)
    states = {r.job.id: r.state for r in result.records}
    assert State.NODE_FAIL in states.values()
    wide = next(r for r in result.records if r.job.id == "1")
    assert wide.state is State.COMPLETED
    assert wide.start is not None
    assert wide.start >= 15.0  # three nodes are there again only then


@dataclass(frozen=True)
class SpeltOut(Fms):
    """FMS by the rule as `dovetail.policies.fms` spells it out."""

    compiled: ClassVar[bool] = False


@pytest.mark.parametrize("text", CLUSTERS, ids=["two GPUs", "host CPUs", "unlike nodes"])
def test_the_rule_and_its_kernel_make_the_same_schedules(text: str, tmp_path) -> None:
    cluster = cluster_of(text, tmp_path)
    for seed in range(full(20, 2)):
        work = drawn(seed, 8)
        starts = []
        for policy in (Fms(), SpeltOut(), Fms("area"), SpeltOut("area")):
            result = simulate(work, cluster, policy, TrueTimesModel(work.truth))
            check_schedule(result, work)
            starts.append([(r.start, r.allocation) for r in result.records])
        assert starts[0] == starts[1]
        assert starts[2] == starts[3]
