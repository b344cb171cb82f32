"""Random programs give NumPy's results bit by bit, however often their device is moved meanwhile."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator

import array_api_compat.numpy as np_compat
import numpy as np
import pytest
from array_programs import fresh, step
from device_servers import Served, assert_identical, quiet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dovetail_remote
from dovetail_remote import Device, Namespace

FULL = bool(os.environ.get("DOVETAIL_TEST_FULL"))
EXAMPLES = 400 if FULL else 25
_CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]

programs = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=60 if FULL else 30)


def places(served: Served) -> Iterator[str]:
    """Remote to remote, remote to local, local to remote, for ever."""
    return itertools.cycle([served.address(1), "local:numpy", served.address(0)])


@pytest.mark.parametrize("replay", [False, True], ids=["plain", "replay"])
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=_CHECKS)
@given(seeds=programs, every=st.integers(1, 5))
def test_random_programs_with_migrations(
    numpy_server: Served, replay: bool, seeds: list[int], every: int
) -> None:
    device = Device(numpy_server.address(0), replay=replay)
    xp = Namespace([device])
    try:
        ours, theirs = [], []
        for seed in (1, 2, 3):
            ours.append(fresh(xp, random.Random(seed)))
            theirs.append(fresh(np_compat, random.Random(seed)))
        where = places(numpy_server)
        for number, seed in enumerate(seeds, 1):
            with quiet():
                step(xp, ours, seed)
                step(np_compat, theirs, seed)
            if number % every == 0:
                moved = device.migrate(next(where))
                assert moved.target == device.address
        for one, other in zip(ours, theirs, strict=True):
            assert_identical(np.asarray(one), np.asarray(other))
    finally:
        device.close()


def test_views_stay_views_where_they_are_put(numpy_server: Served) -> None:
    xp = dovetail_remote.namespace(numpy_server.address(0))
    base = xp.reshape(xp.arange(24.0), (4, 6))
    row, backwards, turned = base[1, :], base[::-1, ::-2], base.T
    stretched = xp.broadcast_to(base[0, :], (3, 6))
    host = np.arange(24.0).reshape(4, 6)
    views = host[1, :], host[::-1, ::-2], host.T, np.broadcast_to(host[0, :], (3, 6))
    for address in (numpy_server.address(1), "local:numpy", numpy_server.address(0)):
        moved = xp.device.migrate(address)
        assert (moved.arrays, moved.size) == (5, 24 * 8)  # one region of memory
        row += 1
        host[1, :] += 1
        base[0, 0] = 50
        host[0, 0] = 50
        for one, other in zip((base, row, backwards, turned, stretched), (host, *views), strict=True):
            assert_identical(np.asarray(one), np.ascontiguousarray(other))
    for view in (stretched, stretched[1:, :], xp.broadcast_to(base[0, :], (3, 6))):
        with pytest.raises(ValueError, match="read-only"):  # as in NumPy, also after it has been moved
            view[0, 0] = 1
    xp.device.close()


def test_of_a_large_array_only_the_slice_that_is_left_is_moved(numpy_server: Served) -> None:
    xp = dovetail_remote.namespace(numpy_server.address(0))
    part = xp.zeros(1_000_000)[500:600]
    assert xp.device.migrate(numpy_server.address(1)).size == 100 * 8
    assert float(xp.sum(part)) == 0
    xp.device.close()


def test_without_a_server_everything_stays_in_this_process() -> None:
    xp = dovetail_remote.namespace()
    assert xp.device.is_local
    assert float(xp.sum(xp.ones(4))) == 4
