"""What a machine lacks is said."""

from __future__ import annotations

import pytest

from dovetail.driver.prepare import describe_lack
from dovetail.model import Choice, Cluster, Implementation, Request

MACHINE = Cluster.parse("2x8cpu+1gpu")


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(cpus=64), "needs 64 CPUs on a node, and no node has more than 8"),
        (Request(nodes=3, cpus=1), "needs 3 nodes, and there are 2"),
        (Request(cpus=0, devices=(("opencl", 1.0),)), "needs a device of kind opencl, and there is none"),
        (Request(cpus=0, devices=(("gpu", 2.0),)), "needs 2 gpu on a node, and no node has more than 1"),
        (Request(cpus=1, models=("A100",)), "needs a device of model A100, and there is none"),
    ],
)
def test_the_first_thing_that_is_missing_is_named(request_: Request, words: str) -> None:
    choice = Choice(Implementation("x", "cpu", request_), request_)
    assert describe_lack((choice,), MACHINE) == words
    assert describe_lack((choice, choice), MACHINE) == words  # said once


def test_memory_is_told_in_units_for_people() -> None:
    request = Request(cpus=1, memory=64 * 2**30)
    choice = Choice(Implementation("x", "cpu", request), request)
    machine = Cluster.uniform(1, 2, memory=8_000_000_000)
    words = "needs 68.7 GB of memory on a node, and no node has more than 8 GB"
    assert describe_lack((choice,), machine) == words


def test_one_cpu_is_no_cpus() -> None:
    request = Request(cpus=1)
    choice = Choice(Implementation("x", "cpu", request), request)
    machine = Cluster.parse("1x0cpu+1gpu")
    assert describe_lack((choice,), machine) == "needs 1 CPU on a node, and no node has more than 0"
