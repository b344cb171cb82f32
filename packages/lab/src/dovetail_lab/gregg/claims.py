"""What Gregg 2011 says of its figures, and the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dovetail.report import Interval, interval
from dovetail_lab.claims import Claim, Verdict, all_of, as_printed, matches, ordered
from dovetail_lab.gregg.decisions import PAPER, DecisionTime
from dovetail_lab.gregg.flows import Identical
from dovetail_lab.gregg.placements import Found, Order
from dovetail_lab.gregg.predictions import Bar
from dovetail_lab.gregg.training import GPU_ONLY, Curve
from dovetail_lab.study import shown

__all__ = ["claims"]

CLOCK = "+0.46 s GPU, +0.56 s CPU"
"""Where the paper's times come out best; its figures are compared over random orders of the queue."""


def claims(
    bars: Sequence[Bar],
    curves: Sequence[Curve],
    found: Sequence[Found],
    ten: Identical,
    decided: Sequence[DecisionTime],
) -> tuple[Claim, ...]:
    """All of them, in the paper's order."""
    cases = {case.case.name: case for case in found}
    sixteen, thirteen = cases[f"{CLOCK}, 16"], cases[f"{CLOCK}, 13"]
    return (
        _fairness(cases["kernels, 16"]),
        *([_predictions(bars)] if bars else []),
        *([_decisions(decided[0])] if decided else []),
        _training(curves[0]),
        _reduction(
            "The dynamic rules take 29 % less than static placement (Fig. 3)", sixteen, "static", 0.29
        ),
        _reduction("The dynamic rules take 39 % less than GPU only (Fig. 3)", sixteen, "gpu-only", 0.39),
        Claim(
            "Static placement uses 17 % of the CPU (Fig. 4(a))",
            "17 %",
            "17 %",
            f"{sixteen.table.static_cpu_utilisation:.1%} in every order",
            as_printed(0.17, sixteen.table.static_cpu_utilisation, 2),
        ),
        _used("The dynamic rules use 67 % of it (Fig. 4(b))", sixteen, 0.67, "94 %"),
        Claim(
            "On thirteen that are faster on the GPU, GPU only takes 1.33 times as long (Fig. 5)",
            "1.33",
            f"{thirteen.case.reference['gpu-only'] / thirteen.case.reference['dynamic']:.2f} in table order",
            _told(thirteen, lambda o: o.makespans["gpu-only"] / o.makespans["dynamic"]),
            matches(1.33, _over(thirteen, lambda o: o.makespans["gpu-only"] / o.makespans["dynamic"]), 1.0),
        ),
        _used("... and the CPU is used 90 % (Fig. 5(b))", thirteen, 0.90, "93 %"),
        Claim(
            "Of ten identical applications, 5x faster on the GPU, the seventh goes to the CPU (5.4)",
            "the seventh",
            "the sixth, 9.0 s",
            f"number {ten.first_on_cpu}, {ten.flow.makespan:.1f} s",
            _seventh(ten),
        ),
    )


def _over(found: Found, value: Callable[[Order], float]) -> Interval | None:
    """Mean over the random orders of the queue."""
    return interval(map(value, found.orders))


def _told(found: Found, value: Callable[[Order], float]) -> str:
    return f"{shown(_over(found, value))} over random orders, {value(found.table):.2f} in table order"


def _reduction(text: str, found: Found, against: str, paper: float) -> Claim:
    def less(order: Order) -> float:
        return 1 - order.makespans["dynamic"] / order.makespans[against]

    key = f"less_than_{against.replace('-', '_')}"
    return Claim(
        text,
        f"{paper:.0%}",
        f"{found.case.reference[key]:.1%} in table order",
        _percents(_over(found, less), less(found.table)),
        matches(paper, _over(found, less), 0.0),
    )


def _percents(mean: Interval | None, table: float) -> str:
    if mean is None:
        return f"{table:.1%} in table order"
    half = "" if mean.half_width is None else f" ± {100 * mean.half_width:.1f}"
    return f"{100 * mean.mean:.1f}{half} % over random orders, {table:.1%} in table order"


def _used(text: str, found: Found, paper: float, reference: str) -> Claim:
    def used(order: Order) -> float:
        return order.cpu_utilisation

    return Claim(
        text,
        f"{paper:.0%}",
        f"{reference} in table order",
        _percents(_over(found, used), used(found.table)),
        # Without the rules the CPU would be used as much as under static placement.
        matches(paper, _over(found, used), found.table.static_cpu_utilisation),
    )


def _fairness(found: Found) -> Claim:
    late = [order.late for order in found.orders] or [found.table.late]
    unfair = sum(count > 0 for count in late) / len(late)
    return Claim(
        "No application ends later than on its faster device, while predictions are right (4.1)",
        "none",
        "2 of 16 in table order",
        f"{found.table.late} in table order, some in {unfair:.0%} of the random orders",
        Verdict.YES if not found.table.late and not unfair else Verdict.NO,
    )


def _predictions(bars: Sequence[Bar]) -> Claim:
    paper, learned, seen = (
        sum(getattr(b, f"{m}_within") for b in bars) for m in ("paper", "learned", "seen")
    )
    verdict = Verdict.DIRECTION if paper > len(bars) / 2 else Verdict.NO
    return Claim(
        "Predictions lie between the least and the greatest time measured (Fig. 1)",
        "all, of sizes that its model has seen and answers with their average",
        "-",
        f"of {len(bars)} sizes not seen, the paper's model {paper}, learned {learned}; seen, learned {seen}",
        Verdict.YES if paper == len(bars) else verdict,
    )


def _decisions(found: DecisionTime) -> Claim:
    return Claim(
        f"A decision takes 0.7 ms (4.3): here with {found.queued} jobs queued, on another machine",
        f"{PAPER * 1000:g} ms",
        "-",
        f"{found.per_job * 1000:.2f} ms a job",
        Verdict.UNSAID,
    )


def _training(curve: Curve) -> Claim:
    """Worse than GPU only at first, better after five runs."""
    first = interval((curve.tests[:, 0] - GPU_ONLY).tolist())
    fifth = interval((GPU_ONLY - curve.tests[:, min(5, curve.tests.shape[1] - 1)]).tolist())
    means = curve.tests.mean(axis=0)
    # Every repetition starts from nothing, so that the first test is the same in all: no interval is needed.
    start = Verdict.YES if first is not None and first.low > 0 else Verdict.NO
    return Claim(
        "Untrained it is worse than GPU only, after five training runs better (Fig. 2)",
        "as said",
        "9.10 s, 3.35 s (GPU only 4.23 s)",
        f"{means[0]:.2f} s, {means[min(5, len(means) - 1)]:.2f} s",
        all_of([start, ordered([fifth])]),
    )


def _seventh(ten: Identical) -> Verdict:
    if ten.first_on_cpu == ten.paper_first_on_cpu:
        return Verdict.YES
    return Verdict.DIRECTION if ten.flow.makespan < ten.flow.gpu_only else Verdict.NO
