"""The Python API: what simulations know, and what they write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dovetail
from dovetail import api
from dovetail.engine.journal.journal import read_journal, replay
from dovetail.errors import InputError
from dovetail.history.sqlite import SqliteHistory, default_history_path
from dovetail.interfaces import Policy
from dovetail.model import Cluster, DeviceClass, Run
from dovetail.plugins import load_policy
from dovetail.policies.fcfs import Fcfs
from dovetail.report.outcome import outcome_notes

JOBS = """
[[app]]
name = "mm"
[[app.implementation]]
name = "cpu"
[[app.implementation]]
name = "gpu"
[[job]]
id = "a"
app = "mm"
times = { cpu = 5.0, gpu = 1.0 }
[[job]]
id = "b"
app = "mm"
times = { cpu = 2.0 }
"""
CLUSTER = "1x1cpu+1gpu"


@pytest.fixture
def jobs(tmp_path: Path) -> str:
    path = tmp_path / "jobs.toml"
    path.write_text(JOBS)
    return str(path)


def runs(path: Path | None = None) -> int:
    with SqliteHistory(path, must_exist=True) as history:
        return sum(history.count("mm", kind, DeviceClass(kind)) for kind in ("cpu", "gpu"))


def test_knowledge_is_perfect_where_every_job_gives_its_times_also_beside_a_history(
    jobs: str, tmp_path: Path
) -> None:
    assert api.simulate_result(jobs, cluster=CLUSTER).knowledge == "perfect"
    fresh = tmp_path / "h.sqlite"
    assert api.simulate_result(jobs, cluster=CLUSTER, history=fresh).knowledge == "perfect"
    assert (
        api.simulate_result(jobs, cluster=CLUSTER, history=fresh, knowledge="learned").knowledge == "learned"
    )
    assert not fresh.exists()


@pytest.mark.parametrize("knowledge", ["perfect", "learned"])
def test_only_learn_writes_to_the_history(jobs: str, tmp_path: Path, knowledge: api.Knowledge) -> None:
    path = tmp_path / "h.sqlite"
    api.simulate_result(jobs, cluster=CLUSTER, history=path, knowledge=knowledge, learn=True)
    assert runs(path) == 2
    api.simulate_result(jobs, cluster=CLUSTER, history=path, knowledge=knowledge)
    assert runs(path) == 2
    api.simulate_result(jobs, cluster=CLUSTER, history=path, knowledge=knowledge, learn=True)
    assert runs(path) == 4


def test_learn_without_a_file_writes_to_the_default_history(
    jobs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    dovetail.simulate(jobs, cluster=CLUSTER, learn=True)
    assert default_history_path().is_relative_to(tmp_path)
    assert runs() == 2


def test_a_wrong_model_is_refused_also_where_none_is_needed(jobs: str) -> None:
    with pytest.raises(InputError, match="--model: found 'guess', expected one of mean"):
        dovetail.simulate(jobs, cluster=CLUSTER, model="guess")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"knowledge": "some"}, "knowledge: found 'some', expected one of None, 'perfect', 'learned'"),
        ({"overrun": "stop"}, "overrun: found 'stop', expected one of 'kill', 'run'"),
        ({"default_walltime": -1}, "default_walltime: found -1, expected a number of seconds above 0"),
        ({"default_walltime": "long"}, "default_walltime: found 'long', expected a number"),
        ({"seed": -1}, "seed: found -1, expected a whole number of at least 0"),
        ({"seed": "x"}, "seed: found 'x', expected a whole number of at least 0"),
    ],
)
def test_a_wrong_option_is_one_sentence(jobs: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        dovetail.simulate(jobs, cluster=CLUSTER, **options)


def test_a_run_needs_a_folder_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text("""
        [[app]]
        name = "true"
        command = "true"
        on = ["cpu"]
        [[job]]
        app = "true"
    """)
    one = Cluster.parse("1x1cpu")
    assert (
        dovetail.run(path, cluster=one, history=tmp_path / "h", run_dir=tmp_path / "run").jobs[0]["exit_code"]
        == 0
    )
    with pytest.raises(InputError, match="run: found another run in the folder, expected a new one"):
        dovetail.run(path, cluster=one, history=tmp_path / "h", run_dir=tmp_path / "run")
    with pytest.raises(InputError, match="cannot be made"):
        dovetail.run(path, cluster=one, history=tmp_path / "h", run_dir=path / "run")


def test_the_journal_of_a_policy_from_a_file_replays(jobs: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        """
from dataclasses import dataclass
from dovetail.policies.fcfs import Fcfs
@dataclass(frozen=True)
class Mine(Fcfs):
    loud: bool = False
