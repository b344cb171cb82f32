"""How often a 95 % interval of `compare` holds the truth: docs/explanation/trace-studies.md.

    python benchmarks/interval_coverage.py model "lublin?jobs=1600&nodes=4&load=0.5" fcfs,easy 60
    python benchmarks/interval_coverage.py figures "rigid?jobs=1500&nodes=1&load=0.6" 150
    python benchmarks/interval_coverage.py halves LOG.swf.gz 100x1cpu easy,conservative
    python benchmarks/interval_coverage.py months LOG.swf.gz 100x1cpu fcfs,easy,conservative 3

``model``: traces are drawn from a model, and for each there is an interval from its replicates alone; the
truth is the mean over 300 fresh draws. ``figures``: the same for first come, first served alone, in counts
(`lookahead_counts.c`), for several factors 1 + FEW / weeks. ``halves``: the interval from the first half of
a log, and whether it holds the figure of the second. ``months``: the log is cut into so many parts; the
intervals from each, without and with the drift, beside the figures of every other part.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise, product

import numpy as np

from dovetail import Cluster, load_workload
from dovetail.comparison import compare
from dovetail.report.drift import figure_intervals
from dovetail.report.intervals import FEW, group_variants, mean_interval, of_replicates, student_quantile
from dovetail.report.metrics import final_metrics
from dovetail.workloads.edit import cut_workload
from dovetail.workloads.replicates import draw_replicate, plan_replicates

METRICS = ("mean_wait", "mean_bounded_slowdown", "p95_wait", "max_wait")
TRUTHS = 300


def model(spec: str, policies: str, traces: str) -> None:
    """Coverage of the second policy's figure, and of its difference from the first one's."""
    nodes = spec.partition("nodes=")[2].partition("&")[0]
    machine = Cluster.parse(f"{nodes}x1cpu")
    fresh = group_variants(compare(f"synthetic:{spec}", policies, cluster=machine, replicates=TRUTHS).results)
    first, second = (np.array([[final_metrics(r)[m] for m in METRICS] for r in g]) for g in fresh.values())
    held: Counter[str] = Counter()
    kinds = {"weeks": {}, "jitter alone": {"bootstrap": "none"}}
    for seed in range(10_000, 10_000 + int(traces)):
        source = f"synthetic:{spec}&seed={seed}"
        trace = load_workload(source, machine)
        for kind, how in kinds.items():
            found = compare(trace, policies, cluster=machine, replicates=10, **how)
            _count(held, kind, found.results, first, second)
        if seed % 4 == 0:  # ten seeds each: those of neighbours would be the same
            found = compare(source + "0000", policies, cluster=machine)
            _count(held, "fresh", found.results, first, second)
    for kind, of in (("weeks", int(traces)), ("jitter alone", int(traces)), ("fresh", -(-int(traces) // 4))):
        told = ", ".join(
            f"{m} {held[kind, m, 'figure'] / of:.0%} / {held[kind, m, 'difference'] / of:.0%}"
            for m in METRICS
        )
        print(f"{spec} {policies} {kind} of {of}: figure / difference held: {told}", flush=True)


def _count(held, kind, results, first, second):
    one, other = group_variants(results).values()
    replicates = of_replicates(results)
    for place, metric in enumerate(METRICS):
        a, b = ([final_metrics(r)[metric] for r in group] for group in (one, other))
        figure = mean_interval(b, replicates=replicates)
        difference = mean_interval(np.subtract(b, a), replicates=replicates)
        held[kind, metric, "figure"] += figure.lower_end <= second[:, place].mean() <= figure.upper_end
        truth = (second - first)[:, place].mean()
        held[kind, metric, "difference"] += difference.lower_end <= truth <= difference.upper_end


def figures(spec: str, traces: str) -> None:
    """Coverage of waits, slowdowns and p95 waits for each FEW, in a fraction of the time of ``model``."""
    from lookahead_held_out import Counted, rule

    nodes = spec.partition("nodes=")[2].partition("&")[0]
    machine, in_order = Cluster.parse(f"{nodes}x1cpu"), rule("fcfs", looks=False)

    def found(workload):
        jobs = Counted.of(workload, machine)
        wait, run = jobs.starts(in_order) - jobs.submit, np.minimum(jobs.run, jobs.wall)
        slowdown = np.maximum(1, (wait + run) / np.maximum(run, 10))
        return wait.mean(), slowdown.mean(), np.percentile(wait, 95)

    fresh = (load_workload(f"synthetic:{spec}&seed={seed}", machine) for seed in range(1, TRUTHS + 1))
    truth = np.mean([found(one) for one in fresh], axis=0)
    means, spreads, weeks = [], [], []
    for seed in range(10_000, 10_000 + int(traces)):
        trace = load_workload(f"synthetic:{spec}&seed={seed}", machine)
        plan = plan_replicates(trace, replicates=10)
        if plan[0].bootstrap:
            values = [found(draw_replicate(trace, machine, one)) for one in plan]
            means.append(np.mean(values, axis=0))
            spreads.append(np.std(values, axis=0, ddof=1))
            weeks.append([plan[0].weeks])
    for few in (0.0, 6.0, FEW):
        half = student_quantile(9, 0.95) * np.array(spreads) * (1 + few / np.array(weeks)) * np.sqrt(1.1)
        print(spec, len(weeks), np.mean(weeks), few, (abs(means - truth) <= half).mean(axis=0).round(3))


def halves(log: str, cluster: str, policies: str) -> None:
    """Whether the interval from the first half holds the second half's figure."""
    machine = Cluster.parse(cluster)
    whole = load_workload(log, machine)
    middle = (whole.jobs[0].submit_time + whole.jobs[-1].submit_time) / 2
    early = compare(
        cut_workload(whole, end=middle), policies, cluster=machine, replicates=10, bootstrap="week"
    )
    late = compare(cut_workload(whole, begin=middle), policies, cluster=machine)
    weeks = early.results[-1].replicate.weeks if early.results[-1].replicate.bootstrap else 0
    groups, then = group_variants(early.results), group_variants(late.results)
    base = next(iter(groups))
    for name in groups:
        for metric in METRICS[:3]:
            values = {n: [final_metrics(r)[metric] for r in g] for n, g in groups.items()}
            after = {n: final_metrics(g[0])[metric] for n, g in then.items()}
            pairs = [("figure", values[name], after[name])]
            if name != base:
                pairs.append(
                    ("difference", np.subtract(values[name], values[base]), after[name] - after[base])
                )
            for what, found, truth in pairs:
                i = mean_interval(found, replicates=of_replicates(early.results))
                said = "holds" if i.lower_end <= truth <= i.upper_end else "misses"
                ends = f"{i.lower_end:.5g} to {i.upper_end:.5g}: {said} {truth:.5g} ({weeks} weeks)"
                print(log.rpartition("/")[2], name, metric, what, ends)


