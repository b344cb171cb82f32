"""Partitions of accounting map to nodes; a trace brings its machine."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path

import pytest

import dovetail
from dovetail.cli.main import status_of
from dovetail.errors import DovetailWarning, InputError, UnsupportedWorkload
from dovetail.model import Cluster
from dovetail.testing.invariants import check_schedule
from dovetail.workloads.load import is_trace, load_workload
from dovetail.workloads.partitions import with_partitions

HEADER = "JobID|Partition|Submit|Start|Elapsed|Timelimit|State|NNodes|NCPUS\n"


def accounting(folder: Path, rows: list[tuple[str, int, int, int]]) -> Path:
    """(partition, minutes since midnight, minutes, nodes), a job each, on whole nodes of four CPUs."""
    path = folder / "jobs.txt"
    lines = [
        f"{i}|{partition}|2026-01-05T{at // 60:02}:{at % 60:02}:00|2026-01-05T12:00:00|00:{minutes:02}:00"
        f"|01:00:00|COMPLETED|{nodes}|{4 * nodes}\n"
        for i, (partition, at, minutes, nodes) in enumerate(rows, 1)
    ]
    path.write_text(HEADER + "".join(lines))
    return path


ROWS = [("cpu", 0, 30, 2), ("cpu", 0, 30, 2), ("gpu", 0, 30, 1), ("gpu", 1, 30, 1)]
MAPPED = ["cpu=n[0-1]", "gpu=n[2-3]"]


def test_jobs_stay_within_their_partition(tmp_path: Path) -> None:
    path = accounting(tmp_path, ROWS)
    cluster = with_partitions(Cluster.uniform(4, 4), MAPPED)
    report = dovetail.simulate(path, cluster=cluster, policy="easy")
    placed = {job["id"]: job["nodes"] for job in report.jobs}
    assert placed == {"1": "n[0-1]", "2": "n[0-1]", "3": "n2", "4": "n3"}
    assert report.makespan == 3600.0
    check_schedule(report.result, load_workload(path, cluster))


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "sjf", "easy?order=sjf"])
def test_every_schedule_keeps_to_partitions(tmp_path: Path, policy: str) -> None:
    rng = random.Random(5)
    for _ in range(6):
        rows = [
            (rng.choice(["a", "b", "both"]), rng.randrange(60), rng.randrange(1, 50), rng.randrange(1, 4))
            for _ in range(40)
        ]
        cluster = with_partitions(Cluster.uniform(6, 4), ["a=n[0-2]", "b=n[3-5]", "both=n[1-4]"])
        path = accounting(tmp_path, rows)
        report = dovetail.simulate(path, cluster=cluster, policy=policy)
        assert len(report.jobs) == 40
        check_schedule(report.result, load_workload(path, cluster))


def test_a_policy_that_knows_no_partitions_says_which_do(tmp_path: Path) -> None:
    path = accounting(tmp_path, [("cpu", 0, 30, 1), ("gpu", 0, 30, 1)])
    cluster = with_partitions(Cluster.uniform(4, 4), MAPPED)
    with pytest.raises(UnsupportedWorkload, match=r"knows no partitions.*\(fcfs, sjf, easy and conservative"):
        dovetail.simulate(path, cluster=cluster, policy="min-min")


def test_a_policy_for_single_nodes_names_one_for_gangs(tmp_path: Path) -> None:
    path = accounting(tmp_path, [("cpu", 0, 30, 2)])
    with pytest.raises(UnsupportedWorkload, match=r"one node; job 1 needs 2 nodes \(easy, conserv"):
        dovetail.simulate(path, cluster="4x4cpu", policy="sufferage")


def test_a_job_too_large_for_its_partition_is_rejected(tmp_path: Path) -> None:
    path = accounting(tmp_path, [("cpu", 0, 30, 3), ("gpu", 0, 30, 1)])
    workload = load_workload(path, with_partitions(Cluster.uniform(4, 4), MAPPED))
    assert [(r.id, r.reason) for r in workload.rejected] == [
        ("1", "requests 3 nodes of cpu with 4 cpu; the machine has 2 such")
    ]


def test_unmapped_partitions_are_said(tmp_path: Path) -> None:
    path = accounting(tmp_path, ROWS)
    with pytest.warns(DovetailWarning, match="no node belongs to the partitions cpu, gpu: their jobs run on"):
        load_workload(path, "4x4cpu")
    with pytest.warns(DovetailWarning, match="the partitions gpu: "):
        load_workload(path, with_partitions(Cluster.uniform(4, 4), MAPPED[:1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_workload(accounting(tmp_path, ROWS[:2]), "4x4cpu")  # one partition is no partition
        load_workload(accounting(tmp_path, ROWS))


def test_the_command_line_maps_partitions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(accounting(tmp_path, ROWS))
    options = ["--cluster", "4x4cpu", "--policy", "easy", "--json"]
    assert status_of(["simulate", path, *options, "--partition", MAPPED[0], "--partition", MAPPED[1]]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [job["nodes"] for job in found["jobs"]] == ["n[0-1]", "n[0-1]", "n2", "n3"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert status_of(["simulate", path, *options]) == 0
    told = capsys.readouterr().err
    assert told.startswith(f"dovetail: {path}: no node belongs to the partitions cpu, gpu")
    assert told.count("\n") == 1
    compared = [
        "compare",
        path,
        "--cluster",
        "4x4cpu",
        "--policy",
        "easy,fcfs",
        "--replicates",
        "1",
        "--json",
    ]
    assert status_of([*compared, "--partition", MAPPED[0], "--partition", MAPPED[1]]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [job["nodes"] for job in found[1]["jobs"]] == ["n[0-1]", "n[0-1]", "n2", "n3"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--partition", "cpu=n0"], "--partition: found a partition, expected --cluster too"),
        (["--cluster", "2x4cpu", "--partition", "cpu"], "--partition: found 'cpu', expected NAME=NODES"),
        (["--cluster", "2x4cpu", "--partition", "cpu=n7"], "--partition cpu: found 'n7', which is no node"),
        (["--cluster", "2x4cpu", "--partition", "cpu=n[0"], "--partition cpu: "),
    ],
)  # fmt: skip
def test_partitions_that_cannot_be_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert status_of(["simulate", str(accounting(tmp_path, ROWS)), *options]) == 2
    assert message in capsys.readouterr().err


def test_a_cluster_file_names_partitions(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        '[[node]]\nname = "n[0-1]"\ncpus = 4\npartitions = ["cpu", "all"]\n[[node]]\nname = "m"\ncpus = 1\n'
    )
    cluster = Cluster.parse(path)
    assert [node.partitions for node in cluster.nodes] == [("cpu", "all"), ("cpu", "all"), ()]


# -- the trace's own machine ---------------------------------------------------------------------------

JOBS = "1 0 -1 10 4 -1 -1 4 20 -1 1 1 1 -1 1 -1 -1 -1\n2 5 -1 10 9 -1 -1 9 20 -1 1 1 1 -1 1 -1 -1 -1\n"


def swf(folder: Path, header: str) -> Path:
    path = folder / "log.swf"
    path.write_text(header + JOBS)
    return path


def test_a_trace_brings_its_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = swf(tmp_path, "; MaxNodes: 4\n; MaxProcs: 8\n")
    report = dovetail.simulate(path, policy="easy")
    assert report.result.cluster.label == "8x1cpu"
    assert [r.id for r in report.result.rejected] == ["2"]
    report = dovetail.simulate(path, policy="easy", cpus_per_node=2)
    assert report.result.cluster.label == "4x2cpu"
    assert status_of(["simulate", str(path), "--policy", "easy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cluster"] == "8x1cpu"
    assert status_of(["compare", str(path), "--policy", "easy,fcfs", "--replicates", "1", "--json"]) == 0
    assert [one["cluster"] for one in json.loads(capsys.readouterr().out)] == ["8x1cpu"] * 2
    found = dovetail.compare(path, policies="easy,fcfs", replicates=1)
    assert [result.cluster.label for result in found.results] == ["8x1cpu"] * 2
    assert dovetail.simulate(path, policy="easy", cluster="9x1cpu").result.cluster.label == "9x1cpu"


def test_nodes_are_taken_where_processors_are_not_told(tmp_path: Path) -> None:
    assert (
        dovetail.simulate(swf(tmp_path, "; MaxNodes: 16\n"), policy="easy").result.cluster.label == "16x1cpu"
    )


def test_a_trace_without_a_machine_says_that_it_has_none(tmp_path: Path) -> None:
    path = swf(tmp_path, "")
    with (
        pytest.warns(DovetailWarning, match="does not name its machine, this one is taken"),
        pytest.raises(dovetail.InputError, match="all 2 jobs are rejected"),  # larger than this machine
    ):
        dovetail.simulate(path, policy="easy")


def test_conversion_keeps_the_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = swf(tmp_path, "; MaxProcs: 8\n").rename(tmp_path / "a.swf")
    for source, target in ((path, "b.swf"), (path, "c.toml"), (tmp_path / "c.toml", "d.swf")):
        assert status_of(["workload", "convert", str(source), str(tmp_path / target)]) == 0
    assert "; MaxProcs: 8\n" in (tmp_path / "b.swf").read_text()
    assert "; MaxProcs: 8\n" in (tmp_path / "d.swf").read_text()
    assert dovetail.simulate(tmp_path / "c.toml", policy="easy").result.cluster.label == "8x1cpu"
    capsys.readouterr()


def test_a_job_file_names_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "j.toml"
    rest = '[[app]]\nname = "a"\non = ["cpu"]\n[[job]]\napp = "a"\ntimes = { cpu = 1 }\n'
    (tmp_path / "c.toml").write_text('[[node]]\nname = "x"\ncpus = 3\n')
    for named, nodes in (("2x5cpu", ["n0", "n1"]), ("c.toml", ["x"])):
        path.write_text(f'cluster = "{named}"\n{rest}')
        assert [node.name for node in dovetail.simulate(path).result.cluster.nodes] == nodes
    path.write_text(f'cluster = "2x"\n{rest}')
    with pytest.raises(InputError, match=r"j.toml: cluster: cluster: found '2x'"):
        load_workload(path)


def test_what_is_a_trace(tmp_path: Path) -> None:
    assert is_trace(swf(tmp_path, ""))
    assert is_trace("swf:/dev/stdin")
    assert is_trace(accounting(tmp_path, ROWS))
    (tmp_path / "c.txt").write_text("true\n")
    assert not is_trace(tmp_path / "c.txt")
    assert not is_trace(tmp_path / "j.toml")
    assert not is_trace("-")
    assert not is_trace("published:gregg-table2")
