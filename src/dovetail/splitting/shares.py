"""The split of Shirahata 2010, section III: how many of N tasks the CPU slots run, how many the GPU slots.

A CPU task takes ``alpha * t`` seconds and a GPU task ``t``; with n CPU slots and m GPU slots the whole takes
f(x, y) = max(x / n * alpha * t, y / m * t) for x + y = N. The least f has both sides equal.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Shares", "shares"]


@dataclass(frozen=True, slots=True)
class Shares:
    """The paper's split: ``cpu_tasks`` and ``gpu_tasks`` are its real-valued x and y, ``makespan`` its f.

    ``acceleration`` is the factor alpha, a CPU task's seconds over a GPU task's.
    """

    acceleration: float
    cpu_tasks: float
    gpu_tasks: float
    makespan: float


def shares(tasks: float, cpu_slots: int, gpu_slots: int, cpu_time: float, gpu_time: float) -> Shares:
    """x = N n / (n + alpha m), y = N - x, f = N alpha t / (n + alpha m) (equations 1 to 4).

    Times are mean seconds of a task. Either kind may have no slots; raises `ValueError` if both have none,
    or if a time is not above 0. O(1).
    """
    if cpu_slots < 0 or gpu_slots < 0 or cpu_slots + gpu_slots == 0:
        raise ValueError(f"{cpu_slots} CPU slots and {gpu_slots} GPU slots, expected at least one slot")
    if not (cpu_time > 0 and gpu_time > 0):
        raise ValueError(f"task times {cpu_time} and {gpu_time}, expected seconds above 0")
    alpha = cpu_time / gpu_time
    weight = cpu_slots + alpha * gpu_slots
    return Shares(
        alpha, tasks * cpu_slots / weight, tasks * alpha * gpu_slots / weight, tasks * cpu_time / weight
    )
