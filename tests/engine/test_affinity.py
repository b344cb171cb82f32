"""Jobs of several devices get those that are close to each other, and host cores near them."""

from __future__ import annotations

from itertools import combinations

import pytest

from dovetail.engine.capacity.cores import CoreBook
from dovetail.engine.capacity.free import FreeCapacity, Layout, closest_devices
from dovetail.engine.journal.codec import decode_cluster, encode_cluster
from dovetail.model import Allocation, Cluster, Device, Node, Part, Request
from dovetail.model.node import NVLINK, SWITCH


def box(links: dict[tuple[int, int], int], count: int = 4, **near: tuple[int, ...]) -> Cluster:
    def links_of(d: int) -> tuple[tuple[int, int], ...]:
        return tuple(sorted((b if a == d else a, how) for (a, b), how in links.items() if d in (a, b)))

    devices = tuple(
        Device("gpu", "V100", d, links=links_of(d), near=near.get(f"gpu{d}", ())) for d in range(count)
    )
    return Cluster((Node("box", tuple(range(8)), devices),))


def taken(free: FreeCapacity, gpus: float) -> tuple[int, ...]:
    found = free.claim(Request(1, 0, (("gpu", gpus),)))
    assert found is not None
    return found.parts[0].devices


def test_two_gpus_are_a_pair_with_nvlink_else_behind_one_switch_else_the_first() -> None:
    cluster = box({(0, 1): SWITCH, (0, 3): NVLINK, (1, 2): SWITCH})
    free = FreeCapacity(Layout(cluster))
    assert taken(free, 2) == (0, 3)
    assert taken(free, 2) == (1, 2)
    free = FreeCapacity(Layout(cluster))
    assert taken(free, 1) == (0,), "one alone is the first, as everywhere"
    assert taken(free, 2) == (1, 2)
    assert taken(FreeCapacity(Layout(box({}))), 2) == (0, 1)


def test_the_most_links_of_large_boxes_are_found_without_trying_all() -> None:
    """Two islands of eight: eight GPUs are one of them, though their numbers alternate."""
    links = {(a, b): NVLINK for a, b in combinations(range(16), 2) if a % 2 == b % 2}
    devices = box(links, 16).nodes[0].devices
    found = closest_devices(devices, range(1, 16), 8)
    assert sorted(found) == list(range(1, 16, 2))


def test_host_cores_are_near_the_devices_as_far_as_these_go() -> None:
    cluster = box({}, gpu0=(4, 5), gpu1=(6, 7))
    book = CoreBook(cluster)

    def cores(device: tuple[int, ...], cpus: int) -> tuple[int, ...]:
        allocation = Allocation(Request(1, cpus), (Part(1, cpus, device),))
        return book.assign_cores(allocation)[0]

    assert cores((0,), 1) == (4,)
    assert cores((1,), 3) == (6, 7, 0)
    assert cores((), 2) == (1, 2)
    assert cores((0,), 2) == (5, 3)


@pytest.mark.parametrize("near", [(), (4, 5)])
def test_a_run_folder_keeps_what_is_close(near: tuple[int, ...]) -> None:
    cluster = box({(0, 1): NVLINK}, gpu0=near)
    assert decode_cluster(encode_cluster(cluster)).nodes == cluster.nodes
    plain = encode_cluster(Cluster.parse("1x1cpu+1gpu"))
    assert "near" not in str(plain), "files of machines without any stay as they were"
