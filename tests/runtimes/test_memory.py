"""Learned peaks, and the cheapest amount to reserve."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dovetail.history import MemoryHistory
from dovetail.history.base import canonical_inputs
from dovetail.model import DeviceClass, Run, State, Usage
from dovetail.runtimes.base import Query
from dovetail.runtimes.memory import MemoryModel, second_try
from dovetail.runtimes.peaks import KILL_RISK, LIKE_LARGEST, AppPeaks, make_forecasts

CPU = DeviceClass("cpu")
GB = 1e9


def a_run(peak: float, n: float | None = None, *, seconds: float = 60.0, **inputs: str) -> Run:
    given: dict[str, float | str] = {**({} if n is None else {"n": n}), **inputs}
    return Run("sort", "cpu", CPU, 1, 1, 0.0, given, seconds, usage=Usage(peak_memory=int(peak)))


def asked(n: float | None = None, **inputs: str) -> Query:
    given: dict[str, float | str] = {**({} if n is None else {"n": n}), **inputs}
    return Query("sort", "cpu", CPU, (1, 1, 0.0), canonical_inputs(given))


def model(*runs: Run) -> MemoryModel:
    return MemoryModel(MemoryHistory(runs))


def test_without_a_run_the_request_is_reserved() -> None:
    found = model().choose_reservation(asked(), request=3 * GB, machine=64 * GB)
    assert (found.amount, found.chance, found.peak) == (3_000_000_000, None, None)
    assert model().make_prediction(asked()) is None


def test_a_peak_that_never_changes_is_reserved_with_little_more() -> None:
    found = model(*(a_run(2 * GB) for _ in range(40))).choose_reservation(
        asked(), request=16 * GB, machine=64 * GB
    )
    assert 2 * GB < found.amount < 2.05 * GB
    assert found.chance is not None
    assert found.chance <= KILL_RISK


def test_one_run_is_trusted_less_than_many() -> None:
    amounts = [
        model(*(a_run(2 * GB) for _ in range(count)))
        .choose_reservation(asked(), request=16 * GB, machine=64 * GB)
        .amount
        for count in (1, 3, 10, 40)
    ]
    assert amounts == sorted(amounts, reverse=True)
    assert amounts[0] > 1.1 * amounts[-1]


def test_a_peak_that_follows_an_input_is_reserved_by_it() -> None:
    rng = np.random.default_rng(1)
    runs = [a_run((0.1 + 0.02 * n) * GB * rng.lognormal(0, 0.02), n) for n in rng.uniform(5, 100, 40)]
    learned = model(*runs)
    for n in (10.0, 50.0, 90.0):
        peak = (0.1 + 0.02 * n) * GB
        found = learned.choose_reservation(asked(n), request=64 * GB, machine=64 * GB)
        assert peak < found.amount < 1.25 * peak
        assert found.peak is not None
        assert found.peak.lower < peak < found.peak.upper
        assert "n of 40 runs" in found.peak.basis


def test_no_more_than_anybody_asked_for_however_far_a_law_leads() -> None:
    learned = model(*(a_run(n * GB, n) for n in (1.0, 2.0, 3.0, 4.0)))
    assert learned.choose_reservation(asked(1000.0), request=8 * GB, machine=64 * GB).amount == 8_000_000_000


def test_the_dearer_a_kill_the_more_is_reserved() -> None:
    rng = np.random.default_rng(2)
    learned = model(*(a_run(GB * rng.lognormal(0, 0.5)) for _ in range(60)))
    cheap = learned.choose_reservation(asked(), request=64 * GB, machine=2 * GB, risk=1.0)
    dear = learned.choose_reservation(asked(), request=64 * GB, machine=640 * GB, risk=1.0)
    assert cheap.amount < dear.amount
    assert (cheap.chance or 0) > (dear.chance or 0)


@pytest.mark.parametrize("risk", [0.2, 0.05, 0.01])
def test_the_chance_of_a_kill_is_at_most_what_is_accepted(risk: float) -> None:
    rng = np.random.default_rng(3)
    learned = model(*(a_run(GB * rng.lognormal(0, 0.3)) for _ in range(50)))
    found = learned.choose_reservation(asked(), request=64 * GB, machine=1 * GB, risk=risk)
    assert found.chance is not None
    assert found.chance <= risk


def test_the_cheapest_amount_is_the_cheapest() -> None:
    rng = np.random.default_rng(4)
    peaks = GB * rng.lognormal(0, 0.4, 80)
    (law,) = make_forecasts(AppPeaks(peaks, np.ones(80), {}), {})
    second = 10 * GB

    def cost(amount: float) -> float:
        return amount + law.chance_above(amount) * max(second, 2 * amount)

    amount, _ = law.cheapest_amount(second, 1.0)
    tried = [cost(float(a)) for a in np.geomspace(peaks.min(), 3 * peaks.max(), 2000)]
    assert cost(amount) <= min(tried) * 1.01


def test_words_keep_runs_apart_once_there_are_enough() -> None:
    runs = [a_run(GB, kind="sparse") for _ in range(6)] + [a_run(9 * GB, kind="dense") for _ in range(6)]
    learned = model(*runs)
    assert (
        learned.choose_reservation(asked(kind="sparse"), request=64 * GB, machine=64 * GB).amount < 1.3 * GB
    )
    assert learned.choose_reservation(asked(kind="dense"), request=64 * GB, machine=64 * GB).amount > 9 * GB


def test_runs_without_a_measured_peak_and_killed_ones_tell_nothing() -> None:
    unmeasured = Run("sort", "cpu", CPU, 1, 1, 0.0, {}, 60.0)
    failed = Run("sort", "cpu", CPU, 1, 1, 0.0, {}, 60.0, State.FAILED, usage=Usage(peak_memory=5))
    assert model(unmeasured, failed).make_prediction(asked()) is None


def test_an_answer_changes_with_the_history() -> None:
    history = MemoryHistory([a_run(GB) for _ in range(10)])
    learned = MemoryModel(history)
    before = learned.choose_reservation(asked(), request=64 * GB, machine=64 * GB).amount
    history.record(a_run(7 * GB))
    assert learned.choose_reservation(asked(), request=64 * GB, machine=64 * GB).amount > 7 * GB > before


def test_a_second_try_gets_the_machine() -> None:
    assert second_try(GB, 3 * GB, 64 * GB) == 64 * GB
    assert second_try(40 * GB, 3 * GB, 64 * GB) == 80 * GB


def test_a_second_try_of_what_a_person_requested_is_no_whole_machine() -> None:
    assert second_try(GB, 3 * GB, 64 * GB, 8 * GB) == 9 * GB
    assert second_try(GB, 1 * GB, 64 * GB, 8 * GB) == 8 * GB
    assert second_try(GB, 3 * GB, 4 * GB, 8 * GB) == 6 * GB


def test_the_largest_peak_reserves_while_laws_would_have_wasted_more() -> None:
    """Large runs come every fourth time: what the laws of few runs add beyond the largest is waste."""
    runs = [a_run((5 if n % 4 == 2 else 1) * GB) for n in range(12)]
    learned = model(*runs)
    usual = learned.choose_reservation(asked(), request=64 * GB, machine=64 * GB)
    assert usual.amount == int(LIKE_LARGEST * 5 * GB)
    assert usual.basis.startswith("1.1 x the largest peak")
    careful = learned.choose_reservation(asked(), request=64 * GB, machine=64 * GB, risk=0.01)
    assert careful.amount > usual.amount
    assert careful.basis == "mean of 12 runs"
    # Of two runs the account decides nothing.
    assert (
        model(*runs[:2])
        .choose_reservation(asked(), request=64 * GB, machine=64 * GB)
        .basis.startswith("mean")
    )


def test_where_a_request_is_known_laws_of_few_runs_add_nothing_to_the_largest_peak() -> None:
    """A kill leads back to the request then; without one it takes a whole node, and the laws stand."""
    learned = model(a_run(2 * GB))
    without = learned.choose_reservation(asked(), request=16 * GB, machine=64 * GB)
    found = learned.choose_reservation(asked(), request=16 * GB, machine=64 * GB, requested=16 * GB)
    assert found.amount == int(LIKE_LARGEST * 2 * GB) < without.amount
    assert found.basis == "1.1 x the largest peak: too few runs to fit a curve"


def test_no_amount_however_odd_the_runs_is_infinite() -> None:
    runs = [a_run(p, n) for p, n in ((1, 1e-9), (1e15, 1e300), (1, 1e-300), (2, 5.0), (1, 7.0), (3, 9.0))]
    found = model(*runs).choose_reservation(asked(1e308), request=GB, machine=GB)
    assert 0 < found.amount < math.inf
