"""Six real programs on two real devices, in five orders: history and lookahead against static placements.

Real processes for several minutes: run it on a machine that does nothing else (``make bench``).
"""

from __future__ import annotations

import os
import statistics
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import dovetail
from dovetail.history.sqlite import SqliteHistory
from dovetail.model import Cluster, Device, Node, TableTruth, Workload
from dovetail.runtimes.registry import make_model

JOBS = Path(__file__).parent.parent / "examples" / "demo" / "jobs.toml"
LEARNED = ("history", "lookahead")
STATIC = ("best-device", "cpu-only", "gpu-only")
ORDERS = range(101, 106)
TRAINING = 4


def two_devices() -> Cluster:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("two devices need two cores")
    device = Device("opencl", "pocl", 0, (cores[1],))
    return Cluster((Node("here", (cores[0],), (device,)),), "two cores")


def learned_times(jobs: Workload, cluster: Cluster, history: SqliteHistory) -> Workload:
    """The jobs with what history expects of them as their true times."""
    model = make_model("learned", history)
    table = {}
    for job in jobs.jobs:
        for choice in job.choices:
            (device,) = cluster.device_classes(choice.implementation.kind)
            found = model.predict(job, choice.implementation, choice.request, device)
            assert found is not None
            table[job.id, choice.implementation.name, 1] = found.expected
    return replace(jobs, truth=TableTruth(table))


@pytest.mark.timeout(1200)
def test_what_learns_beats_every_static_placement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, benchmark: object
) -> None:
    cluster = two_devices()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    history = tmp_path / "history.sqlite"
    for seed in range(1, TRAINING + 1):
        dovetail.run(JOBS, cluster=cluster, history=history, seed=seed)
    spans: dict[str, list[float]] = {policy: [] for policy in (*LEARNED, *STATIC)}
    off: list[float] = []
    # Under history both cores are busy, under cpu-only one is: a program's times differ between the two,
    # so the simulation rests on runs under history, and the other policies come afterwards.
    for policy in spans:
        for order in ORDERS:
            simulated = 0.0
            if policy == "history":
                with SqliteHistory(history) as store:
                    timed = learned_times(dovetail.load_workload(JOBS, seed=order), cluster, store)
                simulated = dovetail.simulate(timed, cluster=cluster, policy="history").makespan
            report = dovetail.run(JOBS, cluster=cluster, history=history, policy=policy, seed=order)
            assert {job["state"] for job in report.jobs} == {"COMPLETED"}
            spans[policy].append(report.makespan)
            if simulated:
                off.append(report.makespan / simulated - 1)
    medians = {policy: statistics.median(found) for policy, found in spans.items()}
    print()
    for policy, found in spans.items():
        print(f"{policy:12} median {medians[policy]:6.2f} s of {', '.join(f'{s:.2f}' for s in found)}")
    with SqliteHistory(history) as store:
        timed = learned_times(dovetail.load_workload(JOBS), cluster, store)
    optimum = dovetail.simulate(timed, cluster=cluster, policy="optimal?workers=1").makespan
    print(f"{'optimum':12}        {optimum:6.2f} s of the times that all these runs have taught")
    print("live over simulated from learned times: " + ", ".join(f"{x:+.1%}" for x in off))
    benchmark.extra_info.update(medians)  # type: ignore[attr-defined]
    benchmark.pedantic(lambda: None, rounds=1)  # type: ignore[attr-defined]
    for policy in LEARNED:
        assert medians[policy] < min(medians[other] for other in STATIC)
    assert statistics.median(map(abs, off)) <= 0.05
