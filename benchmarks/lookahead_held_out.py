"""Which rule of `lookahead` is best on some traces, and what it then does on the one that had no say.

    python benchmarks/lookahead_held_out.py FOLDER wait 1-24 >> wait.jsonl  # copies 1 to 24 of each trace
    python benchmarks/lookahead_held_out.py FOLDER slowdown 1-4 kth nasa    # the same of two traces
    python benchmarks/lookahead_held_out.py table wait.jsonl                # leave each trace out in turn
    python benchmarks/lookahead_held_out.py check FOLDER 1-1                # counts beside the engine

A copy is the trace with its submissions moved by up to ten minutes. Each is simulated under EASY in six
orders and under each of the rules below; the measure is a rule's mean over that of the order that was best on
that very copy, chosen afterwards. The rule for a trace is the one with the least geometric mean over the
copies of all *other* traces.

Slowdowns are the engine's. Waits are of `lookahead_counts.c`, which needs ``cc``: one pool of processors (of
GPUs where jobs ask for them), the engine's starts to the last digit wherever nodes have one processor.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from math import exp, log, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.model import Cluster
from dovetail.plugins import load_policy
from dovetail.policies import lookahead_order
from dovetail.policies.parts.orders import ORDERS
from dovetail.report.metrics import compute_metrics
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.workloads.load import load_workload
from dovetail.workloads.replicates import draw_replicate, plan_replicates

TRACES = {
    "kth": ("kth-sp2-1996-2.1-cln.first8000.swf.gz", None),
    "hpc2n": ("hpc2n-2002-2.1.first3170.swf.gz", None),
    "theta": ("theta-2022.first8000.swf.gz", None),
    "lublin": ("lublin-256.swf.gz", None),
    "nasa": ("nasa-ipsc-1993-3.1-cln.first6000.swf.gz", None),
    "aaic, 40 nodes": ("aaicwl-2017Q3.csv.gz", "40x20cpu+8gpu"),
    "philly, 80 nodes": ("philly_jobs_2017-10-02_2017-10-08.csv.gz", "80x20cpu+8gpu"),
    "rigid, load 0.9": ("synthetic:rigid?jobs=5000&nodes=128&load=0.9&seed=7", "128x1cpu"),
    "model, load 0.7": ("synthetic:lublin?jobs=5000&nodes=128&load=0.7&seed=7", "128x1cpu"),
    "model, load 0.95": ("synthetic:lublin?jobs=5000&nodes=256&load=0.95&seed=8", "256x1cpu"),
}
"""Five logs, samples of other formats, and models."""

Change = tuple[Any, str, Any]


def _tried(objective: str, *orders: str) -> Change:
    return lookahead_order, "TRIED", {**lookahead_order.TRIED, objective: orders}


RULES: dict[str, list[Change]] = {
    "as it is": [],
    "no room kept": [(lookahead_order, "worth_keeping", lambda *_: False)],
    "sjf beside": [_tried("slowdown", "sqrtsaf", "sjf")],
    "saf stands": [_tried("slowdown", "saf", "sjf")],
    "no roll-outs": [_tried("slowdown", "sqrtsaf")],
    "saf alone": [_tried("slowdown", "saf")],
}


@contextmanager
def _changed(changes: list[Change]) -> Iterator[None]:
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


class Rule(ctypes.Structure):
    """The struct of that name in `lookahead_counts.c`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("looks", "orders")),
        ("tried", ctypes.c_int64 * 6),
        *((name, ctypes.c_int64) for name in ("futures", "firsts", "lengths")),
        ("age", ctypes.c_double),
    )


def rule(*orders: str, looks: bool = True, futures: int = 8, firsts: int = 8, lengths: int = 0) -> Rule:
    """One of waits, without an argument what stands in the code."""
    orders = orders or lookahead_order.TRIED["wait"]
    places = (ctypes.c_int64 * 6)(*(list(ORDERS).index(order) for order in orders))
    return Rule(int(looks), len(orders), places, futures, firsts, lengths, 90 * 86_400.0)


WAITS = {
    "as it is": rule(),
    "16 futures": rule(futures=16),
    "16 futures, three jobs": rule(futures=16, firsts=3),
    "orders only": rule(firsts=0),
}


class Counted(NamedTuple):
    """The jobs of a copy that fit, by submission, and their one pool of processors or GPUs."""

    capacity: int
    submit: npt.NDArray[np.float64]
    wall: npt.NDArray[np.float64]
    run: npt.NDArray[np.float64]
    width: npt.NDArray[np.int64]
    user: npt.NDArray[np.int64]

    @classmethod
    def of(cls, workload: Any, cluster: Any) -> Counted:
        requests = [job.choices[0].request for job in workload.jobs]
        devices = all(request.devices for request in requests)
        capacity = lookahead_order._present_capacity(cluster, devices)
        width = lookahead_order.gang_widths(cluster, requests, devices)
        choices = [(job, job.choices[0]) for job in workload.jobs]
        run = np.array(
            [workload.truth.seconds(job, c.implementation, c.request) for job, c in choices], float
        )
        wall = np.array([np.nan if job.walltime is None else job.walltime for job in workload.jobs], float)
        users = {user: number for number, user in enumerate({job.user for job in workload.jobs})}
        fits = (width <= capacity) & (run >= 0)
        columns = (
            np.array([job.submit_time for job in workload.jobs]), np.where(np.isfinite(wall), wall, run), run,
            width, np.array([users[job.user] for job in workload.jobs], np.int64),
        )  # fmt: skip
        return cls(capacity, *(np.ascontiguousarray(column[fits]) for column in columns))

    def starts(self, how: Rule) -> npt.NDArray[np.float64]:
        """When each job starts."""

        class Trace(ctypes.Structure):
            _fields_ = (
                *((name, ctypes.c_int64) for name in ("jobs", "capacity")),
                *((name, ctypes.c_void_p) for name in self._fields[1:]),
            )

        trace = Trace(len(self.submit), self.capacity, *(column.ctypes.data for column in self[1:]))
        starts = np.empty(len(self.submit))
        assert not counts().simulate(
            ctypes.byref(trace), ctypes.byref(how), ctypes.c_void_p(starts.ctypes.data)
        )
        return starts

    def mean_wait(self, how: Rule) -> float:
        return float((self.starts(how) - self.submit).mean())


