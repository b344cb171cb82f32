"""The paper's statements about Figures 6 to 12, and what came out here."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.report.intervals import Interval, mean_interval
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
    judge_reach,
    judge_readings,
)
from dovetail_lab.markthub import figures
from dovetail_lab.markthub.figures import DEFAULT
from dovetail_lab.markthub.points import AWARE, Point, PointOutcomes, mixture_point
from dovetail_lab.study import format_interval

READING = Constant(
    "reading",
    tuple(figures.READINGS),
    "what of the paper's open points is read otherwise",
    among=tuple(figures.READINGS),
)
CONSTANTS = (
    TOLERANCE,
    READING,
    Constant("none", (0.1,), "percent points that are no difference"),
    Constant("apart", (0.5,), "percent points by which a policy of ours may be below the better one"),
)
"""What the paper leaves open, and how its words are read."""


def make_claims(found: PointOutcomes, chosen: Chosen | None = None) -> list[Claim]:
    """All of them, in the order of the paper."""
    chosen = chosen or Chosen(CONSTANTS)
    near, names = chosen.number("tolerance"), [str(name) for name in chosen.all("reading")]
    return [
        _shape_claim(found, names),
        _tolerance_claim(found, names, near),
        _five_fold(found, near),
        _never_worse(found),
        _short_jobs(found),
        _sizes_claim(found),
        _majority_claim(found, near),
        _idle_claim(found, chosen.number("none")),
        _case_study(found, near),
        _lookahead_claim(found, chosen.number("apart")),
    ]


def _ratio_of_crossings(rq: float, mrq: float) -> float:
    """How many times the communication, where an axis has powers of ten."""
    return float(10.0 ** (mrq - rq))


def _shape_claim(found: PointOutcomes, names: Sequence[str]) -> Claim:
    readings, words = {}, []
    for name in names:
        series = figures.reading_points(name)
        falls = [
            found.difference_between(series[x], series[y], policy)
            for policy in ("rq", "mrq")
            for x, y in ((6.5, 7.5), (7.5, 8.5))
        ]
        readings[name] = judge_order([*falls, found.distance_of_crossings(series)])
        rq, mrq = (_crossing_text(found.mean_crossing(series, policy)) for policy in ("rq", "mrq"))
        words.append(f"RQ at 10^({rq}), MRQ at 10^({mrq}) ({name})")
    return Claim(
        "the gain falls with communication, and RQ becomes worse than FCFS before MRQ does (Figure 7)",
        "as stated",
        "RQ crosses zero at 10^7.38 calls, MRQ at 10^8.40",
        "; ".join(words),
        judge_readings(readings),
        ("reading",),
        readings,
    )


def _tolerance_claim(found: PointOutcomes, names: Sequence[str], near: float) -> Claim:
    readings, words = {}, []
    for name in names:
        apart = found.distance_of_crossings(figures.reading_points(name), _ratio_of_crossings)
        readings[name] = judge_match(10.0, apart, 1.0, near)
        words.append(f"{_crossing_text(apart)} ({name})")
    return Claim(
        "MRQ tolerates ten times the communication",
        "10",
        "10.6 (1e9 bytes), 10.2 (1e12); 7 to 77 under other readings",
        "; ".join(words),
        judge_readings(readings),
        ("tolerance", "reading"),
        readings,
    )


def _five_fold(found: PointOutcomes, near: float) -> Claim:
    """At the defaults; nearer to RQ's zero the ratio passes any number, which means nothing."""
    series = figures.figure_7(9)
    ratios = []
    for x, point in series.items():
        rq, mrq = found.median_decrease(point, "rq").mean, found.median_decrease(point, "mrq").mean
        if rq > 0:
            ratios.append((x, mrq / rq))
    words = ", ".join(f"{ratio:.2f} at 10^{x:g}" for x, ratio in ratios if x >= 7)
    here = mean_interval(
        found.of(lives, "mrq").decrease / found.of(lives, "rq").decrease for lives in found.lives[DEFAULT]
    )
    return Claim(
        "MRQ reduces lifetimes up to five times more than RQ (read: at Table 4's defaults)",
        "5",
        "1.45 at 10^7.0, 2.35 at 10^7.2, 4.6 at 10^7.3: a ratio whose divisor goes through zero",
        f"{words}; {_crossing_text(here)} at the defaults",
        judge_match(5.0, here, 1.0, near),
        ("tolerance",),
    )


def _never_worse(found: PointOutcomes) -> Claim:
    """One point that is below for sure is enough against it."""
    grid = [point for size in figures.SIZES for point in figures.figure_7(size).values()]
    apart = [found.beyond_others(point, "mrq", ("rq",)) for point in grid]
    least = min(apart, key=lambda one: one.mean)
    below = sum(one.mean < 0 for one in apart)
    surely = sum(one.half_width is not None and one.upper_end < 0 for one in apart)
    every = all(one.half_width is not None and one.lower_end >= 0 for one in apart)
    return Claim(
        "MRQ is at least as good as RQ in every situation",
        "as stated",
        "10 of 40 points are 0.05 to 0.3 percent points below",
        f"{below} of {len(grid)} points are below, by {-least.mean:.2f} percent points at most; "
        f"{surely} with their whole interval",
        # Of so many intervals one in forty lies below by chance.
        Verdict.NO if surely > len(grid) / 20 else Verdict.YES if every else Verdict.OPEN,
    )


