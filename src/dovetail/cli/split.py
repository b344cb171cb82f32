"""``dovetail split``: how the tasks of a map are best split between CPU and GPU slots."""

from __future__ import annotations

import json
from typing import Any

from dovetail.cli import options as opt
from dovetail.errors import InputError

MOST_SLOTS = 1_000_000
LONGEST = 1e12


@opt.takes_options("split")
def split(
    tasks: int, cpu_slots: int, gpu_slots: int, cpu_time: float, gpu_time: float, nodes: int, as_json: bool
) -> None:
    """Split tasks of one size between CPU and GPU slots, and compare rules (Shirahata 2010).

    Times are known beforehand: there is no first phase in which they are measured, and no heartbeat.
    """
    for name, seconds in (("--cpu-time", cpu_time), ("--gpu-time", gpu_time)):
        if seconds > LONGEST:
            raise InputError(f"found {seconds:g}, expected seconds, at most {LONGEST:g}", where=name)
    if cpu_slots + gpu_slots == 0:
        raise InputError("found no slots, expected at least one", where="--cpu-slots, --gpu-slots")
    if nodes * (cpu_slots + gpu_slots) > MOST_SLOTS:
        raise InputError(f"found more than {MOST_SLOTS:,} slots, expected at most so many", where="--nodes")
    if tasks * max(cpu_time, gpu_time) > LONGEST:
        raise InputError(f"found more than {LONGEST:g} seconds of work, expected less", where="--tasks")
    found = compute_makespans(tasks, cpu_slots, gpu_slots, cpu_time, gpu_time, nodes)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    print(f"acceleration {found['acceleration']:.4g}")
    print(f"CPU tasks {found['cpu_tasks']:,.1f}, GPU tasks {found['gpu_tasks']:,.1f}, if they could be cut:")
    print(f"{'fractional':12} {found['fractional_makespan']:12,.1f} s")
    for name in ("optimal", "finish_time", "greedy", "cpu_only"):
        over = found[f"{name}_makespan"] / found["optimal_makespan"]
        print(f"{name.replace('_', ' '):12} {found[f'{name}_makespan']:12,.1f} s  {over:6.3f} of the optimum")


def compute_makespans(
    tasks: int, cpu_slots: int, gpu_slots: int, cpu_time: float, gpu_time: float, nodes: int
) -> dict[str, Any]:
    """All that the command prints. Slots are per node; seconds."""
    from dovetail.splitting.finish_time import optimal_makespan
    from dovetail.splitting.known import rule_makespan, split_shares
    from dovetail.splitting.rules import RULES

    slots = {"cpu": cpu_slots * nodes, "gpu": gpu_slots * nodes}
    share = split_shares(tasks, slots["cpu"], slots["gpu"], cpu_time, gpu_time)
    seconds = {"cpu": cpu_time, "gpu": gpu_time}
    return {
        "acceleration": share.acceleration,
        "cpu_tasks": share.cpu_tasks,
        "gpu_tasks": share.gpu_tasks,
        "fractional_makespan": share.makespan,
        "optimal_makespan": optimal_makespan(tasks, [(slots[kind], seconds[kind]) for kind in slots]),
        "greedy_makespan": rule_makespan(tasks, slots, seconds, RULES["greedy"]),
        "finish_time_makespan": rule_makespan(tasks, slots, seconds, RULES["finish-time"]),
        "cpu_only_makespan": optimal_makespan(tasks, [((cpu_slots + gpu_slots) * nodes, cpu_time)]),
    }
