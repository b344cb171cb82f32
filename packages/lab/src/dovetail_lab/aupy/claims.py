"""The statements of Aupy 2013, section 6, and the verdicts.

Where the paper gives no figure ("very close", "a few milliseconds"), the claim gives its reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dovetail.report.intervals import Interval, mean_interval
from dovetail_lab.aupy.found import FULL, SETS, Floats, StudySamples
from dovetail_lab.claims import (
    TOLERANCE,
    Chosen,
    Claim,
    Constant,
    Verdict,
    all_of,
    at_most,
    judge_order,
    judge_reach,
    judge_readings,
)

CONSTANTS = (
    TOLERANCE,
    Constant("close", (0.02,), "how much dearer is very close, as a share"),
    Constant("near_one", (0.95,), "a packing ratio that is very close to one"),
    Constant("milliseconds", (10.0,), "how many milliseconds are a few"),
    Constant(
        "spread",
        (10.0,),
        "longest over shortest sequential time; not in the paper (also an option)",
        least=1.0,
    ),
    Constant("processors", ("1..floor(p/k)", "1..p"), "of Random-Proc", among=("1..floor(p/k)", "1..p")),
)
"""What the paper leaves open, and how its words are read."""
RANGES = {"1..floor(p/k)": "", "1..p": FULL}
"""The two readings of Random-Proc, by what marks them."""
Judged = tuple[Verdict, str]
"""A verdict, and what was found, in words."""
BOUND = 3.0
"""By Theorem 5 pack-Approx costs at most so many times the optimum."""


def make_claims(found: StudySamples, chosen: Chosen | None = None) -> tuple[Claim, ...]:
    """All of them, in the paper's order."""
    chosen = chosen or Chosen(CONSTANTS)
    near, close = chosen.number("tolerance"), chosen.number("close")
    marks = {f"processors from {words}": RANGES[str(words)] for words in chosen.all("processors")}
    made = (
        _savings_claim(found, near),
        _closeness_claim(
            "I: pack-Approx and pack-by-pack are very close to the optimum for all k", found, close
        ),
        _bound_claim(found),
        _single_runs_claim(found, marks),
        _better_than_pack(found, marks),
        _near_optimum_claim(found, marks, close),
        _gap_claim(found, marks),
        _large_instances_claim(found, "costs fall", "relative_cost", near),
        _large_instances_claim(found, "response times fall", "relative_response_time", near),
        _ratios_claim(found, chosen.number("near_one")),
        _superiority_claim(found, marks),
        _third_set_claim(found, "cost", "relative_cost", 0.90, near),
        _third_set_claim(found, "response time", "relative_response_time", 0.80, near),
        _one_run(found, close),
        _nine_runs_claim(found),
        *_speed_claims(found, chosen.number("milliseconds")),
    )
    reading = f"the longest sequential time {chosen.number('spread'):g} times the shortest"
    return tuple(
        # A claim without readings of its own was judged on the one spread that was drawn.
        claim if claim.readings else replace(claim, readings={reading: claim.verdict})
        for claim in made
    )


def _claim_by_processors(
    text: str,
    marks: Mapping[str, str],
    judge: Callable[[str], Judged],
    rests_on: tuple[str, ...] = ("processors", "spread"),
) -> Claim:
    """A claim about random processors, judged under each reading of how they are drawn (``marks``)."""
    judged = {name: judge(mark) for name, mark in marks.items()}
    words = "; ".join(f"{found} ({name})" for name, (_, found) in judged.items())
    readings = {name: verdict for name, (verdict, _) in judged.items()}
    return Claim(text, "as stated", "-", words, judge_readings(readings), rests_on, readings)


def _wins(gains: Sequence[Interval | None]) -> int:
    return sum(one is not None and one.mean > 0 for one in gains)


def _percent_text(found: Interval | None) -> str:
    if found is None:
        return "-"
    half = "" if found.half_width is None else f" ± {100 * found.half_width:.1f}"
    return f"{100 * found.mean:.1f}{half} %"


def _by_k(
    found: Sequence[Interval | None], ks: Sequence[int], words: Callable[[Interval | None], str]
) -> str:
    return ", ".join(f"{words(one)} at k = {k}" for one, k in zip(found, ks, strict=True))


def _saved_fraction(values: Floats) -> Interval | None:
    return mean_interval((1.0 - values).tolist())


def _savings_claim(found: StudySamples, near: float) -> Claim:
    ks = SETS["I-like"]
    saved = [_saved_fraction(found.values("I-like", k, "optimum")) for k in ks]
    return Claim(
        "I: the optimum costs over 35 % less than one task at a time, for every k",
        "35 %",
        "-",
        f"{_by_k(saved, ks, _percent_text)}; the profiles are imitated, not the paper's",
        all_of(judge_reach(0.35, one, 0.0, near) for one in saved),
        ("tolerance", "spread"),
    )


