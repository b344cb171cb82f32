from __future__ import annotations

import math

import numpy as np
import pytest

from dovetail.splitting.rules import DEFAULT_RULE, RULES, FinishTime, Greedy, Rule, Shares, SplitState


def situation(left: float, cpus: list[float], gpus: list[float], **seconds: float) -> SplitState:
    return SplitState(0.0, left, {"cpu": np.array(cpus), "gpu": np.array(gpus)}, seconds)


def test_names() -> None:
    assert set(RULES) == {"greedy", "shares", "finish-time"}
    assert DEFAULT_RULE == "finish-time"


@pytest.mark.parametrize("rule", [FinishTime(), Shares()])
@pytest.mark.parametrize("seconds", [{}, {"cpu": 8.0}, {"gpu": 1.0}])
def test_until_both_kinds_are_known_every_idle_slot_gets_one(rule: Rule, seconds: dict[str, float]) -> None:
    at = situation(10, [0.0], [0.0], **seconds)
    assert rule.slot_quota("cpu", at) == rule.slot_quota("gpu", at) == 1


def test_greedy_takes_what_there_is() -> None:
    assert Greedy().slot_quota("cpu", situation(1, [0.0], [0.0], cpu=100.0, gpu=1.0)) == math.inf


@pytest.mark.parametrize(("left", "cpu"), [(7, 0), (8, 0), (9, 1), (17, 1), (18, 2)])
def test_a_slow_slot_takes_what_ends_by_then(left: int, cpu: int) -> None:
    """A CPU task takes a little longer than eight GPU tasks: of nine tasks one is the CPU's."""
    at = situation(left, [0.0], [0.0], cpu=8.4, gpu=1.0)
    assert FinishTime().slot_quota("cpu", at) == cpu
    assert FinishTime().slot_quota("gpu", at) == left - cpu


def test_what_runs_counts() -> None:
    at = situation(4, [0.0], [7.0], cpu=10.0, gpu=1.0)
    assert at.finish == 10.0  # three on the GPU until then, one on the CPU
    assert FinishTime().slot_quota("cpu", at) == 1
    busier = situation(3, [0.0], [7.0], cpu=10.1, gpu=1.0)
    assert FinishTime().slot_quota("cpu", busier) == 0


def test_the_slow_kind_may_be_the_gpu() -> None:
    at = situation(5, [0.0], [0.0], cpu=1.0, gpu=10.0)
    assert FinishTime().slot_quota("gpu", at) == 0
    assert FinishTime().slot_quota("cpu", at) == 5


def test_the_end_does_not_move_while_slots_take_what_is_granted() -> None:
    at = situation(18, [0.0], [0.0], cpu=8.0, gpu=1.0)
    before = at.finish
    at.left -= 2
    assert at.finish == before


def test_while_more_may_come_everybody_takes() -> None:
    at = situation(math.inf, [0.0], [0.0], cpu=100.0, gpu=1.0)
    assert FinishTime().slot_quota("cpu", at) == Shares().slot_quota("cpu", at) == math.inf


def test_where_all_slots_are_alike_nobody_waits() -> None:
    at = SplitState(0.0, 1, {"cpu": np.array([0.0, 5.0])}, {"cpu": 3.0})
    assert FinishTime().slot_quota("cpu", at) == math.inf


def test_shares_are_the_papers_x_of_what_is_left() -> None:
    """x = R n / (n + alpha m) = R / 9 here; it does not look at what runs."""
    for left, cpu in ((8, 0), (9, 1), (18, 2)):
        assert Shares().slot_quota("cpu", situation(left, [0.0], [50.0], cpu=8.0, gpu=1.0)) == cpu
    assert Shares().slot_quota("gpu", situation(1, [0.0], [0.0], cpu=8.0, gpu=1.0)) == 1
