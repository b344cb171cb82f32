from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from descendants import named_memory

from dovetail.mapping.wire import Closed, Connection, pack_object, unpack_object


@pytest.fixture
def ends() -> Iterator[tuple[Connection, Connection]]:
    pair = Connection.make_pair()
    yield pair
    for end in pair:
        end.close()


def sent(ends: tuple[Connection, Connection], thing: object) -> object:
    ends[0].send_message(("a", 1), pack_object(thing))
    received = ends[1].receive_message()
    assert received is not None
    message, parts = received
    assert message == ("a", 1)
    return unpack_object(parts)


@pytest.mark.parametrize("count", [0, 1, 1000, 10_000, 100_000, 3_000_000])
def test_arrays_arrive_and_can_be_changed(ends: tuple[Connection, Connection], count: int) -> None:
    array = np.arange(count, dtype=np.float64)
    found = sent(ends, {"x": [array, "text"]})
    assert isinstance(found, dict)
    np.testing.assert_array_equal(found["x"][0], array)
    found["x"][0][:] = -1
    np.testing.assert_array_equal(array, np.arange(count))  # what was sent is another


def test_large_pickles_without_buffers_arrive(ends: tuple[Connection, Connection]) -> None:
    numbers = list(range(200_000))
    assert sent(ends, numbers) == numbers


def test_many_buffers_arrive(ends: tuple[Connection, Connection]) -> None:
    arrays = [np.full(2000, i) for i in range(3000)]
    found = sent(ends, arrays)
    assert isinstance(found, list)
    assert all((array == i).all() for i, array in enumerate(found))


def test_large_buffers_are_not_in_the_pickle() -> None:
    parcel = pack_object(np.zeros(1_000_000))
    assert len(parcel.parts) == 2
    assert len(parcel.parts[0]) < 1000
    assert parcel.size == pytest.approx(8_000_000, rel=0.001)


def test_functions_without_a_module_travel_by_value(ends: tuple[Connection, Connection]) -> None:
    add = 5
    found = sent(ends, lambda x: x + add)
    assert callable(found)
    assert found(1) == 6


OF_OTHERS: set[str] = set()


@pytest.fixture(autouse=True)
def only_ours() -> None:
    """What earlier tests of this process have kept is not counted."""
    OF_OTHERS.clear()
    OF_OTHERS.update(pieces())


def pieces() -> set[str]:
    """The inodes of shared memory that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if "memfd:dovetail" in line} - OF_OTHERS


def answered(ends: tuple[Connection, Connection]) -> None:
    """The receiver says something, and with it what it needs no longer."""
    ends[1].send_message(("done",))
    assert ends[0].receive_message() == (("done",), [])


def test_shared_memory_has_no_name_and_goes_with_the_connection(ends: tuple[Connection, Connection]) -> None:
    found = sent(ends, np.zeros(1_000_033))
    assert not named_memory(8 * 1_000_033)
    assert len(pieces()) == 1
    for end in ends:
        end.close()
    assert isinstance(found, np.ndarray)
    found[:] = 1  # it is the receiver's
    del found
    assert not pieces()


def test_shared_memory_is_used_again_when_nothing_in_it_is(ends: tuple[Connection, Connection]) -> None:
    kept = sent(ends, {"a": np.full(100_000, 1.0), "b": np.full(100_000, 1.5)})
    assert isinstance(kept, dict)
    part = kept["b"][5:7]  # a view of one of its arrays
    del kept
    answered(ends)
    for i in range(20):
        found = sent(ends, [np.full(100_000 - i, float(i)), np.full(90_000, -float(i))])
        assert isinstance(found, list)
        assert (found[0] == i).all()
        assert (found[1] == -i).all()
        assert found[0].shape == (100_000 - i,)
        del found
        answered(ends)
    assert part.tolist() == [1.5, 1.5]
    assert len(pieces()) == 2
    del part
    answered(ends)
    sent(ends, np.zeros(1_000))
    assert len(pieces()) == 2
    sent(ends, np.zeros(5_000_000))  # nothing that is there will do
    assert len(pieces()) == 1


def test_a_receiver_that_lets_nothing_go_gets_new_memory_each_time(
    ends: tuple[Connection, Connection],
) -> None:
    found = []
    for i in range(6):
        found.append(sent(ends, np.full(100_000, i)))
        answered(ends)
    assert [int(array[-1]) for array in found] == list(range(6))  # type: ignore[index]
    assert len(pieces()) == 6
    found.clear()
    answered(ends)
    sent(ends, np.zeros(1_000))
    assert len(pieces()) == 2  # a few are kept for what comes next


def test_no_descriptor_is_left(ends: tuple[Connection, Connection]) -> None:
    def held() -> int:
        """Of shared memory; what others have may be given back at any time."""
        links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
        return sum(os.path.islink(link) and "memfd:dovetail" in os.readlink(link) for link in links)

    before = held()
    for i in range(20):
        sent(ends, np.zeros(100_000 * (1 + i % 3)))
        if i % 2:
            answered(ends)
    for end in ends:
        end.close()
    assert held() <= before


def test_nothing_there_yet_and_nobody_there_any_more(ends: tuple[Connection, Connection]) -> None:
    assert ends[1].receive_message(wait=False) is None
    ends[0].send_message(("last",))
    ends[0].close()
    assert ends[0].is_closed
    assert ends[1].receive_message() == (("last",), [])
    with pytest.raises(Closed):
        ends[1].receive_message()
    with pytest.raises(Closed):
        ends[1].send_message(("anybody?",))
    with pytest.raises(Closed):
        ends[0].send_message(("with our own end closed",), pack_object(np.zeros(100_000)))


def test_a_receiver_waits(ends: tuple[Connection, Connection]) -> None:
    threading.Timer(0.05, ends[0].send_message, [("now",)]).start()
    received = ends[1].receive_message()
    assert received is not None
    assert received[0] == ("now",)
