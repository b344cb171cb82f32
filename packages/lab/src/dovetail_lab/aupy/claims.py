"""The statements of Aupy 2013, section 6, and the verdicts.

Where the paper gives no figure ("very close", "a few milliseconds"), the claim says how it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dovetail.report import Interval, interval
from dovetail_lab.aupy.found import FULL, SETS, Floats, Found
from dovetail_lab.claims import Claim, Verdict, all_of, ordered, reaches

__all__ = ["claims"]

CLOSE = 0.02
"""How "very close" is read: at most 2 % dearer."""
NEAR_ONE = 0.95
"""How "very close to one" is read."""
MILLISECONDS = 10.0
"""How "a few milliseconds" is read."""
RANGES = {"1..floor(p/k)": "", "1..p": FULL}
"""The two readings of Random-Proc, by what marks them."""


def claims(found: Found) -> tuple[Claim, ...]:
    """All of them, in the paper's order."""
    return (
        _saved(found),
        _close("I: pack-Approx and pack-by-pack are very close to the optimum for all k", found),
        *(_better_than_pack(found, words, mark) for words, mark in RANGES.items()),
        _large(found),
        _ratios(found),
        *(_superior(found, words, mark) for words, mark in RANGES.items()),
        _third(found, "cost", "relative_cost", 0.90),
        _third(found, "response time", "relative_response_time", 0.80),
        _one_run(found),
        *_speed(found),
    )


def _percents(found: Interval | None) -> str:
    if found is None:
        return "-"
    half = "" if found.half_width is None else f" ± {100 * found.half_width:.1f}"
    return f"{100 * found.mean:.1f}{half} %"


def _by_k(
    found: Sequence[Interval | None], ks: Sequence[int], words: Callable[[Interval | None], str]
) -> str:
    return ", ".join(f"{words(one)} at k = {k}" for one, k in zip(found, ks, strict=True))


def _less(values: Floats) -> Interval | None:
    return interval((1.0 - values).tolist())


def _saved(found: Found) -> Claim:
    ks = SETS["I-like"]
    saved = [_less(found.values("I-like", k, "optimum")) for k in ks]
    return Claim(
        "I: the optimum costs over 35 % less than one task at a time, for every k",
        "35 %",
        "-",
        f"{_by_k(saved, ks, _percents)}; the profiles are imitated, not the paper's",
        all_of(reaches(0.35, one, 0.0) for one in saved),
    )


def _within(excess: Sequence[Interval | None], limit: float, direction: Verdict) -> Verdict:
    """``yes`` if every interval ends below the limit, else ``direction`` if that is one, else ``no``."""
    if any(one is None or one.half_width is None for one in excess):
        return Verdict.OPEN
    if all(one is not None and one.high <= limit for one in excess):
        return Verdict.YES
    return Verdict.DIRECTION if direction is not Verdict.NO else Verdict.NO


def _close(text: str, found: Found) -> Claim:
    both = {name: found.excess("I-like", name, "optimum") for name in ("pack-approx", "pack-by-pack-9")}
    nearer = all_of(ordered(found.over_k("I-like", "random-pack-9", name)) for name in both)
    worst = {
        name: max((one for one in all_k if one), key=lambda one: one.mean) for name, all_k in both.items()
    }
    return Claim(
        f"{text} (read: within {CLOSE:.0%})",
        "very close",
        "-",
        ", ".join(f"{name} {_percents(one)} above it at the worst k" for name, one in worst.items()),
        _within([one for all_k in both.values() for one in all_k], CLOSE, nearer),
    )


def _better_than_pack(found: Found, words: str, mark: str) -> Claim:
    names = [w for w in ("I-like", "II") for _ in SETS[w]]
    gains = [
        one for w in ("I-like", "II") for one in found.over_k(w, "random-pack-9", f"random-proc-9{mark}")
    ]
    wins = sum(one is not None and one.mean > 0 for one in gains)
    return Claim(
        f"I, II: Random-Proc does better than Random-Pack (processors from {words})",
        "as said",
        "-",
        f"cheaper in the mean at {wins} of {len(names)} k of both",
        ordered(gains),
    )


