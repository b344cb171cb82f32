"""Aupy 2013, section 6: Figures 2 to 5 and Table 1, beside what the paper says.

The profiles of Workload-I were measured and not published, and of Workloads II and III the paper leaves
open which tasks they hold and how their sizes spread; ``dovetail.packing.synthetic`` documents what
takes their place.  The figures' numbers are not printed in the paper either, so that its statements
about them are what can be checked: each is listed with the numbers behind the verdict.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dovetail.errors import InputError
from dovetail.packing.registry import Options, solve
from dovetail.packing.synthetic import set_1_like, set_2, set_3

__all__ = ["Claim", "Point", "Study", "Timing", "run", "study"]

Floats = NDArray[np.float64]

HEURISTICS = (
    "pack-approx",
    "pack-by-pack-1",
    "pack-by-pack-9",
    "random-pack-1",
    "random-pack-9",
    "random-proc-1",
    "random-proc-9",
)

SETS: dict[str, tuple[Callable[..., Floats], tuple[int, ...]]] = {
    "I-like": (set_1_like, (2, 4, 6, 8, 10)),
    "II": (set_2, (2, 4, 6, 8, 10, 12, 14, 16)),
    "III": (set_3, (2, 4, 8, 16, 32)),
}

PAPER_MILLISECONDS = {  # Table 1, on the authors' machine of 2013
    "pack-approx": {"I-like": 0.50, "II": 0.30, "III": 5.12},
    "pack-by-pack-1": {"I-like": 0.03, "II": 0.12, "III": 0.53},
    "pack-by-pack-9": {"I-like": 0.30, "II": 1.17, "III": 5.07},
    "random-pack-1": {"I-like": 0.07, "II": 0.34, "III": 9.30},
    "random-pack-9": {"I-like": 0.67, "II": 2.71, "III": 87.25},
    "random-proc-1": {"I-like": 0.05, "II": 0.26, "III": 4.49},
    "random-proc-9": {"I-like": 0.47, "II": 2.26, "III": 39.54},
}

PLAIN: Any = {"box": box.SIMPLE_HEAD, "pad_edge": False, "padding": (0, 1, 0, 0), "show_edge": False}

MEASURES = ("relative_cost", "packing_ratio", "relative_response_time")
FIGURES = {
    "figure-2": (("I-like", "II"), "relative_cost"),
    "figure-3": (("I-like", "II"), "packing_ratio"),
    "figure-4": (("I-like", "II"), "relative_response_time"),
    "figure-5a": (("III",), "relative_cost"),
    "figure-5b": (("III",), "packing_ratio"),
    "figure-5c": (("III",), "relative_response_time"),
}


@dataclass(frozen=True, slots=True)
class Point:
    """Means over the seeds of one algorithm on one set with packs of at most ``k``."""

    workload: str
    k: int
    algorithm: str
    relative_cost: float
    packing_ratio: float
    relative_response_time: float


@dataclass(frozen=True, slots=True)
class Timing:
    """A cell of Table 1: milliseconds here (median over k and seeds) and in the paper."""

    workload: str
    algorithm: str
    milliseconds: float
    paper: float


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of section 6, whether it holds here, and the numbers."""

    statement: str
    verdict: str  # yes, in part, no
    evidence: str


@dataclass(frozen=True, slots=True)
class Study:
    """All points of Figures 2 to 5, Table 1, and the claims."""

    seeds: int
    spread: float
    full_range: bool
    points: tuple[Point, ...]
    timings: tuple[Timing, ...]
    steps: dict[str, float]  # of pack-Approx, by workload
    claims: tuple[Claim, ...] = ()

    def at(self, workload: str, k: int, algorithm: str) -> Point:
        """One point."""
        return next(
            point
            for point in self.points
            if (point.workload, point.k, point.algorithm) == (workload, k, algorithm)
        )


def run(
    *,
    seeds: int = 10,
    spread: float = 10.0,
    full_range: bool = False,
    as_json: bool = False,
    out: Path | None = None,
    console: Console | None = None,
) -> Study:
    """Compute the study and print it, as tables or as JSON alone.

    ``spread`` is the ratio of the longest to the shortest sequential time, which the paper leaves open.
    ``out`` is a folder for the figures (SVG) and the points (JSON).  Raises ``InputError`` for fewer
    than one seed or a folder that cannot be made.
    """
    found = study(seeds=seeds, spread=spread, full_range=full_range)
    if out is not None:
        _write(found, out)
    if as_json:
        print(json.dumps(asdict(found), indent=1))
    else:
        _print(found, console or Console(highlight=False))
    return found


