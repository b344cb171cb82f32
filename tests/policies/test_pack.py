"""Packs as a planner: the golden instance, barriers kept, in simulation and on one node's cores."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail
from dovetail.model import Cluster, Result
from dovetail.plugins import load_policy
from dovetail.testing.builders import full
from dovetail.testing.invariants import check_schedule

GOLDEN = [
    [60, 32, 24, 20],
    [48, 30, 22, 18],
    [40, 21, 15, 12],
    [30, 18, 14, 12],
    [24, 14, 11, 10],
    [12, 8, 6, 5],
]


def job_file(path: Path, times: list[list[float]]) -> Path:
    """Jobs that are moldable over nodes."""
    text = '[[app]]\nname = "t"\n[[app.implementation]]\nname = "cpu"\n'
    for i, row in enumerate(times):
        table = ", ".join(f"{j} = {t}" for j, t in enumerate(row, 1))
        text += f'[[job]]\nid = "t{i}"\napp = "t"\ntimes.cpu = {{ {table} }}\n'
    path.write_text(text)
    return path


def checked(path: Path, cluster: str, policy: str) -> Result:
    machine = Cluster.parse(cluster)
    result = dovetail.simulate(path, cluster=machine, policy=policy).result
    check_schedule(result, dovetail.load_workload(path))
    return result


# Method notes, "Golden instance": costs at k = 1, 2, 3, 4.
@pytest.mark.parametrize(
    ("algorithm", "costs"),
    [
        ("pack-by-pack-9", (77, 65, 65, 65)),
        ("contiguous", (77, 65, 65, 65)),
        ("subset-dp", (77, 65, 65, 65)),
        ("pack-approx-literal", (186, 104, 78, 78)),
    ],
)
def test_the_golden_instance(tmp_path: Path, algorithm: str, costs: tuple[int, ...]) -> None:
    path = job_file(tmp_path / "jobs.toml", GOLDEN)
    for k, cost in enumerate(costs, 1):
        result = checked(path, "4x1cpu", f"pack?algorithm={algorithm}&k={k}")
        assert result.makespan == pytest.approx(cost)
        assert result.plan is not None
        assert result.plan.objective == pytest.approx(cost)


@given(
    st.lists(st.lists(st.integers(1, 60), min_size=3, max_size=3), min_size=1, max_size=7),
    st.integers(1, 3),
    st.sampled_from(["auto", "pack-approx", "pack-by-pack-1", "annealing", "random-pack-1"]),
)
@settings(max_examples=full(200, 40), deadline=None)
def test_barriers_are_kept_and_the_plan_is_what_happens(
    tmp_path_factory: pytest.TempPathFactory, times: list[list[int]], k: int, algorithm: str
) -> None:
    rows = [sorted(map(float, row), reverse=True) for row in times]
    path = job_file(tmp_path_factory.mktemp("packs") / "jobs.toml", rows)
    result = checked(path, "3x1cpu", f"pack?algorithm={algorithm}&k={k}&time_limit=1")
    plan = result.plan
    assert plan is not None
    record = {r.job.id: r for r in result.records}
    packs = sorted({item.pack for item in plan.items if item.pack is not None})
    before = 0.0
    for pack in packs:
        members = [record[item.job] for item in plan.items if item.pack == pack]
        assert len(members) <= k
        starts = {r.start for r in members}
        assert starts == {before}
        before = max(r.end for r in members if r.end is not None)
    # Real times may be below the repaired ones on which the packs rest, never above.
    assert result.makespan <= plan.objective + 1e-9


def test_cores_of_one_node_are_processors(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(
        """
[[app]]
name = "t"
[[app.implementation]]
name = "one"
kind = "cpu"
cpus = 1
[[app.implementation]]
name = "two"
kind = "cpu"
cpus = 2
[[job]]
id = "a"
app = "t"
times = { one = 10.0, two = 6.0 }
[[job]]
id = "b"
app = "t"
times = { one = 4.0, two = 3.0 }
"""
    )
    # Two packs of one: 6 + 3 = 9; one pack of two: max(10, 4) = 10.
    assert checked(path, "1x2cpu", "pack?algorithm=subset-dp").makespan == 9.0
    assert checked(path, "1x2cpu", "pack?algorithm=subset-dp&k=1").makespan == 9.0


def test_a_job_without_a_time_on_one_processor_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(
        '[[app]]\nname = "t"\n[[app.implementation]]\nname = "cpu"\n'
        '[[job]]\napp = "t"\nnodes = 2\ntimes.cpu = { 2 = 5.0 }\n'
    )
    with pytest.raises(dovetail.InputError, match="policy pack needs each job's time on one processor"):
        dovetail.simulate(path, cluster="4x1cpu", policy="pack")


def test_a_rigid_job_is_refused_with_its_width(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(
        '[[app]]\nname = "t"\n[[app.implementation]]\nname = "cpu"\n'
        '[[job]]\nid = "z"\napp = "t"\ntimes.cpu = 0\n'
    )
    with pytest.raises(dovetail.InputError, match="job z has no implementation on fewer than 2 cores, expec"):
        dovetail.simulate(path, cluster="1x2cpu", policy="pack")


@pytest.mark.parametrize("algorithm", ["auto", "list", "subset-dp", "pack-by-pack-1"])
def test_jobs_that_take_no_time_go_first_and_cost_nothing(tmp_path: Path, algorithm: str) -> None:
    path = job_file(tmp_path / "jobs.toml", [[0, 0], [4, 2.5], [0, 0], [4, 0], [0, 0]])
    result = checked(path, "2x1cpu", f"pack?algorithm={algorithm}")
    assert result.plan is not None
    assert result.makespan <= 4.5  # in sequence on both nodes: 2.5 and the repaired 2
    assert [r.end for r in result.records if r.job.id in ("t0", "t2", "t4")] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("cluster", ["1x1cpu", "2x1cpu", "4x2cpu"])
def test_where_no_job_takes_time_the_plan_costs_nothing(tmp_path: Path, cluster: str) -> None:
    path = job_file(tmp_path / "jobs.toml", [[0]] * 5)
    result = checked(path, cluster, "pack")
    assert result.plan is not None
    assert (result.plan.objective, result.plan.status, result.makespan) == (0.0, "optimal", 0.0)
    assert len(result.records) == 5


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("algorithm=best", "policy pack: algorithm: found 'best', expected one of one-pack, "),
        ("k=-1", "policy pack: k: found -1, expected a whole number of at least 0"),
        ("seed=-1", "policy pack: seed: found -1, expected a whole number of at least 0"),
        ("time_limit=0", "policy pack: time_limit: found 0.0, expected seconds above 0"),
    ],
)
def test_a_wrong_option_is_named(option: str, sentence: str) -> None:
    with pytest.raises(dovetail.InputError, match=sentence):
        load_policy(f"pack?{option}")
