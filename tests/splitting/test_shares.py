from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.splitting.known import split_shares


def test_the_papers_times() -> None:
    found = split_shares(4000, 14, 2, 77.4, 27.9)
    assert found.acceleration == pytest.approx(2.774, abs=5e-4)
    assert found.makespan == pytest.approx(15837.6, abs=0.05)
    assert found.cpu_tasks + found.gpu_tasks == pytest.approx(4000)
    assert found.cpu_tasks == pytest.approx(4000 * 14 / (14 + 2 * 77.4 / 27.9))


@given(
    st.integers(1, 10_000), st.integers(0, 40), st.integers(0, 40), st.floats(0.01, 1e4), st.floats(0.01, 1e4)
)
def test_both_sides_end_together(tasks: int, cpus: int, gpus: int, cpu: float, gpu: float) -> None:
    if cpus + gpus == 0:
        with pytest.raises(ValueError, match="at least one slot"):
            split_shares(tasks, cpus, gpus, cpu, gpu)
        return
    found = split_shares(tasks, cpus, gpus, cpu, gpu)
    sides = []
    if cpus:
        sides.append(found.cpu_tasks / cpus * cpu)
    if gpus:
        sides.append(found.gpu_tasks / gpus * gpu)
    assert sides == pytest.approx([found.makespan] * len(sides))


@pytest.mark.parametrize("times", [(0, 1), (1, 0), (-1, 1), (float("nan"), 1)])
def test_times_must_be_above_zero(times: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="seconds above 0"):
        split_shares(1, 1, 1, *times)