def _large(found: Found) -> Claim:
    ks = (12, 14, 16)
    saved = [_less(found.values("II", k, "pack-by-pack-9")) for k in ks]
    return Claim(
        "II: costs fall by over 80 % for large k",
        "80 %",
        "-",
        _by_k(saved, ks, _percents),
        all_of(reaches(0.80, one, 0.0) for one in saved),
    )


def _ratios(found: Found) -> Claim:
    """The lower of the ratios of pack-Approx and pack-by-pack-9, for every k of II."""
    ks = SETS["II"]
    lower = [
        interval(
            np.minimum(
                found.values("II", k, "pack-approx", "packing_ratio"),
                found.values("II", k, "pack-by-pack-9", "packing_ratio"),
            ).tolist()
        )
        for k in ks
    ]
    missing = [None if one is None else Interval(1 - one.mean, one.half_width, one.n) for one in lower]
    return Claim(
        f"II: packing ratios are very close to one (read: above {NEAR_ONE})",
        "very close",
        "-",
        _by_k(lower, ks, lambda one: "-" if one is None else f"{one.mean:.2f}")
        + "; pack-Approx has them only with a last pass of Algorithm 1",
        _within(missing, 1.0 - NEAR_ONE, Verdict.NO),
    )


def _superior(found: Found, words: str, mark: str) -> Claim:
    packing, random = ("pack-approx", "pack-by-pack-9"), ("random-pack-9", f"random-proc-9{mark}")
    gains = [one for own in packing for other in random for one in found.over_k("III", other, own)]
    ratios = [
        found.mean("III", k, f"random-proc-9{mark}") / found.mean("III", k, "pack-by-pack-9")
        for k in SETS["III"]
    ]
    return Claim(
        f"III: pack-Approx and pack-by-pack are clearly superior to the random ones ({words})",
        "as said",
        "-",
        f"random-proc-9 costs {min(ratios):.2f} to {max(ratios):.2f} times pack-by-pack-9",
        ordered(gains),
    )


def _third(found: Found, words: str, measure: str, paper: float) -> Claim:
    ks = (16, 32)
    saved = [
        _less(found.values("III", k, name, measure)) for name in ("pack-approx", "pack-by-pack-9") for k in ks
    ]
    return Claim(
        f"III: {words} falls by {paper:.0%} at k = 16 and 32",
        f"{paper:.0%}",
        "-",
        f"pack-Approx {_by_k(saved[:2], ks, _percents)}; pack-by-pack-9 {_by_k(saved[2:], ks, _percents)}",
        all_of(reaches(paper, one, 0.0) for one in saved),
    )


def _one_run(found: Found) -> Claim:
    excess = found.excess("III", "pack-by-pack-1", "pack-by-pack-9")
    worst = max((one for one in excess if one), key=lambda one: one.mean)
    return Claim(
        f"III: pack-by-pack-1 is very close to pack-by-pack-9 (read: within {CLOSE:.0%})",
        "very close",
        "-",
        f"{_percents(worst)} dearer at the worst k",
        _within(excess, CLOSE, ordered(found.over_k("III", "random-pack-9", "pack-by-pack-1"))),
    )


def _speed(found: Found) -> tuple[Claim, ...]:
    first, second = found.steps["I-like"], found.steps["II"]
    slow = {(row.workload, row.algorithm): row.milliseconds for row in found.timings}
    one, two = slow["I-like", "pack-approx"], slow["II", "pack-approx"]
    return (
        Claim(
            "pack-Approx takes fewer steps on II than on I",
            "as said",
            "-",
            f"{np.mean(first):.1f} steps on I-like, {np.mean(second):.1f} on II, in the mean",
            ordered([interval([a - b for a, b in zip(first, second, strict=True)])]),
        ),
        Claim(
            "... and is faster there",
            "0.50 ms, 0.30 ms",
            "-",
            f"{one:.3f} ms, {two:.3f} ms: a step on 65 tasks takes longer",
            Verdict.YES if two < one else Verdict.NO,
        ),
        Claim(
            f"All heuristics run within a few milliseconds (read: {MILLISECONDS:g})",
            "0.03 to 87 ms",
            "-",
            f"at most {max(slow.values()):.2f} ms",
            Verdict.YES if max(slow.values()) <= MILLISECONDS else Verdict.NO,
        ),
    )