"""
    )
    path = tmp_path / "journal.jsonl"
    result = api.simulate_result(
        jobs, cluster=CLUSTER, policy=f"{tmp_path}/mine.py:Mine?loud=true", journal=path
    )
    assert (result.policy, result.options) == ("Mine", {"loud": True})
    journal = read_journal(path)
    loaded = load_policy(journal.header["policy"]).policy
    assert isinstance(loaded, Policy)
    assert replay(journal, loaded) == 2


@pytest.mark.parametrize(
    ("policy", "ignores"), [("fcfs", False), ("easy", False), ("sjf", True), ("history", True)]
)
def test_a_policy_that_ignores_priorities_says_so(tmp_path: Path, policy: str, ignores: bool) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(JOBS + "priority = 1\n")
    result = api.simulate_result(path, cluster=CLUSTER, policy=policy)
    assert result.ignores_priorities is ignores
    assert (f"{policy} ignores the priorities of the jobs." in outcome_notes(result)) is ignores


def test_jobs_without_times_take_as_long_as_the_history_expects(tmp_path: Path) -> None:
    path, store = tmp_path / "jobs.toml", tmp_path / "h.sqlite"
    path.write_text(JOBS.replace("times", "inputs"))
    with pytest.raises(InputError, match="all 2 jobs are rejected, the first, a: its run time is"):
        api.simulate_result(path, cluster=CLUSTER, history=store)
    with SqliteHistory(store) as history:
        for kind, n, seconds in (("cpu", 5.0, 8.0), ("gpu", 1.0, 2.0)):
            history.record(
                Run(
                    "mm", kind, DeviceClass(kind), 1, 1, float(kind == "gpu"), {"cpu": n, "gpu": 1.0}, seconds
                )
            )
    for knowledge in ("perfect", "learned"):
        options: dict[str, Any] = {"history": store, "knowledge": knowledge, "model": "least-squares"}
        result = api.simulate_result(path, cluster=CLUSTER, policy="cpu-only", **options)
        (record,) = result.records
        assert (record.job.id, record.run_time) == ("a", 8.0)
        assert [r.id for r in result.rejected] == ["b"]  # other inputs: nothing can be compared
    assert runs(store) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workload": None}, "workload: found None, expected a Workload"),
        ({"workload": ""}, "workload: found '', expected a Workload"),
        (
            {"policy": "optimal?time_limit=-1"},
            "policy optimal: time_limit: found -1, expected seconds above 0",
        ),
        ({"policy": "optimal?workers=0"}, "policy optimal: workers: found 0, expected a whole number of at"),
        ({"rates": "gpu-slowdown?factor=-1"}, "rate model gpu-slowdown: cannot be made: factor is -1"),
        ({"rates": "isolated?x=1"}, "rate model isolated: found option 'x', expected no options"),
        ({"cluster": 3}, "cluster: found 3, expected a short form"),
        ({"policy": 3}, "policy: found 3, expected a name"),
        ({"policy": Fcfs}, "policy: found <class .*Fcfs'>, expected a name"),
        ({"seed": True}, "seed: found True, expected a whole number"),
        ({"rates": 4}, "rates: found 4, expected a rate model"),
        ({"load": "x"}, "load: found 'x', expected a number above 0"),
        ({"load": -1}, "load: found -1, expected a number above 0"),
        ({"on": [5]}, r"on: found \[5\], expected names"),
        ({"policies": "fcfs"}, r"policies: .* expected policy=, or dovetail\.compare"),
    ],
)
def test_objects_of_the_wrong_kind_are_named(jobs: Path, options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"workload": jobs, "cluster": CLUSTER} | options
    with pytest.raises(InputError, match=message):
        dovetail.simulate(**given)


def test_policies_to_compare_are_a_list_or_one_text(jobs: Path) -> None:
    for policies in (["fcfs", "easy"], ["fcfs", load_policy("easy").policy], "fcfs, easy"):
        found = dovetail.compare(jobs, policies=policies, cluster=CLUSTER)
        assert [entry["policy"].lower() for entry in found.to_json()] == ["fcfs", "easy"]
    for policies in ([], "", "fcfs,"):
        with pytest.raises(InputError, match="policies: found"):
            dovetail.compare(jobs, policies=policies, cluster=CLUSTER)
    with pytest.raises(InputError, match="seeds: found 0, expected a whole number of at least 1"):
        dovetail.compare(jobs, policies="fcfs", seeds=0, cluster=CLUSTER)
