"""``dovetail reproduce ravi-multi``: Figures 6 to 8 of Ravi 2012, moldable jobs on sixteen nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

import dovetail
from dovetail import Cluster, InputError
from dovetail.cli import options as opt
from dovetail.plugins import load_policy
from dovetail.report.intervals import Interval, mean_interval
from dovetail.report.progress import Bar
from dovetail_lab.apps.bench.sharing import PAIRS, Sharing, read_sharing
from dovetail_lab.claims import (
    TOLERANCE,
    Chosen,
    Claim,
    Constant,
    Verdict,
    all_of,
    at_most,
    judge_match,
    judge_order,
)
from dovetail_lab.published.ravi_multi import ravi_multi
from dovetail_lab.ravi.panels import Panel, panel_parts
from dovetail_lab.study import (
    FirstSeed,
    Out,
    Set,
    Study,
    Table,
    Workers,
    few_draws_note,
    format_interval,
    named_seeds,
    prepare_folder,
    process_count,
    publish_study,
    seeds_from,
)
from dovetail_lab.tasks import map_tasks

LENGTHS = ("75sj25lj", "50sj50lj", "25sj75lj")
SIZES = ("75sr25lr", "50sr50lr", "25sr75lr")
MIXES = LENGTHS + SIZES
POLICIES = ("torque", "mct", "torque-plan", "fms", "fms-type", "fms-nodes", "fms-order")
PUBLISHED = ("torque", "mct", "fms-type", "fms-nodes")
"""What the paper has in its figures beside FMS."""
BETTER = "best of torque, mct"
ROWS = (BETTER, "torque-plan", "fms-type", "fms-nodes", "fms-order")
SHARED = "fms, sharing"
NODES = Cluster.parse("16x8cpu+1gpu")

REFERENCE: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    BETTER: ((1.30, 1.34, 1.38), (1.25, 1.28, 1.34)),
    "torque-plan": ((1.19, 1.28, 1.28), (1.20, 1.14, 1.22)),
    "fms-type": ((1.01, 1.05, 1.07), (1.05, 1.03, 1.07)),
    "fms-nodes": ((1.01, 1.02, 1.06), (1.04, 1.00, 1.01)),
    "fms-order": ((1.03, 1.09, 1.12), (1.06, 1.04, 1.10)),
}
"""Completion time over that of FMS: lengths, then sizes; 40 draws of an independent program."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Completion times in seconds of one drawn list of jobs, by policy."""

    mix: str
    seed: int
    seconds: dict[str, float]

    def ratio_to_fms(self, policy: str) -> float:
        """Over the completion time of FMS."""
        if policy == BETTER:
            # The better of the two on this very draw, as the paper compares with "the better of TORQUE and
            # MCT".
            return min(self.ratio_to_fms("torque"), self.ratio_to_fms("mct"))
        return self.seconds[policy] / self.seconds["fms"]


CONSTANTS = (
    TOLERANCE,
    Constant("interarrival", (30.0,), "mean seconds between batches; the paper prints none (also an option)"),
    Constant("score", ("rollout",), "how FMS judges its options (also an option)", among=("rollout", "area")),
)
"""What the paper leaves open, and how near is near."""
OPEN = ("tolerance", "interarrival", "score")

Task = tuple[str, int, float, str]
ByMix = dict[str, list[Drawn]]


def draw_policies(task: Task) -> Drawn:
    """One list of jobs, by (mix, seed, mean inter-arrival in seconds, score of FMS), under every policy."""
    mix, seed, interarrival, score = task
    workload = ravi_multi(mix, interarrival=interarrival, seed=seed)
    found: dict[str, float] = {}
    for name in POLICIES:
        # Only the FMS family judges by a score.
        spec = f"{name}?score={score}" if name.startswith("fms") else name
        found[name] = dovetail.simulate(workload, cluster=NODES, policy=spec).makespan
    # Figures 6 and 7 leave out the penalty of Figure 8; this is what it would cost.
    shared = dovetail.simulate(workload, cluster=NODES, policy=f"fms?score={score}", rates="sharing-penalty")
    found[SHARED] = shared.makespan
    return Drawn(mix, seed, found)


