"""Memory of large arrays that is used again: never while anybody sees it, never another's, never much."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from device_servers import Served
from waiting import until

import dovetail_remote
from dovetail_remote.spares import KEPT, LARGEST, SMALLEST, BlockPool

pytestmark = pytest.mark.xdist_group("remote")

COUNT = SMALLEST // 8


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_of_an_array_that_died_is_used_again_whatever_its_type() -> None:
    spares, me = BlockPool(), object()
    array = spares.empty(me, (COUNT,), "float64")
    where = address(array)
    del array
    again = spares.empty(me, (2, COUNT), "int32")
    assert (address(again), again.shape, again.dtype) == (where, (2, COUNT), np.int32)
    assert again.flags.c_contiguous
    assert again.flags.writeable


@pytest.mark.parametrize(
    "held",
    [
        lambda array: array,
        lambda array: array[5:7],
        lambda array: array.view("uint8").reshape(8, -1).T[1:2],
        lambda array: memoryview(array),
        lambda array: np.from_dlpack(array),
        lambda array: {"inside": [array.reshape(4, -1)]},
    ],
    ids=["itself", "a slice", "a view of a view", "a buffer", "DLPack", "in a container"],
)
def test_memory_that_anybody_has_is_not(held) -> None:
    spares, me = BlockPool(), object()
    first = spares.empty(me, (COUNT,), "float64")
    where = address(first)
    kept = held(first)
    del first
    assert address(spares.empty(me, (COUNT,), "float64")) != where
    del kept
    assert where in (address(spares.empty(me, (COUNT,), "float64")) for _ in range(2))


def test_memory_of_another_owner_is_not() -> None:
    spares, me, other = BlockPool(), object(), object()
    mine = spares.empty(me, (COUNT,), "float64")
    mine[:] = 42
    where = address(mine)
    del mine
    theirs = spares.empty(other, (COUNT,), "float64")
    assert address(theirs) != where
    assert address(spares.empty(me, (COUNT,), "float64")) == where


def test_what_is_kept_is_bounded_and_forgotten() -> None:
    def held() -> int:
        return sum(memory.block.nbytes for memory in spares._kept)

    spares, me = BlockPool(), object()
    for count in (0, COUNT - 1, LARGEST // 8 + 1):
        assert spares.empty(me, (count,), "float64").shape == (count,)
    assert held() == 0
    for number in range(2 * KEPT):
        spares.empty(me, (COUNT + number,), "float64")
    assert held() == 8 * sum(COUNT + number for number in range(KEPT, 2 * KEPT))
    spares.empty(me, (COUNT + KEPT,), "float64")  # used again: what was longest ago is another one now
    spares.empty(None, (COUNT,), "float64")
    assert held() == SMALLEST + 8 * (COUNT + KEPT)
    spares.forget_owner(me)
    assert held() == SMALLEST


def test_threads_never_get_the_same_memory() -> None:
    spares = BlockPool()
    wrong = []

    def work(number: int) -> None:
        for turn in range(200):
            array = spares.empty("all", (COUNT,), "int64")
            array[::512] = number * 1000 + turn
            if (array[::512] != number * 1000 + turn).any():
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.live
def test_arrays_of_programs_stay_what_they_were(numpy_server: Served) -> None:
    """On both sides: what was put or fetched before is still the same after others have come and gone."""
    xp = dovetail_remote.namespace(numpy_server.address())
    there, here = {}, {}
    for turn in range(12):
        array = xp.asarray(np.full((2, COUNT), turn, dtype=np.int32))
        if turn % 3 == 0:
            there[turn] = array[1, 5:9]  # the memory lives on in a view
        found = np.asarray(array)
        if turn % 4 == 0:
            here[turn] = found[0, -3:]
        array += 1000  # in place: neither what was sent nor what was fetched may change
    for turn, array in there.items():
        assert set(np.asarray(array).tolist()) == {turn + 1000}
    for turn, found in here.items():
        assert set(found.tolist()) == {turn}
    xp.device.close()


@pytest.mark.live
def test_a_server_keeps_nothing_of_who_has_left(numpy_server: Served) -> None:
    def resident() -> int:
        pages = Path(f"/proc/{numpy_server.workers()[0]}/statm").read_text().split()[1]
        return int(pages) * 4096

    until(lambda: not numpy_server.status()[0]["clients"])
    before = resident()
    xp = dovetail_remote.namespace(numpy_server.address())
    for _ in range(5):
        xp.asarray(np.ones(LARGEST // 8))
        xp.device.synchronize()
    assert resident() - before > LARGEST // 2
    xp.device.close()
    until(lambda: resident() - before < LARGEST // 2)
