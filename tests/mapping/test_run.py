"""A map is a job of the driver: what `runs`, `explain` and the history tell of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dovetail_command import load, run_command

import dovetail
import dovetail.api
from dovetail.engine.journal.journal import read_journal
from dovetail.errors import InputError
from dovetail.history.sqlite import SqliteHistory
from dovetail.mapping.items import is_alive_map, read_items, worker_sentences
from dovetail.model import Ended, State, Submitted
from dovetail.running.folder import run_folders
from dovetail.running.ledger import Ledger

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


@dovetail.function(name="halve")
def halve(x: int) -> float:
    """On CPUs."""
    return x / 2


def fails_at_three(x: int) -> int:
    """One item is bad."""
    if x == 3:
        raise ValueError("three")
    return x


def states(folder: Path) -> list[tuple[str, str, State]]:
    """Id, app and state of each job of a run."""
    with Ledger(folder / "ledger.db") as ledger:
        return [(one.job.id, one.job.app.name, one.state) for one in ledger.entries()]


def test_maps_of_kept_workers_are_jobs_of_one_run_that_are_predicted() -> None:
    with dovetail.Workers("cpu:1") as workers:
        for _ in range(3):
            assert sum(dovetail.map(halve, range(20), workers=workers)) == 95
    (folder,) = run_folders()
    assert states(folder) == [(f"map-{n}", "map halve", State.COMPLETED) for n in (1, 2, 3)]
    with Ledger(folder / "ledger.db") as ledger:
        first, _, last = ledger.entries()
    assert first.predicted is None
    assert last.predicted is not None
    events = [event for batch in read_journal(folder / "journal.jsonl").batches for event in batch.events]
    assert [type(event) for event in events] == [Submitted, Ended] * 3
    with SqliteHistory() as history:
        runs = history.recent("map halve", "cpu", history.list_groups()[0].device_class, 10)
    assert [run.inputs for run in runs] == [{"items": 20.0}] * 3


def test_where_items_ran_and_why_a_kind_was_suspended(tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    tries.touch()

    @dovetail.function(name="waits")
    def waits(x: int) -> float:
        deadline = time.monotonic() + 60
        while os.stat(tries).st_size < 3 and time.monotonic() < deadline:
            time.sleep(0.002)
        return x / 2

    @waits.gpu
    def _(x: int) -> float:
        with open(tries, "a") as file:
            file.write(".")
        raise OSError("no CUDA device")

    with pytest.warns(dovetail.errors.DovetailWarning, match="gpu 0 worker is suspended"):
        found = list(dovetail.map(waits, range(60), workers="cpu:1,gpu:1", batch=1))
    assert sorted(found) == [x / 2 for x in range(60)]
    (folder,) = run_folders()
    items = read_items(folder)
    assert items is not None
    assert items["tasks"]["cpu"] == 60
    assert items["failed_on"]["gpu"] >= 3
    told = list(worker_sentences(items))
    assert any(line.startswith("gpu: 0 items, ") and "no CUDA device" in line for line in told)


def test_a_map_with_a_bad_item_has_failed_and_names_it() -> None:
    found = dovetail.map(fails_at_three, range(8), workers="cpu:1", errors="skip")
    assert sorted(found) == [0, 1, 2, 4, 5, 6, 7]
    (folder,) = run_folders()
    assert [state for *_, state in states(folder)] == [State.FAILED]
    items = read_items(folder)
    assert items is not None
    assert any("item 3 failed" in line and "three" in line for line in worker_sentences(items))


def test_a_map_that_is_left_is_cancelled() -> None:
    with dovetail.map(time.sleep, [0.01] * 500, workers="cpu:1") as made:
        next(made)
    (folder,) = run_folders()
    assert [state for *_, state in states(folder)] == [State.CANCELLED]


def test_without_a_history_nothing_is_kept(state: Path) -> None:
    assert sum(dovetail.map(halve, range(4), workers="cpu:1", history=False)) == 3
    assert run_folders() == []


def test_a_state_folder_that_cannot_be_written_is_said_and_ends_no_map(state: Path) -> None:
    (state / "dovetail").mkdir(parents=True)
    (state / "dovetail" / "runs").write_text("in the way")
    with pytest.warns(dovetail.errors.DovetailWarning, match="not seen by 'dovetail runs'"):
        assert sum(dovetail.map(halve, range(4), workers="cpu:1")) == 3


def test_a_map_whose_dovetail_was_killed_is_seen_as_lost_and_is_not_taken_up(state: Path) -> None:
    script = "import dovetail, time\nfor _ in dovetail.map(time.sleep, [0.05] * 2000, workers='cpu:1'): pass"
    environment = {**os.environ, "XDG_STATE_HOME": str(state)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment) as process:
        while not (run_folders() and is_alive_map(run_folders()[0])):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    (folder,) = run_folders()
    for command in (["runs"], ["explain"]):
        (row,) = load(run_command([*command, "--json"], Path.cwd(), environment))
        assert row.get("state") == "NODE_FAIL" or row["jobs"] == {"NODE_FAIL": 1}
    with pytest.raises(InputError, match="is a map, expected a run"):
        dovetail.api.resume(str(folder))