def _closeness_claim(text: str, found: StudySamples, close: float) -> Claim:
    both = {
        name: found.excess_intervals("I-like", name, "optimum") for name in ("pack-approx", "pack-by-pack-9")
    }
    # Every k has to be close, so the worst one is shown.
    worst = {
        name: max((one for one in all_k if one), key=lambda one: one.mean) for name, all_k in both.items()
    }
    return Claim(
        f"{text} (read: within {close:.0%})",
        "very close",
        "-",
        ", ".join(f"{name} {_percent_text(one)} above it at the worst k" for name, one in worst.items()),
        all_of(at_most(close, one) for all_k in both.values() for one in all_k),
        ("close", "spread"),
    )


def _better_than_pack(found: StudySamples, marks: Mapping[str, str]) -> Claim:
    def judge(mark: str) -> Judged:
        gains = [
            one for w in ("I-like", "II") for one in found.over_k(w, "random-pack-9", f"random-proc-9{mark}")
        ]
        return judge_order(gains), f"cheaper in the mean at {_wins(gains)} of {len(gains)} k of both"

    return _claim_by_processors("I, II: Random-Proc does better than Random-Pack", marks, judge)


def _bound_claim(found: StudySamples) -> Claim:
    """A theorem, so that one draw above it would be enough against our pack-Approx."""
    # Packs are not limited where k is the number of tasks.
    k = max(SETS["I-like"])
    worst = float(np.max(found.values("I-like", k, "pack-approx") / found.values("I-like", k, "optimum")))
    return Claim(
        "I: pack-Approx costs at most three times the optimum where k is not limited (Theorem 5)",
        "3",
        "-",
        f"at most {worst:.2f} times",
        Verdict.YES if worst <= BOUND else Verdict.NO,
        ("spread",),
    )


def _single_runs_claim(found: StudySamples, marks: Mapping[str, str]) -> Claim:
    def judge(mark: str) -> Judged:
        gains = [
            one
            for own in ("pack-approx", "pack-by-pack-9")
            for other in ("random-pack-1", f"random-proc-1{mark}")
            for one in found.over_k("I-like", other, own)
        ]
        return judge_order(gains), f"dearer in the mean in {_wins(gains)} of {len(gains)} cases"

    text = "I: a single run of Random-Pack or Random-Proc costs more than pack-Approx and pack-by-pack"
    return _claim_by_processors(text, marks, judge)


def _near_optimum_claim(found: StudySamples, marks: Mapping[str, str], close: float) -> Claim:
    def judge(mark: str) -> Judged:
        excess = found.excess_intervals("I-like", f"random-proc-9{mark}", "optimum")
        worst = max((one for one in excess if one), key=lambda one: one.mean)
        return all_of(
            at_most(close, one) for one in excess
        ), f"{_percent_text(worst)} above it at the worst k"

    text = f"I: Random-Proc-9 is almost always near the optimum (read: within {close:.0%} in the mean)"
    return _claim_by_processors(text, marks, judge, ("close", "processors", "spread"))


def _gap_claim(found: StudySamples, marks: Mapping[str, str]) -> Claim:
    """The mean over k of what a random one costs over pack-by-pack-9, seed by seed."""

    def ratios(workload: str, label: str) -> Floats:
        over = [
            found.values(workload, k, label) / found.values(workload, k, "pack-by-pack-9")
            for k in SETS[workload]
        ]
        mean: Floats = np.mean(over, axis=0)
        return mean

    def judge(mark: str) -> Judged:
        labels = ("random-pack-9", f"random-proc-9{mark}")
        grown = {label: (ratios("I-like", label), ratios("II", label)) for label in labels}
        words = ", ".join(
            f"{label.partition(' ')[0]} {first.mean():.2f} to {second.mean():.2f} times"
            for label, (first, second) in grown.items()
        )
        further = [mean_interval((second - first).tolist()) for first, second in grown.values()]
        return judge_order(further), words

    text = "II: the random ones are further behind pack-by-pack than on I"
    return _claim_by_processors(text, marks, judge)


def _nine_runs_claim(found: StudySamples) -> Claim:
    """In the mean over k: where packs are small one run finds what nine find."""
    one, nine = (
        np.mean([found.values("II", k, f"pack-by-pack-{runs}") for k in SETS["II"]], axis=0)
        for runs in (1, 9)
    )
    saved = mean_interval((1 - nine / one).tolist())
    return Claim(
        "II: pack-by-pack-9 is slightly better than pack-by-pack-1",
        "as stated",
        "-",
        f"{_percent_text(saved)} cheaper in the mean over k",
        judge_order([saved]),
        ("spread",),
    )


def _large_instances_claim(found: StudySamples, words: str, measure: str, near: float) -> Claim:
    ks = (12, 14, 16)
    saved = [_saved_fraction(found.values("II", k, "pack-by-pack-9", measure)) for k in ks]
    return Claim(
        f"II: {words} by over 80 % for large k",
        "80 %",
        "-",
        _by_k(saved, ks, _percent_text),
        all_of(judge_reach(0.80, one, 0.0, near) for one in saved),
        ("tolerance", "spread"),
    )


