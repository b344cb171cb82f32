"""lookahead with gangs that can be molded, and with all sorts of jobs together."""

from __future__ import annotations

import dataclasses

import numpy as np

from dovetail.model import App, Choice, Cluster, Implementation, Job, Request, Result, TableTruth, Workload
from dovetail.plugins import load_policy
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import HOST, TrueTimesModel, full
from dovetail.testing.invariants import check_schedule
from dovetail_lab.published.ravi_multi import MIXES, ravi_multi

RAVI = Cluster.parse("16x8cpu+1gpu")


def run(w: Workload, policy: str = "lookahead", cluster: Cluster = RAVI) -> Result:
    result = simulate(w, cluster, load_policy(policy).policy, TrueTimesModel(w.truth))
    check_schedule(result, w)
    return result


def test_gangs_gain_more_over_torque_than_fms_does() -> None:
    ratios = [
        run(w, "fms").makespan / run(w).makespan
        for mix in MIXES
        for w in (ravi_multi(mix, seed=seed) for seed in range(1, full(10, 1) + 1))
    ]
    assert np.mean(ratios) >= 1.03


def test_the_budget_counts_decoded_plans() -> None:
    w = ravi_multi("25sj75lj", seed=2)
    assert run(w, "lookahead?budget=2000").makespan <= run(w, "lookahead?budget=1").makespan


def mixed(seed: int, count: int = 25) -> Workload:
    """One-node, moldable and rigid jobs on nodes with 4 CPUs and a GPU, some for a single CPU."""
    rng = np.random.Generator(np.random.PCG64(seed))
    jobs: list[Job] = []
    table: dict[tuple[str, str, int], float] = {}
    for i in range(count):
        cpu = Implementation("cpu", "cpu", Request(cpus=1) if rng.random() < 0.3 else Request())
        gpu = Implementation("gpu", "gpu", Request(cpus=HOST, devices=(("gpu", 1),)))
        seconds = {"cpu": float(rng.integers(5, 90)), "gpu": float(rng.integers(1, 60))}
        kind = rng.integers(3)
        forms, sizes, nodes = (cpu, gpu), (1,), 1
        if kind == 1:
            sizes, nodes = (1, 2, 4), 4
        elif kind == 2:
            forms, nodes = ((cpu, gpu)[int(rng.integers(2))],), int(rng.integers(1, 5))
            sizes = (nodes,)
        app = App(f"a{i}", forms)
        choices = tuple(Choice(form, form.request.on(n)) for form in forms for n in sizes)
        walltime = 200.0 if kind == 2 and rng.random() < 0.5 else None
        at = float(rng.choice([0, 0, 10, 40]))
        jobs.append(Job(f"j{i}", app, choices, index=i, submit_time=at, nodes=nodes, walltime=walltime))
        table |= {
            (f"j{i}", c.implementation.name, c.request.nodes): seconds[c.implementation.name]
            / c.request.nodes**0.8
            for c in choices
        }
    return Workload("mixed", sorted(jobs, key=lambda job: (job.submit_time, job.index)), TableTruth(table))


def test_mixtures_end_sooner_than_under_the_best_fixed_policy_in_the_mean() -> None:
    cluster = Cluster.parse("4x4cpu+1gpu")
    ratios = []
    promises = 0
    for seed in range(full(100, 10)):
        w = mixed(seed)
        fixed = [run(w, policy, cluster).makespan for policy in ("easy", "fcfs", "torque", "mct", "fms")]
        found = run(w, cluster=cluster)
        ratios.append(found.makespan / min(fixed))
        promises += sum(record.promised is not None for record in found.records)
        assert found.promises_broken == 0
    assert np.mean(ratios) <= 0.95
    assert max(ratios) <= 1.1
    assert promises  # some were made while only rigid jobs waited, and kept when others had come


def test_a_wide_job_is_not_kept_waiting_for_ever() -> None:
    rows: list[Job] = []
    form = Implementation("cpu", "cpu", Request())
    app = App("a", (form,))
    narrow = (Choice(form, form.request), Choice(form, form.request.on(2)))
    table: dict[tuple[str, str, int], float] = {("wide", "cpu", 4): 5.0}
    rows.append(Job("wide", app, (Choice(form, form.request.on(4)),), index=0, submit_time=1.0, nodes=4))
    for i in range(150):
        rows.append(Job(f"n{i}", app, narrow, index=i + 1, submit_time=float(i)))
        table |= {(f"n{i}", "cpu", 1): 5.0, (f"n{i}", "cpu", 2): 4.9}
    w = Workload("stream", sorted(rows, key=lambda job: (job.submit_time, job.index)), TableTruth(table))
    cluster = Cluster.parse("4x1cpu")

    def start(policy: str) -> float:
        return next(r.start for r in run(w, policy, cluster).records if r.job.id == "wide") or 0.0

    assert start("lookahead?objective=response&age=20") <= 35.0


def test_unknown_gangs_are_run_all_the_same() -> None:
    class Nothing(TrueTimesModel):
        def predict(self, *question: object) -> None:  # type: ignore[override]
            return None

    w = ravi_multi("50sj50lj", jobs=16, seed=1)
    result = simulate(w, RAVI, load_policy("lookahead").policy, Nothing(w.truth))
    check_schedule(result, w)
    assert all(record.end is not None for record in result.records)


def test_the_same_jobs_give_the_same_schedule() -> None:
    w = ravi_multi("50sr50lr", seed=4)
    first, second = run(w), run(dataclasses.replace(w))
    assert [(r.start, r.allocation) for r in first.records] == [
        (r.start, r.allocation) for r in second.records
    ]