@cache
def counts() -> ctypes.CDLL:
    """`lookahead_counts.c`, compiled."""
    here = Path(__file__).parent
    native = Path(lookahead_order.__file__).parents[1] / "native"
    with tempfile.TemporaryDirectory() as folder:
        made = f"{folder}/counts.so"
        argv = ["cc", "-std=c11", "-O3", "-ffp-contract=off", "-shared", "-fPIC", f"-I{native}", "-o", made]
        subprocess.run([*argv, str(here / "lookahead_counts.c"), "-lm"], check=True)
        return ctypes.CDLL(made)


def copies(folder: Path, numbers: range, traces: list[str]) -> Iterator[tuple[str, int, Any, Any]]:
    """Each copy of these traces, or of all: trace, number, workload, cluster."""
    for trace in traces or TRACES:
        file, shape = TRACES[trace]
        cluster = Cluster.parse(shape) if shape else None
        workload = load_workload(file if ":" in file else str(folder / file), cluster)
        machine = cluster or workload.machine
        for number in numbers:
            replicate = plan_replicates(workload, replicates=number + 1, jitter=600.0, bootstrap="none")[
                number
            ]
            yield trace, number, draw_replicate(workload, machine, replicate), machine


def simulated(policy: str, copy: Any, cluster: Any, metric: str) -> float:
    """The engine's."""
    options = SimulationOptions(overrun="kill")
    result = simulate(copy, cluster, load_policy(policy).policy, PerfectModel(copy.truth), options=options)
    return float(compute_metrics(result)[metric])


def measured(
    folder: Path, objective: str, numbers: range, traces: list[str], say: Callable[[str], None]
) -> None:
    """One JSON line for each trace, copy, and order or rule."""
    for trace, number, copy, cluster in copies(folder, numbers, traces):
        row: dict[str, Any] = {"objective": objective, "trace": trace, "copy": number}
        if objective == "wait":
            jobs = Counted.of(copy, cluster)
            row["orders"] = {order: jobs.mean_wait(rule(order, looks=False)) for order in ORDERS}
            row["rules"] = {name: jobs.mean_wait(how) for name, how in WAITS.items()}
        else:
            metric = "mean_bounded_slowdown"
            row["orders"] = {o: simulated(f"easy?order={o}", copy, cluster, metric) for o in ORDERS}
            row["rules"] = {}
            for name, changes in RULES.items():
                with _changed(changes):
                    policy = f"lookahead?objective={objective}"
                    row["rules"][name] = simulated(policy, copy, cluster, metric)
        say(json.dumps(row))


def check(folder: Path, numbers: range) -> None:
    """Mean waits of counts and of the engine, under the policy and in one order."""
    for trace, number, copy, cluster in copies(folder, numbers, []):
        jobs = Counted.of(copy, cluster)
        for policy, how in (
            ("lookahead?objective=wait", rule()),
            ("easy?order=saf", rule("saf", looks=False)),
        ):
            found = simulated(policy, copy, cluster, "mean_wait")
            print(
                f"{trace} {number} {policy}: engine {found:.6f}, counts {jobs.mean_wait(how):.6f}", flush=True
            )


def table(path: Path) -> None:
    """What was chosen without each trace, and how it did there: geometric mean, 95 % interval, worst copy."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    logs: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        best = min(row["orders"].values())
        for rule, value in row["rules"].items():
            logs.setdefault(rule, {}).setdefault(row["trace"], []).append(log(value / best))
    means = {rule: {t: sum(v) / len(v) for t, v in by.items()} for rule, by in logs.items()}
    print("| left out | chosen by the others | there | 95 % | worst copy | as it is |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    found = []
    for trace in dict.fromkeys(row["trace"] for row in rows):
        rule = min(means, key=lambda rule: sum(m for t, m in means[rule].items() if t != trace))
        values = logs[rule][trace]
        mean, count = sum(values) / len(values), len(values)
        half = 1.96 * sqrt(sum((v - mean) ** 2 for v in values) / max(1, count - 1) / count)
        found.append(mean)
        asis = exp(means["as it is"][trace])
        interval = f"{exp(mean - half):.3f} to {exp(mean + half):.3f}"
        print(f"| {trace} | {rule} | {exp(mean):.3f} | {interval} | {exp(max(values)):.3f} | {asis:.3f} |")
    print(f"| mean | | {exp(sum(found) / len(found)):.3f} | | | |")
    for rule, by in means.items():
        print(rule, {t: round(exp(m), 3) for t, m in by.items()})


def numbers(told: str) -> range:
    first, _, last = told.partition("-")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    if sys.argv[1] == "table":
        table(Path(sys.argv[2]))
    elif sys.argv[1] == "check":
        check(Path(sys.argv[2]), numbers(sys.argv[3]))
    else:
        chosen = numbers(sys.argv[3])
        measured(Path(sys.argv[1]), sys.argv[2], chosen, sys.argv[4:], lambda line: print(line, flush=True))
