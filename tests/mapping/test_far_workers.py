"""What the end of a worker means that another system had started."""

from __future__ import annotations

from dovetail.mapping.crew import Lost, Slot, Unable
from dovetail.mapping.far_workers import FALSE_STARTS, FarWorker
from dovetail.mapping.places import Place


def far_worker(**known: object) -> FarWorker:
    return FarWorker(Slot(0, Place("cpu", 0, (), 0, "")), **known)  # type: ignore[arg-type]


def test_a_worker_stays_warm_for_the_function_that_it_has() -> None:
    worker = far_worker(ready=True)
    worker.orders.append(3)
    assert worker.begin_map({"cpu": b"f", "gpu": b"g"}) == b"f"
    assert not worker.orders
    assert not worker.ready
    worker.slot.warm = True  # it has run f
    assert worker.begin_map({"cpu": b"f"}) == b"f"
    assert worker.slot.warm
    assert worker.begin_map({"cpu": b"other"}) == b"other"
    assert not worker.slot.warm


def test_a_worker_that_cannot_run_the_function_is_sent_none() -> None:
    assert far_worker().begin_map({"gpu": b"g"}) is None


def test_a_ready_worker_is_lost_and_its_false_starts_are_over() -> None:
    worker = far_worker(ready=True, false_starts=2)
    assert worker.note_loss("status 9") == ([Lost(worker.slot, "its worker was lost: status 9")], 0)
    worker.reason = "it took too long"
    assert worker.note_loss("status 9")[0] == [Lost(worker.slot, "it took too long")]


def test_a_slot_whose_workers_end_before_they_are_ready_is_left_out() -> None:
    starts = 0
    for turn in range(FALSE_STARTS):
        worker = far_worker(false_starts=starts)
        events, starts = worker.note_loss("status 1")
        assert bool(events) == (turn == FALSE_STARTS - 1)
    (event,) = events
    assert isinstance(event, Unable)
    assert event.failure.message == "its worker was lost: status 1 before it was ready"
