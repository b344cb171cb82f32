"""Machines that fail, are maintained and preempt: closed forms, hand-made cases, files and their faults."""

from __future__ import annotations

import json
from math import exp, inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dovetail
from dovetail.cli.main import status_of
from dovetail.errors import InputError, InvariantError, UnsupportedWorkload
from dovetail.model import (
    Checkpoints,
    Cluster,
    Conditions,
    Failures,
    ListedFailure,
    Outage,
    Result,
    Seconds,
    State,
    Window,
    Workload,
    bit_indices,
)
from dovetail.plugins import load_policy
from dovetail.report.operated import costs_of, operated_metrics
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import full, rigid
from dovetail.testing.invariants import check_schedule

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "conditions" / "failures.toml"
NODES = '[[node]]\nname = "n[0-3]"\ncpus = 1\n'


def simulated(
    rows: list[tuple[Seconds, int, Seconds, Seconds | None]],
    nodes: int,
    conditions: Conditions,
    policy: str = "fcfs",
) -> tuple[Workload, Result]:
    work = rigid(rows)
    result = simulate(
        work,
        Cluster.uniform(nodes, 1),
        load_policy(policy).policy,
        PerfectModel(work.truth),
        conditions=conditions,
        options=SimulationOptions(validate=True),
    )
    check_schedule(result, work)
    return work, result


# ------------------------------------------------------------------------------------ closed forms


@given(st.integers(1, 500), st.integers(1, 60), st.integers(0, 20), st.data())
def test_a_run_with_checkpoints_second_by_second(
    work: int, every: int, cost: int, data: st.DataObject
) -> None:
    """What a clock that goes through the run finds is what the formulas give."""
    checkpoints = Checkpoints(float(every), float(cost))
    seconds: list[tuple[int, int]] = []  # after each second: work done, and safe
    done = safe = since = 0
    while done < work:
        if since == every:
            seconds += [(done, safe)] * (cost - 1)
            since, safe = 0, done
            if cost:
                seconds.append((done, safe))
                continue
        done, since = done + 1, since + 1
        seconds.append((done, done if not cost and since == every and done < work else safe))
    assert checkpoints.lengthened(float(work)) == len(seconds)
    ran = data.draw(st.integers(1, len(seconds)))
    if ran < len(seconds):
        assert checkpoints.progress(float(ran), float(work)) == seconds[ran - 1]


def test_failures_and_checkpoints_take_the_expected_time() -> None:
    """Without repairs (e^((every + cost)/M) - 1) · M · e^(restart/M) an interval (Daly 2006)."""
    mean, every, cost, restart, intervals = 100.0, 40.0, 5.0, 10.0, full(3000, 1500)
    conditions = Conditions(
        Failures((0,), mean, 0.0, seed=3, most_restarts=1_000_000), Checkpoints(every, cost, restart)
    )
    _, result = simulated([(0.0, 1, every * intervals, None)], 1, conditions)
    record = result.records[0]
    assert record.end is not None
    one = (exp((every + cost) / mean) - 1) * mean * exp(restart / mean)
    assert record.end / (one * intervals) == pytest.approx(1.0, abs=0.04)
    assert record.attempts - 1 == len(record.earlier) > 500


@pytest.mark.parametrize("shape", [1.0, 0.7])
def test_nodes_are_up_for_as_long_as_they_should_be(shape: float) -> None:
    """Availability is MTBF / (MTBF + MTTR), whatever the shape; the number of failures follows."""
    count, span = full(200, 60), 5000.0
    conditions = Conditions(Failures(tuple(range(count)), 90.0, 10.0, shape, seed=5, jobs="lost"))
    # One job long after: until then nodes fail and are repaired, and no job is there to be lost.
    _, result = simulated([(0.0, 1, 0.0, 1.0), (span, 1, 0.0, 1.0)], count, conditions)
    found = operated_metrics(result)
    assert found["availability"] == pytest.approx(0.9, abs=0.02)
    assert found["node_failures"] == pytest.approx(count * span / 100.0, rel=0.08)


# ---------------------------------------------------------------------------------- hand-made cases


