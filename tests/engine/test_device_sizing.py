"""What jobs ask of their devices: learned from peaks, above what was too little, never twice alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dovetail.engine.capacity.device_sizing import DROPPED, DeviceSizes, sizes_of
from dovetail.engine.capacity.sizing import MOST_KILLS, Sizes
from dovetail.history.memory import MemoryHistory
from dovetail.model import (
    Allocation,
    App,
    Choice,
    Cluster,
    Device,
    DeviceClass,
    Implementation,
    Job,
    Node,
    Part,
    Record,
    Request,
    Run,
    Sized,
    Sizing,
    State,
    Usage,
)

GIB = 2**30
BOX = Cluster(
    (
        Node(
            "box",
            (0, 1),
            (Device("gpu", "T4", 0, memory=16 * GIB), Device("gpu", "A100", 1, memory=40 * GIB)),
        ),
    )
)


def job(*, gpu_memory: int = 0, share: float = 1.0, cpu: bool = False, **sizing: object) -> Job:
    ways = [Implementation("gpu", "gpu", Request(1, 0, (("gpu", share),), gpu_memory=gpu_memory))]
    if cpu:
        ways.append(Implementation("cpu", "cpu", Request(1, 1)))
    app = App("train", tuple(ways))
    choices = tuple(Choice(way, way.request) for way in ways)
    return Job("a", app, choices, sizing=Sizing(**sizing))  # type: ignore[arg-type]


def on(asks: Job, device: int) -> Record:
    """A record of its first choice on that device."""
    choice = asks.choices[0]
    whole = choice.request.devices[0][1] >= 1
    units = 0 if whole and choice.request.gpu_memory else round(choice.request.devices[0][1] * 1_000_000)
    part = Part(1, 0, (device,), units, 0, choice.request.gpu_memory)
    record = Record(asks, State.OUT_OF_MEMORY, choice.implementation, Allocation(choice.request, (part,)))
    record.attempts = 1
    return record


def history(*runs: tuple[str, State, int, float]) -> MemoryHistory:
    """Runs of the app by model, with their peaks."""
    found = MemoryHistory()
    for model, state, peak, when in runs:
        usage = Usage(gpu_memory=peak)
        found.record(
            Run("train", "gpu", DeviceClass("gpu", model), 1, 0, 1.0, state=state, usage=usage, when=when)
        )
    return found


@pytest.mark.parametrize(
    ("asks", "device", "expected"),
    [
        (job(), 0, [(0, 16 * GIB + 1)]),  # had the small one to itself: a larger one
        (job(gpu_memory=6 * GIB), 0, [(40 * GIB, 0)]),  # shared: as good as never too little
        (job(gpu_memory=6 * GIB, retry=2.0), 0, [(12 * GIB, 0)]),
        (job(share=0.25), 1, [(40 * GIB, 0)]),  # was counted with 10
        (job(cpu=True), 1, [DROPPED, (0, 0)]),  # nothing is larger: the CPU is left
    ],
)
def test_after_a_kill_it_asks_for_more(asks: Job, device: int, expected: Sequence[tuple[int, int]]) -> None:
    found = Sizes(None).after_device_kill(on(asks, device), BOX)
    assert isinstance(found, Sized)
    assert list(found.gpu) == expected
    assert found.gpu_kills == 1


@pytest.mark.parametrize("asks", [job(), job(gpu_memory=6 * GIB)])
def test_what_strangers_took_is_no_lack_of_the_device(asks: Job) -> None:
    """On the largest device: without them it may be enough; where they left what was given, it was not."""
    found = Sizes(None).after_device_kill(on(asks, 1), BOX, 4 * GIB)
    assert isinstance(found, Sized)
    assert list(found.gpu) == [sizes_of(choice.request) for choice in asks.choices]
    assert found.gpu_kills == 1
    assert Sizes(None).after_device_kill(on(asks, 1), BOX, 40 * GIB) == Sizes(None).after_device_kill(
        on(asks, 1), BOX
    )


@pytest.mark.parametrize(
    ("asks", "device", "why"),
    [
        (job(), 1, "none here has more for it"),
        (job(retry="no"), 0, "retry_memory is no"),
        (job(gpu_kills=MOST_KILLS), 0, "is not tried again"),
    ],
)
def test_where_nothing_is_left_it_says_so(asks: Job, device: int, why: str) -> None:
    found = Sizes(None).after_device_kill(on(asks, device), BOX)
    assert isinstance(found, str)
    assert why in found


def test_what_was_too_little_is_known_to_later_jobs() -> None:
    kills = history(("T4", State.OUT_OF_MEMORY, 16 * GIB, 1.0))
    assert DeviceSizes(kills).of(job(), BOX) == ((0, 16 * GIB + 1),)
    assert DeviceSizes(kills).of(job(gpu_memory=GIB), BOX) == ((GIB, 0),), "what a person asks for stays"
    later = history(("T4", State.OUT_OF_MEMORY, 16 * GIB, 1.0), ("T4", State.COMPLETED, 3 * GIB, 2.0))
    assert DeviceSizes(later).of(job(), BOX) == ((0, 3 * GIB),), "a later run has shown that it needs less"


def test_auto_is_what_runs_have_needed_and_a_little_more() -> None:
    known = history(*(("A100", State.COMPLETED, 5 * GIB, float(n)) for n in range(8)))
    ((memory, least),) = DeviceSizes(known).of(job(gpu_auto=("gpu",)), BOX)
    assert 5 * GIB <= memory <= 8 * GIB
    assert least == 0
    assert DeviceSizes(history()).of(job(gpu_auto=("gpu",)), BOX) == ((0, 0),), "unknown: a device to itself"


def test_nothing_is_learned_where_it_changes_nothing() -> None:
    alike = Cluster((replace(BOX.nodes[0], devices=BOX.nodes[0].devices[:1]),))
    sizes = DeviceSizes(history())
    assert sizes.learns_sizes(job(), BOX)
    assert not sizes.learns_sizes(job(), alike)
    assert sizes.learns_sizes(job(gpu_auto=("gpu",)), alike)
    assert not DeviceSizes(None).learns_sizes(job(), BOX)
    assert sizes_of(job(gpu_memory=GIB).choices[0].request) == (GIB, 0)
