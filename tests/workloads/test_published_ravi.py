import statistics

import numpy as np
import pytest

from dovetail.model import Workload
from dovetail.workloads.load import load_workload
from dovetail_lab.published.ravi_multi import FIG_2, POOL, READINGS
from dovetail_lab.published.ravi_single import FIG_1, POOLS, pool_jobs


def rng() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(1))


def kinds(workload: Workload, index: int) -> dict[tuple[str, int], float | None]:
    job = workload.jobs[index]
    return {
        (c.implementation.name, c.request.nodes): workload.truth.seconds(job, c.implementation, c.request)
        for c in job.choices
    }


def test_best_times_of_fig_1() -> None:
    best = {b.app: round(b.best_seconds, 2) for b in FIG_1}
    assert best == {
        "PDESolver": 1.07, "ImageProcessing": 4.33, "FDTD": 1.11, "BlackScholes": 0.36,
        "BinomialOptions": 2.11, "MonteCarlo": 1.18, "Kmeans": 27.27, "KNN": 8.63, "PCA": 14.64,
        "MolecularDynamics": 3.61,
    }  # fmt: skip
    assert sum(not b.cpu_friendly for b in FIG_1) == 6


@pytest.mark.parametrize("name", POOLS)
def test_seven_of_the_ten_small_jobs_are_faster_on_the_cpus(name: str) -> None:
    jobs = pool_jobs(name, rng())
    assert len(jobs) == 30
    small = [b for b in jobs if b.configuration == "small"]
    assert sum(b.cpu_friendly for b in small) == 7
    assert {b.app for b in small if not b.cpu_friendly} == {"MonteCarlo", "PCA", "MolecularDynamics"}


def test_the_main_pool_has_fourteen_jobs_for_the_cpus() -> None:
    jobs = pool_jobs("B", rng())
    assert sum(b.cpu_friendly for b in jobs) == 14
    pde = next(b for b in jobs if b.app == "PDESolver" and b.configuration == "iterations")
    assert not pde.cpu_friendly
    assert (pde.sequential, pde.gpu) == pytest.approx((365.0, 7.05))


def test_pools_that_fix_best_times() -> None:
    iterations = [b for b in pool_jobs("D", rng()) if b.configuration == "iterations"]
    assert [b.best_seconds for b in iterations] == pytest.approx([300.0] * 10)
    assert [b.best_seconds for b in pool_jobs("F", rng())] == pytest.approx([105.0] * 30)
    drawn = [b.best_seconds for b in pool_jobs("G", rng()) if b.configuration == "iterations"]
    assert min(drawn) >= 100 - 1e-9
    assert max(drawn) <= 400 + 1e-9
    assert len(set(drawn)) == 10


@pytest.mark.parametrize(("mix", "share"), [("uniform", 12), ("cpu75", 18), ("gpu75", 6)])
def test_single_node_mixes(mix: str, share: int) -> None:
    workload = load_workload(f"published:ravi-single?mix={mix}&seed=5")
    assert len(workload.jobs) == 24
    assert sum(job.speedup["cpu"] > job.speedup["gpu"] for job in workload.jobs) == share
    assert workload.fully_timed
    for i, job in enumerate(workload.jobs):
        assert job.sequential is not None
        assert kinds(workload, i) == {(k, 1): job.sequential / job.speedup[k] for k in ("cpu", "gpu")}


def test_the_balanced_mix_of_pool_b_is_as_long_as_the_paper_says() -> None:
    """705.2 s on 4 resources with 24 jobs make about 100 s a job; pool B's mean is near that."""
    best = [
        job.sequential / max(job.speedup.values())
        for seed in range(1, 31)
        for job in load_workload("published:ravi-single", seed=seed).jobs
        if job.sequential is not None
    ]
    assert 70 < statistics.fmean(best) < 130


def test_the_single_node_table() -> None:
    workload = load_workload("published:ravi-single-table?jobs=24")
    assert [job.app.name for job in workload.jobs] == [FIG_1[i % 10].app for i in range(24)]
    assert workload.jobs[23].id == "BlackScholes-3"
    assert kinds(workload, 0) == {("cpu", 1): 7.3 / 6.8, ("gpu", 1): 7.3 / 4.7}


