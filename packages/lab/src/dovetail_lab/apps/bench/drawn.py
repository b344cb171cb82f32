"""A workload of what was measured: jobs drawn as Ravi 2012 draws them, with their measured times."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

import numpy as np

from dovetail.errors import InputError
from dovetail.model import CPU, Choice, Job, Seconds, TableTruth, Workload
from dovetail_lab.apps.bench.measured import MeasuredRun, inputs_of
from dovetail_lab.apps.bench.suite import app_of
from dovetail_lab.apps.registry import find_app
from dovetail_lab.published.ravi_single import MIXES

PROGRAM = ("python",)
"""What the jobs run: a job file names no path of this machine."""


def draw_workload(
    measured: Iterable[MeasuredRun], jobs: int = 24, seed: int = 1, mix: str = "uniform"
) -> Workload:
    """So many jobs for one node, all at t = 0, with commands, inputs and the medians of the times measured.

    They are drawn with replacement from the configurations that were measured on the CPU and on one other
    device; ``mix`` is the part of them that comes from those that are faster on the CPU. Raises `InputError`
    where there is no such configuration.
    """
    times: dict[tuple[str, str, int], dict[str, list[Seconds]]] = {}
    for m in measured:
        if not find_app(m.app).nodes:
            times.setdefault((m.app, m.role, m.n), {}).setdefault(m.device, []).append(m.seconds)
    pool = {key: {device: median(runs) for device, runs in on.items()} for key, on in times.items()}
    pool = {key: on for key, on in pool.items() if CPU in on and len(on) == 2}
    if not pool:
        raise InputError(
            "found no app that was measured on the CPU and on one other device", where="--workload"
        )
    device = next(device for device in next(iter(pool.values())) if device != CPU)
    apps = {name: app_of(name, (CPU, device), PROGRAM) for name in dict.fromkeys(key[0] for key in pool)}
    on_cpu = [key for key, on in pool.items() if on[CPU] < on[device]]
    elsewhere = [key for key in pool if key not in on_cpu]
    rng = np.random.Generator(np.random.PCG64(seed))
    share = round(jobs * MIXES[mix]) if on_cpu and elsewhere else jobs * bool(on_cpu)
    chosen = [on_cpu[i] for i in rng.integers(max(1, len(on_cpu)), size=share)]
    chosen += [elsewhere[i] for i in rng.integers(max(1, len(elsewhere)), size=jobs - share)]
    made: list[Job] = []
    truth: dict[tuple[str, str, int], Seconds] = {}
    for index, which in enumerate(rng.permutation(jobs)):
        name, role, n = chosen[which]
        app, id = apps[name], f"{index + 1}-{name}-{role}"
        choices = tuple(Choice(form, form.request) for form in app.implementations)
        made.append(Job(id, app, choices, index=index, inputs=inputs_of(name, role, n)))
        truth |= {(id, kind, 1): seconds for kind, seconds in pool[name, role, n].items()}
    return Workload(f"measured: {jobs} jobs, {mix}, seed {seed}", made, TableTruth(truth))
