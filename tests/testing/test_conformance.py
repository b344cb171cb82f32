"""Every built-in policy, model and executor passes the suites that plugins are given."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fake_executor import FakeExecutor

from dovetail.history.memory import MemoryHistory
from dovetail.interfaces import Executor, RunFolder, RuntimeModel
from dovetail.local.executor import LocalExecutor
from dovetail.model import App, Choice, Cluster, Command, Decision, Node, Placed, TableTruth
from dovetail.plugins import LoadedPolicy, list_policies
from dovetail.runtimes.registry import MODELS, make_model
from dovetail.testing.builders import workload
from dovetail.testing.conformance import (
    ExecutorConformance,
    PolicyConformance,
    RuntimeModelConformance,
    place,
)
from dovetail.testing.virtual_time import run_virtual

# One that hands jobs to another scheduler is held to its contract by the tests of that executor.
APART = ("follow-plan", "earliest-completion")
NAMES = [info.name for info in list_policies() if info.name not in APART]
VARIANTS = ["easy?order=sjf", "easy?order=largest", "easy?order=f1", "easy?placement=spread"]


@pytest.mark.parametrize("name", [*NAMES, *VARIANTS])
class TestPolicies(PolicyConformance):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(type(self), "policy", name, raising=False)
        if name == "optimal":
            monkeypatch.setattr(type(self), "repetitions", 3)


@pytest.mark.parametrize("name", list(MODELS))
class TestRuntimeModels(RuntimeModelConformance):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.name = name

    def make(self, history: MemoryHistory) -> RuntimeModel:
        return make_model(self.name, history)


class TestFakeExecutor(ExecutorConformance):
    def make(self) -> Executor:
        return FakeExecutor(TableTruth(fixed={"quick": 1.0, "long": 1e6}))

    def placed(self, kind: str) -> Placed:
        return place(workload([(kind, {"cpu": 1.0})]).jobs[0])

    def run(self, main: object) -> object:
        return run_virtual(main)  # type: ignore[arg-type]


@pytest.mark.live
@pytest.mark.xdist_group("live")
class TestLocalExecutor(ExecutorConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make(self) -> Executor:
        core = min(os.sched_getaffinity(0))
        cluster = Cluster((Node("here", (core,)),))
        return LocalExecutor(RunFolder(self.folder / "run", grace=0.5), cluster)

    def placed(self, kind: str) -> Placed:
        argv = {"quick": ("true",), "long": ("sleep", "60"), "failing": ("false",)}[kind]
        job = workload([(kind, {"cpu": 1.0})]).jobs[0]
        implementation = replace(job.app.implementations[0], command=Command(argv))
        choices = (Choice(implementation, job.choices[0].request),)
        return place(replace(job, app=App(kind, (implementation,)), choices=choices))


@dataclass(frozen=True)
class RefusesAll:
    """Places nothing."""

    def refuses(self, jobs: object, cluster: object) -> str:
        return "refuses everything"

    def decide(self, view: object) -> list[Decision]:
        return []


def test_a_policy_that_refuses_everything_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    suite = PolicyConformance()
    monkeypatch.setattr(
        "dovetail.testing.conformance.load_policy", lambda spec: LoadedPolicy("r", RefusesAll(), {})
    )
    monkeypatch.setattr(PolicyConformance, "policy", "r", raising=False)
    with pytest.raises(AssertionError, match="it refuses everything"):
        suite.test_it_places_some_workload()
