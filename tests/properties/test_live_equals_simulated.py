"""The same policy objects decide identically in a simulation and in a live run; a journal replays exactly."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from two_worlds import Decisions, run_live, run_simulated

from dovetail.engine.journal.journal import JournalWriter, read_journal, replay, workload_from_journal
from dovetail.interfaces import Policy
from dovetail.model import Cluster, Workload
from dovetail.plugins import load_policy
from dovetail.testing.builders import full, workload
from dovetail.testing.invariants import check_schedule

POLICIES = (
    "history",
    "history-guarded",
    "best-device",
    "cpu-only",
    "gpu-only",
    "fcfs",
    "easy",
    "conservative",
    "lookahead",
    "min-min",
    "rsa",
)
CLUSTERS = ("1x1cpu+1gpu", "2x4cpu+2gpu", "3x2cpu")

times = st.fixed_dictionaries(
    {"cpu": st.floats(0, 100, width=32)}, optional={"gpu": st.floats(0, 100, width=32)}
)
rows = st.lists(
    st.tuples(st.sampled_from("abcde"), times, st.sampled_from([0.0, 0.0, 0.0, 1.0, 2.5, 40.0])),
    min_size=1,
    max_size=12,
)


def jobs(drawn: list[tuple[str, dict[str, float], float]]) -> Workload:
    return workload([(f"{name}{i}", t, submit) for i, (name, t, submit) in enumerate(drawn)])


@given(rows, st.sampled_from(POLICIES), st.sampled_from(CLUSTERS), st.booleans())
@settings(max_examples=full(1000, 60), deadline=None)
def test_live_and_simulated_decisions_are_identical(
    drawn: list[Any], policy: str, shape: str, learned: bool
) -> None:
    w = jobs(drawn)
    cluster = Cluster.parse(shape)
    live, simulated = Decisions(), Decisions()
    a = run_live(w, cluster, policy, learned, live)
    b = run_simulated(w, cluster, policy, learned, simulated)
    assert live.kept == simulated.kept
    assert [(r.start, r.end, r.state) for r in a.records] == [(r.start, r.end, r.state) for r in b.records]
    check_schedule(b, w)


@given(rows, st.sampled_from(POLICIES), st.sampled_from(CLUSTERS), st.booleans())
@settings(max_examples=full(1000, 60), deadline=None)
def test_replay_of_a_journal_is_identical(drawn: list[Any], policy: str, shape: str, learned: bool) -> None:
    w = jobs(drawn)
    cluster = Cluster.parse(shape)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        writer = JournalWriter(path, cluster, policy=policy)
        run_simulated(w, cluster, policy, learned, writer)
        writer.close()
        journal = read_journal(path)
    loaded = load_policy(policy).policy
    assert isinstance(loaded, Policy)
    decided = replay(journal, loaded)
    assert decided == sum(len(batch.decisions) for batch in journal.batches)
    again = workload_from_journal(journal)
    ran = {job.id for job in w.jobs} - {r.id for r in again.rejected}
    assert {job.id for job in again.jobs} <= ran


def test_a_torn_last_line_is_passed_over_and_a_torn_middle_is_not(tmp_path: Path) -> None:
    from dovetail.errors import JournalError

    w = jobs([("a", {"cpu": 3.0}, 0.0), ("b", {"cpu": 2.0}, 1.0)])
    cluster = Cluster.parse("1x1cpu")
    path = tmp_path / "whole.jsonl"
    run_simulated(w, cluster, "fcfs", False, JournalWriter(path, cluster, policy="fcfs"))
    whole = path.read_text()
    torn = tmp_path / "torn.jsonl"
    torn.write_text(whole[:-25])
    assert len(read_journal(torn).batches) == whole.count("\n") - 2
    lines = whole.splitlines()
    lines[1] = lines[1][:-10]
    torn.write_text("\n".join(lines) + "\n")
    with pytest.raises(JournalError, match="line 2"):
        read_journal(torn)


def test_a_replay_that_differs_is_said(tmp_path: Path) -> None:
    from dovetail.errors import JournalError

    w = jobs([("a", {"cpu": 3.0, "gpu": 1.0}, 0.0), ("b", {"cpu": 2.0, "gpu": 1.0}, 0.0)])
    cluster = Cluster.parse("1x1cpu+1gpu")
    path = tmp_path / "journal.jsonl"
    writer = JournalWriter(path, cluster, policy="gpu-only")
    run_simulated(w, cluster, "gpu-only", False, writer)
    writer.close()
    other = load_policy("cpu-only").policy
    assert isinstance(other, Policy)
    with pytest.raises(JournalError, match=r"differ|answer that the journal lacks"):
        replay(read_journal(path), other)
