"""Who waits for others, for a moment, or off what is reserved, in the roll-outs of a service."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dovetail.model import Cluster, Dependency, Reservation, Reserved, State
from dovetail.running.entry import Entry
from dovetail.service.intervals import NOTHING_RESERVED, _reserved_changes, _Standing
from dovetail.service.long_queue import ForeseenRun, IdlePlaces
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
