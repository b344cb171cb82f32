"""`dovetail reproduce starts`: forecasts rest on nothing that comes later, and intervals hold."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dovetail.starts.rolling import roll_out
from dovetail_lab.starts.replay import Replayed, replay_world
from dovetail_lab.starts.world import World, make_world

TRACES = Path(__file__).parents[3] / "shared" / "traces"
KTH = TRACES / "kth-sp2-1996-2.1-cln.first8000.swf.gz"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the sample traces are not here")


def busy_trace(path: Path, jobs: int = 260, walltimes: bool = True) -> Path:
    """Users with habits on eight processors, busier than these can bear for a while."""
    import numpy as np

    chance = np.random.Generator(np.random.PCG64(3))
    lines = ["; MaxProcs: 8"]
    time = 0
    for number in range(1, jobs + 1):
        time += int(chance.exponential(220))
        user = int(chance.integers(0, 4))
        run = int((user + 1) * 200 * chance.lognormal(0.0, 0.7)) + 1
        wall = 3600 * (user + 1) if walltimes else -1
        width = int(chance.integers(1, 6))
        lines.append(f"{number} {time} -1 {run} {width} -1 -1 {width} {wall} -1 1 {user} 1 1 1 1 -1 -1")
    path.write_text("\n".join(lines) + "\n")
    return path


def forecasts_of(world: World, every: int = 1) -> Replayed:
    return replay_world(world, every)


@pytest.mark.parametrize("walltimes", [True, False])
def test_cutting_a_trace_changes_no_earlier_forecast(tmp_path: Path, walltimes: bool) -> None:
    whole_file = busy_trace(tmp_path / "whole.swf", walltimes=walltimes)
    lines = whole_file.read_text().splitlines()
    whole = {one.job: one for one in forecasts_of(make_world(whole_file, "easy")).forecasts}
    assert len(whole) > 60

    @given(st.integers(20, len(lines) - 2))
    @settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def holds(kept: int) -> None:
        cut_file = tmp_path / "cut.swf"
        cut_file.write_text("\n".join(lines[: kept + 1]) + "\n")
        cut = forecasts_of(make_world(cut_file, "easy")).forecasts
        for one in cut:
            other = whole[one.job]
            known = ("asked_at", "lower", "median", "upper", "others")
            assert [getattr(one, name) for name in known] == [getattr(other, name) for name in known]
        submitted = {line.split()[0] for line in lines[1 : kept + 1]}
        assert {one.job for one in cut} == submitted & whole.keys()

    holds()


@pytest.mark.parametrize("policy", ["easy", "fcfs"])
def test_with_true_run_times_a_roll_out_is_the_world(tmp_path: Path, policy: str) -> None:
    """Nobody may come: then the queue alone decides."""
    world = make_world(busy_trace(tmp_path / "busy.swf", 120), policy)
    length = {job.queued.key: job.end - job.start for job in world.jobs}
    exact = 0
    for moment in world.walk():
        jobs = [*moment.situation.running, *moment.situation.waiting]
        lengths = [[length[job.key] for job in jobs]]
        import numpy as np

        found = roll_out(moment.situation, np.array(lengths))[0, -1]
        true = moment.job.start - moment.situation.now
        exact += abs(found - true) < 1e-6
        assert policy == "easy" or found == pytest.approx(true)
    assert exact > 10


def test_forms(tmp_path: Path) -> None:
    import typer

    from dovetail_lab.starts.study import command

    app = typer.Typer()
    app.command()(command)
    trace, table = busy_trace(tmp_path / "busy.swf"), tmp_path / "out.csv"
    found = CliRunner().invoke(app, [str(trace), "--json", "--every", "3", "--csv", str(table)])
    assert found.exit_code == 0, found.output
    (one,) = json.loads(found.stdout)
    assert one["trace"] == str(trace)
    assert len(one["coverage_by_quarter"]) == 4
    errors = one["median_abs_error"]
    assert set(errors) == {"ours", "plan", "last_wait", "mean_wait_of_last_hour", "quantile_regression"}
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert list(rows[0]) == ["trace", "job", "asked_at", "lower", "median", "upper", "actual", "plan"]
    assert len(rows) == one["forecasts"]
    held = [float(row["lower"]) - 0.01 <= float(row["actual"]) <= float(row["upper"]) + 0.01 for row in rows]
    assert sum(held) / len(held) == pytest.approx(one["coverage"])


def test_a_trace_in_which_nobody_waits(tmp_path: Path) -> None:
    idle = tmp_path / "idle.swf"
    idle.write_text("; MaxProcs: 8\n1 0 -1 10 1 -1 -1 1 20 -1 1 1 1 1 1 1 -1 -1\n")
    found = replay_world(make_world(idle, "easy"))
    assert found.forecasts == []
    assert found.interval_coverage() is None
    assert found.coverage_by_quarter() == [None] * 4


def test_another_policy_is_refused(tmp_path: Path) -> None:
    from dovetail.errors import InputError

    with pytest.raises(InputError, match="easy or fcfs"):
        make_world(busy_trace(tmp_path / "busy.swf", 10), "conservative")


@needs_traces
def test_intervals_hold_on_a_sample(tmp_path: Path) -> None:
    found = replay_world(make_world(KTH, "easy"), 10)
    coverage, errors = found.interval_coverage(), found.median_abs_error()
    assert coverage is not None
    assert 0.88 <= coverage <= 0.92
    assert all(part is not None and 0.84 <= part <= 0.94 for part in found.coverage_by_quarter())
    ours = errors.pop("ours")
    assert ours is not None
    assert all(other is not None and ours < other for other in errors.values())
