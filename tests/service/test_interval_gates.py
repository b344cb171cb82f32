"""Who waits for others, for a moment, or off what is reserved, in the roll-outs of a service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from dovetail.forecasts.intervals import NOTHING_RESERVED, StartIntervals, _reserved_changes, _Standing
from dovetail.forecasts.long_queue import ForeseenRun, IdlePlaces
from dovetail.model import Cluster, Dependency, Reservation, Reserved, State
from dovetail.running.entry import Entry
from dovetail.service.archive import Archive
from dovetail.starts.rolling import Change, Situation, plan_starts
from dovetail.testing.builders import rigid

NOW = 1000.0


def standing(*changes: dict[str, object], reserved: Reserved = NOTHING_RESERVED) -> Situation:
    """Jobs of one node for 10 s each on a node, changed one by one; the first one has run for 4 s."""
    cluster = Cluster.uniform(1, 1)
    workload = rigid([(0.0, 1, 10.0, 10.0)] * len(changes))
    place = IdlePlaces(cluster).find_place(workload.jobs[0].choices[0].request)
    entries, runs = [], {}
    for seq, (job, change) in enumerate(zip(workload.jobs, changes, strict=True)):
        job = replace(job, **change)  # type: ignore[arg-type]
        begun = seq == 0
        state, started = (State.RUNNING, NOW - 4.0) if begun else (State.PENDING, None)
        entries.append(
            Entry(
                seq, job, state, "", 0, "cpu", place if begun else None, "", (), 0.0, started, *[None] * 3, ""
            )
        )
        if not begun:
            runs[job.id] = ForeseenRun(job, job.choices[0].implementation, place, 0.0, 10.0)
    return _Standing().current_situation(entries, runs, cluster, NOW, frozenset(), reserved)


def test_who_waits_for_an_end_or_a_moment_starts_after_it() -> None:
    found = standing(
        {},
        {"depends": (Dependency("afterok", "3"),)},
        {"begin": NOW + 100.0},
        {},
        {"depends": (Dependency("after", "0", 60.0),)},
    )
    # The second one waits for a later one, which is not foreseen.
    assert [job.key for job in found.waiting] == ["2", "3", "4"]
    assert plan_starts(found).tolist() == [100.0, 6.0, 56.0]


def test_a_chain_is_rolled_out_in_its_order() -> None:
    found = standing({}, {}, {"depends": (Dependency("afterany", "1"),)}, {})
    assert plan_starts(found).tolist() == [6.0, 16.0, 26.0]


@pytest.mark.parametrize(
    "depends",
    [
        Dependency("afternotok", "0"),
        Dependency("afterok", "0", alternative=True),
        Dependency("after", "1"),
    ],
)
def test_what_cannot_be_foreseen_gets_no_start(depends: Dependency) -> None:
    found = standing({}, {"depends": (depends,)} if depends.job == "0" else {}, {"depends": (depends,)})
    assert "2" not in [job.key for job in found.waiting]


def test_devices_are_off_while_they_are_reserved_and_its_users_get_no_interval() -> None:
    kept = Reserved((Reservation("1", ("ann",), ((0, 0), (0, 2), (1, 0)), -5.0, 60.0, 0, ""),))
    changes = list(_reserved_changes(kept))
    unit = changes[2].amount[1] * -1
    assert unit > 0
    assert changes == [
        Change(0.0, 0, (0, -2 * unit, 0)),
        Change(60.0, 0, (0, 2 * unit, 0)),
        Change(0.0, 1, (0, -unit, 0)),
        Change(60.0, 1, (0, unit, 0)),
    ]
    found = standing({}, {"user": "ann"}, {"user": "bob"}, reserved=kept)
    assert [job.key for job in found.waiting] == ["2"]


class _Ended:
    """Jobs that have ended, as the ledger's reader gives them."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def ask_here(self, where: str, values: Sequence[Any]) -> Sequence[Entry]:
        return self._entries


def test_no_interval_begins_before_the_moment_at_which_a_job_may(tmp_path: Path) -> None:
    cluster = Cluster.uniform(1, 1)
    *past, gated, free = rigid([(0.0, 1, 10.0, None)] * 10).jobs
    place = IdlePlaces(cluster).find_place(gated.choices[0].request)
    gated = replace(gated, begin=NOW + 3600.0)
    begun = [
        Entry(n, job, State.COMPLETED, "", 1, "cpu", place, "", (), at, at, at + 10.0, None, 0, "")
        for n, job in enumerate(past)
        for at in (NOW - 900.0 + 100.0 * n,)
    ]
    waiting = [
        Entry(20 + n, job, State.PENDING, "", 0, "cpu", None, "", (), NOW, None, None, None, None, "")
        for n, job in enumerate((gated, free))
    ]
    runs = {
        gated.id: ForeseenRun(gated, gated.choices[0].implementation, place, 3600.0, 3610.0),
        free.id: ForeseenRun(free, free.choices[0].implementation, place, 0.0, 10.0),
    }
    intervals = StartIntervals(tmp_path)
    found = intervals.start_spans(cast(Archive, _Ended(begun)), waiting, runs, cluster, NOW)
    span = found[gated.id]
    assert span.start_low is not None
    assert span.start_high is not None
    assert NOW + 3600.0 <= span.start_low <= span.start_high < NOW + 2 * 3600.0
    assert span.end_low is not None
    assert span.end_low >= NOW + 3600.0
    # What does not wait yet is no forecast of a wait that could be held against it.
    assert intervals._calibration.waiting_keys == [free.id]