def study(*, seeds: int = 10, spread: float = 10.0, full_range: bool = False) -> Study:
    """Run the seven heuristics (and the optimum of the I-like set) over all sets, k and seeds."""
    if seeds < 1:
        raise InputError(f"{seeds} seeds, expected at least 1")
    points: list[Point] = []
    timings: list[Timing] = []
    steps: dict[str, float] = {}
    for workload, (make, ks) in SETS.items():
        instances = [
            make(np.random.Generator(np.random.PCG64(seed)), spread=spread) for seed in range(1, seeds + 1)
        ]
        steps[workload] = float(np.mean([approx_steps(times) for times in instances]))
        names = HEURISTICS + (("subset-dp",) if workload == "I-like" else ())
        for name in names:
            seconds: list[float] = []
            for k in ks:
                measures = []
                for seed, times in enumerate(instances, start=1):
                    solution = solve(times, k, name, Options(seed=seed, full_range=full_range))
                    measures.append([getattr(solution.metrics, measure) for measure in MEASURES])
                    seconds.append(solution.seconds)
                cost, ratio, response = np.mean(measures, axis=0).tolist()
                points.append(Point(workload, k, name, cost, ratio, response))
            if name in PAPER_MILLISECONDS:
                paper = PAPER_MILLISECONDS[name][workload]
                timings.append(Timing(workload, name, 1e3 * median(seconds), paper))
    found = Study(seeds, spread, full_range, tuple(points), tuple(timings), steps)
    return replace(found, claims=_claims(found))


def approx_steps(times: Floats) -> int:
    """How many steps Algorithm 3 takes; they do not depend on k."""
    n, p = times.shape
    sigma = np.ones(n, dtype=np.int64)
    current = times[:, 0].copy()
    steps = 1
    while True:
        j = int(np.argmax(current))
        if float(sigma @ current) / p > current[j] or sigma[j] == p:
            return steps
        sigma[j] += 1
        current[j] = times[j, sigma[j] - 1]
        steps += 1


def _claims(found: Study) -> tuple[Claim, ...]:
    """The paper's statements about its figures, held against ours."""
    best = found.at

    def worst_ratio(workload: str, of: str, to: str) -> float:
        return max(
            best(workload, k, of).relative_cost / best(workload, k, to).relative_cost
            for k in SETS[workload][1]
        )

    saved = [1.0 - best("I-like", k, "subset-dp").relative_cost for k in SETS["I-like"][1]]
    near = max(worst_ratio("I-like", name, "subset-dp") for name in ("pack-approx", "pack-by-pack-9")) - 1.0
    large = {k: 1.0 - best("II", k, "pack-by-pack-9").relative_cost for k in (12, 14, 16)}
    third = [best("III", k, "pack-by-pack-9") for k in (16, 32)]
    ratios = {
        k: min(best("II", k, name).packing_ratio for name in ("pack-approx", "pack-by-pack-9"))
        for k in SETS["II"][1]
    }
    wins = sum(
        best("II", k, "random-proc-9").relative_cost < best("II", k, "random-pack-9").relative_cost
        for k in SETS["II"][1]
    )
    one = worst_ratio("III", "pack-by-pack-1", "pack-by-pack-9") - 1.0
    beaten = min(
        best("II", k, "random-proc-9").relative_cost / best("II", k, "pack-by-pack-9").relative_cost
        for k in SETS["II"][1]
    )
    slow = {(row.workload, row.algorithm): row.milliseconds for row in found.timings}
    first, second = found.steps["I-like"], found.steps["II"]
    return (
        Claim(
            "I: the optimum costs over 35 % less than one task at a time",
            _verdict(saved, 0.35),
            f"{min(saved):.0%} (k = 2) to {max(saved):.0%}; the profiles are imitated, not the paper's",
        ),
        Claim(
            "I: pack-Approx and pack-by-pack are very close to the optimum for all k",
            "yes" if near <= 0.02 else "in part" if near <= 0.1 else "no",
            f"at most {near:.1%} above it, in the mean over seeds, at the worst k",
        ),
        Claim(
            "II: costs fall by over 80 % for large k",
            _verdict(list(large.values()), 0.80),
            ", ".join(f"{value:.0%} at k = {k}" for k, value in large.items()),
        ),
        Claim(
            "III: cost 90 %, response 80 % lower at k = 16 and 32",
            "yes"
            if all(p.relative_cost <= 0.105 and p.relative_response_time <= 0.2 for p in third)
            else "in part",
            ", ".join(
                f"{1 - p.relative_cost:.1%} and {1 - p.relative_response_time:.1%} at k = {p.k}"
                for p in third
            ),
        ),
        Claim(
            "packing ratios are very close to one",
            _verdict(list(ratios.values()), 0.95),
            ", ".join(f"{value:.2f} at k = {k}" for k, value in ratios.items())
            + "; pack-Approx has them only with a last pass of Algorithm 1",
        ),
        Claim(
            "Random-Proc does better than Random-Pack",
            "yes" if wins == len(SETS["II"][1]) else "in part" if wins else "no",
            f"at {wins} of {len(SETS['II'][1])} k, with processors from "
            + ("1..p" if found.full_range else "1..floor(p/k)"),
        ),
        Claim(
            "the packing heuristics are clearly superior to the random ones",
            "yes" if beaten > 1.02 else "no",
            f"random-proc-9 costs {beaten:.2f} times pack-by-pack-9 at its best k",
        ),
        Claim(
            "III: pack-by-pack-1 is very close to pack-by-pack-9",
            "yes" if one <= 0.03 else "in part",
            f"at most {one:.1%} dearer",
        ),
        Claim(
            "pack-Approx takes fewer steps on II than on I, and is faster there",
            "in part" if second < first else "no",
            f"{first:.1f} steps on I-like, {second:.1f} on II in the mean; a step on 65 tasks takes longer: "
            f"{slow['I-like', 'pack-approx']:.3f} and {slow['II', 'pack-approx']:.3f} ms",
        ),
        Claim(
            "all heuristics run within milliseconds",
            "yes" if max(slow.values()) < 10.0 else "no",
            f"at most {max(slow.values()):.2f} ms",
        ),
    )