def test_a_lost_job_ends_and_a_requeued_one_runs_again() -> None:
    rows: list[tuple[Seconds, int, Seconds, Seconds | None]] = [(0.0, 2, 100.0, 100.0)]
    fails = (ListedFailure(1, 60.0, 10.0),)
    _, result = simulated(rows, 2, Conditions(Failures(listed=fails, jobs="lost")))
    assert (result.records[0].state, result.records[0].end) == (State.NODE_FAIL, 60.0)
    _, result = simulated(rows, 2, Conditions(Failures(listed=fails)))
    record = result.records[0]
    assert (record.state, record.start, record.end, record.attempts) == (State.COMPLETED, 70.0, 170.0, 2)
    # 2 checkpoints are safe after 60 s of (20 + 2) s each; 5 s to take it up, 60 s of work, 2 checkpoints.
    _, result = simulated(rows, 2, Conditions(Failures(listed=fails), Checkpoints(20.0, 2.0, 5.0)))
    assert result.records[0].end == 70.0 + 5.0 + 60.0 + 2 * 2.0
    costs = costs_of(result.records[0], Checkpoints(20.0, 2.0, 5.0))
    assert (costs.useful, costs.overhead, costs.lost) == (100.0, 4.0 + 5.0 + 4.0, 16.0)


def test_a_job_starts_again_as_often_as_it_may() -> None:
    fails = tuple(ListedFailure(0, at, 1.0) for at in (10.0, 20.0, 30.0))
    _, result = simulated([(0.0, 1, 50.0, 50.0)], 1, Conditions(Failures(listed=fails, most_restarts=2)))
    assert (result.records[0].state, result.records[0].end, result.records[0].attempts) == (
        State.NODE_FAIL,
        30.0,
        3,
    )


def test_two_failures_of_a_node_are_over_with_the_later_one() -> None:
    fails = (ListedFailure(0, 5.0, 20.0), ListedFailure(0, 10.0, 5.0))
    _, result = simulated([(7.0, 1, 1.0, 1.0)], 1, Conditions(Failures(listed=fails)))
    assert result.records[0].start == 25.0
    assert result.operated is not None
    assert result.operated.outages == (Outage(0, 5.0, 25.0),)


def test_jobs_that_no_node_is_left_for_are_cancelled() -> None:
    fails = Failures((1,), 50.0, 1.0, listed=(ListedFailure(0, 5.0, inf),))
    _, result = simulated([(0.0, 2, 10.0, 10.0), (6.0, 1, 10.0, 10.0)], 2, Conditions(fails))
    assert [record.state for record in result.records] == [State.CANCELLED, State.COMPLETED]


def test_waiting_in_vain_is_an_error() -> None:
    """Two nodes that are never up together."""
    listed = tuple(ListedFailure(n % 2, 1.0 + n, 1.5) for n in range(3000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dovetail.simulation.operation.VAIN", 1000)
        with pytest.raises(UnsupportedWorkload, match="job 0 waits in vain"):
            simulated([(2.0, 2, 10.0, 10.0)], 2, Conditions(Failures(listed=listed)))


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        # Job 0 would run into the window; fcfs waits with it, the others let what ends in time go first.
        ("fcfs", [150.0, 250.0, 260.0]),
        ("easy", [150.0, 0.0, 10.0]),
        ("conservative", [150.0, 0.0, 10.0]),
    ],
)
def test_a_window_is_planned_around(policy: str, starts: list[float]) -> None:
    rows: list[tuple[Seconds, int, Seconds, Seconds | None]] = [
        (0.0, 2, 100.0, 120.0),
        (0.0, 3, 10.0, 10.0),
        (0.0, 1, 50.0, 60.0),
    ]
    conditions = Conditions(windows=(Window("w", 100.0, 50.0, (0, 1, 2)),))
    _, result = simulated(rows, 3, conditions, policy)
    assert [record.start for record in result.records] == starts


def test_a_reservation_is_for_its_users() -> None:
    """Their job uses the nodes while it lasts, others wait for the other node or its end."""
    work = rigid([(10.0, 1, 30.0, 30.0), (10.0, 2, 30.0, 30.0), (10.0, 1, 30.0, 30.0)])
    from dataclasses import replace

    jobs = [replace(job, user="ana" if job.id == "1" else "ben") for job in work.jobs]
    work = replace(work, jobs=jobs)
    conditions = Conditions(windows=(Window("w", 5.0, 200.0, (0, 1), users=("ana",)),))
    result = simulate(
        work,
        Cluster.uniform(3, 1),
        load_policy("easy").policy,
        PerfectModel(work.truth),
        conditions=conditions,
        options=SimulationOptions(validate=True),
    )
    check_schedule(result, work)
    found = {
        record.job.id: (record.start, list(bit_indices(record.allocation.mask)))
        for record in result.records
        if record.allocation is not None
    }
    assert found == {"0": (10.0, [2]), "1": (10.0, [0, 1]), "2": (40.0, [2])}


