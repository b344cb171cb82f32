from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.splitting.finish_time import optimal_makespan
from dovetail.splitting.known import rule_makespan
from dovetail.splitting.rules import RULES
from dovetail_lab.shirahata.play import FileSystem, play_map

SLOTS = {"cpu": 14, "gpu": 2}
PAPER = {"cpu": 77.4, "gpu": 27.9}
FULL = bool(os.environ.get("DOVETAIL_TEST_FULL"))


def times(alpha: float) -> dict[str, float]:
    return {"cpu": 77.4, "gpu": 77.4 / alpha}


def rng(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


@pytest.mark.parametrize(
    ("alpha", "nodes", "greedy", "finish_time"),
    [
        (77.4 / 27.9, 1, 15867.0, 15867.0),
        (77.4 / 27.9, 4, 4024.8, 3989.7),
        (77.4 / 27.9, 8, 2012.4, 2012.4),
        (77.4 / 27.9, 32, 541.8, 541.8),
        (77.4 / 27.9, 64, 309.6, 306.9),
        (8.44, 1, 10062.0, 10060.2),
        (8.44, 8, 1315.8, 1265.5),
        (8.44, 32, 387.0, 321.0),
        (8.44, 64, 232.2, 165.1),
    ],
)
def test_the_clean_model(alpha: float, nodes: int, greedy: float, finish_time: float) -> None:
    """An independent program's makespans of 4000 tasks."""
    for rule, expected in (("greedy", greedy), ("finish-time", finish_time), ("shares", greedy)):
        every = {kind: count * nodes for kind, count in SLOTS.items()}
        assert rule_makespan(4000, every, times(alpha), RULES[rule]) == pytest.approx(expected, abs=0.05)


@given(
    st.integers(1, 400), st.integers(0, 5), st.integers(0, 5), st.integers(1, 4),
    st.sampled_from([0.3, 1.0, 1.7, 10.0]), st.sampled_from([0.1, 0.3, 1.0, 3.0]),
)  # fmt: skip
def test_with_known_times_finish_time_is_optimal_and_greedy_at_most_a_task_later(
    tasks: int, cpus: int, gpus: int, nodes: int, cpu: float, gpu: float
) -> None:
    if not cpus + gpus:
        with pytest.raises(ValueError, match="no slots"):
            rule_makespan(tasks, {"cpu": 0, "gpu": 0}, {"cpu": cpu, "gpu": gpu}, RULES["greedy"])
        return
    slots, seconds = {"cpu": cpus * nodes, "gpu": gpus * nodes}, {"cpu": cpu, "gpu": gpu}
    best = optimal_makespan(tasks, [(slots[kind], seconds[kind]) for kind in slots])
    greedy = rule_makespan(tasks, slots, seconds, RULES["greedy"])
    assert rule_makespan(tasks, slots, seconds, RULES["finish-time"]) == pytest.approx(best)
    assert best * (1 - 1e-9) <= greedy <= best + max(cpu, gpu) * (1 + 1e-9)


def test_skipping_the_undecided_part_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> list[float]:
        slots = {"cpu": 42, "gpu": 6}
        return [rule_makespan(3000, slots, times(5.3), rule) for rule in RULES.values()]

    skipped = found()
    monkeypatch.setattr("dovetail.splitting.known.QUIET", 10**9)
    assert found() == pytest.approx(skipped, rel=1e-12)


def test_without_known_times_a_first_task_of_each_kind_is_measured() -> None:
    """The CPU would get none of three tasks; until the GPU's first has ended it takes one all the same."""
    found = play_map(3, {"cpu": 1, "gpu": 1}, {"cpu": 10.0, "gpu": 1.0}, RULES["finish-time"])
    assert found.tasks == {"cpu": 1, "gpu": 2}
    assert rule_makespan(3, {"cpu": 1, "gpu": 1}, {"cpu": 10.0, "gpu": 1.0}, RULES["finish-time"]) == 3.0


@pytest.mark.parametrize(
    ("alpha", "nodes", "rule", "expected"),
    [
        (77.4 / 27.9, 1, "greedy", 16303.9),
        (77.4 / 27.9, 64, "greedy", 312.7),
        (8.44, 64, "greedy", 235.2),
    ],
)
def test_heartbeats_of_three_seconds(alpha: float, nodes: int, rule: str, expected: float) -> None:
    """The reference drew other phases: close is enough."""
    found = play_map(4000, SLOTS, times(alpha), RULES[rule], nodes=nodes, heartbeat=3.0, rng=rng(1))
    assert found.makespan == pytest.approx(expected, rel=0.01)


def test_heartbeats_and_noise_the_finish_time_rule_gains_where_waves_are_few() -> None:
    """64 nodes, lognormal noise of 0.1: the reference's speed-up over greedy at 8.44 is 1.83 / 1.40."""
    seeds = range(1, 9 if FULL else 4)
    spans = {
        rule: np.mean(
            [
                play_map(4000, SLOTS, times(8.44), RULES[rule], nodes=64, heartbeat=3.0,
                     noise={"cpu": 0.1, "gpu": 0.1}, rng=rng(seed)).makespan
                for seed in seeds
            ]
        )
        for rule in ("greedy", "finish-time")
    }  # fmt: skip
    assert 1.15 < spans["greedy"] / spans["finish-time"] < 1.45


def test_a_shared_file_system_slows_all_alike_and_lowers_the_acceleration() -> None:
    system = FileSystem(seconds=10.0, streams=64.0)
    few = play_map(4000, SLOTS, PAPER, RULES["greedy"], nodes=1, file_system=system)
    many = play_map(4000, SLOTS, PAPER, RULES["greedy"], nodes=64, file_system=system)
    assert few.mean_seconds["gpu"] == pytest.approx(37.9, rel=0.01)  # nobody waits
    assert many.mean_seconds["gpu"] > 1.5 * few.mean_seconds["gpu"]
    factors = [found.mean_seconds["cpu"] / found.mean_seconds["gpu"] for found in (few, many)]
    assert factors[1] < factors[0] < PAPER["cpu"] / PAPER["gpu"]


def test_a_saturated_file_system_is_the_limit() -> None:
    """1000 reads of a second, four at a time."""
    found = play_map(1000, {"cpu": 50}, {"cpu": 0.001}, RULES["greedy"], file_system=FileSystem(1.0, 4.0))
    assert found.makespan == pytest.approx(250.0, rel=0.01)


def test_the_same_seed_gives_the_same_play() -> None:
    def once(seed: int) -> float:
        options = {"nodes": 2, "heartbeat": 3.0, "noise": {"cpu": 0.3, "gpu": 0.1}}
        return play_map(200, SLOTS, PAPER, RULES["finish-time"], rng=rng(seed), **options).makespan  # type: ignore[arg-type]

    assert once(1) == once(1) != once(2)