def _ratios_claim(found: StudySamples, near_one: float) -> Claim:
    """The lower of the ratios of pack-Approx and pack-by-pack-9, for every k of II."""
    ks = SETS["II"]
    lower = [
        # "Ratios are very close to one" is about both heuristics: the lower one of each draw decides.
        mean_interval(
            np.minimum(
                found.values("II", k, "pack-approx", "packing_ratio"),
                found.values("II", k, "pack-by-pack-9", "packing_ratio"),
            ).tolist()
        )
        for k in ks
    ]
    missing = [None if one is None else Interval(1 - one.mean, one.half_width, one.n) for one in lower]
    return Claim(
        f"II: packing ratios are very close to one (read: above {near_one:g})",
        "very close",
        "-",
        _by_k(lower, ks, lambda one: "-" if one is None else f"{one.mean:.2f}")
        + "; pack-Approx has them only with a last pass of Algorithm 1",
        all_of(at_most(1.0 - near_one, one) for one in missing),
        ("near_one", "spread"),
    )


def _superiority_claim(found: StudySamples, marks: Mapping[str, str]) -> Claim:
    packing = ("pack-approx", "pack-by-pack-9")

    def judge(mark: str) -> Judged:
        random = ("random-pack-9", f"random-proc-9{mark}")
        gains = [one for own in packing for other in random for one in found.over_k("III", other, own)]
        ratios = [
            found.mean("III", k, random[1]) / found.mean("III", k, "pack-by-pack-9") for k in SETS["III"]
        ]
        words = f"random-proc-9 costs {min(ratios):.2f} to {max(ratios):.2f} times pack-by-pack-9"
        return judge_order(gains), words

    text = "III: pack-Approx and pack-by-pack are clearly superior to the random ones"
    return _claim_by_processors(text, marks, judge)


def _third_set_claim(found: StudySamples, words: str, measure: str, paper: float, near: float) -> Claim:
    ks = (16, 32)
    saved = [
        _saved_fraction(found.values("III", k, name, measure))
        for name in ("pack-approx", "pack-by-pack-9")
        for k in ks
    ]
    return Claim(
        f"III: {words} falls by {paper:.0%} at k = 16 and 32",
        f"{paper:.0%}",
        "-",
        f"pack-Approx {_by_k(saved[:2], ks, _percent_text)}; pack-by-pack-9 "
        f"{_by_k(saved[2:], ks, _percent_text)}",
        all_of(judge_reach(paper, one, 0.0, near) for one in saved),
        ("tolerance", "spread"),
    )


def _one_run(found: StudySamples, close: float) -> Claim:
    excess = found.excess_intervals("III", "pack-by-pack-1", "pack-by-pack-9")
    # As above: all k have to be close.
    worst = max((one for one in excess if one), key=lambda one: one.mean)
    return Claim(
        f"III: pack-by-pack-1 is very close to pack-by-pack-9 (read: within {close:.0%})",
        "very close",
        "-",
        f"{_percent_text(worst)} dearer at the worst k",
        all_of(at_most(close, one) for one in excess),
        ("close", "spread"),
    )


def _speed_claims(found: StudySamples, milliseconds: float) -> tuple[Claim, ...]:
    first, second = found.steps["I-like"], found.steps["II"]
    slow = {(row.workload, row.algorithm): row.milliseconds for row in found.timings}
    one, two = slow["I-like", "pack-approx"], slow["II", "pack-approx"]
    longer = [
        slow[name, f"{random}-{runs}"] / slow[name, f"pack-by-pack-{runs}"]
        for name in SETS
        for random in ("random-pack", "random-proc")
        for runs in (1, 9)
    ]
    return (
        Claim(
            "pack-Approx takes fewer steps on II than on I",
            "as stated",
            "-",
            f"{np.mean(first):.1f} steps on I-like, {np.mean(second):.1f} on II, in the mean",
            judge_order([mean_interval([a - b for a, b in zip(first, second, strict=True)])]),
            ("spread",),
        ),
        Claim(
            "... and is faster there",
            "0.50 ms, 0.30 ms",
            "-",
            f"{one:.3f} ms, {two:.3f} ms: a step on 65 tasks takes longer",
            Verdict.YES if two < one else Verdict.NO,
            basis="live",
        ),
        Claim(
            "Random heuristics take longer than pack-by-pack of as many runs (Table 1)",
            "1.7 to 18 times",
            "-",
            f"{min(longer):.1f} to {max(longer):.1f} times",
            Verdict.YES if min(longer) > 1 else Verdict.NO if max(longer) <= 1 else Verdict.OPEN,
            basis="live",
        ),
        Claim(
            f"All heuristics run within a few milliseconds (read: {milliseconds:g})",
            "0.03 to 87 ms",
            "-",
            f"at most {max(slow.values()):.2f} ms",
            Verdict.YES if max(slow.values()) <= milliseconds else Verdict.NO,
            ("milliseconds",),
            basis="live",
        ),
    )
