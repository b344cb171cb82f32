"""Synthetic workloads: their distributions, their load, their seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail
from dovetail.errors import InputError
from dovetail.model import HOST_CPUS, Cluster
from dovetail.testing.builders import full
from dovetail.workloads.synthetic import rigid_arrays, synthesize_workload


def offered(workload, capacity, resources):
    span = workload.jobs[-1].submit_time - workload.jobs[0].submit_time
    return sum(resources(j) * workload.truth.fixed[j.id] for j in workload.jobs) / capacity / span


def cpus(job):
    return job.nodes * max(0, job.choices[0].request.cpus)


def gpus(job):
    return job.nodes * job.choices[0].request.gpus


@pytest.mark.parametrize("nodes", [256, 1024])
@pytest.mark.parametrize("load", [0.85, 1.05])
def test_rigid_is_the_fixed_workload(nodes, load):
    count = 20_000
    arrays = rigid_arrays(count, nodes, load, 1)
    top = int(math.log2(nodes // 4))
    sizes, counts = np.unique(arrays.processors, return_counts=True)
    assert sizes.tolist() == [2**i for i in range(top + 1)]
    weights = 0.75 ** np.arange(top + 1)
    assert counts / count == pytest.approx(weights / weights.sum(), abs=0.012)
    assert (arrays.run.min(), arrays.run.max()) == (30.0, 86400.0)
    assert np.median(arrays.run) == pytest.approx(1200, rel=0.04)
    inner = np.log(arrays.run[(arrays.run > 30) & (arrays.run < 86400)])
    assert np.std(inner) == pytest.approx(1.3, abs=0.05)
    assert (arrays.walltime >= arrays.run).all()
    assert (arrays.walltime % 300 == 0).all()
    assert (arrays.walltime <= np.ceil(arrays.run * 5 / 300) * 300).all()
    assert np.median(arrays.walltime / arrays.run) == pytest.approx(3.1, abs=0.15)
    gaps = np.diff(arrays.submit)
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(1.0, abs=0.05)  # Poisson arrivals
    assert (gaps >= 0).all()
    achieved = arrays.processors @ arrays.run / nodes / (arrays.submit[-1] - arrays.submit[0])
    assert achieved == pytest.approx(load, rel=1e-5)


def test_rigid_through_its_specification():
    workload = synthesize_workload(
        "synthetic:rigid?jobs=500&nodes=64&load=0.5&seed=3", Cluster.uniform(64, 1)
    )
    assert len(workload.jobs) == 500
    assert not workload.rejected
    assert offered(workload, 64, cpus) == pytest.approx(0.5, rel=1e-3)
    assert max(job.nodes for job in workload.jobs) == 16
    too_small = synthesize_workload("rigid?jobs=500&nodes=64", Cluster.uniform(8, 1))
    assert len(too_small.jobs) + len(too_small.rejected) == 500
    assert too_small.rejected


def same(a, b):
    def rows(workload):
        return [(j.id, j.submit_time, j.choices[0].request, j.walltime, j.user) for j in workload.jobs]

    return rows(a) == rows(b) and a.truth.fixed == b.truth.fixed


@pytest.mark.parametrize("kind", ["rigid?jobs=200", "lublin?jobs=200&gpus=0.5&fractions=0.5&load=0.7"])
def test_a_seed_decides_everything(kind):
    assert same(synthesize_workload(kind), synthesize_workload(f"{kind}&seed=1"))
    assert same(synthesize_workload(kind, seed=2), synthesize_workload(f"{kind}&seed=2"))
    assert not same(synthesize_workload(kind), synthesize_workload(kind, seed=2))


def test_lublin_has_the_models_shape():
    workload = synthesize_workload("lublin?jobs=20000", Cluster.uniform(256, 1))
    sizes = np.array([job.nodes for job in workload.jobs])
    runs = np.array([workload.truth.fixed[job.id] for job in workload.jobs])
    hours = np.array([job.submit_time % 86400 // 3600 for job in workload.jobs])
    assert np.mean(sizes == 1) == pytest.approx(0.244, abs=0.015)
    assert np.mean(np.log2(sizes) % 1 == 0) > 0.7
    assert sizes.max() <= 256
    assert np.exp(12) + 1 >= runs.max() > 3600
    assert runs.min() >= 1
    assert 60 < np.median(runs) < 300
    assert runs[sizes > 64].mean() > 1.5 * runs[sizes <= 2].mean()  # large jobs run longer
    assert np.mean((hours >= 12) & (hours < 17)) > 3 * np.mean((hours >= 2) & (hours < 7))  # the day's rhythm
    assert {job.user for job in workload.jobs} <= {f"u{k}" for k in range(1, 33)}


def test_lublin_with_gpus():
    cluster = Cluster.uniform(16, 8, 4)
    workload = synthesize_workload("lublin?jobs=4000&gpus=0.6&fractions=0.25&load=0.8", cluster)
    assert not workload.rejected
    requests = [job.choices[0].request for job in workload.jobs]
    on_gpu = [r for r in requests if r.devices]
    assert len(on_gpu) / 4000 == pytest.approx(0.6, abs=0.03)
    assert all(r.cpus == HOST_CPUS for r in on_gpu)
    assert {r.gpus for r in on_gpu} == {*(k / 10 for k in range(1, 10)), 1, 2, 4}
    assert max(r.nodes for r in on_gpu) == 4  # 16 GPUs, a quarter of the machine's
    loads = offered(workload, 128, cpus), offered(workload, 64, gpus)
    assert max(loads) == pytest.approx(0.8, rel=1e-3)


def test_lublin_without_requested_times():
    workload = synthesize_workload("lublin?jobs=50&walltimes=0")
    assert all(job.walltime is None for job in workload.jobs)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("synthetic:poisson", "found the kind 'poisson', expected one of rigid, lublin"),
        ("rigid?", "found nothing after '?'"),
        ("rigid?jobs", "found 'jobs', expected option=value"),
        ("rigid?jobs=1&jobs=2", "found the option 'jobs' twice"),
        ("rigid?jobs=many", "option jobs: found 'many', expected a number from 1 to 10000000"),
        ("rigid?jobs=0", "option jobs"),
        ("rigid?jobs=1.5", "option jobs: found 1.5, expected a whole number"),
        ("rigid?load=nan", "option load"),
        ("rigid?load=-1", "option load"),
        ("rigid?gpus=1", "found the option 'gpus', expected jobs, nodes, load, seed"),
        ("lublin?seed=-1", "option seed"),
    ],
)
def test_a_wrong_specification_is_one_sentence(spec, message):
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        synthesize_workload(spec)


def test_gpu_jobs_need_a_gpu():
    with pytest.raises(InputError, match="option gpus: the cluster has no GPU"):
        synthesize_workload("lublin?gpus=0.5", Cluster.uniform(4, 4))


@settings(deadline=None, max_examples=full(60, 20), derandomize=True)
@given(
    kind=st.sampled_from(["rigid", "lublin"]),
    jobs=st.integers(1, 30),
    nodes=st.integers(1, 40),
    load=st.one_of(st.none(), st.floats(0.01, 5)),
    seed=st.integers(0, 5),
)
def test_any_size_works(kind, jobs, nodes, load, seed):
    given_load = "" if load is None else f"&load={load}"
    workload = synthesize_workload(
        f"{kind}?jobs={jobs}&nodes={nodes}&seed={seed}{given_load}", Cluster.uniform(nodes, 1)
    )
    assert len(workload.jobs) == jobs
    assert not workload.rejected
    submits = [job.submit_time for job in workload.jobs]
    assert submits[0] == 0
    assert submits == sorted(submits)


@pytest.mark.parametrize(
    ("spec", "machine"),
    [
        ("synthetic:rigid?jobs=20&nodes=64", "64x1cpu"),
        ("synthetic:lublin?jobs=20&nodes=8&cpus_per_node=4", "8x4cpu"),
        ("synthetic:lublin?jobs=20&nodes=8&gpus=0.5&gpus_per_node=2", "8x1cpu+2gpu"),
    ],
)
def test_without_a_cluster_the_machine_is_the_one_that_nodes_name(spec: str, machine: str) -> None:
    result = dovetail.simulate(spec, policy="easy").result
    assert list(result.cluster.nodes) == list(Cluster.parse(machine).nodes)
    assert not result.rejected
