"""`dovetail reproduce gregg` against the reference values of the method notes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verdicts_page import texts

from dovetail.cli.main import status_of
from dovetail.model import Cluster, Record, State
from dovetail.testing.builders import full, workload
from dovetail_lab.apps.bench.measured import MeasuredRun
from dovetail_lab.apps.bench.suite import Point
from dovetail_lab.apps.registry import APPS
from dovetail_lab.claims import Chosen
from dovetail_lab.gregg import claims as gregg_claims
from dovetail_lab.gregg import study as gregg
from dovetail_lab.gregg.claims import CONSTANTS, make_claims
from dovetail_lab.gregg.decisions import DecisionTime, decision_time
from dovetail_lab.gregg.flows import figure_4, figure_5, run_identical
from dovetail_lab.gregg.placements import (
    CASES,
    STATIC,
    CaseOutcome,
    clock_readings,
    least_makespan,
    on_preferred_devices,
    run_cases,
)
from dovetail_lab.gregg.predictions import prediction_bars, stored_measurements
from dovetail_lab.gregg.training import (
    GPU_ONLY,
    REFERENCE,
    Curve,
    draw_run,
    gpu_only,
    suite_workload,
    training_curves,
)
from dovetail_lab.study import show_study

Outcome = tuple[list[MeasuredRun], list[Record]]

REPETITIONS = full(1000, 8)
POLICIES = ("history", "history-guarded")
ONCE = pytest.mark.xdist_group("curves")
"""Of tests that share what takes long to make."""


@pytest.fixture(scope="module")
def curves() -> dict[str, Curve]:
    return {c.policy: c for c in training_curves(POLICIES, repetitions=REPETITIONS, runs=10, seed=1)}


@pytest.fixture(scope="module")
def found() -> list[CaseOutcome]:
    return run_cases(orders=full(2000, 6), seed=1)


@ONCE
def test_training_starts_above_gpu_only_and_falls_below_it_by_the_fifth_run(curves: dict[str, Curve]) -> None:
    mean = curves["history"].tests.mean(axis=0)
    assert mean[0] == pytest.approx(9.122)
    assert mean[4] < GPU_ONLY or mean[5] < GPU_ONLY
    assert all(mean[5:] < GPU_ONLY)


@ONCE
@pytest.mark.parametrize("runs", [run for run in REFERENCE if run >= 6])
def test_from_the_sixth_run_on_the_curve_is_the_method_notes(curves: dict[str, Curve], runs: int) -> None:
    tests = curves["history"].tests[:, runs]
    # Within 3 %; with few repetitions the mean itself is not known as well as that.
    allowed = 0.03 * REFERENCE[runs] + (
        0.0 if len(tests) >= 1000 else 3 * tests.std() / math.sqrt(len(tests))
    )
    assert abs(tests.mean() - REFERENCE[runs]) <= allowed


@ONCE
def test_guarded_never_starts_worse_than_gpu_only_and_is_as_good_by_the_seventh_run(
    curves: dict[str, Curve],
) -> None:
    guarded, plain = curves["history-guarded"], curves["history"]
    assert guarded.ratios[:, 0].max() <= 1.2
    assert guarded.tests[:, 0].max() <= 1.2 * GPU_ONLY
    assert plain.ratios[:, 0].max() > 2  # what it guards against
    for runs in (6, 7):
        assert guarded.tests[:, runs].mean() <= 1.1 * plain.tests[:, runs].mean()


def test_without_rule_two_the_scheduler_hardly_learns() -> None:
    (curve,) = training_curves(("history?explore=false",), repetitions=full(200, 8), runs=10, seed=1)
    assert curve.tests[:, 10].mean() > GPU_ONLY * 0.9


def test_draws_depend_on_seed_repetition_and_run_alone() -> None:
    first, again = draw_run(1, 2, 3), draw_run(1, 2, 3)
    assert first.order.tolist() == again.order.tolist()
    assert np.array_equal(first.sizes, again.sizes)
    assert not np.array_equal(first.sizes, draw_run(1, 2, 4).sizes)
    assert sorted(first.order.tolist()) == list(range(16))
    assert ((first.sizes >= 0.5) & (first.sizes <= 1.5)).all()
    assert gpu_only(suite_workload(None)) == pytest.approx(GPU_ONLY)


def test_repetitions_in_parts_are_the_same_repetitions() -> None:
    (both,) = training_curves(("history",), repetitions=30, runs=1, seed=7)
    (parallel,) = training_curves(("history",), repetitions=30, runs=1, seed=7, workers=2)
    assert np.array_equal(both.tests, parallel.tests)


@ONCE
@pytest.mark.parametrize("which", range(len(CASES)), ids=[case.name for case in CASES])
def test_placements_are_those_of_the_method_notes(found: list[CaseOutcome], which: int) -> None:
    ours = found[which].table_order_figures()
    for name, value in CASES[which].reference.items():
        # Printed with as many digits as this: seconds to a millisecond, shares to a per mille or per cent.
        digits = 0.0051 if name in ("cpu_utilisation", STATIC) else 0.00051
        assert ours[name] == pytest.approx(value, abs=digits), name


@ONCE
def test_the_papers_figures_lie_within_the_family(found: list[CaseOutcome]) -> None:
    """Method notes: 7.1 s, 29 % and 39 % do, a CPU utilisation of 67 % does not."""
    applications = [f.table_order_figures() for f in found if f.case.gpu_cost and not f.case.only]
    for name, paper in (("dynamic", 7.1), ("less_than_static", 0.29), ("less_than_gpu_only", 0.39)):
        values = [ours[name] for ours in applications]
        assert min(values) <= paper <= max(values)
    assert all(f.table_order_figures()["cpu_utilisation"] > 0.67 for f in found)


@ONCE
def test_random_orders_matter_more_than_the_claimed_gain(found: list[CaseOutcome]) -> None:
    raw = found[0]
    mean, least, greatest = raw.dynamic_makespans()
    assert mean == pytest.approx(3.039, rel=0.005 if len(raw.orders) >= 2000 else 0.05)
    assert least >= 2.492 - 1e-9
    assert greatest <= 1.6 * 2.492


@ONCE
def test_fairness_is_violated_as_the_method_notes_say(found: list[CaseOutcome]) -> None:
    by_name = {f.case.name: f.table for f in found}
    assert by_name["kernels, 16"].late == 2
    assert by_name["kernels, 16"].latest == pytest.approx(1.663, abs=0.0005)
    assert by_name["kernels, 13"].late == 0
    assert 1 <= by_name["+0.46 s each, GPU slowed 1.2x, 16"].late <= 3
    assert 1 <= by_name["+0.46 s each, GPU slowed 1.2x, 13"].late <= 3


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=0, max_size=7))
@settings(max_examples=full(60, 20), deadline=None, derandomize=True)
def test_the_optimum_is_brute_force(times: list[tuple[int, int]]) -> None:
    w = workload([(f"j{i}", {"cpu": float(c), "gpu": float(g)}) for i, (c, g) in enumerate(times)])

    def least(job: int, cpu: int, gpu: int) -> int:
        if job == len(times):
            return max(cpu, gpu)
        return min(least(job + 1, cpu + times[job][0], gpu), least(job + 1, cpu, gpu + times[job][1]))

    assert least_makespan(w) == least(0, 0, 0)


def test_the_execution_flows_are_those_of_figures_4_and_5() -> None:
    static, dynamic = figure_4()
    assert (static.makespan, static.paper_makespan) == (pytest.approx(10.034), 10.0)
    assert round(static.cpu_utilisation, 2) == static.paper_cpu_utilisation == 0.17
    assert {job.name for job in static.jobs if job.device == "cpu"} == {"BinarySearch", "FFT", "PrefixSum"}
    assert dynamic.makespan == pytest.approx(7.366, abs=0.0005)
    assert len(static.jobs) == len(dynamic.jobs) == 16
    only, thirteen = figure_5()
    assert {job.device for job in only.jobs} == {"gpu"}
    assert (only.makespan, thirteen.makespan) == (pytest.approx(10.034), pytest.approx(6.574, abs=0.0005))
    assert len(only.jobs) == len(thirteen.jobs) == 13
    for flow in (static, dynamic, only, thirteen):
        assert max(job.end for job in flow.jobs) == pytest.approx(flow.makespan)


def test_of_ten_identical_applications_the_sixth_goes_to_the_cpu() -> None:
    """Method notes: the paper's example is off by one."""
    found = run_identical()
    assert found.first_on_cpu == 6
    assert found.flow.makespan == found.optimum == 9.0
    assert found.flow.gpu_only == 10.0
    assert sum(job.device == "cpu" for job in found.flow.jobs) == 1


