"""Promises: what may change, what counts as broken, and whom an overrun excuses."""

from __future__ import annotations

from dovetail.engine.state.promises import PromiseBook
from dovetail.model import Allocation, Promise, Request
from dovetail.testing.builders import rigid

WORKLOAD = rigid([(0.0, 1, 1.0, 1.0), (0.0, 1, 1.0, 1.0)])


def promise(start: float, number: int = 0) -> Promise:
    job = WORKLOAD.jobs[number]
    return Promise(job, job.choices[0].implementation, Allocation(Request(1, 1), ()), start)


def test_a_promise_moves_earlier_but_not_later() -> None:
    book = PromiseBook()
    assert book.reserve_promise(promise(10), 0) is None
    assert book.reserve_promise(promise(8), 1) is None
    assert "later" in str(book.reserve_promise(promise(9), 2))
    assert "was promised" in str(book.reserve_promise(promise(1), 2))
    assert book.held["0"].start == 8
    assert book.settle("0", 8) == 8
    assert book.broken == 0
    assert book.settle("0", 9) is None


def test_a_late_start_is_counted_and_an_overrun_excuses_it() -> None:
    book = PromiseBook()
    book.reserve_promise(promise(5, 0), 0)
    book.settle("0", 6)
    assert (book.broken, book.broken_by_overrun) == (1, 0)
    book.reserve_promise(promise(9, 1), 7)
    book.note_overrun(8)
    book.settle("1", 12)
    assert (book.broken, book.broken_by_overrun) == (2, 1)


def test_a_learned_bound_that_was_too_low_excuses_the_promises_behind_it() -> None:
    """The first job was promised its start when it was thought to take 3 s at most; it starts with 9 s."""
    book = PromiseBook()
    book.reserve_promise(promise(5, 0), 0, bound=3)
    book.reserve_promise(promise(8, 1), 1, bound=2)
    book.settle("0", 5, bound=9)
    book.settle("1", 12, bound=2)
    assert (book.broken, book.broken_by_overrun) == (1, 1)
    book.reserve_promise(promise(20, 0), 13, bound=3)
    book.reserve_promise(promise(23, 1), 13, bound=2)
    book.settle("0", 20, bound=3)
    book.settle("1", 24, bound=2)
    assert (book.broken, book.broken_by_overrun) == (2, 1)


def test_an_overrun_before_the_promise_excuses_nothing() -> None:
    book = PromiseBook()
    book.note_overrun(1)
    book.reserve_promise(promise(5), 2)
    book.settle("0", 6)
    assert (book.broken, book.broken_by_overrun) == (1, 0)


def test_an_overdue_promise_that_is_renewed_stays_broken() -> None:
    book = PromiseBook()
    book.reserve_promise(promise(5), 0)
    assert book.reserve_promise(promise(9), 6) is None
    book.settle("0", 8)
    assert book.broken == 1


def test_sums_of_floats_in_another_order_break_nothing() -> None:
    book = PromiseBook()
    book.reserve_promise(promise(0.3), 0)
    assert book.reserve_promise(promise(0.1 + 0.2), 0.1) is None
    book.settle("0", 0.1 + 0.2)
    assert book.broken == 0


def test_dropped_promises_bind_nobody() -> None:
    book = PromiseBook()
    book.reserve_promise(promise(5, 0), 0)
    book.reserve_promise(promise(6, 1), 0)
    book.drop_promise("0")
    book.drop_promise("0")
    assert book.settle("0", 50) is None
    book.drop_all()
    assert book.settle("1", 50) is None
    assert book.broken == 0
