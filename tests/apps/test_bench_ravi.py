"""``dovetail bench --suite ravi``: real runs in a reduced form, and the workload that is made of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from opencl_kernels import need_opencl

import dovetail
from dovetail.cli.main import status_of
from dovetail.errors import InputError
from dovetail.history.sqlite import SqliteHistory
from dovetail.model import Cluster
from dovetail_lab.apps.bench.drawn import draw_workload
from dovetail_lab.apps.bench.measured import MeasuredRun, read_measurements, write_measurements
from dovetail_lab.apps.bench.suite import size_points, suite_workload, two_devices
from dovetail_lab.apps.registry import RAVI


@pytest.fixture
def two(tmp_path: Path) -> str:
    path = tmp_path / "cluster.toml"
    path.write_text('[[node]]\nname = "a"\ncpus = 1\ndevices = [{ kind = "opencl", model = "pocl" }]\n')
    return str(path)


def pool() -> list[MeasuredRun]:
    """Two apps that are faster on the CPU, one that is faster on the device, and one for several nodes."""
    times = {"fdtd": (1.0, 2.0), "pca": (1.5, 3.0), "knn": (4.0, 1.0), "em": (1.0, 1.0)}
    return [
        MeasuredRun(app, device, role, RAVI[app].sizes.large, factor * seconds, 0.0, 0.0)
        for app, on in times.items()
        for role, factor in (("large", 1), ("iterations", 5))
        for device, seconds in zip(("cpu", "opencl"), on, strict=True)
    ]


@pytest.mark.live
@pytest.mark.xdist_group("live")
def test_runs_fill_the_history_and_make_a_workload(
    tmp_path: Path, two: str, capsys: pytest.CaptureFixture[str]
) -> None:
    need_opencl()
    if len(two_devices().classes) < 2:
        pytest.skip("needs a second device: a GPU, or PoCL and two cores")
    csv, jobs, history = (tmp_path / name for name in ("runs.csv", "jobs.toml", "h.sqlite"))
    words = ["bench", "--suite", "ravi", "--apps", "pdesolver,pagerank", "--sizes", "64", "--repeat", "1"]
    words += ["--csv", str(csv), "--workload", str(jobs), "--jobs", "6", "--history", str(history), "--json"]
    assert status_of(words) == 0
    form = json.loads(capsys.readouterr().out)
    assert [(row["app"], set(row["devices"])) for row in form["rows"]] == [
        ("pdesolver", {"cpu", "opencl"}),
        ("pagerank", {"cpu", "opencl", "cpu+opencl"}),
    ]
    assert len(read_measurements(csv.read_text(), "runs.csv")) == 5
    with SqliteHistory(history) as kept:
        runs = kept.runs("pagerank")
    assert {run.implementation for run in runs} == {"cpu", "opencl", "cpu+opencl"}
    assert all(dict(run.inputs) == {"n": 64.0, "iterations": 4.0} for run in runs)
    result = dovetail.simulate(str(jobs), cluster=two, policy="rsa").result
    assert len(result.records) == 6


def test_a_configuration_of_many_iterations_is_one_of_its_own(two: str) -> None:
    found = size_points(["fdtd"], ["small", "large", "iterations"])
    assert [(p.role, p.n) for p in found] == [("small", 512), ("large", 3072), ("iterations", 3072)]
    jobs = suite_workload(found, Cluster.parse(two), 1).jobs
    assert [job.id for job in jobs[2:]] == [
        f"fdtd-3072-{end}" for end in ("cpu-1", "opencl-1", "many-cpu-1", "many-opencl-1")
    ]
    assert [job.inputs["iterations"] for job in jobs] == [8, 8, 8, 8, 64, 64]
    with pytest.raises(InputError, match="expected small, medium, large or a whole"):
        size_points(["fft"], ["iterations"])


@pytest.mark.parametrize(("mix", "share"), [("uniform", 12), ("cpu75", 18), ("gpu75", 6)])
def test_a_mix_has_its_share_of_jobs_that_are_faster_on_the_cpu(mix: str, share: int) -> None:
    workload = draw_workload(pool(), 24, 3, mix)
    names = [job.app.name for job in workload.jobs]
    assert len(names) == 24
    assert sum(name in ("fdtd", "pca") for name in names) == share
    assert "em" not in names
    assert [job.id for job in draw_workload(pool(), 24, 3, mix).jobs] == [job.id for job in workload.jobs]
    assert [job.id for job in draw_workload(pool(), 24, 4, mix).jobs] != [job.id for job in workload.jobs]


def test_a_workload_has_the_medians_of_what_was_measured(tmp_path: Path, two: str) -> None:
    csv, jobs = tmp_path / "runs.csv", tmp_path / "jobs.toml"
    more = [MeasuredRun(m.app, m.device, m.role, m.n, 100.0, 0.0, 0.0) for m in pool()]
    write_measurements([*pool(), *pool(), *more], csv)
    words = ["bench", "--from", str(csv), "--apps", "knn", "--suite", "ravi", "--workload", str(jobs)]
    assert status_of([*words, "--jobs", "8", "--json"]) == 0
    result = dovetail.simulate(str(jobs), cluster=two, policy="rsc").result
    assert {round(record.took or 0, 3) for record in result.records} <= {1.0, 5.0}


def test_what_cannot_be_is_said_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    csv = tmp_path / "runs.csv"
    write_measurements([m for m in pool() if m.app == "em"], csv)
    for words, says in (
        (
            ["--from", str(csv), "--workload", "w.toml"],
            "found no app that was measured on the CPU and on one other",
        ),
        (["--suite", "ravi", "--apps", "fft"], "found 'fft', expected names from pdesolver"),
        (["--suite", "ravi", "--accuracy"], "--accuracy: found --suite ravi"),
    ):
        assert status_of(["bench", *words]) == 2
        assert says in " ".join(capsys.readouterr().err.split())


def test_without_the_lab_its_name_is_said() -> None:
    """In a process of its own: the list of commands is made once."""
    hidden = "import sys; from dovetail.cli import main; main.registered_targets = lambda group: {}; "
    code = hidden + "sys.exit(main.status_of(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "bench", "--suite", "ravi"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, check=False)
    said = (
        "dovetail: the command bench is in dovetail-lab, which is not installed: "
        "pip install 'dovetail-scheduler[lab]'\n"
    )
    assert (done.returncode, done.stderr) == (2, said)
