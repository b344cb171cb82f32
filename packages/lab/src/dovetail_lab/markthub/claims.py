"""What the paper says of Figures 6 to 12, and what came out here."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.report import Interval, interval
from dovetail_lab.claims import Claim, Verdict, all_of, matches, ordered, reaches
from dovetail_lab.markthub import figures
from dovetail_lab.markthub.figures import DEFAULT
from dovetail_lab.markthub.points import AWARE, Found, Point, mixture
from dovetail_lab.study import shown

__all__ = ["claims"]


def claims(found: Found) -> list[Claim]:
    """All of them, in the order of the paper."""
    return [
        _shape(found),
        _tolerance(found),
        _five_fold(found),
        _never_worse(found),
        _short_jobs(found),
        _sizes(found),
        _majority(found),
        _idle(found),
        _case_study(found),
        _ours(found),
    ]


def _shape(found: Found) -> Claim:
    series = figures.figure_7(9)
    rq, mrq = (found.crossing(series, policy) for policy in ("rq", "mrq"))
    falls = all(
        found.decrease(series[x], policy).mean > found.decrease(series[y], policy).mean
        for policy in ("rq", "mrq")
        for x, y in ((6.0, 7.0), (7.0, 8.0), (8.0, 9.0))
    )
    return Claim(
        "the gain falls with communication, and RQ becomes worse than FCFS before MRQ does (Figure 7)",
        "as said",
        "RQ crosses zero at 10^7.38 calls, MRQ at 10^8.40",
        f"RQ at 10^({_told(rq)}), MRQ at 10^({_told(mrq)})",
        Verdict.YES if falls and rq is not None and mrq is not None and rq.high < mrq.low else Verdict.NO,
    )


def _tolerance(found: Found) -> Claim:
    found_by_size = []
    for size in (9, 12):
        series = figures.figure_7(size)
        factors = [
            None if rq is None or mrq is None else 10.0 ** (mrq - rq)
            for rq, mrq in zip(found.crossings(series, "rq"), found.crossings(series, "mrq"), strict=True)
        ]
        found_by_size.append(interval(factors))
    return Claim(
        "MRQ tolerates ten times the communication",
        "10",
        "10.6 (1e9 bytes), 10.2 (1e12); 7 to 77 under other readings",
        ", ".join(_told(one) for one in found_by_size) + " (1e9, 1e12 bytes)",
        all_of(matches(10.0, one, 1.0) for one in found_by_size),
    )


def _five_fold(found: Found) -> Claim:
    series = figures.figure_7(9)
    ratios = []
    for x, point in series.items():
        rq, mrq = found.decrease(point, "rq").mean, found.decrease(point, "mrq").mean
        if rq > 0:
            ratios.append((x, mrq / rq))
    told = ", ".join(f"{ratio:.2f} at 10^{x:g}" for x, ratio in ratios if x >= 7)
    here = found.decrease(DEFAULT, "mrq").mean / found.decrease(DEFAULT, "rq").mean
    return Claim(
        "MRQ reduces lifetimes up to five times more than RQ",
        "5",
        "1.45 at 10^7.0, 2.35 at 10^7.2, 4.6 at 10^7.3: a ratio whose divisor goes through zero",
        f"{told}; {here:.2f} at the defaults",
        Verdict.NO if here < 1.5 else Verdict.YES,
    )


def _never_worse(found: Found) -> Claim:
    grid = [point for size in figures.SIZES for point in figures.figure_7(size).values()]
    apart = [found.beyond(point, "mrq", ("rq",)) for point in grid]
    least = min(apart, key=lambda one: one.mean)
    below = sum(one.mean < 0 for one in apart)
    return Claim(
        "MRQ is at least as good as RQ in every situation",
        "as said",
        "10 of 40 points are 0.05 to 0.3 percent points below",
        f"{below} of {len(grid)} points are below, by {-least.mean:.2f} percent points at most",
        Verdict.YES if least.low >= 0 else Verdict.DIRECTION if least.mean > -0.5 else Verdict.NO,
    )


def _short_jobs(found: Found) -> Claim:
    rq, mrq = (found.crossing(figures.figure_8(9), policy) for policy in ("rq", "mrq"))
    better = rq is not None and mrq is not None and mrq.mean < rq.mean
    return Claim(
        "RQ and MRQ are not good at short jobs, MRQ tolerates shorter ones (Figure 8)",
        "as said",
        "zero at 31 to 38 s (RQ) and 14 to 23 s (MRQ)",
        f"zero at {_told(rq)} s (RQ) and {_told(mrq)} s (MRQ)",
        Verdict.YES if better else Verdict.NO,
    )


def _sizes(found: Found) -> Claim:
    series = figures.figure_9(9)
    few, most, all_nodes = (found.decrease(series[x], "mrq") for x in (5.0, 30.0, 100.0))
    return Claim(
        "both are better at large jobs (Figure 9)",
        "as said",
        "25 to 30 % for means of 5 to 30 nodes, then down to 17 % at 100: jobs are clipped to the machine",
        f"{shown(few)} % at 5, {shown(most)} % at 30, {shown(all_nodes)} % at 100",
        Verdict.YES
        if few.high < most.low < all_nodes.low
        else Verdict.DIRECTION
        if few.mean < most.mean
        else Verdict.NO,
    )


def _majority(found: Found) -> Claim:
    ratios = [
        interval(
            found.of(two, "mrq").decrease / found.of(other, "mrq").decrease
            for two, other in zip(
                found.lives[figures.figure_10(2)[9.0]], found.lives[figures.figure_10(one)[9.0]], strict=True
            )
        )
        for one in (1, 3)
    ]
    return Claim(
        "the gain is more than three times as large where most jobs ask for two GPUs of a node (Figure 10)",
        "3",
        "2.2 and 3.7 times (1-GPU, 3-GPU majority)",
        " and ".join(_told(one) for one in ratios) + " times",
        all_of(reaches(3.0, one, 1.0) for one in ratios),
    )


def _idle(found: Found) -> Claim:
    series = figures.figure_11(9)
    busy, idle = found.decrease(series[0.5], "mrq"), found.decrease(series[3.0], "mrq")
    return Claim(
        "no difference where the mean inter-arrival time is 3 or more (Figure 11)",
        "0 from 3 on",
        "0.0 from 10^3 s on, 30 % at 3 s: the axis is a power of ten",
        f"{shown(idle)} % at 10^3 s, {shown(busy)} % at 3 s",
        Verdict.YES if abs(idle.mean) < 0.1 else Verdict.NO,
    )


def _case_study(found: Found) -> Claim:
    series = figures.figure_12()
    most = max((found.decrease(point, "mrq") for point in series.values()), key=lambda one: one.mean)
    rq, mrq = (found.crossing(series, policy) for policy in ("rq", "mrq"))
    tolerated = "-" if rq is None or mrq is None else f"{10 ** (mrq.mean - rq.mean):.1f}"
    return Claim(
        "on the case study's jobs MRQ gains 2.5 times more than RQ and tolerates 10 times more (Figure 12)",
        "2.5, 10",
        "gains of at most 6 %; tolerance 4.3; the log cannot be had, only its shares of GPUs",
        f"gains of at most {shown(most)} %; tolerance {tolerated}",
        Verdict.DIRECTION if mrq is not None and rq is not None and mrq.mean > rq.mean else Verdict.NO,
    )


def _ours(found: Found) -> Claim:
    grid: Sequence[Point] = figures.grid()
    least = min((found.beyond(point, AWARE) for point in grid), key=lambda one: one.mean)
    gains = [found.beyond(mixture(wide=wide), AWARE, ("mrq",)) for wide in (False, True)]
    return Claim(
        f"not in the paper: {AWARE} is not below the better of FCFS and MRQ in the median",
        "-",
        "-",
        f"at least {least.mean:.2f} percent points beyond it at {len(grid)} points; "
        f"{shown(gains[0])} and {shown(gains[1])} beyond MRQ where intensities are mixed",
        ordered(gains) if least.mean > -0.5 else Verdict.NO,
    )


def _told(found: Interval | None) -> str:
    return "nowhere" if found is None else shown(found, 2)