@pytest.mark.holds(
    "gregg",
    "No application ends later",
    "Predictions lie between",
    "Untrained it is worse",
    "The dynamic rules",
    "Static placement uses 17 %",
    "On thirteen that are faster",
    "... and the CPU is used 90 %",
    "Of ten identical applications",
)
@ONCE
def test_verdicts_compare_the_papers_figures_with_ours(
    curves: dict[str, Curve], found: list[CaseOutcome]
) -> None:
    decided = [DecisionTime(10, 20, 1e-4, 5e-5, 1e-5, 1e-4)]
    made = make_claims(
        prediction_bars(stored_measurements()), [curves["history"]], found, run_identical(), decided
    )
    assert [claim.text for claim in made] == texts("gregg")
    by_text = {claim.text: claim for claim in made}

    def verdict(part: str) -> str:
        (claim,) = [claim for text, claim in by_text.items() if part in text]
        return claim.verdict.value

    assert verdict("later than on its faster device") == "no"
    assert verdict("Predictions lie between") == "open"  # yes where the size was run, no where not
    assert verdict("after five training runs better") == "yes"
    assert verdict("17 % of the CPU") == "open"  # 0.2 to 16.8 %, by the clock
    assert verdict("67 % of it") in ("in direction only", "open")
    assert verdict("1.33 times as long") == "open"
    assert verdict("take 29 % less") == verdict("take 39 % less") == "open"
    assert verdict("CPU is used 90 %") == "open"  # all of it on one clock, less on another
    assert verdict("the seventh goes to the CPU") == "in direction only"
    figure_1 = by_text["Predictions lie between the least and the greatest time measured (Fig. 1)"]
    assert figure_1.ours == "of 32 sizes not seen, the paper's model 21, learned 29; seen, learned 32"


