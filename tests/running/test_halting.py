"""When a run ends early: the words of ``--halt``, and what counts."""

from __future__ import annotations

import pytest

from dovetail.errors import InputError
from dovetail.model import App, Ended, Job, State
from dovetail.running.halting import Halt, HaltWatch

APP = App("a", ())


def ended(job: str, state: State) -> Ended:
    return Ended(job, state, None, "")


def test_never_is_nothing() -> None:
    assert Halt.parse_halt("never") is None


@pytest.mark.parametrize(
    "text", ["", "now", "fail=1", "now,fail", "now,fail=0", "soon,fail=101%", "later,fail=1", "now,fail=-1"]
)
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--halt: found .*, expected never, or soon or now"):
        Halt.parse_halt(text)


def test_a_failure_that_is_retried_does_not_count() -> None:
    halt = Halt.parse_halt("now,fail=1")
    assert halt is not None
    watch = HaltWatch(halt, [Job("a", APP, (), retries=1)])
    assert watch([ended("a", State.FAILED)]) is None
    assert watch([ended("a", State.FAILED)]) == "now"


@pytest.mark.parametrize(
    ("text", "states", "at"),
    [
        ("soon,fail=2", "FCF", 3),
        ("soon,fail=30%", "FFFF", 3),  # of ten: three
        ("soon,fail=25%", "FFFF", 3),  # of ten: two and a half
        ("now,success=2", "CFC", 3),
        ("now,done=2", "FC", 2),
        ("soon,fail=1", "T", 1),
    ],
)
def test_so_many_ends_are_enough(text: str, states: str, at: int) -> None:
    halt = Halt.parse_halt(text)
    assert halt is not None
    watch = HaltWatch(halt, [Job(str(i), APP, ()) for i in range(10)])
    kinds = {"F": State.FAILED, "C": State.COMPLETED, "T": State.TIMEOUT}
    told = [watch([ended(str(i), kinds[state])]) for i, state in enumerate(states)]
    assert [answer is not None for answer in told[:at]] == [False] * (at - 1) + [True]
    assert told[at - 1] == halt.when
