"""Ravi 2012's single-node rules against an event loop written apart, job by job, and the golden values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.interfaces import Policy
from dovetail.model import Cluster, Result, Workload
from dovetail.policies.asjf import Asjf
from dovetail.policies.brr import Brr, BrrDynamic
from dovetail.policies.heteroprio import Heteroprio
from dovetail.policies.max_min import MaxMin
from dovetail.policies.min_min import MinMin
from dovetail.policies.rsa import Rsa
from dovetail.policies.rsc import Rsc
from dovetail.policies.sufferage import Sufferage
from dovetail.report.metrics import compute_metrics
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import TrueTimesModel, full, workload
from dovetail.testing.invariants import check_schedule
from dovetail.workloads.published import load_published

Jobs = list[tuple[float, float, float]]  # submit, seconds on the CPUs, seconds on a GPU


class Loop:
    """``waiting`` in order of submission; ``free`` is when each resource (CPU0, CPU1, …, GPU0, …) is free."""

    def __init__(self, jobs: Jobs, cpus: int, gpus: int) -> None:
        self.jobs, self.cpus = jobs, cpus
        self.free = [0.0] * (cpus + gpus)
        self.now = 0.0
        self.waiting: list[int] = []
        self.starts: dict[int, tuple[int, float]] = {}

    def on_gpu(self, r: int) -> bool:
        return r >= self.cpus

    def time(self, j: int, gpu: bool) -> float:
        return self.jobs[j][2 if gpu else 1]

    def prefers_gpu(self, j: int) -> bool:
        return self.jobs[j][2] <= self.jobs[j][1]

    def run(self, rule: Callable[[Loop, int], int | None]) -> dict[int, tuple[int, float]]:
        order = sorted(range(len(self.jobs)), key=lambda j: (self.jobs[j][0], j))
        times = sorted({job[0] for job in self.jobs})
        while times:
            self.now = times.pop(0)
            while order and self.jobs[order[0]][0] <= self.now:
                self.waiting.append(order.pop(0))
            asked = True
            while asked:
                asked = False
                for r in range(len(self.free)):
                    if self.free[r] > self.now:
                        continue
                    j = rule(self, r)
                    if j is not None:
                        asked = True
                        self.waiting.remove(j)
                        self.starts[j] = (r, self.now)
                        self.free[r] = self.now + self.time(j, self.on_gpu(r))
                        times = sorted({*times, self.free[r]})
        return self.starts


def next_in_line(loop: Loop, r: int) -> int | None:
    return loop.waiting[0] if loop.waiting else None


def queues(loop: Loop, by_ratio: bool) -> tuple[list[int], list[int]]:
    def gain(j: int) -> float:
        _, c, g = loop.jobs[j]
        mp, gp = 1.0, c / g  # no sequential time: the CPU time stands in
        return max(mp, gp) / min(mp, gp) if by_ratio else abs(gp - mp)

    on_cpu = [j for j in loop.waiting if not loop.prefers_gpu(j)]
    on_gpu = [j for j in loop.waiting if loop.prefers_gpu(j)]
    return sorted(on_cpu, key=gain, reverse=True), sorted(on_gpu, key=gain, reverse=True)


def aggressive(by_ratio: bool) -> Callable[[Loop, int], int | None]:
    def rule(loop: Loop, r: int) -> int | None:
        both = queues(loop, by_ratio)
        own, other = both[loop.on_gpu(r)], both[not loop.on_gpu(r)]
        return own[0] if own else other[-1] if other else None

    return rule


def conservative(loop: Loop, r: int) -> int | None:
    own = queues(loop, False)[loop.on_gpu(r)]
    return own[0] if own else None


def adaptive(kind: str) -> Callable[[Loop, int], int | None]:
    def rule(loop: Loop, r: int) -> int | None:
        gpu = loop.on_gpu(r)
        own = [j for j in loop.waiting if loop.prefers_gpu(j) == gpu]
        other = [j for j in loop.waiting if loop.prefers_gpu(j) != gpu]
        if own:
            return min(own, key=lambda j: loop.time(j, gpu))
        if not other:
            return None
        other.sort(key=lambda j: loop.time(j, not gpu))
        ready = [max(0.0, f - loop.now) for i, f in enumerate(loop.free) if loop.on_gpu(i) != gpu]
        waits = []
        for j in other:
            waits.append(min(ready))
            if kind != "residual":
                ready[ready.index(min(ready))] += loop.time(j, not gpu)
        penalties = [loop.time(j, gpu) - loop.time(j, not gpu) for j in other]
        ahead = range(len(other))
        k = (
            max(ahead, key=lambda i: waits[i] - penalties[i])
            if kind == "gain"
            else min(ahead, key=lambda i: penalties[i])
        )
        return other[k] if penalties[k] < waits[k] else None

    return rule


def both_ends(loop: Loop, r: int) -> int | None:
    if not loop.waiting:
        return None
    return max(loop.waiting, key=lambda j: loop.time(j, not loop.on_gpu(r)) / loop.time(j, loop.on_gpu(r)))


def round_robin(jobs: Jobs, nodes: int) -> dict[int, tuple[int, float]]:
    """Resources node by node; job i of the submission order goes to resource i modulo their number."""
    free = [0.0] * (2 * nodes)
    starts = {}
    for place, j in enumerate(sorted(range(len(jobs)), key=lambda j: (jobs[j][0], j))):
        submit, on_cpu, on_gpu = jobs[j]
        r = place % (2 * nodes)
        begin = max(free[r], submit)
        free[r] = begin + (on_gpu if r % 2 else on_cpu)
        starts[j] = (r // 2 + (nodes if r % 2 else 0), begin)
    return starts


def batch(kind: str) -> Callable[[Jobs, int], dict[int, tuple[int, float]]]:
    """Min-min, max-min and sufferage: the whole queue mapped at every event, naively."""

    def schedule(jobs: Jobs, nodes: int) -> dict[int, tuple[int, float]]:
        cpu_of = [r % 2 == 0 for r in range(2 * nodes)]  # node by node: ties go to the lowest index
        free = [0.0] * (2 * nodes)
        starts: dict[int, tuple[int, float]] = {}
        times = sorted({job[0] for job in jobs})
        order = sorted(range(len(jobs)), key=lambda j: (jobs[j][0], j))
        while times:
            now = times.pop(0)
            left = [j for j in order if j not in starts and jobs[j][0] <= now]
            ready = [max(now, f) for f in free]
            while left:
                ends = {
                    j: [ready[r] - now + jobs[j][1 if cpu_of[r] else 2] for r in range(2 * nodes)]
                    for j in left
                }
                if kind == "min":
                    j = min(left, key=lambda j: min(ends[j]))
                elif kind == "max":
                    j = max(left, key=lambda j: min(ends[j]))
                else:
                    j = max(left, key=lambda j: sorted(ends[j])[1] - sorted(ends[j])[0])
                r = ends[j].index(min(ends[j]))
                if ready[r] == now:
                    starts[j] = (r // 2 + (0 if cpu_of[r] else nodes), now)
                    free[r] = now + jobs[j][1 if cpu_of[r] else 2]
                    times = sorted({*times, free[r]})
                ready[r] += jobs[j][1 if cpu_of[r] else 2]
                left.remove(j)
        return starts

    return schedule


RULES: list[tuple[Policy, Callable[[Jobs, int], dict[int, tuple[int, float]]]]] = [
    (Brr(), round_robin),
    (BrrDynamic(), lambda jobs, nodes: Loop(jobs, nodes, nodes).run(next_in_line)),
    (Rsa(), lambda jobs, nodes: Loop(jobs, nodes, nodes).run(aggressive(False))),
    (Rsa("ratio"), lambda jobs, nodes: Loop(jobs, nodes, nodes).run(aggressive(True))),
    (Rsc(), lambda jobs, nodes: Loop(jobs, nodes, nodes).run(conservative)),
    (Asjf(), lambda jobs, nodes: Loop(jobs, nodes, nodes).run(adaptive("residual"))),
    (Asjf("queue"), lambda jobs, nodes: Loop(jobs, nodes, nodes).run(adaptive("queue"))),
    (Asjf("gain"), lambda jobs, nodes: Loop(jobs, nodes, nodes).run(adaptive("gain"))),
    (Heteroprio(), lambda jobs, nodes: Loop(jobs, nodes, nodes).run(both_ends)),
    (MinMin(), batch("min")),
    (MaxMin(), batch("max")),
    (Sufferage(), batch("sufferage")),
]
NAMES = [str(policy) for policy, _ in RULES]

# Eighths and powers of two add, subtract and divide exactly: ties are ties in both reckonings.
seconds = st.sampled_from([0.5, 1.0, 2.0, 4.0, 8.0, 16.0])
odd_seconds = st.integers(1, 400).map(lambda n: n / 8)
submits = st.sampled_from([0.0, 0.0, 0.0, 3.0, 10.5, 20.0])


def as_workload(jobs: Jobs) -> Workload:
    return workload([(f"j{i}", {"cpu": c, "gpu": g}, s) for i, (s, c, g) in enumerate(jobs)])


def placed(result: Result, nodes: int) -> dict[int, tuple[int, float]]:
    found = {}
    for record in result.records:
        assert record.allocation is not None
        assert record.start is not None
        assert record.implementation is not None
        gpu = record.implementation.name == "gpu"
        found[record.job.index] = (record.allocation.first_node + (nodes if gpu else 0), record.start)
    return found


def ran(jobs: Jobs, nodes: int, policy: Policy) -> dict[int, tuple[int, float]]:
    work = as_workload(jobs)
    result = simulate(work, Cluster.uniform(nodes, 4, 1), policy, TrueTimesModel(work.truth))
    check_schedule(result, work)
    return placed(result, nodes)


@pytest.mark.parametrize(("policy", "oracle"), RULES, ids=NAMES)
@settings(max_examples=full(400, 40), deadline=None, derandomize=True)
@given(
    jobs=st.one_of(
        st.lists(st.tuples(submits, seconds, seconds), min_size=1, max_size=14),
        st.lists(st.tuples(submits, odd_seconds, odd_seconds), min_size=1, max_size=30),
    ),
    nodes=st.integers(1, 4),
)
def test_agrees_with_the_event_loop(
    policy: Policy,
    oracle: Callable[[Jobs, int], dict[int, tuple[int, float]]],
    jobs: Jobs,
    nodes: int,
) -> None:
    assert ran(jobs, nodes, policy) == oracle(jobs, nodes)


GOLDEN = {  # CT, ANL, AQL, MIT of Fig. 1's rows in table order, repeated to 24 jobs, on two nodes
    Brr(): (73.758, 2.601, 19.688, 51.232),
    BrrDynamic(): (54.597, 1.613, 13.624, 17.568),
    Rsa(): (49.877, 1.137, 6.085, 17.809),
    Rsa("ratio"): (46.707, 0.244, 7.296, 23.278),
    Rsc(): (57.442, 0.0, 13.310, 47.677),
    Asjf(): (57.442, 0.0, 5.825, 49.102),
}


@pytest.mark.parametrize("policy", GOLDEN, ids=str)
def test_golden_values(policy: Policy) -> None:
    work = load_published("published:ravi-single-table?jobs=24")
    result = simulate(work, Cluster.parse("2x1cpu+1gpu"), policy, TrueTimesModel(work.truth))
    check_schedule(result, work)
    found = compute_metrics(result)
    for name, value in zip(("makespan", "anl", "aql", "mit"), GOLDEN[policy], strict=True):
        assert found[name] == pytest.approx(value, abs=6e-4), name


def test_the_optimum_of_the_golden_list_is_proven() -> None:
    pytest.importorskip("ortools")
    from dovetail.policies.follow_plan import FollowPlan
    from dovetail.policies.optimal import Optimal

    work = load_published("published:ravi-single-table?jobs=24")
    result = simulate(
        work, Cluster.parse("2x1cpu+1gpu"), Optimal(), TrueTimesModel(work.truth), follow=FollowPlan()
    )
    check_schedule(result, work)
    assert result.makespan == pytest.approx(40.153, abs=6e-4)
    assert result.plan is not None
    assert result.plan.status == "optimal"


def test_optimal_plans_times_too_short_to_tell_apart() -> None:
    from dovetail.policies.optimal import least_makespan

    chosen, status, bound, _ = least_makespan([{(0, 0): 1e-320}, {(0, 0): 1e-320}], [0.0], workers=1)
    assert (chosen, status) == ([0, 0], "optimal")
    assert 0 <= bound <= 1e-300
