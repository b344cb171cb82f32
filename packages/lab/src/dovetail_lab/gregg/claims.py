"""The statements of Gregg 2011 about its figures, and the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dovetail.report.intervals import Interval, mean_interval
from dovetail_lab.claims import (
    TOLERANCE,
    Chosen,
    Claim,
    Constant,
    Verdict,
    all_of,
    as_printed,
    at_most,
    judge_match,
    judge_order,
    judge_readings,
)
from dovetail_lab.gregg.decisions import PAPER, QUEUES, DecisionTime
from dovetail_lab.gregg.flows import Identical
from dovetail_lab.gregg.placements import CASES, CaseOutcome, QueueOrder
from dovetail_lab.gregg.predictions import Bar
from dovetail_lab.gregg.training import GPU_ONLY, NOISE, SPREAD, Curve
from dovetail_lab.study import format_interval


def _of_clocks(value: Callable[[int], float]) -> tuple[float, ...]:
    return tuple(dict.fromkeys(value(i) for i in range(len(CASES))))


CONSTANTS = (
    TOLERANCE,
    Constant(
        "gpu_cost",
        _of_clocks(lambda i: CASES[i].gpu_cost),
        "seconds that an application takes on the GPU beside its kernel; the paper prints none",
    ),
    Constant(
        "cpu_cost",
        _of_clocks(lambda i: CASES[i].cpu_cost),
        "the same on the CPU; 0.56 is where the paper's figures come out best",
    ),
    Constant(
        "gpu_slowdown",
        _of_clocks(lambda i: CASES[i].slowdown),
        "by what factor the GPU is slower beside a busy CPU (section 4.3 has no number)",
        least=1.0,
    ),
    Constant("seen", (0.0, 1.0), "1: the size that is predicted was run in the training, as in the paper"),
    Constant("training_noise", (NOISE,), "standard deviation of a time in the training, as a share"),
    Constant(
        "training_spread", (SPREAD,), "sizes in the training differ from the table's by up to this share"
    ),
    Constant("queued", tuple(map(float, QUEUES[:3])), "jobs that wait where a decision is timed", least=1.0),
)
"""What the paper leaves open, and how near is near."""
CLOCKS = ("gpu_cost", "cpu_cost", "gpu_slowdown")


def make_claims(
    bars: Sequence[Bar],
    curves: Sequence[Curve],
    found: Sequence[CaseOutcome],
    ten: Identical,
    decided: Sequence[DecisionTime],
    chosen: Chosen | None = None,
) -> tuple[Claim, ...]:
    """All of them, in the paper's order."""
    chosen = chosen or Chosen(CONSTANTS)
    near = chosen.number("tolerance")
    sixteen = [case for case in found if not case.case.only]
    thirteen = [case for case in found if case.case.only]
    return (
        _fairness_claim([case for case in sixteen if case.case.slowdown == 1] or sixteen),
        *([_predictions_claim(bars, chosen)] if bars else []),
        *([_decisions_claim(decided)] if decided else []),
        _training_claim(curves[0]),
        _reduction_claim(
            "The dynamic rules take 29 % less than static placement (Fig. 3)", sixteen, "static", 0.29, near
        ),
        _reduction_claim(
            "The dynamic rules take 39 % less than GPU only (Fig. 3)", sixteen, "gpu-only", 0.39, near
        ),
        _static_claim(sixteen),
        _utilisation_claim("The dynamic rules use 67 % of it (Fig. 4(b))", sixteen, 0.67, "94 %", near),
        _on_clocks(
            "On thirteen that are faster on the GPU, GPU only takes 1.33 times as long (Fig. 5)",
            ("1.33", "1.53 in table order"),
            thirteen,
            lambda order: order.makespans["gpu-only"] / order.makespans["dynamic"],
            lambda case, ours: judge_match(1.33, ours, 1.0, near),
            lambda ours, table: f"{format_interval(ours)}",
        ),
        _utilisation_claim("... and the CPU is used 90 % (Fig. 5(b))", thirteen, 0.90, "93 %", near),
        Claim(
            "Of ten identical applications, 5x faster on the GPU, the seventh goes to the CPU (5.4)",
            "the seventh",
            "the sixth, 9.0 s",
            f"number {ten.first_on_cpu}, {ten.flow.makespan:.1f} s",
            _seventh_verdict(ten),
        ),
    )


def _case_name(found: CaseOutcome) -> str:
    return found.case.name.rpartition(",")[0]


def _on_clocks(
    text: str,
    stated: tuple[str, str],
    found: Sequence[CaseOutcome],
    value: Callable[[QueueOrder], float],
    verdict: Callable[[CaseOutcome, Interval | None], Verdict],
    words: Callable[[Interval | None, float], str],
) -> Claim:
    """A figure over random orders of the queue on every clock; ``stated`` by paper and reference."""
    over = {_case_name(case): _mean_over_orders(case, value) for case in found}
    readings = {_case_name(case): verdict(case, over[_case_name(case)]) for case in found}
    ours = "; ".join(
        f"{words(over[_case_name(case)], value(case.table))} ({_case_name(case)})" for case in found
    )
    return Claim(text, *stated, ours, judge_readings(readings), ("tolerance", *CLOCKS), readings)


def _mean_over_orders(found: CaseOutcome, value: Callable[[QueueOrder], float]) -> Interval | None:
    """Mean over the random orders of the queue."""
    return mean_interval(map(value, found.orders))


