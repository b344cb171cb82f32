"""Work that moves between two calls: nothing is lost, whatever fails, whoever computes meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_servers import Served, serving
from waiting import until

import dovetail_remote
from dovetail.errors import DeviceError, InputError
from dovetail_remote import Device, Namespace

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("remote")]

STARTS = ["remote", "local"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A device with little memory."""
    with serving(tmp_path_factory.mktemp("small"), "numpy", options=["--memory", "1MiB"]) as served:
        yield served


def started(start: str, served: Served) -> Namespace:
    return dovetail_remote.namespace(served.address() if start == "remote" else "local:numpy")


@pytest.mark.parametrize("start", STARTS)
def test_where_the_target_fails_the_work_stays(
    start: str, numpy_server: Served, small: Served, tmp_path: Path
) -> None:
    xp = started(start, numpy_server)
    x = xp.arange(1_000_000.0)
    before = xp.device.address
    for target, kind, message in (
        (f"unix:{tmp_path}/nothing.sock", DeviceError, "no device server answers there"),
        (numpy_server.address(7), DeviceError, "found no device 7"),
        ("local:abacus", InputError, "expected numpy"),
        (small.address(), DeviceError, "8000000 bytes are needed, and of the 1048576 bytes"),
    ):
        with pytest.raises(kind, match=message):
            xp.device.migrate(target)
        assert xp.device.address == before
        x += 1
    assert np.array_equal(np.asarray(x), np.arange(1_000_000.0) + 4)
    until(lambda: small.status()[0]["bytes"] == 0)
    xp.device.close()


@pytest.mark.parametrize("start", STARTS)
def test_the_source_is_left_empty(start: str, numpy_server: Served) -> None:
    xp = started(start, numpy_server)
    x = xp.zeros(1000)
    xp.device.synchronize()
    moved = xp.device.migrate(numpy_server.address(1))
    assert (moved.arrays, moved.size) == (1, 8000)
    assert moved.pause > 0
    assert moved.prepared > 0
    until(lambda: [device["bytes"] for device in numpy_server.status()] == [0, 8000])
    until(lambda: len(numpy_server.status()[1]["clients"]) == 1)
    xp.device.migrate("local:numpy")
    until(lambda: [device["bytes"] for device in numpy_server.status()] == [0, 0])
    assert float(xp.sum(x)) == 0
    del x
    assert not xp.device.link.values


def test_nothing_is_left_of_arrays_that_die_while_work_moves(numpy_server: Served) -> None:
    xp = started("local", numpy_server)
    kept = xp.ones(10)
    pool: list[Any] = []
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            pool.append(xp.ones(100))
            if len(pool) > 50:
                pool.clear()

    thread = threading.Thread(target=churn)
    thread.start()
    for where in [numpy_server.address(0), "local:numpy", numpy_server.address(1)] * 10:
        xp.device.migrate(where)
    stop.set()
    thread.join()
    pool.clear()
    xp.device.synchronize()
    assert xp.device.link.memory() == 80
    assert float(xp.sum(kept)) == 10
    xp.device.close()


def test_threads_compute_while_work_moves(numpy_server: Served) -> None:
    """Several threads each do sums that a call lost, or done twice, would spoil."""
    device = Device(numpy_server.address(0))
    xp = Namespace([device])
    results: dict[int, tuple[int, float]] = {}
    enough = threading.Event()

    def count(number: int) -> None:
        x = xp.zeros(16)
        total = xp.zeros(())
        k = 0
        while k < 4000 or not enough.is_set():
            x += 1
            total = total + x[k % 16]
            if k % 500 == number:
                float(total)  # some synchronize
            k += 1
        results[number] = k, float(total)

    threads = [threading.Thread(target=count, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    places = [numpy_server.address(1), "local:numpy", numpy_server.address(0)]
    for moves in range(6):
        device.migrate(places[moves % 3])
    enough.set()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(total == k * (k + 1) / 2 for k, total in results.values())
    device.close()


def test_work_of_no_arrays_and_of_empty_ones_moves(numpy_server: Served) -> None:
    xp = started("remote", numpy_server)
    assert xp.device.migrate(numpy_server.address(1)).arrays == 0
    x, y = xp.zeros((0, 3)), xp.ones(())
    assert xp.device.migrate("local:numpy").size == 8
    assert x.shape == (0, 3)
    assert float(y) == 1
    xp.device.migrate(numpy_server.address(0))
    assert (x.shape, float(y)) == ((0, 3), 1)
    xp.device.close()


def test_types_that_the_target_lacks_are_refused(numpy_server: Served) -> None:
    device = Device("local:numpy")
    xp = Namespace([device])
    x = xp.ones(3, dtype=xp.complex128)
    backend = Device("local:numpy").link.backend  # type: ignore[attr-defined]
    dtypes = dict(backend.dtypes)
    del dtypes["complex128"]
    manifest, fill, end = device.link.take()
    from dovetail_remote.snapshot import load_snapshot

    backend.dtypes = dtypes
    with pytest.raises(TypeError, match="has no complex128"):
        load_snapshot(backend, manifest, fill)
    end()
    assert complex(xp.sum(x)) == 3
