"""The statements of a paper, and the verdict when its figure meets our interval.

A verdict is given only where the whole interval agrees. The effect that a paper claims is the way
from *nothing* (1 for a ratio, 0 for a difference) to its figure; ours is seen as a share of it:

- ``yes``: the whole interval is within ``tolerance`` of the figure (a bound: the whole interval keeps it);
- ``in direction only``: the whole interval is on the figure's side of *nothing*, and not at the figure;
- ``no``: the whole interval has at most ``tolerance`` of the effect, or lies on the other side;
- ``open``: it reaches over one of these borders, or there is no interval: too few draws to decide.

So fewer draws can only open a verdict, and more never turn one firm verdict into another while the interval
only narrows. Where a paper leaves something open, a claim is judged under every reading that we know, and
is ``open`` where they disagree. What we chose is a `Constant` with a name; a claim names those that it
rests on, and ``--set`` changes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from dovetail.errors import InputError
from dovetail.report.intervals import Interval

Value = float | str


@dataclass(frozen=True, slots=True)
class Constant:
    """Something that a verdict rests on and no paper gives: its readings, and what it is.

    Several ``values`` are readings: a claim is judged under each. ``among`` are the words it may be, where
    it is no number of at least ``least``.
    """

    name: str
    values: tuple[Value, ...]
    about: str
    among: tuple[str, ...] = ()
    least: float = 0.0

    def read(self, text: str) -> Value:
        """A value as ``--set`` gives it; raises `InputError`."""
        where = f"--set {self.name}"
        if self.among:
            if text not in self.among:
                raise InputError(f"found {text!r}, expected one of {', '.join(self.among)}", where=where)
            return text
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        # NaN fails both comparisons, so one test refuses it as well.
        if not self.least <= value < math.inf:
            raise InputError(f"found {text!r}, expected a number of at least {self.least:g}", where=where)
        return value


TOLERANCE = Constant(
    "tolerance",
    (0.1,),
    "how near to the paper's figure is the figure, as a share of the effect that it claims",
)


@dataclass(frozen=True)
class Chosen:
    """The constants of a study, with those that ``--set`` fixed."""

    known: tuple[Constant, ...]
    given: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def of(cls, known: Sequence[Constant], texts: Sequence[str] | None) -> Chosen:
        """From ``NAME=VALUE`` texts; raises `InputError`, which lists the names."""
        by_name = {constant.name: constant for constant in known}
        given: dict[str, Value] = {}
        for text in texts or ():
            name, equals, value = text.partition("=")
            # A misspelt name would leave the constant as it was, unnoticed.
            if name not in by_name:
                raise InputError(f"found {name!r}, expected one of {', '.join(by_name)}", where="--set")
            if not equals:
                raise InputError(f"found {text!r}, expected {name}=VALUE", where="--set")
            given[name] = by_name[name].read(value)
        return cls(tuple(known), given)

    def all(self, name: str) -> tuple[Value, ...]:
        """Every reading of a constant: the one that was set, else all that we know."""
        if name in self.given:
            return (self.given[name],)
        return next(constant for constant in self.known if constant.name == name).values

    def number_readings(self, name: str) -> tuple[float, ...]:
        """The same of a constant that is a number."""
        return tuple(float(value) for value in self.all(name))

    def number(self, name: str) -> float:
        """A number that has one reading, or the first of several."""
        return self.number_readings(name)[0]

    def as_dict(self) -> dict[str, dict[str, object]]:
        """For JSON: each constant's values, what it is, whether it was set."""
        return {
            c.name: {"values": list(self.all(c.name)), "about": c.about, "set": c.name in self.given}
            for c in self.known
        }


