"""``dovetail reproduce shirahata``: Figures 6 to 9, the claims, and what 1.93 would need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Annotated

import typer

from dovetail.cli import options as opt
from dovetail.report.intervals import Interval
from dovetail.report.progress import Bar
from dovetail.splitting.shares import shares
from dovetail_lab.claims import Claim, Verdict, all_of, as_printed, matches, reaches
from dovetail_lab.ravi.panels import Panel, parts
from dovetail_lab.shirahata.measured import Overhead, overheads
from dovetail_lab.shirahata.simulated import (
    ALPHA,
    ALPHAS,
    CPU_SECONDS,
    GPU_SECONDS,
    NEEDED,
    NODES,
    NOISES,
    Case,
    Figures,
    figures,
)
from dovetail_lab.study import Out, Study, Workers, prepared, processes, publish, shown

__all__ = ["command", "study"]

PROPOSALS = ("hadoop", "hadoop-gpu2", "shares", "finish-time")
PAPER_TASKS = {"CPU": (77.4, 65.2), "GPU": (27.9, 15.5)}
"""Seconds of a task, and of the program in it (Figure 9)."""


def study(
    *,
    seeds: int = 5,
    workers: int = 1,
    ray_too: bool = False,
    tell: Callable[[int, int], None] | None = None,
) -> Study:
    """All of it. Raises `InputError` where Ray is asked for and is not there."""
    measured = overheads(ray=ray_too)
    found = figures(seeds=seeds, workers=workers, tell=tell)
    panels = (
        *(_figure_6(found, alpha, noise) for alpha in (ALPHA, NEEDED) for noise in (None, 0.2)),
        *(_speedups(found, noise) for noise in NOISES),
        _figure_7(found),
        _figure_8(found),
        _figure_9(measured),
    )
    about = (
        f"4000 tasks of {CPU_SECONDS} s on a CPU slot; nodes of 16 slots, of which two have a GPU. "
        f"The factor is {ALPHA:.2f} (the paper's times, from another machine) or {NEEDED} (what 1.93 needs). "
        "Noise is the standard deviation of a CPU task's logarithm, 0.1 on GPUs; with noise, nodes report "
        f"every 3 s; {seeds} seeds."
    )
    numbers = {
        "factor": ALPHA,
        "needed": NEEDED,
        "overheads": [asdict(o) | {"overhead": o.overhead} for o in measured],
    }
    return Study(
        "shirahata",
        "Shirahata 2010, hybrid maps",
        about,
        tuple(part for panel in panels for part in parts(panel, "shirahata")),
        tuple(_claims(found, measured)),
        numbers | {"panels": panels},
    )


# ------------------------------------------------------------------------------------------------ figures


def _figure_6(found: Figures, alpha: float, noise: float | None) -> Panel:
    rows = [(name, [found.makespan(Case(name, n, alpha, noise)) for n in NODES]) for name in PROPOSALS]
    if noise is None:
        rows.append(("optimum", [Interval(Case("finish-time", n, alpha).optimum(), None, 1) for n in NODES]))
    setting = "times known, no delays" if noise is None else f"noise {noise}, heartbeats"
    slug = "clean" if noise is None else "noise"
    return _panel(f"Figure 6, factor {alpha:.2f}, {slug}: total time, {setting}", "seconds by nodes", rows)


def _speedups(found: Figures, noise: float) -> Panel:
    rows = [
        (name, [found.speedup(Case(name, 64, alpha, noise)) for alpha in ALPHAS]) for name in PROPOSALS[1:]
    ]
    if noise == NOISES[0]:
        without = [found.speedup(Case("finish-time", 64, alpha, noise, count_gap=False)) for alpha in ALPHAS]
        rows.append(("finish-time, gap ignored", without))
    columns = tuple(f"factor {alpha:.3g}" for alpha in ALPHAS)
    return _panel(f"64 nodes, noise {noise}: times faster than hadoop", "ratio", rows, columns)


def _figure_7(found: Figures) -> Panel:
    cases = [Case("hadoop-gpu2", n, shared=True) for n in NODES]
    cpu, gpu = ([found.mean_seconds(case, kind) for case in cases] for kind in ("cpu", "gpu"))
    factors = [Interval(c.mean / g.mean, None, 1) for c, g in zip(cpu, gpu, strict=True)]
    gains = [found.speedup(replace(case, policy="finish-time")) for case in cases]
    rows = [("CPU task", cpu), ("GPU task", gpu), ("factor", factors), ("finish-time over hadoop", gains)]
    return _panel("Figure 7: mean time of a task, a shared file system", "seconds by nodes", rows)


def _figure_8(found: Figures) -> Panel:
    names = ("hadoop", "hadoop-gpu1", "finish-time-gpu1", "hadoop-gpu2", "finish-time")
    rows = [(name, [found.makespan(Case(name, n, noise=0.2)) for n in NODES]) for name in names]
    return _panel("Figure 8: one GPU or two on each node", "seconds by nodes", rows)


def _figure_9(measured: Sequence[Overhead]) -> Panel:
    rows = [
        (f"paper, {kind} task of Hadoop", [Interval(1e3 * s, None, 1) for s in (task, own, task - own)])
        for kind, (task, own) in PAPER_TASKS.items()
    ]
    rows += [
        (f"{o.what}, {o.engine}", [Interval(1e3 * s, None, o.tasks) for s in (o.task, o.own, o.overhead)])
        for o in measured
    ]
    return _panel(
        "Figure 9: a task, what it is for, the overhead", "milliseconds", rows, ("task", "own", "overhead")
    )


def _panel(
    name: str,
    unit: str,
    rows: Sequence[tuple[str, Sequence[Interval | None]]],
    columns: Sequence[str] | None = None,
) -> Panel:
    heads = tuple(columns) if columns is not None else tuple(str(n) for n in NODES)
    return Panel(
        name, unit, heads, tuple(name for name, _ in rows), tuple(tuple(values) for _, values in rows)
    )


# ------------------------------------------------------------------------------------------------- claims


def _claims(found: Figures, measured: Sequence[Overhead]) -> list[Claim]:
    """What the paper says, and what comes out here."""
    greedy = found.speedup(Case("hadoop-gpu2", 64, noise=0.2))
    ours = found.speedup(Case("finish-time", 64, noise=0.2))
    papers = found.speedup(Case("shares", 64, noise=0.2))
    one = found.speedup(Case("finish-time", 1, noise=0.2))
    most = shares(4000, 14, 2, CPU_SECONDS, GPU_SECONDS)
    limit = (14 + 2 * most.acceleration) / 16
    reached = [
        f"{alpha:.3g} with noise {noise}: {shown(found.speedup(Case('finish-time', 64, alpha, noise)))}"
        for alpha in ALPHAS
        for noise in NOISES[:2]
        if found.speedup(Case("finish-time", 64, alpha, noise)).high >= 1.93
    ]
    tail = Case("hadoop-gpu2", 64, NEEDED).optimum()
    last = found.makespan(Case("hadoop-gpu2", 64, NEEDED)).mean
    both = [
        (alpha, noise)
        for alpha in ALPHAS
        for noise in NOISES
        if abs(found.speedup(Case("hadoop-gpu2", 64, alpha, noise)).mean - 1.13) < 0.05
        and found.speedup(Case("finish-time", 64, alpha, noise)).high >= 1.93
    ]
    slopes = found.slope
    factors = [
        found.mean_seconds(Case("hadoop-gpu2", n, shared=True), "cpu").mean
        / found.mean_seconds(Case("hadoop-gpu2", n, shared=True), "gpu").mean
        for n in (1, 64)
    ]
    crowded = found.speedup(Case("finish-time", 64, shared=True))
    gpu1 = found.speedup(Case("finish-time-gpu1", 16, noise=0.2))
    gpu2 = found.speedup(Case("finish-time", 16, noise=0.2))
    outside = {kind: 1 - own / task for kind, (task, own) in PAPER_TASKS.items()}
    program = next(o for o in measured if o.engine == "local")
    return [
        Claim(
            "hadoop-gpu2 is 1.13 times faster than hadoop on 64 nodes",
            "1.13",
            "1.12 to 1.13 (noise .2 to .4)",
            shown(greedy),
            matches(1.13, greedy, 1.0),
        ),
        Claim(
            "the proposal is 1.93 times faster than hadoop on 64 nodes",
            "1.93",
            f"at most {limit:.3f} by throughput",
            f"finish-time {shown(ours)}, the paper's shares {shown(papers)}",
            reaches(1.93, ours, 1.0),
        ),
        Claim(
            "what 1.93 would need",
            "a factor of 2.77 was measured",
            "8.44 by throughput, 8.69 with whole waves; 10 to 12 with noise of .1",
            "; ".join(reached) or "no factor tried reaches it",
            Verdict.UNSAID,
        ),
        Claim(
            "1.13 and 1.93 come from the same tasks",
            "both",
            "impossible for tasks of one size: greedy is at most one CPU task later than the optimum",
            f"at a factor of {NEEDED} greedy takes {last / tail:.2f} times the optimum, and 1.93 / 1.13 is "
            f"{1.93 / 1.13:.2f}; of {len(ALPHAS) * len(NOISES)} settings {len(both)} give both",
            Verdict.YES if both else Verdict.NO,
        ),
        Claim(
            "the proposal is 1.02 times faster on one node",
            "1.02",
            "a factor of 1.16; the measured one gives 1.22",
            shown(one),
            matches(1.02, one, 1.0),
        ),
        Claim(
            "mean times of CPU and GPU tasks grow linearly with the nodes (Figure 7)",
            "as said",
            "waits that are added to both lower the factor",
            f"from 16 nodes on, by {slopes[0]:.2f} and {slopes[1]:.2f} s a node; the factor is "
            f"{factors[0]:.2f} on one node and {factors[1]:.2f} on 64, where finish-time is {shown(crowded)} "
            "times faster than hadoop: waits for files do not explain 1.93",
            Verdict.YES if min(slopes) > 0 else Verdict.NO,
        ),
        Claim(
            "one GPU is hardly better than none, two are (Figure 8)",
            "as said",
            "at most 1.11 and 1.22",
            f"on 16 nodes {shown(gpu1)} and {shown(gpu2)}",
            Verdict.YES if gpu1.high > 1.0 and gpu1.high < gpu2.low else Verdict.NO,
        ),
        Claim(
            "starting programs from Hadoop costs 6 % (CPU) and 44 % (GPU)",
            "6 %, 44 %",
            "its own numbers: 15.8 % and 44 % of the task, 18.7 % and 80 % of the program",
            ", ".join(f"{kind} {share:.1%} of the task" for kind, share in outside.items()),
            all_of(
                as_printed(said, outside[kind], digits=2) for kind, said in (("CPU", 0.06), ("GPU", 0.44))
            ),
        ),
        Claim(
            "a task costs 12 s beside its program",
            "12.2 s (CPU), 12.4 s (GPU)",
            "-",
            f"{program.overhead * 1e3:.1f} ms for a program; "
            + ", ".join(
                f"{o.overhead * 1e3:.2g} ms: {o.what} ({o.engine})" for o in measured if o is not program
            ),
            Verdict.UNSAID,
        ),
    ]


def command(
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Noise and heartbeats: seeds 1 to N.")] = 5,
    ray_too: Annotated[bool, typer.Option("--ray", help="Measure Figure 9 on Ray, too.")] = False,
    workers: Workers = None,
    as_json: opt.Json = False,
    out: Out = None,
    quiet: opt.Quiet = False,
) -> None:
    """Shirahata 2010, Figures 6 to 9: hybrid maps.

    A map split over CPUs and GPUs; paper, reference, ours.
    """
    out = prepared(out)
    with Bar("hybrid maps", hidden=quiet or as_json) as bar:
        found = study(seeds=seeds, workers=processes(workers), ray_too=ray_too, tell=bar.tell)
    publish(found, as_json=as_json, out=out)