def test_static_round_robin_over_the_single_node_table() -> None:
    """Blind round robin by hand, two nodes: 73.758 s, mean wait 19.688 s, largest idle time 51.232 s."""
    workload = load_workload("published:ravi-single-table")
    ends, waits = [0.0] * 4, []
    for i in range(24):
        waits.append(ends[i % 4])
        ends[i % 4] += kinds(workload, i)["cpu" if i % 2 == 0 else "gpu", 1] or 0.0
    assert round(max(ends), 3) == 73.758
    assert round(statistics.fmean(waits), 3) == 19.688
    assert round(max(ends) - min(ends), 3) == 51.232


def test_the_multi_node_pool() -> None:
    assert len(POOL) == 18
    best = [
        (row.size.app, row.size.data, row.nodes) for row in POOL if min(row.size.times[row.nodes]) != row.both
    ]
    assert best == [("PR", 900e6, 8)]
    assert [row.nodes for row in POOL[:4]] == [2, 4, 8, 2]


def test_node_counts_and_times_of_moldable_jobs() -> None:
    workload = load_workload("published:ravi-multi-table")
    assert [job.nodes for job in workload.jobs[:3]] == [2, 4, 8]
    two, eight = kinds(workload, 0), kinds(workload, 2)
    assert list(two) == [(k, n) for k in ("cpu", "gpu", "cpu+gpu") for n in (1, 2)]
    assert list(eight) == [(k, n) for k in ("cpu", "gpu", "cpu+gpu") for n in (2, 4, 8)]
    assert two["cpu", 1] == 314**2 / 179
    assert two["cpu+gpu", 2] == 221
    assert eight["gpu", 8] == 99
    assert (workload.jobs[0].implementation, workload.fully_timed) == (None, True)
    # "GK 680 MB costs 397 node-seconds on 1 node against 442 on 2."
    assert round(two["cpu+gpu", 1] or 0) == 397
    assert [job.submit_time for job in workload.jobs[7:9]] == [0, 30]
    assert workload.jobs[-1].submit_time == 90


@pytest.mark.parametrize(
    ("mix", "less"), [("75sj25lj", 24), ("50sj50lj", 16), ("25sj75lj", 8), ("75sr25lr", 24), ("25sr75lr", 8)]
)
def test_multi_node_mixes(mix: str, less: int) -> None:
    workload = load_workload(f"published:ravi-multi?mix={mix}&seed=9")
    short = [j.nodes == 2 if "sr" in mix else j.app.name != "GK" for j in workload.jobs]
    assert len(short) == 32
    assert sum(short) == less
    if "sr" in mix:
        assert {job.nodes for job in workload.jobs} == {2, 8}
    starts = sorted({job.submit_time for job in workload.jobs})
    assert len(starts) == 4
    assert starts[0] == 0
    assert [sum(job.submit_time == t for job in workload.jobs) for t in starts] == [8] * 4


def test_other_readings_of_short_and_small() -> None:
    assert sum(READINGS["len2"][0](row) for row in POOL) == 9
    assert sum(READINGS["size3"][0](row) for row in POOL) == 12
    workload = load_workload("published:ravi-multi?mix=75sr25lr&reading=size3&seed=2")
    assert {job.nodes for job in workload.jobs} == {2, 4, 8}


def test_batches_come_30_seconds_apart_on_average() -> None:
    lasts = [load_workload("published:ravi-multi", seed=s).jobs[-1].submit_time for s in range(1, 201)]
    assert statistics.fmean(lasts) / 3 == pytest.approx(30, rel=0.2)
    assert load_workload("published:ravi-multi?interarrival=0").jobs[-1].submit_time == 0


def test_the_table_is_as_printed() -> None:
    """Sums over the columns of Fig. 2 as a guard against slips of the pen."""
    columns = np.array([size.times[n] for size in FIG_2 for n in (2, 4, 8)]).sum(axis=0)
    assert columns.tolist() == pytest.approx([3477.8, 2831.7, 1863.18])