@given(st.integers(0, 1_000_000))
def test_conservative_with_exact_walltimes_is_the_earliest_fit(seed: int) -> None:
    """Each job in turn gets the first time at which so many nodes are free for it, the lowest of them."""
    import random

    rng = random.Random(seed)
    nodes, windows = rng.randint(1, 4), []
    for number in range(rng.randint(0, 3)):
        there = tuple(sorted(rng.sample(range(nodes), rng.randint(1, nodes))))
        windows.append(Window(f"w{number}", float(rng.randint(0, 60)), float(rng.randint(1, 30)), there))
    rows: list[tuple[Seconds, int, Seconds, Seconds | None]] = []
    for at in sorted(rng.randint(0, 40) for _ in range(rng.randint(1, 9))):
        seconds = float(rng.randint(1, 30))
        rows.append((float(at), rng.randint(1, nodes), seconds, seconds))
    busy: list[list[tuple[Seconds, Seconds]]] = [[] for _ in range(nodes)]
    for window in windows:
        for node in window.nodes:
            busy[node].append((window.start, window.start + window.span))
    expected = []
    for submit, wanted, seconds, _ in rows:
        times = sorted({submit, *(end for row in busy for _, end in row if end > submit)})
        for start in times:
            end = start + seconds
            able = [n for n in range(nodes) if all(e <= start or s >= end for s, e in busy[n])]
            if len(able) >= wanted:
                break
        for node in able[:wanted]:
            busy[node].append((start, end))
        expected.append((start, able[:wanted]))
    _, result = simulated(rows, nodes, Conditions(windows=tuple(windows)), "conservative")
    found = [
        (record.start, list(bit_indices(record.allocation.mask)))
        for record in result.records
        if record.allocation is not None
    ]
    assert found == expected


# ------------------------------------------------------------------------------------------ the checker


def test_the_checker_finds_what_is_wrong() -> None:
    """A schedule made without the conditions does not pass for one under them."""
    from dataclasses import replace

    from dovetail.model import Operated, WindowHeld

    work, result = simulated([(0.0, 1, 100.0, 100.0)], 1, Conditions(Failures(listed=())))
    window = Window("w", 50.0, 10.0, (0,))
    for operated, fault in (
        (Operated(Conditions(), (Outage(0, 20.0, 30.0),)), "while it is down"),
        (Operated(Conditions(), (), (WindowHeld(window, 50.0, 60.0),)), "runs where w is"),
        (Operated(Conditions(checkpoints=Checkpoints(30.0, 1.0))), "of work left"),
    ):
        with pytest.raises(InvariantError, match=fault):
            check_schedule(replace(result, operated=operated), work)


# ------------------------------------------------------------------------------------------- files, CLI


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[failures]\nmtbf = "1d"\n', "failures: found mtbf without mttr, expected both"),
        ("[failures]\nseed = 3\n", "failures: found no failure, expected mtbf and mttr, file, or event"),
        ('[failures]\nmtbf = "1d"\nmttr = -1\n', "failures, mttr: found -1, expected seconds"),
        ("[[failures.event]]\nnode = 'x'\nat = 1\n", "event 1, node: found 'x', which is no node here"),
        (
            '[failures]\nfile = "f.csv"\n',
            "f.csv: line 3: node: found 'n9', expected nodes of the cluster file",
        ),
        ("[checkpoints]\ncost = 1\n", "checkpoints, every: found nothing, expected it to be given"),
        (
            "[[maintenance]]\nfrom = 1\nfor = 2\nnodes = 9\n",
            "maintenance 1, nodes: found 9, expected at most",
        ),
        ("[[maintenance]]\nfrom = 1\nfor = 2\nevery = 2\n", "maintenance 1: every: found 2 s, expected more"),
        ("[[maintenance]]\nform = 1\nfor = 2\n", "found an unknown key 'form', expected one of from, for"),
        (
            "[[reservation]]\nusers = ['a']\nfrom = 1\nfor = 2\n",
            "reservation 1: found neither nodes nor gpus",
        ),
        (
            "[[reservation]]\nusers = ['a']\nfrom = 1\nfor = 2\ngpus = 1\n",
            "gpus: found 1, expected at most the 0",
        ),
        ("[preemption]\nmode = 'suspend'\n", "preemption: found no class that preempts, expected"),
        ("[[class]]\nname = 'a'\n[[class]]\nname = 'a'\n", "class 'a': found the name twice"),
        ("[priority]\nweights = { agee = 1 }\n", "priority, weights: found an unknown key 'agee'"),
    ],
)
def test_faults_of_a_file_are_named(
    tmp_path: Path, text: str, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "f.csv").write_text("node,at,repair\nn1,5,\nn9,1,2\n")
    path = tmp_path / "c.toml"
    path.write_text(NODES + text)
    assert status_of(["simulate", "synthetic:rigid?jobs=5", "--cluster", str(path), "--quiet"]) == 2
    assert fault in capsys.readouterr().err


