"""``dovetail reproduce ravi-single``: Figures 3 to 5 of Ravi 2012, single-node jobs on two nodes.

The paper's 30 jobs are printed in part only, and one draw of 24 of them says little: the figures here are
means over many draws from a documented pool (`dovetail.workloads.published.ravi_single`).
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from dovetail.engine.simulate import simulate
from dovetail.errors import InputError
from dovetail.model import Cluster
from dovetail.plugins import load_policy
from dovetail.policies.follow_plan import FollowPlan
from dovetail.report.intervals import Interval, interval
from dovetail.report.metrics import metrics
from dovetail.reproduce import ravi
from dovetail.reproduce.ravi import Claim, Panel, Study, shown
from dovetail.reproduce.study_pool import StudyProgress, mapped
from dovetail.runtimes.perfect import PerfectModel
from dovetail.workloads.published.ravi_single import POOLS, ravi_single

__all__ = ["Drawn", "command", "study"]

MIXES = {
    "uniform": "Figure 3: as many CPU-friendly as GPU-friendly jobs",
    "cpu75": "Figure 4: 75 % CPU-friendly jobs",
    "gpu75": "Figure 5: 75 % GPU-friendly jobs",
}
OURS = ("rsa", "rsc", "asjf")
"""The paper's three policies; "ours" is what the paper calls them."""
POLICIES = ("brr", "brr-dynamic", *OURS)
METRICS = {"makespan": "CT", "anl": "ANL", "aql": "AQL", "mit": "MIT"}
NODES = Cluster.uniform(2, 1, 1)
OPTIMAL_SECONDS = 30.0

