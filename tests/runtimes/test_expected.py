"""Learned times as true times."""

from __future__ import annotations

from dovetail.history.memory import MemoryHistory
from dovetail.model import Cluster, DeviceClass, Run, TableTruth, Workload
from dovetail.runtimes.expected import with_expected_times
from dovetail.runtimes.mean import MeanModel
from dovetail.testing.builders import timed

HERE = Cluster.parse("1x1cpu+1gpu")


def test_only_jobs_without_any_time_get_expected_ones() -> None:
    told, times = timed("told", {"cpu": 3.0, "gpu": 1.0}, index=0)
    silent, _ = timed("silent", {"cpu": 0.0, "gpu": 0.0}, index=1, app=told.app)
    del times["told", "gpu", 1]
    w = Workload("w", [told, silent], TableTruth(times))
    history = MemoryHistory([Run("told", "gpu", DeviceClass("gpu"), 1, 0, 1.0, {}, 5.0)])
    truth = with_expected_times(w, HERE, MeanModel(history)).truth
    found = {
        (job.id, c.implementation.name): truth.seconds(job, c.implementation, c.request)
        for job in w.jobs
        for c in job.choices
    }
    assert found == {
        ("told", "cpu"): 3.0,
        ("told", "gpu"): None,
        ("silent", "cpu"): None,
        ("silent", "gpu"): 5.0,
    }


def test_without_history_nothing_changes() -> None:
    job, _ = timed("a", {"cpu": 0.0})
    w = Workload("w", [job], TableTruth())
    assert with_expected_times(w, HERE, MeanModel(MemoryHistory())) is w
