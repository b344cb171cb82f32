"""Which rule of `lookahead` is best on some traces, and what it then does on the one that had no say.

    python benchmarks/lookahead_held_out.py FOLDER wait 1-4 >> wait.jsonl   # copies 1 to 4 of each trace
    python benchmarks/lookahead_held_out.py table wait.jsonl                # leave each trace out in turn

A copy is the trace with its submissions moved by up to ten minutes. Each is simulated under EASY in six
orders and under each of the rules below; the measure is a rule's mean over that of the order that was best on
that very copy, chosen afterwards. The rule for a trace is the one with the least geometric mean over the
copies of all *other* traces.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import exp, log, sqrt
from pathlib import Path
from typing import Any

from dovetail.engine.simulation.simulate import SimulationOptions, simulate
from dovetail.plugins import load_policy
from dovetail.policies import lookahead_order, lookahead_room
from dovetail.policies.parts.orders import ORDERS
from dovetail.report.metrics import metrics
from dovetail.runtimes.perfect import PerfectModel
from dovetail.workloads.load import load_workload
from dovetail.workloads.replicates import drawn, planned

TRACES = {
    "kth": ("kth-sp2-1996-2.1-cln.first8000.swf.gz", None),
    "hpc2n": ("hpc2n-2002-2.1.first3170.swf.gz", None),
    "theta": ("theta-2022.first8000.swf.gz", None),
    "lublin": ("lublin-256.swf.gz", None),
    "nasa": ("nasa-ipsc-1993-3.1-cln.first6000.swf.gz", None),
}
MEASURE = {"wait": "mean_wait", "slowdown": "mean_bounded_slowdown"}

Change = tuple[Any, str, Any]


def _tried(objective: str, *orders: str) -> Change:
    return lookahead_order, "TRIED", {**lookahead_order.TRIED, objective: orders}


RULES: dict[str, dict[str, list[Change]]] = {
    "wait": {
        "as it is": [],
        "one future": [(lookahead_order, "FUTURES", 1)],
        "orders only": [(lookahead_order, "FUTURES", 8)],  # and as many roll-outs as there are orders
        "saf stands": [_tried("wait", "saf", "sjf", "sqrtsaf")],
        "no roll-outs": [_tried("wait", "sjf")],
    },
    "slowdown": {
        "as it is": [],
        "no room kept": [(lookahead_room, "worth_keeping", lambda *_: False)],
        "saf beside": [_tried("slowdown", "sqrtsaf", "saf")],
        "saf stands": [_tried("slowdown", "saf", "sjf")],
        "no roll-outs": [_tried("slowdown", "sqrtsaf")],
        "saf alone": [_tried("slowdown", "saf")],
    },
}
OPTIONS = {("wait", "orders only"): "&budget=3", ("wait", "no roll-outs"): "&budget=1"}


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


def measured(folder: Path, objective: str, copies: range, say: Callable[[str], None]) -> None:
    """One JSON line for each trace, copy, and order or rule."""
    for number in copies:
        for trace, (file, shape) in TRACES.items():
            workload = load_workload(str(folder / file), shape)
            assert workload.machine is not None
            replicate = planned(workload, replicates=number + 1, jitter=600.0, bootstrap="none")[number]
            copy = drawn(workload, workload.machine, replicate)

            def value(policy: str, copy: Any = copy, cluster: Any = workload.machine) -> float:
                options = SimulationOptions(overrun="kill")
                result = simulate(
                    copy, cluster, load_policy(policy).policy, PerfectModel(copy.truth), options=options
                )
                return float(metrics(result)[MEASURE[objective]])

            row: dict[str, Any] = {"objective": objective, "trace": trace, "copy": number}
            row["orders"] = {order: value(f"easy?order={order}") for order in ORDERS}
            row["rules"] = {}
            for rule, changes in RULES[objective].items():
                with _changed(changes):
                    name = f"lookahead?objective={objective}{OPTIONS.get((objective, rule), '')}"
                    row["rules"][rule] = value(name)
            say(json.dumps(row))


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


if __name__ == "__main__":
    if sys.argv[1] == "table":
        table(Path(sys.argv[2]))
    else:
        first, _, last = sys.argv[3].partition("-")
        chosen = range(int(first), int(last or first) + 1)
        measured(Path(sys.argv[1]), sys.argv[2], chosen, lambda line: print(line, flush=True))