def _reduction_claim(
    text: str, found: Sequence[CaseOutcome], against: str, paper: float, near: float
) -> Claim:
    def relative_saving(order: QueueOrder) -> float:
        return 1 - order.makespans["dynamic"] / order.makespans[against]

    key = f"less_than_{against.replace('-', '_')}"
    known = [case.case.reference[key] for case in found if key in case.case.reference]
    reference = f"{min(known):.1%} to {max(known):.1%} in table order" if known else "-"
    return _on_clocks(
        text,
        (f"{paper:.0%}", reference),
        found,
        relative_saving,
        lambda _, ours: judge_match(paper, ours, 0.0, near),
        _percent_text,
    )


def _percent_text(mean: Interval | None, table: float) -> str:
    if mean is None:
        return f"{table:.1%}"
    half = "" if mean.half_width is None else f" ± {100 * mean.half_width:.1f}"
    return f"{100 * mean.mean:.1f}{half} %"


def _static_claim(found: Sequence[CaseOutcome]) -> Claim:
    """Nothing random enters: the order of the queue does not matter to static placement."""
    used = {_case_name(case): case.table.static_cpu_utilisation for case in found}
    readings = {name: as_printed(0.17, share, 2) for name, share in used.items()}
    return Claim(
        "Static placement uses 17 % of the CPU (Fig. 4(a))",
        "17 %",
        "17 %",
        "; ".join(f"{share:.1%} ({name})" for name, share in used.items()),
        judge_readings(readings),
        CLOCKS,
        readings,
    )


def _utilisation_claim(
    text: str, found: Sequence[CaseOutcome], paper: float, reference: str, near: float
) -> Claim:
    # Without the rules the CPU would be used as much as under static placement.
    return _on_clocks(
        text,
        (f"{paper:.0%}", f"{reference} in table order"),
        found,
        lambda order: order.cpu_utilisation,
        lambda case, ours: judge_match(paper, ours, case.table.static_cpu_utilisation, near),
        _percent_text,
    )


def _fairness_claim(found: Sequence[CaseOutcome]) -> Claim:
    """Where the GPU slows down beside a busy CPU predictions are not right, and nothing is claimed."""
    readings: dict[str, Verdict] = {}
    words = []
    for case in found:
        late = [order.late for order in case.orders] or [case.table.late]
        unfair = sum(count > 0 for count in late) / len(late)
        readings[_case_name(case)] = Verdict.YES if not case.table.late and not unfair else Verdict.NO
        words.append(
            f"{case.table.late} in table order, some in {unfair:.0%} of the others ({_case_name(case)})"
        )
    return Claim(
        "No application ends later than on its faster device, while predictions are right (4.1)",
        "none",
        "2 of 16 in table order",
        "; ".join(words),
        judge_readings(readings),
        CLOCKS[:2],
        readings,
    )


def _predictions_claim(bars: Sequence[Bar], chosen: Chosen) -> Claim:
    paper, learned, seen = (
        sum(getattr(b, f"{m}_within") for b in bars) for m in ("paper", "learned", "seen")
    )
    within = {0.0: paper, 1.0: seen}
    readings = {
        ("its size was run" if value else "its size was not run"): (
            Verdict.YES if within[float(bool(value))] == len(bars) else Verdict.NO
        )
        for value in chosen.number_readings("seen")
    }
    return Claim(
        "Predictions lie between the least and the greatest time measured (Fig. 1)",
        "all, of sizes that its model has seen and answers with their average",
        "-",
        f"of {len(bars)} sizes not seen, the paper's model {paper}, learned {learned}; seen, learned {seen}",
        judge_readings(readings),
        ("seen",),
        readings,
        basis="stored",
    )


def _decisions_claim(found: Sequence[DecisionTime]) -> Claim:
    """Read as "at most": the machine is another one, and no constant can make it the paper's."""
    readings = {}
    for one in found:
        # Times were taken for a whole queue: the deviation is of it, while the claim is about one job.
        half = 1.96 * one.stdev / np.sqrt(one.calls) * one.calls / one.queued if one.calls > 1 else None
        readings[f"{one.queued} queued"] = at_most(PAPER, Interval(one.per_job, half, one.calls))
    return Claim(
        "A decision takes 0.7 ms, of which the deviation is 0.2 ms (4.3; read: at most, on another machine)",
        f"{PAPER * 1000:g} ms",
        "-",
        ", ".join(f"{one.per_job * 1000:.2f} ms a job with {one.queued} queued" for one in found),
        judge_readings(readings),
        ("queued",),
        readings,
        basis="live",
    )


def _training_claim(curve: Curve) -> Claim:
    """Worse than GPU only at first, better after five runs."""
    first = mean_interval((curve.tests[:, 0] - GPU_ONLY).tolist())
    fifth = mean_interval((GPU_ONLY - curve.tests[:, min(5, curve.tests.shape[1] - 1)]).tolist())
    means = curve.tests.mean(axis=0)
    return Claim(
        "Untrained it is worse than GPU only, after five training runs better (Fig. 2)",
        "as stated",
        "9.10 s, 3.35 s (GPU only 4.23 s)",
        f"{means[0]:.2f} s, {means[min(5, len(means) - 1)]:.2f} s",
        all_of([judge_order([first]), judge_order([fifth])]),
        ("training_noise", "training_spread"),
    )


def _seventh_verdict(ten: Identical) -> Verdict:
    if ten.first_on_cpu == ten.paper_first_on_cpu:
        return Verdict.YES
    return Verdict.DIRECTION if ten.flow.makespan < ten.flow.gpu_only else Verdict.NO
