"""What looking ahead costs a call, in CPU time, beside fixed policies on the same queues.

Run with ``pytest benchmarks/test_lookahead.py -n0 -s --benchmark-only``, or as a script.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pytest

from dovetail.interfaces import View
from dovetail.model import Cluster, Decision, Workload
from dovetail.plugins import load_policy
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import workload
from dovetail.workloads.load import load_workload
from dovetail_lab.published.ravi_multi import ravi_multi


@dataclass(frozen=True)
class Timed:
    """A policy with the CPU seconds of each of its calls."""

    policy: object
    seconds: list[float] = field(default_factory=list)

    def __getattr__(self, name: str) -> object:
        return getattr(self.policy, name)

    def decide(self, view: View) -> Iterable[Decision]:
        before = time.process_time()
        found = list(self.policy.decide(view))  # type: ignore[attr-defined]
        self.seconds.append(time.process_time() - before)
        return found


def calls(policy: str, w: Workload, cluster: Cluster) -> np.ndarray:
    """Milliseconds of CPU of every call."""
    timed = Timed(load_policy(policy).policy)
    simulate(w, cluster, timed, PerfectModel(w.truth))  # type: ignore[arg-type]
    return np.array(timed.seconds) * 1e3


def one_node(count: int = 1000) -> Workload:
    rng = np.random.Generator(np.random.PCG64(1))
    return workload(
        [(f"j{i}", {"cpu": rng.uniform(1, 100), "gpu": rng.uniform(1, 100)}) for i in range(count)]
    )


def report(title: str, found: np.ndarray) -> None:
    median, high = np.median(found), np.quantile(found, 0.99)
    print(f"{title:58} median {median:8.3f}  p99 {high:8.3f}  most {found.max():8.2f} ms, {len(found)} calls")


@pytest.mark.benchmark(group="lookahead")
def test_one_node_jobs(benchmark: object) -> None:
    cluster = Cluster.parse("16x1cpu+1gpu")
    found = benchmark.pedantic(calls, ("lookahead", one_node(), cluster), rounds=1)  # type: ignore[attr-defined]
    report("1,000 jobs on 32 units: lookahead", found)
    report("1,000 jobs on 32 units: history", calls("history", one_node(), cluster))
    report("1,000 jobs on 32 units: response", calls("lookahead?objective=response", one_node(), cluster))
    assert np.median(found) < 0.4
    assert found.max() < 300


@pytest.mark.benchmark(group="lookahead")
def test_gangs(benchmark: object) -> None:
    cluster = Cluster.parse("16x8cpu+1gpu")

    def both(policy: str) -> np.ndarray:
        return np.concatenate([calls(policy, ravi_multi("50sj50lj", seed=s), cluster) for s in range(1, 6)])

    found = benchmark.pedantic(both, ("lookahead",), rounds=1)  # type: ignore[attr-defined]
    report("32 gangs on 16 nodes: lookahead, 1,000 plans", found)
    report("32 gangs on 16 nodes: lookahead, 4,000 plans", both("lookahead?budget=4000"))
    report("32 gangs on 16 nodes: fms", both("fms"))
    assert found.mean() < 20


@pytest.mark.benchmark(group="lookahead")
@pytest.mark.parametrize("objective", ["wait", "slowdown"])
def test_rigid_jobs(benchmark: object, objective: str) -> None:
    cluster = Cluster.parse("256x1cpu")
    w = load_workload("synthetic:rigid?jobs=5000&load=0.95&seed=1", cluster)
    policy = f"lookahead?objective={objective}"
    found = benchmark.pedantic(calls, (policy, w, cluster), rounds=1)  # type: ignore[attr-defined]
    report(f"5,000 rigid jobs on 256 nodes: {objective}", found)
    report("5,000 rigid jobs on 256 nodes: easy", calls("easy", w, cluster))
    assert np.median(found) < 2


def whole_command(policy: str, nodes: int, load: float) -> float:
    """CPU seconds of `dovetail simulate` with its start, and of all that it starts; an empty cache."""
    argv = [
        sys.executable,
        "-m",
        "dovetail",
        "simulate",
        f"synthetic:rigid?jobs=4000&nodes={nodes}&load={load}",
    ]
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "XDG_CACHE_HOME": folder, "NUMBA_CACHE_DIR": folder}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        machine = ["--cluster", f"{nodes}x1cpu"]
        options = [*machine, "--policy", policy, "--compiled", "off", "--csv", f"{folder}/jobs.csv"]
        subprocess.run([*argv, *options], env=environ, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.benchmark(group="lookahead")
@pytest.mark.parametrize("objective", ["wait", "slowdown"])
@pytest.mark.parametrize("load", [1.0, 1.3])
@pytest.mark.parametrize("nodes", [100, 1024, 8192, 49152, 100000])
def test_wide_machines(benchmark: object, nodes: int, load: float, objective: str) -> None:
    policy = f"lookahead?objective={objective}"
    easy = whole_command("easy", nodes, load)
    took = benchmark.pedantic(whole_command, (policy, nodes, load), rounds=1)  # type: ignore[attr-defined]
    cluster = Cluster.parse(f"{nodes}x1cpu")
    found = calls(
        policy, load_workload(f"synthetic:rigid?jobs=4000&nodes={nodes}&load={load}", cluster), cluster
    )
    report(f"{nodes} nodes, load {load}, {objective}: {took:.2f} s, easy {easy:.2f} s", found)
    assert took <= 4 * easy + 0.5
    assert np.quantile(found, 0.99) <= 5


if __name__ == "__main__":
    pytest.main([__file__, "-n0", "-s", "-q", "--benchmark-only", "--benchmark-columns=median"])
