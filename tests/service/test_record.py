"""A service's past as a workload: as it was, and as it would have been."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from services import serving, submit, wait

import dovetail
from dovetail.client.connection import open_connection

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


def test_the_record_as_it_was_and_under_other_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path, "--cluster", "1x2cpu") as service:
        monkeypatch.setenv("DOVETAIL_SERVICE", str(service.folder.path))
        with open_connection(service.folder.path) as client:
            two = {"implementations": {"cpu": ["sleep", "0.3"], "cpu+gpu": ["sleep", "0.1"]}, "app": "nap"}
            ids = submit(client, *[two] * 4, {"command": ["sleep", "0.2"], "cpus": "all"})
            ids += submit(client, {"command": ["false"]}, {"command": ["true"], "walltime": 60})
            wait(client, ids)
            rows = {row["id"]: row for row in client.get("/api/v1/ended", limit=100)["jobs"]}
        report = dovetail.simulate("service:last-1-day", policy="recorded")
        first = min(row["submit"] for row in rows.values())
        assert {record.job.id for record in report.result.records} == set(ids)
        cluster = report.result.cluster
        for record in report.result.records:
            row = rows[record.job.id]
            assert record.start == pytest.approx(row["start"] - first, abs=1e-5)
            assert record.end == pytest.approx(row["end"] - first, abs=1e-5)
            assert record.implementation is not None
            assert record.implementation.name == row["implementation"]
            assert record.allocation is not None
            cores = {cluster.nodes[n].name: list(record.allocation.cores_on(n, cluster.nodes[n]))
                     for n in record.allocation.nodes}  # fmt: skip
            assert cores == row["cores"]
        done = service.dovetail(
            "simulate", "service:all", "--policy", "fcfs", "--cluster", "1x8cpu", "--json"
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["metrics"]["makespan"] <= report.makespan + 0.1
        file = tmp_path / "summary.json"
        done = service.dovetail(
            *("compare", "service:all", "--policy", "fcfs,lookahead", "--cluster", "1x2cpu"),
            *("--replicates", "3", "--json", "--summary", str(file)),
        )
        assert done.returncode == 0, done.stderr
        assert [entry["replicate"] for entry in json.loads(done.stdout)] == [0, 1, 2] * 2
        assert json.loads(file.read_text())["mean_wait"]["lookahead"]["verdict"] in ("clear", "open")
        done = service.dovetail("simulate", "service:yesterday", "--policy", "fcfs")
        assert (done.returncode, done.stderr) == (
            2,
            "dovetail: service: found 'yesterday', expected all, or e.g. last-30-days\n",
        )
