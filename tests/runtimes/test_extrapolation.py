"""Predictions of an app that has hardly run do not shout."""

from __future__ import annotations

import numpy as np
import pytest
from made_up_apps import ask, run

from dovetail.history import MemoryHistory
from dovetail.runtimes.learned import LearnedModel


def expected(known: dict[float, float], n: float, name: str = "n") -> float:
    runs = [run(seconds, {name: size}) for size, seconds in known.items()]
    answer = ask(LearnedModel(MemoryHistory(runs)), {name: n})
    assert answer is not None
    assert answer.lower <= answer.expected <= answer.upper
    return answer.expected


@pytest.mark.parametrize("factor", [1.5, 2.0, 3.0])
def test_near_what_ran_time_goes_with_size(factor: float) -> None:
    assert expected({100.0: 2.0}, 100.0 * factor) == pytest.approx(2.0 * factor, rel=0.15)


def test_far_from_one_run_nobody_shouts() -> None:
    """0.9 s, which may have been the start of the process, and 1,670 times the size: not 1,503 s."""
    assert 0.9 < expected({1.0: 0.9}, 1670.0) < 15
    assert 0.9 / 15 < expected({1670.0: 0.9}, 1.0) < 0.9
    assert expected({1.0: 0.9}, 1e9) < 20


def test_a_seed_does_not_make_a_program_slow() -> None:
    runs = [run(1.0, {"n": 10.0, "seed": 1.0})]
    answer = ask(LearnedModel(MemoryHistory(runs)), {"n": 10.0, "seed": 123456.0})
    assert answer is not None
    assert answer.expected < 15


def test_a_tiny_file_says_how_long_the_start_takes() -> None:
    """60 bytes in 0.9 s is no speed of reading: 100 kB are read in less than a second more."""
    assert 0.9 <= expected({60.0: 0.9}, 1e5, "arg1_bytes") <= 1.6
    assert expected({60.0: 0.9, 90.0: 0.91}, 1e5, "arg1_bytes") <= 1.6


def test_a_size_in_bytes_is_believed_farther_than_a_number() -> None:
    assert expected({1e6: 0.5}, 64e6, "arg1_bytes") > 2 * expected({1e6: 0.5}, 64e6)
    assert expected({1e6: 0.5, 2e6: 1.0}, 64e6, "arg1_bytes") == pytest.approx(32.0, rel=0.5)


def test_two_close_sizes_of_which_one_was_slowed_down_show_no_law() -> None:
    """The smaller one took longer: a larger one still takes no less than the least."""
    assert 0.15 <= expected({4.6e5: 0.16, 3.4e5: 0.44}, 2.9e6, "c_bytes") <= 6.0
    assert expected({4.6e5: 0.44, 3.4e5: 0.16}, 2.9e6, "c_bytes") <= 9.0
    assert expected({4.6e5: 0.16, 3.4e5: 0.44}, 3.0e4, "c_bytes") <= 0.44


def test_three_sizes_are_a_law() -> None:
    law = {n: 0.01 * n for n in (100.0, 200.0, 400.0)}
    assert expected(law, 12_800.0) == pytest.approx(128.0, rel=0.25)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.3, 1.6])
@pytest.mark.parametrize("start", [0.0, 0.1])
def test_from_the_third_run_on_no_guess_is_far_off(exponent: float, start: float) -> None:
    """Ten sizes over a factor of 16 in any order, 5 % noise: never five times too much or too little."""
    rng = np.random.Generator(np.random.PCG64(int(10 * exponent + 100 * start)))
    for _ in range(15):
        sizes = rng.permutation(np.geomspace(1e6, 16e6, 10))
        history = MemoryHistory()
        model = LearnedModel(history)
        for i, n in enumerate(sizes.tolist()):
            seconds = (start + 0.1 * (n / 1e6) ** exponent) * float(np.exp(0.05 * rng.standard_normal()))
            if i >= 2:
                answer = ask(model, {"in_bytes": n})
                assert answer is not None
                assert 0.2 <= answer.expected / seconds <= 5.0
            history.record(run(seconds, {"in_bytes": n}))
