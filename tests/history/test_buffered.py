"""The history's writer beside the loop: seen at once, written when it can be, lost never."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from waiting import until

from dovetail.history import buffered
from dovetail.history.buffered import BufferedHistory
from dovetail.history.sqlite import SqliteHistory
from dovetail.model import DeviceClass, Run, State
from dovetail.testing.builders import full

CPU = DeviceClass("cpu", "x")


class Shelf:
    """A spool in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, Run] = {}

    def spool(self, runs: Iterable[Run]) -> None:
        self.kept.update({run.uid: run for run in runs})

    def recorded(self, uids: Iterable[str]) -> None:
        for uid in uids:
            del self.kept[uid]


def run(rng: random.Random, number: int) -> Run:
    state = State.COMPLETED if rng.random() < 0.8 else State.FAILED
    inputs = {"n": float(rng.randint(1, 4))}
    name = rng.choice(["cpu", "gpu"])
    seconds = rng.random()
    return Run("a", name, CPU, 1, 1, 0.0, inputs, seconds, state, when=float(number), uid=f"u{number}")


def answers(history: BufferedHistory | SqliteHistory) -> list[object]:
    found: list[object] = []
    for name in ("cpu", "gpu"):
        found.append(history.count("a", name, CPU))
        found.append([one.uid for one in history.recent("a", name, CPU, 7)])
        averages = history.list_aggregates("a", name, CPU)
        found.append(
            sorted((a.inputs, a.count, a.failed, round(a.mean, 12), round(a.m2, 9)) for a in averages)
        )
        for one in averages:
            key = history.find_aggregate("a", name, CPU, one.request, one.inputs)
            assert key is not None
            found.append((key.count, round(key.mean, 12)))
    found.append([one.uid for one in history.runs("a")])
    found.append(sorted((g.implementation, g.completed, g.failed) for g in history.list_groups("a")))
    return found


@pytest.mark.parametrize("seed", range(full(40, 6)))
def test_what_is_recorded_is_seen_as_if_it_were_written(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    with SqliteHistory(tmp_path / "a.sqlite") as store, SqliteHistory(tmp_path / "b.sqlite") as plain:
        history = BufferedHistory(store)
        versions = [history.version]
        for number in range(60):
            runs = [run(rng, 10 * number + i) for i in range(rng.randint(1, 3))]
            assert history.record_many(runs) == plain.record_many(runs)
            if rng.random() < 0.2:
                time.sleep(0.07)
            if rng.random() < 0.3:
                assert answers(history) == answers(plain)
            versions.append(history.version)
        assert history.close() == 0
        assert answers(history) == answers(plain)
        assert versions == sorted(versions)
        assert len(set(versions)) == len(versions)
        assert [one.uid for one in store.all_runs()] == [one.uid for one in plain.all_runs()]


def test_a_run_is_recorded_once(tmp_path: Path) -> None:
    rng = random.Random(1)
    with SqliteHistory(tmp_path / "a.sqlite") as store:
        history = BufferedHistory(store)
        one = run(rng, 1)
        assert history.record(one)
        assert not history.record(one)
        assert history.close() == 0
        assert len(list(store.all_runs())) == 1


def test_another_writer_delays_the_writing_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffered, "SAID_AFTER", 0.2)
    rng, shelf, said = random.Random(1), Shelf(), list[str]()
    with SqliteHistory(tmp_path / "a.sqlite") as store:
        history = BufferedHistory(store, spool=shelf, tell=said.append)
        other = sqlite3.connect(tmp_path / "a.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for number in range(300):
            history.record(run(rng, number))
            assert history.count("a", "cpu", CPU) + history.count("a", "gpu", CPU) <= number + 1
        until(lambda: said)
        assert len(shelf.kept) == history.count_waiting == 300
        assert list(store.all_runs()) == []
        assert len(said) == 1
        assert "another process is writing" in said[0]
        other.execute("ROLLBACK")
        other.close()
        assert history.close() == 0
        assert len(list(store.all_runs())) == 300
        assert shelf.kept == {}
        assert said[1:] == ["the history can be written again"]


def test_what_cannot_be_written_in_the_end_stays_in_the_spool(tmp_path: Path) -> None:
    rng, shelf = random.Random(1), Shelf()
    with SqliteHistory(tmp_path / "a.sqlite") as store:
        history = BufferedHistory(store, spool=shelf)
        other = sqlite3.connect(tmp_path / "a.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        history.record_many([run(rng, number) for number in range(5)])
        assert history.close(patience=0.3) == 5
        assert len(shelf.kept) == 5
        other.close()
        again = BufferedHistory(store, spool=shelf)  # the next Dovetail
        assert again.record_many(list(shelf.kept.values())) == 5
        assert again.close() == 0
        assert shelf.kept == {}
        assert len(list(store.all_runs())) == 5


def test_the_newest_runs_are_read_from_the_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not anew for every run that comes: a decision would cost as much as the runs that it rests on."""
    reads = []
    read = SqliteHistory._read_recent
    monkeypatch.setattr(SqliteHistory, "_read_recent", lambda *asked: reads.append(asked) or read(*asked))
    with SqliteHistory(tmp_path / "h.sqlite") as store:
        history = BufferedHistory(store)
        expected: list[str] = []
        for number in range(60):
            one = Run("a", "cpu", CPU, 1, 1, 0.0, {}, 1.0, when=float(number), uid=f"u{number}")
            history.record(one)
            expected.append(one.uid)
            assert [one.uid for one in history.recent("a", "cpu", CPU, 20)] == expected[-20:]
        assert history.close() == 0
    assert len(reads) <= 1


def test_what_another_process_records_is_seen_a_moment_later(tmp_path: Path) -> None:
    rng = random.Random(1)
    with SqliteHistory(tmp_path / "a.sqlite") as store, SqliteHistory(tmp_path / "a.sqlite") as other:
        history = BufferedHistory(store)
        before, deadline = history.version, time.monotonic() + 100
        other.record(theirs := run(rng, 1))
        while history.version == before:
            assert time.monotonic() < deadline, "it is not seen at all"
            time.sleep(0.01)
        assert [one.uid for one in history.runs(theirs.app)] == [theirs.uid]
        history.close()