def _verdict(values: Sequence[float], least: float) -> str:
    held = sum(value > least for value in values)
    return "yes" if held == len(values) else "in part" if held else "no"


def _print(found: Study, console: Console) -> None:
    draws = "1..p" if found.full_range else "1..floor(p/k)"
    console.print(
        Text(
            f"Aupy 2013, section 6: means over {found.seeds} seeds, spread {found.spread:g}, "
            f"random-proc from {draws}",
            style="bold",
        )
    )
    for figure, (workloads, measure) in FIGURES.items():
        for workload in workloads:
            ks = SETS[workload][1]
            table = Table(title=f"{figure}: {measure.replace('_', ' ')}, workload {workload}", **PLAIN)
            table.add_column("algorithm", no_wrap=True)
            for k in ks:
                table.add_column(f"k={k}", justify="right")
            for name in dict.fromkeys(p.algorithm for p in found.points if p.workload == workload):
                label = "optimum" if name == "subset-dp" else name
                table.add_row(label, *(f"{getattr(found.at(workload, k, name), measure):.3f}" for k in ks))
            console.print(table)
    table = Table(title="Table 1: milliseconds here, and in the paper (another machine)", **PLAIN)
    table.add_column("algorithm", no_wrap=True)
    for workload in SETS:
        table.add_column(workload, justify="right")
        table.add_column("paper", justify="right", style="dim")
    for name in HEURISTICS:
        cells: list[str] = []
        for workload in SETS:
            row = next(t for t in found.timings if (t.workload, t.algorithm) == (workload, name))
            cells += [f"{row.milliseconds:.3f}", f"{row.paper:.2f}"]
        table.add_row(name, *cells)
    console.print(table)
    console.print(Text("What the paper says, and what comes out here", style="bold"))
    for claim in found.claims:
        console.print(Text(f"  {claim.verdict:>7}  {claim.statement}"))
        console.print(Text(f"           {claim.evidence}", style="dim"))
    console.print(
        Text(
            "Not reproduced: Workload-I itself (unpublished profiles), and any single bar of the figures "
            "(their values, and the tasks of II and III, are not in the paper)."
        )
    )


def _write(found: Study, out: Path) -> None:
    """The figures as SVG and all numbers as JSON."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "aupy.json").write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")
        for name, (workloads, measure) in FIGURES.items():
            figure = Figure(figsize=(5.5 * len(workloads), 4.0), layout="constrained")
            FigureCanvasSVG(figure)
            panels = figure.subplots(1, len(workloads), squeeze=False)[0]
            for axes, workload in zip(panels, workloads, strict=True):
                ks = SETS[workload][1]
                for algorithm in dict.fromkeys(p.algorithm for p in found.points if p.workload == workload):
                    label = "optimum" if algorithm == "subset-dp" else algorithm
                    values = [getattr(found.at(workload, k, algorithm), measure) for k in ks]
                    axes.plot(ks, values, marker="o", markersize=3, label=label)
                axes.set(xlabel="pack size k", ylabel=measure.replace("_", " "), title=f"Workload {workload}")
                axes.set_ylim(bottom=0.0)
                axes.legend(fontsize=7)
            figure.savefig(out / f"{name}.svg")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(out)) from error
