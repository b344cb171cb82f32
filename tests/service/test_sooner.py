"""What a waiting job could request instead, and how each of that stands in the queue."""

from __future__ import annotations

from dataclasses import replace

from dovetail.forecasts.sooner import other_requests
from dovetail.model import App, Choice, Cluster, Implementation, Job, Request


def job(*requests: Request, **fields: object) -> Job:
    kinds = ["gpu" if request.devices else "cpu" for request in requests]
    ways = tuple(
        Implementation(kind, kind, request)
        for kind, request in dict(zip(kinds, requests, strict=True)).items()
    )
    names = {one.name: one for one in ways}
    choices = tuple(Choice(names[kind], request) for kind, request in zip(kinds, requests, strict=True))
    return Job("a", App("a", ways), choices, **fields)  # type: ignore[arg-type]


PARTED = Cluster(
    tuple(
        replace(node, partitions=(name,))
        for node, name in zip(Cluster.parse("4x8cpu+1gpu").nodes, "aabb", strict=True)
    )
)


def test_one_thing_is_changed_at_a_time_and_only_what_the_job_has() -> None:
    cpu, gpu = Request(1, 4, memory=8), Request(1, 1, (("gpu", 1),), memory=4)
    changes = other_requests(job(cpu, gpu, walltime=3600.0), Cluster.parse("1x8cpu+1gpu"))
    shown = [dict(change) for change, _ in changes]
    assert shown == [
        {"on": "cpu"},
        {"on": "gpu"},
        {"walltime": 1800.0},
        {"walltime": 900.0},
        {"memory": 4},
    ]
    assert [one.request for one in changes[0][1].choices] == [cpu]
    assert [one.request.memory for one in changes[4][1].choices] == [4, 2]
    assert other_requests(job(Request(1, 1)), Cluster.parse("1x8cpu")) == []


def test_nodes_are_those_that_the_job_is_moldable_to_or_half() -> None:
    cluster = Cluster.parse("4x8cpu")
    fixed = other_requests(job(Request(3, 1), nodes=3), cluster)
    assert [(dict(change), one.nodes, one.choices[0].request.nodes) for change, one in fixed] == [
        ({"nodes": 2}, 2, 2)
    ]
    moldable = other_requests(job(Request(1, 1), Request(4, 1), nodes=4), cluster)
    assert [dict(change) for change, _ in moldable] == [{"nodes": 1}, {"nodes": 4}]
    assert all(len(one.choices) == 1 for _, one in moldable)


def test_partitions_are_those_in_which_it_may_not_start_and_that_have_room_for_it() -> None:
    inside = job(Request(1, 1, partition="a"))
    assert [dict(change) for change, _ in other_requests(inside, PARTED)] == [{"partition": "b"}]
    wide = job(Request(1, 9, partition="a"))
    assert other_requests(wide, PARTED) == [], "no node has so many CPUs"
    assert other_requests(job(Request(1, 1)), PARTED) == [], "it may start anywhere"
    closed = replace(PARTED, closed=frozenset("b"))
    assert [dict(change) for change, _ in other_requests(job(Request(1, 1)), closed)] == [{"partition": "b"}]
    named = job(Request(1, 1), batch_options=("--partition=a",))
    assert other_requests(named, PARTED) == []
