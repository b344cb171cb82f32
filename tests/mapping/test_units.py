"""Units that others hold are not given out; maps of one process share what is left."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import map_functions as mf
import pytest
from waiting import until

import dovetail
from dovetail.errors import DovetailWarning
from dovetail.local.claims import Claims, list_holders
from dovetail.mapping.places import InUse, ThisMachine, parse_workers

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOVETAIL_CLAIMS", str(tmp_path / "claims"))
    return tmp_path / "claims"


@pytest.fixture
def four(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of four cores and two GPUs."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)))
    devices = {"gpu": ((0, "T4"), (1, "T4"))}
    monkeypatch.setattr("dovetail.mapping.places.devices_here", lambda kind: devices.get(kind, ()))


@pytest.fixture
def stranger(folder: Path) -> Iterator[Claims]:
    """Another Dovetail."""
    claims = Claims("0123456789", folder)
    yield claims
    claims.close()


def cores(units: ThisMachine, workers: str) -> list[tuple[int, ...]]:
    return [place.cores for place in units.take(parse_workers(workers))]


def test_what_another_dovetail_uses_is_left_to_it(four: None, stranger: Claims) -> None:
    stranger.take(["core:0", "core:2", "gpu:0"])
    units = ThisMachine()
    assert dict(units.free_counts(["cpu", "gpu"])) == {"cpu": 2, "gpu": 1}
    (place,) = units.take(parse_workers("gpu:1"))
    assert (place.cores, place.device) == ((1,), 1)
    for more in ("gpu:2", "cpu:3", "cpu:9", "cpu:1,gpu:2"):
        with pytest.raises(InUse, match=r"^core:0, core:2.* in use by run 01234567 \(process \d+\)$"):
            ThisMachine().take(parse_workers(more))
    units.close()


def test_a_place_that_is_given_back_is_free_for_others(four: None, stranger: Claims) -> None:
    units = ThisMachine()
    first, second = units.take(parse_workers("gpu:2"))
    assert stranger.take(["core:0", "core:1", "gpu:0", "gpu:1"]).keys() == {
        "core:0",
        "core:1",
        "gpu:0",
        "gpu:1",
    }
    units.give(first)
    assert stranger.take(["core:0", "core:1", "gpu:0", "gpu:1"]).keys() == {"core:1", "gpu:1"}
    units.give(second)
    assert stranger.take(["core:0", "core:1", "gpu:0", "gpu:1"]) == {}
    units.close()


def test_what_several_workers_share_is_held_until_the_last_has_gone(four: None, stranger: Claims) -> None:
    units = ThisMachine()
    places = units.take(parse_workers("cpu:5"))
    assert [place.cores for place in places] == [(0,), (1,), (2,), (3,), (0,)]
    units.give(places[0])
    assert stranger.take(["core:0"]).keys() == {"core:0"}
    units.give(places[4])
    assert stranger.take(["core:0"]) == {}
    units.close()


def test_maps_of_one_process_have_cores_of_their_own_while_there_are_any(four: None) -> None:
    one, two, three = ThisMachine(), ThisMachine(), ThisMachine()
    assert cores(one, "cpu:1x2") == [(0, 1)]
    assert cores(two, "cpu:2") == [(2,), (3,)]
    assert cores(three, "cpu:1") == [(0,)]  # shared: perhaps one map waits for the other in one thread
    for units in (one, two, three):
        units.close()


def test_kept_workers_come_back_to_their_places(four: None, stranger: Claims) -> None:
    units = ThisMachine()
    places = units.take(parse_workers("cpu:1"))
    units.give(places[0])
    stranger.take(["core:3"])
    assert units.take(parse_workers("cpu:1"), places) == places
    units.give(places[0])
    stranger.take(["core:0"])
    assert units.take(parse_workers("cpu:1"), places)[0].cores == (1,)
    units.close()


def test_where_claims_cannot_be_written_a_map_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CLAIMS", "/proc/nowhere")
    units = ThisMachine()
    with pytest.warns(DovetailWarning, match="other Dovetails on this machine are not seen: "):
        (place,) = units.take(parse_workers("cpu:1"))
    assert units.claim_descriptors() == ()
    units.give(place)
    units.close()


def test_while_claims_are_locked_a_map_takes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOVETAIL_CLAIMS", str(tmp_path))
    units = ThisMachine()
    units._claims.patience = 0.05
    with open(tmp_path / "lock", "w") as lock:
        os.chmod(lock.fileno(), 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InUse, match="is locked, so that nothing can be claimed"):
            units.take(parse_workers("cpu:1"))
    (place,) = units.take(parse_workers("cpu:1"))
    units.give(place)
    units.close()


# -- with real workers ---------------------------------------------------------------------------------


def test_one_map_inside_another_and_inside_a_worker(folder: Path) -> None:
    """None of them waits for what the outer ones hold."""
    everything = f"cpu:{len(os.sched_getaffinity(0))}"

    def within(x: int) -> int:
        return sum(dovetail.map(mf.plain, range(x), workers=everything, history=False))

    found: list[int] = []
    for x in dovetail.map(mf.plain, iter(range(2)), workers=everything, batch=1, ordered=True, history=False):
        found += dovetail.map(within, [x + 3], workers=everything, history=False)
    assert found == [3, 6]
    until(lambda: list_holders(folder) == [])


def test_kept_workers_hold_their_cores_while_a_map_runs_only(folder: Path, stranger: Claims) -> None:
    every = [f"core:{core}" for core in sorted(os.sched_getaffinity(0))]
    with dovetail.Workers("cpu:1") as workers:
        first = set(dovetail.map(mf.device, range(3), workers=workers, history=False))
        until(lambda: list_holders(folder) == [])
        results = dovetail.map(mf.device, range(9), workers=workers, history=False, batch=1)
        again = {next(results)}
        (mine,) = list_holders(folder)
        again |= set(results)
        until(lambda: list_holders(folder) == [])
        assert mine.units <= set(every)
        assert len(mine.units) == 1
        assert again == first  # the same process
        stranger.take(mine.units)
        (moved,) = set(dovetail.map(mf.device, range(3), workers=workers, history=False))
        assert {f"core:{core}" for core in moved[2]}.isdisjoint(mine.units)


def test_a_map_that_waits_can_be_closed_and_goes_on_when_it_may(folder: Path, stranger: Claims) -> None:
    stranger.take(f"core:{core}" for core in os.sched_getaffinity(0))
    given: list[int] = []

    def gives(of: pytest.WarningsRecorder, results: Any, act: Callable[[], None]) -> list[int]:
        """What the map gives when this is done as soon as it has said that it waits."""

        def later() -> None:
            until(lambda: len(of))
            given.append(0)
            act()

        thread = threading.Thread(target=later)
        thread.start()
        found = [(x, len(given)) for x in results]
        thread.join()
        assert all(count == len(given) for _, count in found), "it did not wait"
        return sorted(x for x, _ in found)

    waiting = dovetail.map(mf.plain, range(5), workers="cpu:1", history=False)
    with pytest.warns(DovetailWarning, match="the map waits for that") as said:
        assert gives(said, waiting, waiting.close) == []
    results = dovetail.map(mf.plain, range(5), workers="cpu:1", history=False)
    with pytest.warns(DovetailWarning, match="the map waits for that") as said:
        assert gives(said, results, lambda: stranger.keep(())) == [0, 1, 2, 3, 4]


def test_a_map_that_is_closed_while_it_begins_ends(
    folder: Path, stranger: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another thread, when its own has begun and it does not know of that yet."""
    stranger.take(f"core:{core}" for core in os.sched_getaffinity(0))
    begun = threading.Event()
    monkeypatch.setattr("dovetail.mapping.session.warnings.warn", lambda *_, **__: begun.set())
    start = threading.Thread.start

    def slowly(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "dovetail-map":
            assert begun.wait(100)
            closing.start()
            closing.join(0.2)

    results = dovetail.map(mf.plain, range(5), workers="cpu:1", history=False)
    closing = threading.Thread(target=results.close)
    monkeypatch.setattr("threading.Thread.start", slowly)
    assert list(results) == []
    closing.join()