def make_study(
    *,
    seeds: int = 30,
    interarrival: float = 30.0,
    score: str = "rollout",
    chosen: Chosen | None = None,
    sharing: Sequence[Sharing] | None = None,
    first_seed: int = 1,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Study:
    """All policies on ``seeds`` draws of each of the six mixes.

    ``sharing`` is what ``bench-sharing --figure-8`` measured; by default what is stored.
    """
    chosen = chosen or Chosen(CONSTANTS, {"interarrival": interarrival, "score": score})
    interarrival, score = chosen.number("interarrival"), str(chosen.all("score")[0])
    reading = f"batches every {interarrival:g} s, scored by {score}"
    tasks = [(mix, seed, interarrival, score) for mix in MIXES for seed in seeds_from(first_seed, seeds)]
    drawn = map_tasks(draw_policies, tasks, workers, progress)
    by_mix = {mix: [d for d in drawn if d.mix == mix] for mix in MIXES}
    # The reference figures belong to this reading alone.
    reference = (interarrival, score) == (30.0, "rollout")
    panels = [
        _ratio_panel("Figure 6: lengths of jobs", LENGTHS, by_mix, 0 if reference else None),
        _ratio_panel("Figure 7: sizes of requests", SIZES, by_mix, 1 if reference else None),
    ]
    cost = _cost_of_sharing(by_mix)
    measured = stored_sharing() if sharing is None else list(sharing)
    about = (
        f"32 jobs in batches of 8, mean inter-arrival {interarrival:g} s, on 16 nodes of 8 CPUs and a GPU, "
        f"{named_seeds(first_seed, seeds)} draws of each mix; FMS scored by {score}.{few_draws_note(seeds)}"
    )
    return Study(
        "ravi-multi",
        "Ravi 2012, moldable jobs on several nodes",
        about,
        (
            *(part for panel in panels for part in panel_parts(panel, "ravi-multi")),
            _figure_8(measured, stored=sharing is None),
            *panel_parts(cost, "ravi-multi"),
        ),
        (
            *(_under_reading(reading, claim) for claim in make_claims(by_mix, chosen)),
            *sharing_claims(measured, chosen),
        ),
        {
            "panels": [*panels, cost],
            "figure_8": [one.as_dict() for one in measured],
            "seeds": seeds,
            "first_seed": first_seed,
            "numbers": _claim_numbers(by_mix),
        },
        chosen,
    )


def _under_reading(reading: str, claim: Claim) -> Claim:
    """The claim with the one reading that was drawn."""
    # A run draws one interarrival time and one score, so only that reading is on record.
    return replace(claim, rests_on=claim.rests_on or OPEN[1:], readings={reading: claim.verdict})


def stored_sharing() -> list[Sharing]:
    """What ``dovetail bench-sharing --figure-8`` measured on a 2-core virtual machine without a GPU."""
    name = "data/sharing.json"
    text = resources.files("dovetail_lab").joinpath(name).read_text(encoding="utf-8")
    return read_sharing(text, name)


def _ratio_panel(name: str, mixes: Sequence[str], by_mix: ByMix, which: int | None) -> Panel:
    return Panel(
        name,
        "completion time over that of fms",
        tuple(mixes),
        ROWS,
        tuple(
            tuple(mean_interval(d.ratio_to_fms(row) for d in by_mix[mix]) for mix in mixes) for row in ROWS
        ),
        () if which is None else tuple(REFERENCE[row][which] for row in ROWS),
    )


def _cost_of_sharing(by_mix: ByMix) -> Panel:
    values = tuple(mean_interval(d.ratio_to_fms(SHARED) for d in by_mix[mix]) for mix in MIXES)
    return Panel(
        "Not in the paper: what the penalties of Figure 8 cost FMS",
        "completion time over that of fms without them",
        MIXES,
        (SHARED,),
        (values,),
    )


def _figure_8(measured: Sequence[Sharing], *, stored: bool) -> Table:
    rows = []
    for pair in PAIRS:
        own = [s for s in measured if (s.cpu_app, s.device_app) == (pair.cpu_app, pair.device_app)]
        cells = {one.pinned: f"{_percent_text(one.penalty)} %" for one in own}
        noise = [f"{_percent_text(one.control_cost)} %" for one in own if not one.pinned]
        rows.append(
            (
                f"{pair.paper_cpu_app} beside {pair.paper_device_app}",
                f"{pair.cpu_app} beside {pair.device_app}",
                f"{100 * pair.penalty:.1f} %",
                cells.get(False, "-"),
                cells.get(True, "-"),
                *(noise or "-"),
            )
        )
    where = "stored: a 2-core virtual machine without a GPU" if stored else "from the file that was named"
    device = measured[0].device if measured else "-"
    return Table(
        "Figure 8: by how much a job on the CPUs takes longer beside one on a device",
        ("paper's pair", "ours", "paper", "all cores for both", "cores of their own", "control"),
        tuple(rows),
        names=2,
        note=f"Measured by dovetail bench-sharing --figure-8 on {device} ({where}). PoCL computes on a core "
        "of the CPU, which a GPU does not. Control: beside a process that sleeps, all cores for both.",
    )


def _percent_text(found: Interval | None) -> str:
    if found is None:
        return "-"
    return format_interval(
        Interval(100 * found.mean, found.half_width and 100 * found.half_width, found.n), 1
    )


def _claim_numbers(by_mix: ByMix) -> dict[str, Any]:
    """Means by mix, in seconds and as ratios, and what the claims rest on."""
    found: dict[str, Any] = {}
    for mix, draws in by_mix.items():
        means = {p: fmean(d.seconds[p] for d in draws) for p in (*POLICIES, SHARED)}
        found[mix] = {
            "seconds": means,
            "better_of_torque_and_mct_over_fms": mean_interval(d.ratio_to_fms(BETTER) for d in draws),
            "greatest": max(d.ratio_to_fms(BETTER) for d in draws),
            "torque_plan_over_fms": mean_interval(d.ratio_to_fms("torque-plan") for d in draws),
            "type_over_fms": mean_interval(d.ratio_to_fms("fms-type") for d in draws),
            "nodes_over_fms": mean_interval(d.ratio_to_fms("fms-nodes") for d in draws),
            "order_over_fms": mean_interval(d.ratio_to_fms("fms-order") for d in draws),
            "better_single_over_fms": min(means["fms-type"], means["fms-nodes"]) / means["fms"],
            "sharing_over_fms": mean_interval(d.ratio_to_fms(SHARED) for d in draws),
        }
    return found


def _over_mixes(by_mix: ByMix, mixes: Sequence[str], ratio: Callable[[Drawn], float]) -> Interval | None:
    """Mean of the mixes' means; the draws of one seed make one value."""
    # The mixes of a seed share their random numbers, so they are no independent values; one mean a seed is.
    return mean_interval(
        fmean(map(ratio, same)) for same in zip(*(by_mix[mix] for mix in mixes), strict=True)
    )


def make_claims(by_mix: ByMix, chosen: Chosen | None = None) -> list[Claim]:
    """The paper's statements on Figures 6 and 7; the reference is 40 draws of an independent program."""
    near = (chosen or Chosen(CONSTANTS)).number("tolerance")
    longest, largest = by_mix["25sj75lj"], by_mix["25sr75lr"]
    drawn = [by_mix[mix] for mix in MIXES]
    strict, sized = (mean_interval(d.ratio_to_fms(BETTER) for d in draws) for draws in (longest, largest))
    shortest = mean_interval(d.ratio_to_fms(BETTER) for d in by_mix["75sj25lj"])
    planned = mean_interval(d.ratio_to_fms("torque-plan") for d in longest)
    ordering = [mean_interval(d.ratio_to_fms("fms-order") for d in by_mix[mix]) for mix in MIXES]
    sharing = [mean_interval(d.ratio_to_fms(SHARED) for d in by_mix[mix]) for mix in MIXES]
    types, nodes = (mean_interval(d.ratio_to_fms(f"fms-{one}") for d in largest) for one in ("type", "nodes"))
    return [
        Claim(
            "FMS is up to 42 % better than the better of TORQUE and MCT (lengths)",
            "up to 1.42",
            "mean 1.38, greatest 1.73 at 25SJ/75LJ",
            f"mean {format_interval(strict, least=0.0)}, {_reaching_draws(longest, 1.42)}",
            judge_match(1.42, strict, 1.0, near),
            OPEN,
        ),
        Claim(
            "FMS ends first of all, in each mix",
            "as stated",
            "-",
            "; ".join(
                f"{p} {_range_text([mean_interval(d.ratio_to_fms(p) for d in draws) for draws in drawn])}"
                for p in PUBLISHED
            ),
            judge_order(
                [
                    mean_interval(d.ratio_to_fms(name) - 1 for d in by_mix[mix])
                    for mix in MIXES
                    for name in PUBLISHED
                ]
            ),
        ),
        *(_alone_claim(by_mix, mixes, words) for mixes, words in ((LENGTHS, "lengths"), (SIZES, "sizes"))),
        Claim(
            "FMS gains more over the better of TORQUE and MCT where more jobs are long",
            "as stated",
            "-",
            f"{format_interval(strict, least=0.0)} at 75 %, {format_interval(shortest, least=0.0)} at 25 %",
            judge_order(
                [
                    mean_interval(
                        more.ratio_to_fms(BETTER) - less.ratio_to_fms(BETTER)
                        for more, less in zip(longest, by_mix["75sj25lj"], strict=True)
                    )
                ]
            ),
        ),
        Claim(
            "FMS against TORQUE with reservations",
            "-",
            "1.28",
            format_interval(planned, least=0.0),
            Verdict.UNSAID,
        ),
        Claim(
            "FMS is up to 32 % better (sizes of requests)",
            "up to 1.32",
            "mean 1.34 at 25SR/75LR",
            f"mean {format_interval(sized, least=0.0)}, {_reaching_draws(largest, 1.32)}",
            judge_match(1.32, sized, 1.0, near),
            OPEN,
        ),
        _both_claim(by_mix, LENGTHS, 1.12, "12 % (lengths)", near),
        _both_claim(by_mix, SIZES, 1.113, "11.3 % (sizes)", near),
        Claim(
            "Molding types beats molding nodes as large requests grow",
            "as stated",
            "nodes are the better one in almost every cell",
            f"25SR/75LR: types {format_interval(types, least=0.0)}, nodes "
            f"{format_interval(nodes, least=0.0)} over both",
            judge_order(
                [mean_interval(d.ratio_to_fms("fms-nodes") - d.ratio_to_fms("fms-type") for d in largest)]
            ),
        ),
        Claim(
            "How much of the gain is ordering alone",
            "-",
            "1.03 to 1.12 without any molding",
            f"{_range_text(ordering)} without any molding",
            Verdict.UNSAID,
        ),
        Claim(
            "Sharing nodes pays in spite of its penalty",
            "feasible and desirable",
            "ignored",
            f"with it FMS needs {_range_text(sharing)} of what it needs without; the baselines, "
            f"which share none, "
            f"{_range_text([mean_interval(d.ratio_to_fms(BETTER) for d in by_mix[mix]) for mix in MIXES])}",
            judge_order(
                [
                    mean_interval(d.ratio_to_fms(BETTER) - d.ratio_to_fms(SHARED) for d in by_mix[mix])
                    for mix in MIXES
                ]
            ),
        ),
    ]


def _alone_claim(by_mix: ByMix, mixes: Sequence[str], words: str) -> Claim:
    """Each molding alone against the better of TORQUE and MCT."""
    gains = {
        name: [
            mean_interval(d.ratio_to_fms(BETTER) - d.ratio_to_fms(name) for d in by_mix[mix]) for mix in mixes
        ]
        for name in ("fms-type", "fms-nodes")
    }
    return Claim(
        f"Each molding alone is better than TORQUE and MCT ({words})",
        "as stated",
        "-",
        "; ".join(f"{name} by {_range_text(found)} of FMS's time" for name, found in gains.items()),
        judge_order([one for found in gains.values() for one in found]),
    )


def _reaching_draws(draws: Sequence[Drawn], paper: float) -> str:
    """The paper has one draw: how many of ours gain as much."""
    ratios = [d.ratio_to_fms(BETTER) for d in draws]
    return (
        f"greatest {max(ratios):.2f}; {fmean(r >= paper for r in ratios):.0%} of the draws reach {paper:.2f}"
    )


def _both_claim(by_mix: ByMix, mixes: Sequence[str], paper: float, words: str, near: float) -> Claim:
    """Molding types and nodes against the better of the two, chosen for each mix by its mean."""
    better = {
        mix: min(("fms-type", "fms-nodes"), key=lambda p: fmean(d.ratio_to_fms(p) for d in by_mix[mix]))
        for mix in mixes
    }
    gain = _over_mixes(by_mix, mixes, lambda d: d.ratio_to_fms(better[d.mix]))
    return Claim(
        f"Both moldings together gain {words} over one",
        f"{paper:g}",
        "0.98 to 1.06 over the better one",
        f"{format_interval(gain, least=0.0)} over the better one",
        judge_match(paper, gain, 1.0, near),
        OPEN,
    )


def _range_text(found: Sequence[Interval | None]) -> str:
    means = [one.mean for one in found if one is not None]
    return f"{min(means):.2f} to {max(means):.2f}"


def sharing_claims(measured: Sequence[Sharing], chosen: Chosen | None = None) -> tuple[Claim, Claim]:
    """The penalties of Figure 8 and those measured with all cores for both, as in the paper."""
    near = (chosen or Chosen(CONSTANTS)).number("tolerance")
    shared = [s for s in measured if not s.pinned]
    by_pair = {(s.cpu_app, s.device_app): s.penalty for s in shared}
    fits = all(s.shows_effect for s in shared)
    verdict = all_of(
        judge_match(pair.penalty, by_pair.get((pair.cpu_app, pair.device_app)), 0.0, near) for pair in PAIRS
    )
    found = [by_pair.get((pair.cpu_app, pair.device_app)) for pair in PAIRS]
    words = ", ".join(f"{_percent_text(one)} %" for one in found)
    made = Claim(
        "A job on the CPUs takes 4.3, 6.8 and 2.4 % longer beside one on the GPU (Fig. 8)",
        ", ".join(f"{100 * pair.penalty:.1f} %" for pair in PAIRS),
        "ignored",
        words,
        # A device that computes on the CPU's own cores cannot show the paper's penalty, nor can a machine on
        # which the control is slowed, too.
        verdict if fits else Verdict.OPEN,
        ("tolerance",),
        basis="stored",
    )
    low = all_of(at_most(0.07, one) for one in found) if fits else Verdict.OPEN
    return made, Claim(
        "The penalty of sharing is less than 7 % for each pair (Fig. 8)",
        "7 %",
        "ignored",
        words,
        low,
        basis="stored",
    )


def command(
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Draws of each mix.")] = 30,
    interarrival: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Mean time between batches.")
    ] = 30.0,
    score: Annotated[
        str, typer.Option(metavar="rollout|area", help="How FMS judges its options.")
    ] = "rollout",
    sharing: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Penalties that bench-sharing --figure-8 --json printed."),
    ] = None,
    constants: Set = None,
    first_seed: FirstSeed = 1,
    workers: Workers = None,
    as_json: opt.Json = False,
    out: Out = None,
    quiet: opt.Quiet = False,
) -> None:
    """Ravi 2012, Figures 6 to 8: moldable jobs.

    TORQUE, MCT and FMS with its variants, and what sharing a node costs; paper, reference, ours.
    """
    options: dict[str, float | str] = {"interarrival": interarrival, "score": score}
    chosen = Chosen.of(CONSTANTS, constants)
    chosen = Chosen(CONSTANTS, options | dict(chosen.given))
    out = prepare_folder(out)
    load_policy(f"fms?score={score}")  # a wrong score fails, and kernels are compiled, before work begins
    measured = None if sharing is None else _read_measurements(sharing)
    with Bar("moldable jobs", hidden=quiet or as_json) as bar:
        found = make_study(
            seeds=seeds,
            first_seed=first_seed,
            chosen=chosen,
            sharing=measured,
            workers=process_count(workers),
            progress=bar.tell,
        )
    publish_study(found, as_json=as_json, out=out)


def _read_measurements(path: Path) -> list[Sharing]:
    try:
        return read_sharing(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise InputError("is no text, expected JSON in UTF-8", where=str(path)) from error