@pytest.mark.holds("gregg", "The dynamic rules take 29 %", "Static placement uses 17 %")
@ONCE
def test_one_clock_has_the_papers_figures_and_another_has_not(curves: dict[str, Curve]) -> None:
    """What was a yes rested on 0.56 s on the CPU: set to another value it is none."""
    told = {}
    for cpu in ("0.56", "0.46", "0"):
        chosen = Chosen.of(CONSTANTS, [f"cpu_cost={cpu}", "gpu_cost=0.46", "gpu_slowdown=1"])
        here = run_cases(orders=12, seed=1, readings=clock_readings(0.46, float(cpu), 1.0))
        assert len(here) == 2
        made = make_claims([], [curves["history"]], here, run_identical(), [], chosen)
        told[cpu] = {claim.text[:32]: claim.verdict.value for claim in made if "cpu_cost" in claim.rests_on}
    assert told["0.56"]["The dynamic rules take 29 % less"] == "yes"
    assert told["0.56"]["Static placement uses 17 % of th"] == "yes"
    for other in ("0.46", "0"):
        assert told[other]["The dynamic rules take 29 % less"] in ("open", "in direction only", "no")
        assert told[other]["Static placement uses 17 % of th"] == "no"


def test_static_placement_goes_by_kernels() -> None:
    costly = next(case for case in CASES if case.cpu_cost == 0.56 and not case.only)
    kept = {
        job.id: [c.implementation.kind for c in job.choices]
        for job in on_preferred_devices(costly.case_workload()).jobs
    }
    assert [name for name, kinds in kept.items() if kinds == ["cpu"]] == ["BinarySearch", "FFT", "PrefixSum"]


