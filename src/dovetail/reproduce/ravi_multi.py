"""``dovetail reproduce ravi-multi``: Figures 6 to 8 of Ravi 2012, moldable jobs on sixteen nodes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from dovetail.engine.simulate import simulate
from dovetail.model import Cluster
from dovetail.plugins import load_policy, load_rates
from dovetail.report.intervals import Interval, interval
from dovetail.reproduce import ravi
from dovetail.reproduce.ravi import Claim, Panel, Study, shown
from dovetail.reproduce.study_pool import StudyProgress, mapped
from dovetail.runtimes.perfect import PerfectModel
from dovetail.workloads.published.ravi_multi import ravi_multi

__all__ = ["Drawn", "command", "study"]

LENGTHS = ("75sj25lj", "50sj50lj", "25sj75lj")
SIZES = ("75sr25lr", "50sr50lr", "25sr75lr")
POLICIES = ("torque", "mct", "torque-plan", "fms", "fms-type", "fms-nodes", "fms-order")
SHARED = "fms, sharing"
NODES = Cluster.uniform(16, 8, 1)

REFERENCE: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {  # CT over CT(FMS), 40 seeds
    "best of torque, mct": ((1.30, 1.34, 1.38), (1.25, 1.28, 1.34)),
    "torque-plan": ((1.19, 1.28, 1.28), (1.20, 1.14, 1.22)),
    "fms-type": ((1.01, 1.05, 1.07), (1.05, 1.03, 1.07)),
    "fms-nodes": ((1.01, 1.02, 1.06), (1.04, 1.00, 1.01)),
    "fms-order": ((1.03, 1.09, 1.12), (1.06, 1.04, 1.10)),
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """Completion times in seconds of one drawn list of jobs, by policy."""

    mix: str
    seed: int
    seconds: dict[str, float]

    def ratio(self, policy: str) -> float:
        """Over the completion time of FMS."""
        if policy == "best of torque, mct":
            return min(self.ratio("torque"), self.ratio("mct"))
        return self.seconds[policy] / self.seconds["fms"]


Task = tuple[str, int, float, str]


def _draw(task: Task) -> Drawn:
    mix, seed, interarrival, score = task
    workload = ravi_multi(mix, interarrival=interarrival, seed=seed)
    found: dict[str, float] = {}
    for name in POLICIES:
        spec = f"{name}?score={score}" if name.startswith("fms") else name
        policy = load_policy(spec).policy
        found[name] = simulate(workload, NODES, policy, PerfectModel(workload.truth)).makespan
    shared = simulate(
        workload,
        NODES,
        load_policy(f"fms?score={score}").policy,
        PerfectModel(workload.truth),
        rates=load_rates("sharing-penalty"),
    )
    found[SHARED] = shared.makespan
    return Drawn(mix, seed, found)


def study(
    *,
    seeds: int = 30,
    interarrival: float = 30.0,
    score: str = "rollout",
    workers: int = 1,
    tell: Callable[[int, int], None] | None = None,
) -> Study:
    """All policies on ``seeds`` draws of each of the six mixes."""
    tasks = [(mix, seed, interarrival, score) for mix in LENGTHS + SIZES for seed in range(1, seeds + 1)]
    drawn = mapped(_draw, tasks, workers, tell)
    by_mix = {mix: [d for d in drawn if d.mix == mix] for mix in LENGTHS + SIZES}
    panels = (
        _panel("Figure 6: lengths of jobs", LENGTHS, by_mix, 0),
        _panel("Figure 7: sizes of requests", SIZES, by_mix, 1),
        Panel(
            "Figure 8: completion time of FMS with the sharing penalty",
            "over FMS without it",
            LENGTHS + SIZES,
            ("fms",),
            (tuple(interval(d.ratio(SHARED) for d in by_mix[mix]) for mix in LENGTHS + SIZES),),
        ),
    )
    numbers = _numbers(by_mix)
    about = (
        f"32 jobs in batches of 8, mean inter-arrival {interarrival:g} s, on 16 nodes of 8 CPUs and a GPU, "
        f"{seeds} draws of each mix; FMS scored by {score}."
    )
    return Study("Ravi 2012, moldable jobs on several nodes", about, panels, tuple(_claims(numbers)), numbers)


def _panel(name: str, mixes: Sequence[str], by_mix: dict[str, list[Drawn]], which: int) -> Panel:
    rows = ("best of torque, mct", "torque-plan", "fms-type", "fms-nodes", "fms-order")
    return Panel(
        name,
        "completion time over that of fms",
        tuple(mixes),
        rows,
        tuple(tuple(interval(d.ratio(row) for d in by_mix[mix]) for mix in mixes) for row in rows),
        tuple(REFERENCE[row][which] for row in rows),
    )


def _numbers(by_mix: dict[str, list[Drawn]]) -> dict[str, Any]:
    """Means by mix, in seconds and as ratios, and what the claims rest on."""
    found: dict[str, Any] = {}
    for mix, draws in by_mix.items():
        means = {p: fmean(d.seconds[p] for d in draws) for p in (*POLICIES, SHARED)}
        strict = [d.ratio("best of torque, mct") for d in draws]
        found[mix] = {
            "seconds": means,
            "better_of_torque_and_mct_over_fms": interval(strict),
            "greatest": max(strict),
            "torque_plan_over_fms": interval(d.ratio("torque-plan") for d in draws),
            "type_over_fms": interval(d.ratio("fms-type") for d in draws),
            "nodes_over_fms": interval(d.ratio("fms-nodes") for d in draws),
            "order_over_fms": interval(d.ratio("fms-order") for d in draws),
            "better_single_over_fms": min(means["fms-type"], means["fms-nodes"]) / means["fms"],
            "sharing_over_fms": interval(d.ratio(SHARED) for d in draws),
        }
    return found


def _claims(numbers: dict[str, Any]) -> list[Claim]:
    longest, largest = numbers["25sj75lj"], numbers["25sr75lr"]
    strict: Interval = longest["better_of_torque_and_mct_over_fms"]
    planned: Interval = longest["torque_plan_over_fms"]
    sized: Interval = largest["better_of_torque_and_mct_over_fms"]
    gains = [numbers[mix]["better_single_over_fms"] for mix in LENGTHS + SIZES]
    sharing = [numbers[mix]["sharing_over_fms"].mean - 1 for mix in LENGTHS + SIZES]
    ordering = [numbers[mix]["order_over_fms"].mean for mix in LENGTHS + SIZES]
    return [
        Claim(
            "FMS is up to 42 % better than the better of TORQUE and MCT (lengths)",
            "up to 1.42",
            "mean 1.38, greatest 1.73 at 25SJ/75LJ",
            f"mean {shown(strict)}, greatest {longest['greatest']:.2f}",
            strict.mean >= 1.25,
        ),
        Claim(
            "... than TORQUE with reservations",
            "-",
            "1.28",
            shown(planned),
            planned.mean >= 1.15,
        ),
        Claim(
            "... up to 32 % (sizes of requests)",
            "up to 1.32",
            "mean 1.34 at 25SR/75LR",
            f"mean {shown(sized)}, greatest {largest['greatest']:.2f}",
            sized.mean >= 1.2,
        ),
        Claim(
            "Both moldings together gain 12 % (lengths) and 11.3 % (sizes) over one",
            "1.12, 1.113",
            "0.98 to 1.06 over the better one",
            f"{min(gains):.2f} to {max(gains):.2f} over the better one",
            fmean(gains) >= 1.08,
        ),
        Claim(
            "Molding types beats molding nodes as large requests grow",
            "as said",
            "nodes are the better one in almost every cell",
            f"25SR/75LR: types {shown(largest['type_over_fms'])}, nodes {shown(largest['nodes_over_fms'])}",
            largest["type_over_fms"].mean < largest["nodes_over_fms"].mean,
        ),
        Claim(
            "Not in the paper: how much of the gain is ordering alone",
            "-",
            "1.03 to 1.12 without any molding",
            f"{min(ordering):.2f} to {max(ordering):.2f} without any molding",
            None,
        ),
        Claim(
            "Sharing nodes pays in spite of its penalty (Fig. 8)",
            "2.4 to 6.8 % a pair of apps",
            "ignored",
            f"with it FMS needs {min(sharing):+.1%} to {max(sharing):+.1%}",
            strict.mean > 1 + max(sharing),
        ),
    ]


def command(
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Draws of each mix: seeds 1 to N.")] = 30,
    interarrival: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Mean time between batches.")
    ] = 30.0,
    score: Annotated[
        str, typer.Option(metavar="rollout|area", help="How FMS judges its options.")
    ] = "rollout",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes. Default: one a core.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone on standard output.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write plots (SVG), a page (HTML) and JSON there.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Ravi 2012, Figures 6 to 8: TORQUE, MCT and FMS with its variants; paper, reference, ours."""
    load_policy(f"fms?score={score}")  # a wrong score is said, and kernels are compiled, before work begins
    with StudyProgress("moldable jobs", hidden=quiet or as_json) as progress:
        found = study(
            seeds=seeds,
            interarrival=interarrival,
            score=score,
            workers=workers or len(os.sched_getaffinity(0)),
            tell=progress.tell,
        )
    if out is not None:
        ravi.write(found, "ravi-multi", out)
    if as_json:
        print(json.dumps(found.as_dict(), indent=1))
    else:
        ravi.show(found)
