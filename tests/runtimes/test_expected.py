"""Learned times as true times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.api import simulate
from dovetail.history.memory import MemoryHistory
from dovetail.model import Choice, Cluster, Device, DeviceClass, Node, Note, Run, TableTruth, Workload
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


def test_a_job_that_names_its_models_expects_nothing_of_others() -> None:
    """The cluster's first class is not one that the job may use."""
    cluster = Cluster((Node("n0", (0,), (Device("gpu", "T4"), Device("gpu", "A100", 1))),))
    job, _ = timed("a", {"gpu": 0.0})
    request = replace(job.choices[0].request, models=("A100",))
    implementation = replace(job.choices[0].implementation, request=request)
    app = replace(job.app, implementations=(implementation,))
    job = replace(job, app=app, choices=(Choice(implementation, request),))
    runs = [
        Run("a", "gpu", DeviceClass("gpu", model), 1, 0, 1.0, {}, s)
        for model, s in (("T4", 9.0), ("A100", 2.0))
    ]
    w = Workload("w", [job], TableTruth())
    truth = with_expected_times(w, cluster, MeanModel(MemoryHistory(runs))).truth
    assert truth.seconds(job, implementation, request) == 2.0


@pytest.mark.parametrize("command", ["", 'command = "true"'])
def test_what_could_run_and_was_never_timed_is_unknown_and_not_useless(tmp_path: Path, command: str) -> None:
    comma = ", " if command else ""
    (tmp_path / "jobs.toml").write_text(
        f'''
        [[app]]
        name = "x"
        implementation = [
            {{ name = "cpu", time = 3{comma}{command} }},
            {{ name = "gpu"{comma}{command} }},
        ]
        [[job]]
        app = "x"
        '''
    )
    report = simulate(tmp_path / "jobs.toml", cluster="1x1cpu+1gpu")
    assert report.known is not bool(command)
    assert [Note.code_of(note) for note in report.result.notes] == (["unknown"] if command else [])