@pytest.mark.holds("gregg", "A decision takes 0.7 ms")
@pytest.mark.parametrize(
    ("seconds", "verdict"), [((1e-4, 2e-4), "yes"), ((1e-4, 2e-3), "open"), ((1e-3, 2e-3), "no")]
)
def test_the_verdict_on_decisions_follows_their_times(seconds: tuple[float, ...], verdict: str) -> None:
    made = gregg_claims._decisions_claim(
        [DecisionTime(10, 20, s, s / 2, 1e-5, s) for s in seconds[:1]]
        + [DecisionTime(1000, 2000, s, s / 2, 1e-5, s) for s in seconds[1:]]
    )
    assert made.verdict.value == verdict


def test_decision_time_counts_every_call() -> None:
    found = decision_time(50)
    assert found.queued == 50
    assert found.calls >= 50
    assert found.per_job == pytest.approx(found.mean * found.calls / 50)
    assert found.longest >= found.mean > 0


def test_the_command_prints_json_and_writes_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {"constants": ["queued=10"], "workers": 1, "as_json": True, "quiet": True}
    gregg.command(repetitions=2, orders=2, out=tmp_path / "out", **few)
    said = json.loads(capsys.readouterr().out)
    assert [curve["policy"] for curve in said["figure_2"]["curves"]] == [
        "history", "history?explore=false", "history-guarded",
    ]  # fmt: skip
    assert len(said["figures_3_to_5"]) == len(CASES)
    assert said["figure_1"]["of"] == 32
    assert said == json.loads((tmp_path / "out" / "gregg.json").read_text())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "figure-1.svg", "figure-2.svg", "figure-4.svg", "figure-5.svg", "figures-3-to-5.svg", "gregg.html",
        "gregg.json", "section-5-4.svg",
    ]  # fmt: skip


def test_the_command_prints_tables(capsys: pytest.CaptureFixture[str]) -> None:
    found = gregg.make_study(repetitions=1, orders=1, queues=(10,))
    show_study(found)
    said = capsys.readouterr().out
    for part in (
        "Figure 1",
        "Figure 2",
        "Figures 3 to 5",
        "Figure 4",
        "Figure 5",
        "Section 5.4",
        "Section 4.1",
        "Section 4.3",
        "two clocks",
        "Statements of the paper",
        "rests on: ",
    ):
        assert part in said


def _stand_in(points: list[Point], cluster: Cluster, *, repeat: int, **_: object) -> Outcome:
    """Measurements without running anything: seconds grow with the size."""
    return [
        MeasuredRun(point.app, kind, point.role, point.n, 0.1 + 1e-7 * point.n * (1 + turn / 100), 0.1, 0.0)
        for turn in range(repeat)
        for point in points
        for kind in ("cpu", "opencl")
    ], []


def test_figure_1_anew_learns_from_the_table_of_sizes_and_predicts_the_medium_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gregg, "measure_suite", _stand_in)
    found = gregg.make_study(repetitions=1, orders=1, queues=(), anew=True).numbers["figure_1"]
    assert found["measured"] == "this machine, now"
    assert len(found["bars"]) == 32
    assert {bar.n for bar in found["bars"]} == {app.sizes.medium for app in APPS.values()}
    assert all(bar.trials >= gregg.LIVE_ROUNDS * gregg.LIVE_TRIALS for bar in found["bars"])


def test_an_interrupted_live_study_is_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = Record(workload([("a", {"cpu": 1.0})]).jobs[0], State.CANCELLED)

    def interrupted(*_: object, **__: object) -> Outcome:
        return [], [cancelled]

    monkeypatch.setattr(gregg, "measure_suite", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gregg.make_study(repetitions=1, orders=1, queues=(), anew=True)


def test_the_folder_is_tried_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for name in ("gregg", "wrong-predictions"):
        assert status_of(["reproduce", name, "--out", str(tmp_path / "file" / "out")]) == 2
        assert "file/out: cannot be made: " in capsys.readouterr().err
