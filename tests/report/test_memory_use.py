"""What a run reserved, used and wasted of memory, by hand."""

from __future__ import annotations

import pytest

from dovetail.model import App, Choice, DeviceClass, Implementation, Job, Request, State
from dovetail.report import plots
from dovetail.report.drawing import Line
from dovetail.report.memory_use import MemoryAttempt, memory_use, text_chart

HOUR = 3600.0
GB = 1_000_000_000
REQUEST = Request(cpus=1, memory=4 * GB)
IMPLEMENTATION = Implementation("cpu", "cpu", REQUEST)
JOB = Job("a", App("a", (IMPLEMENTATION,)), (Choice(IMPLEMENTATION, REQUEST),))


def a_try(
    start: float, peak: float | None, state: State = State.COMPLETED, reserved: float = 4
) -> MemoryAttempt:
    held = None if peak is None else int(peak * GB)
    reserved_bytes = int(reserved * GB)
    cpu = DeviceClass("cpu")
    return MemoryAttempt(
        JOB, "cpu", cpu, REQUEST, start * HOUR, (start + 1) * HOUR, reserved_bytes, held, state
    )


def test_totals_and_series_by_hand() -> None:
    use = memory_use(
        [
            a_try(0, 1.0),  # 3 wasted
            a_try(0, 2.0, State.OUT_OF_MEMORY, reserved=2),  # 2 wasted
            a_try(1, 3.0),  # 1 wasted
            a_try(1, None),
        ],
        16 * GB,
    )
    assert (use.tries, use.unmeasured, use.kills) == (4, 1, 1)
    assert (use.reserved, use.used, use.wasted) == (10.0, 4.0, 6.0)
    assert use.series == [(0.0, 6 * GB, 3 * GB), (HOUR, 4 * GB, 3 * GB), (2 * HOUR, 0, 0)]
    reserved, used = text_chart(use, 32).splitlines()
    assert reserved == "reserved  " + "\u2588" * 10 + "\u2585" * 10
    assert used == "used      " + "\u2584" * 20


def test_under_auto_a_run_that_ended_before_counts() -> None:
    same = memory_use([a_try(n, 1.0) for n in range(10)], 16 * GB)
    assert same.wasted == pytest.approx(30.0)
    assert same.auto_wasted < 5.0, "three for the first, little for the others"
    assert same.auto_kills == 0
    grown = memory_use([*(a_try(n, 1.0) for n in range(5)), a_try(9, 3.0)], 16 * GB)
    assert grown.auto_kills == 1
    reserved, used = (
        shape for shape in plots.draw_memory(same).shapes if isinstance(shape, Line) and len(shape.points) > 2
    )
    assert min(y for _, y in reserved.points) < min(y for _, y in used.points)  # the higher, the less