def test_a_list_of_failures_is_read_from_a_table(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("node,at,repair\nn[1-2],1h,90\nn0,5,\n")
    (tmp_path / "c.toml").write_text(NODES + '[failures]\nfile = "f.csv"\n')
    found = Cluster.parse(tmp_path / "c.toml").conditions.failures
    assert found is not None
    assert found.listed == (
        ListedFailure(0, 5.0, inf),
        ListedFailure(1, 3600.0, 90.0),
        ListedFailure(2, 3600.0, 90.0),
    )


def test_what_is_not_simulated_together_is_refused() -> None:
    with pytest.raises(InputError, match="policy optimal makes its plan without windows"):
        dovetail.simulate("synthetic:rigid?jobs=5&nodes=16", cluster=EXAMPLE, policy="optimal")
    with pytest.raises(InputError, match="slow each other down by a rate model"):
        dovetail.simulate("synthetic:rigid?jobs=5", cluster=EXAMPLE, policy="fcfs", rates="gpu-slowdown")


def test_the_example_gives_the_same_twice_and_its_json_has_more(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", f"synthetic:lublin?jobs={full(150, 60)}&load=0.8&seed=3", "--cluster", str(EXAMPLE)]
    forms = []
    for _ in range(2):
        assert status_of([*words, "--policy", "easy", "--json", "--quiet"]) == 0
        forms.append(json.loads(capsys.readouterr().out))
        for name in [name for name in forms[-1]["metrics"] if "seconds_" in name or name.startswith("sim")]:
            del forms[-1]["metrics"][name]
    assert forms[0] == forms[1]
    assert forms[0]["metrics"]["node_failures"] > 0
    assert 0 < forms[0]["metrics"]["goodput"] < 1
    assert {"attempts", "earlier", "lost", "overhead"} <= forms[0]["jobs"][0].keys()
    assert sum(len(row["earlier"]) for row in forms[0]["jobs"]) == forms[0]["metrics"]["restarts"]


def test_without_conditions_nothing_is_added(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(NODES)
    report = dovetail.simulate("synthetic:rigid?jobs=20", cluster=tmp_path / "c.toml", policy="easy")
    assert report.result.operated is None
    assert not {"goodput", "restarts", "availability"} & report.metrics.keys()
    assert not {"attempts", "lost"} & report.jobs[0].keys()


def test_policies_of_a_comparison_meet_the_same_failures() -> None:
    found = dovetail.compare(
        "synthetic:rigid?jobs=40&nodes=16&seed=2", "fcfs,easy", cluster=EXAMPLE, replicates=2
    )
    by_policy: dict[str, list[tuple[Outage, ...]]] = {}
    for report in found:
        assert report.result.operated is not None
        by_policy.setdefault(report.policy, []).append(report.result.operated.outages[:5])
    assert by_policy["fcfs"] == by_policy["easy"]
    assert by_policy["fcfs"][0] != by_policy["fcfs"][1]


@pytest.mark.parametrize("name", ["preemption", "priority", "failures"])
def test_the_examples_run_as_they_stand(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", str(EXAMPLE.parent / "jobs.toml"), "--cluster", str(EXAMPLE.parent / f"{name}.toml")]
    assert status_of([*words, "--policy", "easy", "--verbose", "--quiet"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "8: 8 completed" in shown
    assert "Not compiled the cluster file has" in shown


def test_a_live_run_names_the_conditions_that_it_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "c.toml").write_text(NODES.replace("n[0-3]", "here") + "[checkpoints]\nevery = 60\n")
    (tmp_path / "jobs.txt").write_text("true\n")
    notes: list[str] = []
    report = dovetail.run(tmp_path / "jobs.txt", cluster=tmp_path / "c.toml", tell=notes.append)
    assert report.jobs[0]["state"] == "COMPLETED"
    assert any("checkpoints are for simulations" in note for note in notes)
