"""Placing without departures: fragments by the definition of Weng 2023, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.engine.capacity.free import FreeCapacity, Layout
from dovetail.errors import InputError
from dovetail.model import Cluster, Request
from dovetail.report.fragmentation import fill_cluster, measure_waste, typical_mix
from dovetail.workloads.tables import read_openb, read_openb_nodes

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the sample traces are not beside the repo")

HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)


def pods(tmp_path, *rows):
    """(CPUs, GPUs) of each pod, in order of arrival."""
    lines = []
    for i, (cpus, gpus) in enumerate(rows):
        count, milli = (1, round(gpus * 1000)) if 0 < gpus < 1 else (int(gpus), 1000 if gpus else 0)
        lines.append(f"p{i},{cpus * 1000},0,{count},{milli},,LS,Running,{i},{i + 10},{i}")
    path = tmp_path / "pods.csv"
    path.write_text(HEADER + "".join(f"{line}\n" for line in lines))
    return path


def gpu(count, cpus=0, models=()):
    return Request(1, cpus, (("gpu", count),), 0, models)


def test_fragments_of_a_node_by_hand():
    cluster = Cluster.uniform(1, 8, 2)
    free = FreeCapacity(Layout(cluster))
    free.take(free.fit(gpu(0.7)))  # 0.3 and 1.0 are left
    half, whole, two, hungry = gpu(0.5), gpu(1.0), gpu(2.0), gpu(0.1, cpus=9)
    assert measure_waste(free, cluster, {half: 1.0}).fragments == pytest.approx(
        0.3
    )  # 0.3 < 0.5 is a fragment
    assert measure_waste(free, cluster, {gpu(0.3): 1.0}).fragments == pytest.approx(0.0)
    assert measure_waste(free, cluster, {whole: 1.0}).fragments == pytest.approx(0.3)
    assert measure_waste(free, cluster, {two: 1.0}).fragments == pytest.approx(1.3)  # cannot run: all of it
    assert measure_waste(free, cluster, {hungry: 1.0}).fragments == pytest.approx(1.3)  # wants CPUs
    mixed = measure_waste(free, cluster, {half: 0.5, two: 0.25, gpu(0.2): 0.25})
    assert mixed.free == pytest.approx(1.3)
    assert mixed.fragments == pytest.approx(0.5 * 0.3 + 0.25 * 1.3)
    assert mixed.lost == pytest.approx(0.0)
    assert measure_waste(free, cluster, {half: 0.5, whole: 0.5}).lost == pytest.approx(0.3)


def test_placements_differ_by_hand(tmp_path):
    """Two half-GPU pods, then one for both GPUs of a node: packed they leave a node whole, spread none."""
    cluster = Cluster.uniform(2, 8, 2)
    workload = read_openb(pods(tmp_path, (1, 0.5), (1, 0.5), (1, 2)), cluster)
    packed, spread = fill_cluster(workload, cluster, "pack"), fill_cluster(workload, cluster, "spread")
    assert (packed.placed, packed.held, packed.first_refused) == (3, 3.0, None)
    assert (spread.placed, spread.held, spread.first_refused) == (2, 1.0, 3.0)
    assert packed.waste.free == 1.0
    assert packed.waste.fragments == pytest.approx(1 / 3)  # what is left is one GPU: no use for the third
    assert spread.waste.free == 3.0
    assert spread.waste.fragments == pytest.approx(1.0)  # all of it, for that third of the mix


def test_demand_goes_through_the_jobs_again(tmp_path):
    cluster = Cluster.uniform(2, 8, 2)
    workload = read_openb(pods(tmp_path, (1, 0.5), (1, 0), (1, 1)), cluster)
    once = fill_cluster(workload, cluster)
    assert (once.jobs, once.asked, once.gpus) == (3, 1.5, 4)
    full = fill_cluster(workload, cluster, demand=1.0)
    assert full.asked >= 4.0
    assert full.held <= 4.0
    assert full.held + full.waste.free == pytest.approx(4.0)
    assert [mark.asked for mark in full.marks] == sorted(mark.asked for mark in full.marks)


def test_the_mix_leaves_out_jobs_without_gpus(tmp_path):
    cluster = Cluster.uniform(1, 8, 2)
    workload = read_openb(pods(tmp_path, (1, 0), (1, 1), (1, 1), (1, 0.5)), cluster)
    assert sorted(typical_mix(workload.jobs).values()) == pytest.approx([1 / 3, 2 / 3])


@pytest.mark.parametrize(("cluster", "rows"), [("2x8cpu", ((1, 0),)), ("2x8cpu+1gpu", ((1, 0),))])
def test_nothing_to_pack_is_said(tmp_path, cluster, rows):
    machine = Cluster.parse(cluster)
    with pytest.raises(InputError, match=r"pods\.csv: found none to pack, expected"):
        fill_cluster(read_openb(pods(tmp_path, *rows), machine), machine)


@needs_traces
def test_openb_by_arrival():
    """The numbers of docs/explanation/trace-studies.md."""
    cluster = read_openb_nodes(TRACES / "openb_node_list_all_node.csv")
    workload = read_openb(TRACES / "openb_pod_list_gpuspec33.first5000.csv.gz", cluster)
    packed = fill_cluster(workload, cluster, "pack")
    assert packed.gpus == 6212
    assert packed.jobs == 4999
    assert packed.held + packed.waste.free == pytest.approx(6212)
    assert packed.waste.lost <= packed.waste.fragments <= packed.waste.free
    assert packed.waste.fragments / packed.gpus == pytest.approx(0.163, abs=0.002)