def months(log: str, cluster: str, policies: str, parts: str) -> None:
    """How many figures of other parts of a log the intervals from one part hold, without and with drift."""
    machine = Cluster.parse(cluster)
    whole = load_workload(log, machine)
    edges = np.linspace(whole.jobs[0].submit_time, whole.jobs[-1].submit_time, int(parts) + 1).tolist()
    edges[0], edges[-1] = None, None
    groups = []
    for begin, end in pairwise(edges):
        part = cut_workload(whole, begin=begin, end=end)
        groups.append(group_variants(compare(part, policies, cluster=machine, replicates=10).results))
    metrics = ("mean_wait", "mean_response", "mean_bounded_slowdown", "p95_wait")
    held: Counter[tuple[bool, bool]] = Counter()
    for (here, known), (there, other) in product(enumerate(groups), repeat=2):
        for drift, metric in product((False, True), metrics) if here != there else ():
            found = figure_intervals(known, metric, drift=drift)
            for one, then in zip(found, other.values(), strict=True):
                low, high = one.ends_within(metric)
                inside = low <= final_metrics(then[0])[metric] <= high
                for next_one in {False, there == here + 1}:
                    held[drift, next_one, inside] += 1
    for drift, next_one in product((False, True), repeat=2):
        inside, outside = held[drift, next_one, True], held[drift, next_one, False]
        which = "the next part" if next_one else "every other part"
        told = "with" if drift else "without"
        print(log.rpartition("/")[2], f"{told} drift, {which}: {inside} of {inside + outside}")


if __name__ == "__main__":
    {"model": model, "figures": figures, "halves": halves, "months": months}[sys.argv[1]](*sys.argv[2:])
