from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.model import (
    Allocation,
    Cluster,
    Node,
    Note,
    Part,
    Plan,
    Prediction,
    Record,
    Rejected,
    Request,
    Result,
    State,
)
from dovetail.model.hostlist import compress_names
from dovetail.report.json_form import Spelling, text_of, to_json, to_plain_json
from dovetail.testing.builders import full

Make = Callable[..., Record]
Build = Callable[..., Result]

KEYS = [
    "policy",
    "options",
    "workload",
    "cluster",
    "seed",
    "knowledge",
    "makespan",
    "rejected",
    "jobs",
    "metrics",
    "plan",
]
JOB_KEYS = [
    "id",
    "app",
    "user",
    "implementation",
    "state",
    "submit",
    "start",
    "end",
    "nodes",
    "devices",
    "predicted",
    "exit_code",
]
METRICS = [
    "makespan",
    "mean_wait",
    "mean_response",
    "mean_bounded_slowdown",
    "utilisation",
    "anl",
    "aql",
    "mit",
    "decision_seconds_mean",
    "decision_seconds_p99",
]


def test_the_form_of_the_contract(make_record: Make, make_result: Build) -> None:
    predicted = Prediction(0.041, 0.05, 3, "mean of 3 runs")
    records = [
        make_record("a", app="mm", end=0.041, cpus=0, devices=(0,), predicted=predicted),
        make_record("b", app="gk", end=1203, nodes=[0, 1, 3], cpus=8, user="u1", state=State.TIMEOUT),
        make_record("c", app="gk", start=None, end=None, state=State.PENDING),
    ]
    result = make_result(
        records,
        Cluster.uniform(16, 8, 1),
        policy="fms",
        options={"score": "area"},
        seed=1,
        rejected=[Rejected("x", "asks for 99 nodes of 16")],
        plan=Plan((), 10.0, "feasible", 8.0, 1.5),
    )
    form = json.loads(text_of(to_json(result)))
    assert list(form)[: len(KEYS)] == KEYS
    assert (form["policy"], form["options"], form["cluster"]) == ("fms", {"score": "area"}, "16x8cpu+1gpu")
    assert form["rejected"] == ["x"]
    assert form["makespan"] == 1203
    a, b, c = form["jobs"]
    assert {k: a[k] for k in JOB_KEYS} == {
        "id": "a",
        "app": "mm",
        "user": None,
        "implementation": "gpu",
        "state": "COMPLETED",
        "submit": 0.0,
        "start": 0.0,
        "end": 0.041,
        "nodes": "n0",
        "devices": ["n0/gpu0"],
        "predicted": 0.041,
        "exit_code": 0,
    }
    assert (b["nodes"], b["devices"], b["state"], b["user"]) == ("n[0-1,3]", [], "TIMEOUT", "u1")
    assert (c["nodes"], c["start"], c["implementation"], c["exit_code"]) == (None, None, None, None)
    assert set(METRICS) <= set(form["metrics"])
    assert form["plan"]["status"] == "feasible"
    assert (form["plan"]["gap"], form["plan"]["bound"], form["plan"]["seconds"]) == (0.25, 8.0, 1.5)


def test_several_results_are_a_list(make_record: Make, make_result: Build) -> None:
    results = [make_result([make_record("a")], seed=s) for s in (1, 2)]
    assert [form["seed"] for form in json.loads(text_of([to_json(result) for result in results]))] == [1, 2]
    assert json.loads(text_of([])) == []
    assert json.loads(text_of(to_json(make_result([]))))["jobs"] == []


def test_numbers_that_json_does_not_know_become_null(make_record: Make, make_result: Build) -> None:
    endless = Prediction(float("inf"), float("inf"), 0, "none")
    result = make_result([make_record("a", predicted=endless)], options={"limit": float("nan"), "x": {1.0}})
    form = json.loads(text_of(to_json(result)), parse_constant=lambda c: pytest.fail(f"{c} in the JSON"))
    assert form["options"] == {"limit": None, "x": [1.0]}
    assert form["jobs"][0]["predicted"] is None


def test_plain_spells_what_it_does_not_know() -> None:
    assert to_plain_json({State.FAILED: (1, Path("a/b"), True, None)}) == {"FAILED": [1, "a/b", True, None]}


@settings(deadline=None, max_examples=full(100, 25))
@given(mask=st.integers(1, 2**70 - 1))
def test_direct_spelling_is_that_of_compress(mask: int) -> None:
    cluster = Cluster.uniform(70, 1)
    names = [node.name for i, node in enumerate(cluster.nodes) if mask >> i & 1]
    assert Spelling(cluster)(mask) == compress_names(names)


@pytest.mark.parametrize("names", [("a", "b"), ("n01", "n02"), ("n1", "n2"), ("x[0", "x[1"), ("0", "1")])
def test_other_names_are_spelt_by_compress(names: tuple[str, ...]) -> None:
    cluster = Cluster(tuple(Node(name, (0,)) for name in names))
    assert Spelling(cluster)(0b11) == compress_names(names)


def test_remote_devices_are_listed(make_record: Make, make_result: Build) -> None:
    from dovetail.model import Donor

    record = make_record("a", cpus=1)
    record.allocation = Allocation(Request(), (Part(1, 1, (0,)),), donors=(Donor(0, 1, 0),))
    form = to_json(make_result([record], Cluster.uniform(2, 1, 1)))
    assert form["jobs"][0]["devices"] == ["n0/gpu0", "n1/gpu0"]
    assert form["metrics"]["gpu_utilisation"] == 1.0


def test_notes_have_a_code_and_a_text(make_result: Build, make_record: Make) -> None:
    result = make_result([make_record("a")])
    told = replace(result, notes=[Note("Nothing is known of a.", "unknown"), "Said."])
    told = pickle.loads(pickle.dumps(told))
    assert to_json(told)["notes"] == [
        {"code": "unknown", "text": "Nothing is known of a."},
        {"code": "note", "text": "Said."},
    ]