def _short_jobs(found: PointOutcomes) -> Claim:
    series = figures.figure_8(9)
    rq, mrq = (found.mean_crossing(series, policy) for policy in ("rq", "mrq"))
    earlier = found.distance_of_crossings(series, lambda rq, mrq: rq - mrq)
    return Claim(
        "RQ and MRQ are not good at short jobs, MRQ tolerates shorter ones (Figure 8)",
        "as stated",
        "zero at 31 to 38 s (RQ) and 14 to 23 s (MRQ)",
        f"zero at {_crossing_text(rq)} s (RQ) and {_crossing_text(mrq)} s (MRQ)",
        judge_order([earlier]),
    )


def _sizes_claim(found: PointOutcomes) -> Claim:
    series = figures.figure_9(9)
    few, most, all_nodes = (found.median_decrease(series[x], "mrq") for x in (5.0, 30.0, 100.0))
    steps = [found.difference_between(series[y], series[x], "mrq") for x, y in ((5.0, 30.0), (30.0, 100.0))]
    return Claim(
        "both are better at large jobs (Figure 9)",
        "as stated",
        "25 to 30 % for means of 5 to 30 nodes, then down to 17 % at 100: jobs are clipped to the machine",
        f"{format_interval(few)} % at 5, {format_interval(most)} % at 30, "
        f"{format_interval(all_nodes)} % at 100",
        judge_order(steps),
    )


def _majority_claim(found: PointOutcomes, near: float) -> Claim:
    ratios = [
        mean_interval(
            found.of(two, "mrq").decrease / found.of(other, "mrq").decrease
            for two, other in zip(
                found.lives[figures.figure_10(2)[9.0]], found.lives[figures.figure_10(one)[9.0]], strict=True
            )
        )
        for one in (1, 3)
    ]
    return Claim(
        "the gain is more than three times as large where most jobs request two GPUs of a node (Figure 10)",
        "3",
        "2.2 and 3.7 times (1-GPU, 3-GPU majority)",
        " and ".join(_crossing_text(one) for one in ratios) + " times",
        all_of(judge_reach(3.0, one, 1.0, near) for one in ratios),
        ("tolerance",),
    )


def _idle_claim(found: PointOutcomes, none: float) -> Claim:
    series = figures.figure_11(9)
    busy, idle = found.median_decrease(series[0.5], "mrq"), found.median_decrease(series[3.0], "mrq")
    return Claim(
        f"no difference where the mean inter-arrival time is 3 or more (Figure 11; read: {none:g} points)",
        "0 from 3 on",
        "0.0 from 10^3 s on, 30 % at 3 s: the axis is a power of ten",
        f"{format_interval(idle)} % at 10^3 s, {format_interval(busy)} % at 3 s",
        all_of(at_most(none, one) for one in (idle, Interval(-idle.mean, idle.half_width, idle.n))),
        ("none",),
    )


def _case_study(found: PointOutcomes, near: float) -> Claim:
    series = figures.figure_12()
    most = max((found.median_decrease(point, "mrq") for point in series.values()), key=lambda one: one.mean)
    apart = found.distance_of_crossings(series, _ratio_of_crossings)
    return Claim(
        "on the case study's jobs MRQ gains 2.5 times more than RQ and tolerates 10 times more (Figure 12)",
        "2.5, 10",
        "gains of at most 6 %; tolerance 4.3; the log cannot be had, only its shares of GPUs",
        f"gains of at most {format_interval(most)} %; tolerance {_crossing_text(apart)} (the "
        f"verdict is on it)",
        judge_match(10.0, apart, 1.0, near),
        ("tolerance",),
    )


def _lookahead_claim(found: PointOutcomes, apart: float) -> Claim:
    grid: Sequence[Point] = figures.grid_points()
    least = min((found.beyond_others(point, AWARE) for point in grid), key=lambda one: one.mean)
    gains = [found.beyond_others(mixture_point(wide=wide), AWARE, ("mrq",)) for wide in (False, True)]
    return Claim(
        f"not in the paper: {AWARE} is not below the better of FCFS and MRQ in the median",
        "-",
        "-",
        f"at least {least.mean:.2f} percent points beyond it at {len(grid)} points; "
        f"{format_interval(gains[0])} and {format_interval(gains[1])} beyond MRQ where intensities are mixed",
        judge_order(gains) if least.mean > -apart else Verdict.NO,
        ("apart",),
    )


def _crossing_text(found: Interval | None) -> str:
    return "nowhere" if found is None else format_interval(found, 2)