class Verdict(StrEnum):
    """Whether a paper's statement comes out here."""

    YES = "yes"
    DIRECTION = "in direction only"
    NO = "no"
    OPEN = "open"
    UNSAID = "not in the paper"  # a figure of ours beside its own


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of a paper, its figure, what an independent reference found, what we find, the verdict.

    ``readings`` has the verdict under each reading of what the paper leaves open, where there are several;
    ``rests_on`` names the constants that the verdict rests on. ``basis`` is what our figure is from:
    ``simulated``; ``live``, measured by that very run; ``stored``, measured earlier and kept in the package;
    ``printed``, the paper's own numbers.
    """

    text: str
    paper: str
    reference: str
    ours: str
    verdict: Verdict
    rests_on: tuple[str, ...] = ()
    readings: Mapping[str, Verdict] = field(default_factory=dict)
    basis: str = "simulated"

    @property
    def readings_text(self) -> str:
        """Over which readings the verdict holds, in words.

        >>> Claim("", "", "", "", Verdict.OPEN, (), {"a": Verdict.YES, "b": Verdict.NO}).readings_text
        'yes: a; no: b'
        """
        if not self.readings:
            return "the only reading"
        # All readings agree: their names are enough.
        if len(set(self.readings.values())) == 1:
            return " / ".join(self.readings)
        by_verdict: dict[Verdict, list[str]] = {}
        for reading, verdict in self.readings.items():
            by_verdict.setdefault(verdict, []).append(reading)
        return "; ".join(f"{verdict}: {' / '.join(names)}" for verdict, names in by_verdict.items())


def judge_match(
    paper: float, ours: Interval | None, nothing: float | None, tolerance: float = 0.1
) -> Verdict:
    """The verdict on a figure; ``nothing=None`` where no value stands for no effect (absolute seconds).

    >>> judge_match(2.08, Interval(2.1, 0.05, 30), nothing=1.0).value
    'yes'
    >>> judge_match(2.08, Interval(1.8, 0.1, 30), nothing=1.0).value
    'in direction only'
    >>> judge_match(2.08, Interval(2.04, 0.5, 8), nothing=1.0).value
    'open'
    >>> judge_match(2.08, Interval(1.0, 0.1, 30), nothing=1.0).value
    'no'
    """
    ends = _share_of_effect(paper, ours, 0.0 if nothing is None else nothing)
    if ends is None:
        return Verdict.OPEN
    low, high = ends
    if 1 - tolerance <= low and high <= 1 + tolerance:
        return Verdict.YES
    # Absolute seconds have no "no effect" that a direction could be measured from.
    if nothing is None:
        return Verdict.NO if high < 1 - tolerance or low > 1 + tolerance else Verdict.OPEN
    if high <= tolerance:
        return Verdict.NO
    beside = low > tolerance and high < 1 - tolerance
    return Verdict.DIRECTION if beside or low > 1 + tolerance else Verdict.OPEN


def judge_reach(paper: float, ours: Interval | None, nothing: float, tolerance: float = 0.1) -> Verdict:
    """The verdict on "at least", seen from ``nothing``: the figure is a bound, which the interval keeps.

    >>> judge_reach(0.8, Interval(0.9, 0.02, 10), nothing=0.0).value
    'yes'
    >>> judge_reach(0.8, Interval(0.79, 0.02, 10), nothing=0.0).value
    'open'
    >>> judge_reach(0.8, Interval(0.7, 0.02, 10), nothing=0.0).value
    'in direction only'
    """
    ends = _share_of_effect(paper, ours, nothing)
    if ends is None:
        return Verdict.OPEN
    low, high = ends
    if low >= 1:
        return Verdict.YES
    if high <= tolerance:
        return Verdict.NO
    return Verdict.DIRECTION if low > tolerance and high < 1 else Verdict.OPEN


def _share_of_effect(paper: float, ours: Interval | None, nothing: float) -> tuple[float, float] | None:
    """The ends of an interval as shares of the paper's effect; ``None`` where there is no interval."""
    if ours is None or ours.half_width is None:
        return None
    # Rounded, so that an interval which ends exactly at the paper's figure is not outside by a last digit.
    low, high = sorted(
        round((end - nothing) / (paper - nothing), 12) for end in (ours.lower_end, ours.upper_end)
    )
    return low, high


def at_most(limit: float, ours: Interval | None) -> Verdict:
    """``yes`` if the whole interval is at or below the limit, ``no`` if it is above.

    >>> at_most(0.02, Interval(0.01, 0.02, 5)).value
    'open'
    """
    if ours is None or ours.half_width is None:
        return Verdict.OPEN
    return Verdict.YES if ours.upper_end <= limit else Verdict.NO if ours.lower_end > limit else Verdict.OPEN


def judge_order(differences: Sequence[Interval | None]) -> Verdict:
    """The verdict on "greater, everywhere": each difference is of pairs, and should be above 0.

    ``yes`` if every interval is; ``no`` if one is not, with all of it; else ``open``.

    >>> judge_order([Interval(2.0, 1.0, 30), Interval(0.5, 0.6, 30)]).value
    'open'
    """
    if not differences:
        return Verdict.OPEN
    # "Greater" is the reverse of "at most 0".
    turned = {Verdict.YES: Verdict.NO, Verdict.NO: Verdict.YES}
    found = (at_most(0.0, one) for one in differences)
    return all_of(turned.get(one, one) for one in found)


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
    # Worst first: one `no` outweighs all, and what is open outweighs a direction.
    worst = (Verdict.NO, Verdict.OPEN, Verdict.DIRECTION, Verdict.YES)
    return min(verdicts, key=worst.index)


def judge_readings(readings: Mapping[str, Verdict]) -> Verdict:
    """The verdict over several readings of a paper: their common one, ``open`` where they disagree.

    >>> judge_readings({"a": Verdict.YES, "b": Verdict.DIRECTION}).value
    'open'
    """
    found = set(readings.values())
    return found.pop() if len(found) == 1 else Verdict.OPEN
