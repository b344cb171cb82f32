"""What a paper says, and the verdict when its figure meets our interval.

A verdict never rests on a number that we chose. The paper's figure is compared with the confidence interval
of ours and with *nothing*, the value there would be without any effect (1 for a ratio, 0 for a difference):

- ``yes``: the interval holds the paper's figure, and leaves out *nothing*;
- ``in direction only``: it leaves out *nothing*, on the paper's side of it, and misses the figure;
- ``no``: it lies on the other side of *nothing*, or on none;
- ``open``: it holds both the figure and *nothing*: there are too few draws to tell.

So more draws make a ``yes`` harder, never easier; a single value, without an interval, is hardly ever one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dovetail.report import Interval

__all__ = ["Claim", "Verdict", "all_of", "as_printed", "matches", "ordered", "reaches"]


class Verdict(StrEnum):
    """Whether a paper's statement comes out here."""

    YES = "yes"
    DIRECTION = "in direction only"
    NO = "no"
    OPEN = "open"
    UNSAID = "not in the paper"  # it does not say: a figure of ours beside its own


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of a paper, its figure, what an independent reference found, what we find, the verdict."""

    text: str
    paper: str
    reference: str
    ours: str
    verdict: Verdict


def matches(paper: float, ours: Interval | None, nothing: float | None) -> Verdict:
    """The verdict on a figure; ``nothing=None`` where no value stands for no effect (absolute seconds).

    >>> matches(2.08, Interval(2.0, 0.1, 30), nothing=1.0).value
    'yes'
    >>> matches(2.08, Interval(1.8, 0.1, 30), nothing=1.0).value
    'in direction only'
    >>> matches(2.08, Interval(1.8, 0.9, 2), nothing=1.0).value
    'open'
    >>> matches(2.08, Interval(1.0, 0.1, 30), nothing=1.0).value
    'no'
    """
    if ours is None:
        return Verdict.OPEN
    held = ours.low <= paper <= ours.high
    if nothing is None:
        return Verdict.YES if held else Verdict.NO
    if ours.low <= nothing <= ours.high:
        return Verdict.OPEN if held else Verdict.NO
    if held:
        return Verdict.YES
    return Verdict.DIRECTION if (ours.mean > nothing) == (paper > nothing) else Verdict.NO


def reaches(paper: float, ours: Interval | None, nothing: float) -> Verdict:
    """The verdict on "more than", seen from ``nothing``: an interval beyond the figure is a yes too.

    >>> reaches(0.8, Interval(0.9, 0.02, 10), nothing=0.0).value
    'yes'
    >>> reaches(0.8, Interval(0.7, 0.02, 10), nothing=0.0).value
    'in direction only'
    """
    found = matches(paper, ours, nothing)
    if ours is None or found is not Verdict.DIRECTION:
        return found
    beyond = ours.low >= paper if paper > nothing else ours.high <= paper
    return Verdict.YES if beyond else found


def ordered(differences: Sequence[Interval | None]) -> Verdict:
    """The verdict on "greater": each difference is of pairs, and should be above 0.

    ``yes`` if every interval is; ``in direction only`` if every mean is; else ``no``.

    >>> ordered([Interval(2.0, 1.0, 30), Interval(0.5, 0.6, 30)]).value
    'in direction only'
    """
    known = [found for found in differences if found is not None]
    if not known or len(known) < len(differences):
        return Verdict.OPEN
    if all(found.half_width is not None and found.low > 0 for found in known):
        return Verdict.YES
    return Verdict.DIRECTION if all(found.mean > 0 for found in known) else Verdict.NO


def as_printed(paper: float, ours: float, digits: int) -> Verdict:
    """The verdict on a figure that nothing random enters: ``yes`` if it is ours as far as it is printed.

    >>> as_printed(0.17, 0.1674, digits=2).value
    'yes'
    """
    return Verdict.YES if math.isclose(round(ours, digits), paper, abs_tol=10.0**-digits / 2) else Verdict.NO


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on a statement about several settings: that of the worst of them.

    >>> all_of([Verdict.YES, Verdict.DIRECTION]).value
    'in direction only'
    """
    worst = (Verdict.NO, Verdict.OPEN, Verdict.DIRECTION, Verdict.YES)
    return min(verdicts, key=worst.index)