REFERENCE = {  # CT over the optimum, pool B: uniform, cpu75, gpu75
    "brr": (2.61, 2.33, 2.59),
    "brr-dynamic": (2.00, 1.69, 1.87),
    "rsa": (1.07, 1.03, 1.20),
    "rsc": (1.16, 1.07, 1.24),
    "asjf": (1.31, 1.07, 1.38),
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """One drawn list of jobs under every policy; metrics in seconds by policy."""

    mix: str
    seed: int
    metrics: dict[str, dict[str, float]]
    gap: float | None  # of the optimum; 0 where it is proven

    def seconds(self, policy: str) -> float:
        """The completion time."""
        return self.metrics[policy]["makespan"]

    def over_optimum(self, policy: str) -> float:
        """The completion time over the optimal one."""
        return self.seconds(policy) / self.seconds("optimal")

    def ours(self) -> list[float]:
        """The completion times of the paper's three policies."""
        return [self.seconds(policy) for policy in OURS]


Task = tuple[str, int, str, int, bool]


def _draw(task: Task) -> Drawn:
    mix, seed, pool, jobs, optimum = task
    workload = ravi_single(mix, jobs, pool, seed)
    found: dict[str, dict[str, float]] = {}
    gap = None
    for name in (*POLICIES, *(["optimal"] if optimum else [])):
        spec = f"optimal?workers=1&time_limit={OPTIMAL_SECONDS:g}" if name == "optimal" else name
        policy = load_policy(spec).policy
        result = simulate(workload, NODES, policy, PerfectModel(workload.truth), follow=FollowPlan())
        every = metrics(result)
        found[name] = {key: float(every[key] or 0.0) for key in METRICS}
        if name == "optimal" and result.plan is not None:
            gap = 0.0 if result.plan.status == "optimal" else result.plan.gap
    return Drawn(mix, seed, found, gap)


def study(
    *,
    seeds: int = 30,
    pool: str = "B",
    jobs: int = 24,
    workers: int = 1,
    tell: Callable[[int, int], None] | None = None,
) -> Study:
    """All policies on ``seeds`` draws of each mix. Raises `InputError` for an unknown pool."""
    if pool not in POOLS:
        raise InputError(f"found {pool!r}, expected one of {', '.join(POOLS)}", where="--pool")
    optimum = importlib.util.find_spec("ortools") is not None
    tasks = [(mix, seed, pool, jobs, optimum) for mix in MIXES for seed in range(1, seeds + 1)]
    drawn = mapped(_draw, tasks, workers, tell)
    by_mix = {mix: [d for d in drawn if d.mix == mix] for mix in MIXES}
    numbers = _numbers(by_mix, optimum)
    names = (*POLICIES, *(["optimal"] if optimum else []))
    panels = [
        Panel(
            title,
            "seconds",
            tuple(METRICS.values()),
            names,
            tuple(
                tuple(interval(d.metrics[name][key] for d in by_mix[mix]) for key in METRICS)
                for name in names
            ),
        )
        for mix, title in MIXES.items()
    ]
    if optimum:
        panels.append(_over_optimum(by_mix))
    about = (
        f"{jobs} jobs at t = 0 on 2 nodes of CPUs and a GPU, pool {pool}, {seeds} draws of each mix; CT "
        "completion time, ANL mean excess over the best device, AQL mean wait, MIT greatest idle time."
    )
    if not optimum:
        about += " OR-Tools is not installed (dovetail[exact]): no optimum."
    return Study(
        "Ravi 2012, single-node jobs", about, tuple(panels), tuple(_claims(numbers, optimum)), numbers
    )


def _intervals(draws: Sequence[Drawn], policy: str) -> tuple[Interval | None, ...]:
    """CT, ANL, AQL and MIT of a policy."""
    return tuple(interval(d.metrics[policy][key] for d in draws) for key in METRICS)


def _over_optimum(by_mix: dict[str, list[Drawn]]) -> Panel:
    return Panel(
        "Figures 3 to 5: completion time over the optimum",
        "ratio, mean over draws",
        tuple(by_mix),
        POLICIES,
        tuple(
            tuple(
                interval(d.seconds(name) / d.seconds("optimal") for d in draws) for draws in by_mix.values()
            )
            for name in POLICIES
        ),
        tuple(REFERENCE[name] for name in POLICIES),
    )


def _mean_over_mixes(by_mix: dict[str, list[Drawn]], ratio: Callable[[Drawn], float]) -> Interval | None:
    """Mean of the mixes' means; the draws of one seed in the three mixes make one value."""
    return interval(fmean(ratio(d) for d in same) for same in zip(*by_mix.values(), strict=True))


def _numbers(by_mix: dict[str, list[Drawn]], optimum: bool) -> dict[str, Any]:
    """The numbers behind the claims, in seconds and ratios."""

    def means(mix: str, metric: str) -> dict[str, float]:
        return {p: fmean(d.metrics[p][metric] for d in by_mix[mix]) for p in POLICIES}

    found: dict[str, Any] = {
        "brr_over_ours": _mean_over_mixes(by_mix, lambda d: d.seconds("brr") / fmean(d.ours())),
        "brr_dynamic_over_ours": _mean_over_mixes(
            by_mix, lambda d: d.seconds("brr-dynamic") / fmean(d.ours())
        ),
        "means": {mix: {key: means(mix, key) for key in METRICS} for mix in by_mix},
    }
    if optimum:
        every = [d for draws in by_mix.values() for d in draws]

        def over_optimum(policy: str) -> Interval | None:
            return _mean_over_mixes(by_mix, lambda d: d.over_optimum(policy))

        found |= {
            "ours_over_optimum": _mean_over_mixes(by_mix, lambda d: fmean(d.ours()) / d.seconds("optimal")),
            "best_per_draw_over_optimum": _mean_over_mixes(
                by_mix, lambda d: min(d.ours()) / d.seconds("optimal")
            ),
            "policy_over_optimum": {policy: over_optimum(policy) for policy in OURS},
            "proven": sum(d.gap == 0 for d in every),
            "worst_gap": max((d.gap for d in every if d.gap is not None), default=None),
        }
    return found


def _claims(numbers: dict[str, Any], optimum: bool) -> list[Claim]:
    brr: Interval = numbers["brr_over_ours"]
    dynamic: Interval = numbers["brr_dynamic_over_ours"]
    claims = [
        Claim(
            "Blind round robin takes 108 % longer than ours",
            "2.08",
            "2.01 (1.56 if the next free resource takes the next job)",
            f"{shown(brr)} ({shown(dynamic)})",
            1.7 <= brr.mean <= 2.6,
        )
    ]
    if optimum:
        ours: Interval = numbers["ours_over_optimum"]
        per_policy: dict[str, Interval] = numbers["policy_over_optimum"]
        best = min(per_policy, key=lambda p: per_policy[p].mean)
        within, least = per_policy[best], numbers["best_per_draw_over_optimum"]
        claims += [
            Claim(
                "Ours is within 20.6 % of the optimum",
                "1.206",
                "1.171",
                shown(ours),
                1.1 <= ours.mean <= 1.32,
            ),
            Claim(
                "The best of ours is within 12 %",
                "1.12",
                "1.100 (the best of each draw: 1.067)",
                f"{shown(within)} ({best}; the best of each draw: {shown(least)})",
                within.low <= 1.12,
            ),
        ]
    return claims + _orders(numbers["means"])


def _orders(means: dict[str, dict[str, dict[str, float]]]) -> list[Claim]:
    """Which policy is best or worst in what, over the three mixes."""

    def best(metric: str, of: Sequence[str] = OURS) -> list[str]:
        return [min(of, key=lambda p: means[mix][metric][p]) for mix in means]

    def worst(metric: str) -> list[str]:
        return [max(OURS, key=lambda p: means[mix][metric][p]) for mix in means]

    uniform = means["uniform"]
    seconds, idle_seconds = uniform["makespan"]["rsa"], uniform["mit"]["rsa"]
    least_wait, best_time = best("aql"), best("makespan")
    idle = worst("mit")
    return [
        Claim(
            "ASJF almost always has the best completion time",
            "almost always",
            "RSA best or tied in 22 of 24 cells",
            f"best: {', '.join(best_time)}",
            best_time.count("asjf") >= 2,
        ),
        Claim(
            "RSA has the highest ANL, RSC none",
            "as said",
            "all cells",
            f"highest: {', '.join(worst('anl'))}; RSC {max(means[m]['anl']['rsc'] for m in means):.3f} s",
            set(worst("anl")) == {"rsa"} and all(abs(means[m]["anl"]["rsc"]) < 1e-9 for m in means),
        ),
        Claim(
            "ASJF has the lowest AQL, RSC the highest",
            "as said",
            "all cells",
            f"lowest: {', '.join(least_wait)}; highest: {', '.join(worst('aql'))}",
            set(least_wait) == {"asjf"} and set(worst("aql")) == {"rsc"},
        ),
        Claim(
            "RSC has the highest MIT of ours",
            "as said",
            "ASJF's is as high",
            f"highest: {', '.join(idle)}",
            set(idle) == {"rsc"},
        ),
        Claim(
            "Balanced mix: 705.2 s, of which at most 226.6 s idle",
            "705.2 s, 226.6 s",
            "pool D only: 659-724 s (optimum), 276 s (RSA)",
            f"RSA {seconds:,.0f} s, {idle_seconds:,.0f} s",
            abs(seconds / 705.2 - 1) < 0.1 and abs(idle_seconds / 226.6 - 1) < 0.25,
        ),
    ]


def command(
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Draws of each mix: seeds 1 to N.")] = 30,
    pool: Annotated[str, typer.Option(metavar="A…H", help="Which reading of the paper's 30 jobs.")] = "B",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes. Default: one a core.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone on standard output.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write plots (SVG), a page (HTML) and JSON there.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Ravi 2012, Figures 3 to 5: round robin, RSA, RSC, ASJF and the optimum; paper, reference, ours."""
    with StudyProgress("single-node jobs", hidden=quiet or as_json) as progress:
        found = study(
            seeds=seeds, pool=pool, workers=workers or len(os.sched_getaffinity(0)), tell=progress.tell
        )
    if out is not None:
        ravi.write(found, "ravi-single", out)
    if as_json:
        print(json.dumps(found.as_dict(), indent=1))
    else:
        ravi.show(found)
