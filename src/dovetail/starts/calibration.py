"""Intervals that hold: roll-outs are corrected by how wrong they were of late.

Split conformal prediction on the log of waits, walked forward: z = (y - median) / spread of the last
outcomes, the interval is median + spread times quantiles of z. Of a job that still waits it is only known
that its outcome is above what it has waited: it is censored, and the quantiles are those of Kaplan and Meier
(1958). How far roll-outs are off hangs on how long a wait they predict, so outcomes of forecasts of about the
same wait weigh more (Guan 2023, "Localized Conformal Prediction"). Where waits take days, the last outcomes
all come from one or two stretches of the queue, and weigh no more than these.
Waits drift, so later outcomes weigh more, and the levels themselves follow the misses of late, those below
and above together (Gibbs & Candès 2021, "Adaptive Conformal Inference Under Distribution Shift"; a sum that
forgets, and that stays within what the levels can answer, so that a bad week is not made up for by another
one).
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from statistics import NormalDist
from typing import Any

from dovetail.files.arrays import Bools, Floats, np
from dovetail.records import dataclass

CONFIDENCE = 0.9
WINDOW = 300
"""Forecasts whose outcomes are looked at."""
DECAY = 120.0
"""Forecasts after which an outcome weighs 1/e."""
PSEUDO, PSEUDO_MEAN, PSEUDO_SPREAD = 20, 0.0, 1.25
"""Outcomes that are made up, normal and so wide: they stand in while there are none."""
LEAST_SPREAD = 0.25
"""On the log scale: roll-outs that agree are not that sure."""
GAIN, LEAST_LEVEL, MOST_LEVEL = 0.03, 0.005, 0.15
"""How far a miss more than there should be moves the level of each side, and between which it stays."""
QUICK_GAIN, SIDE_GAIN, PATIENCE = 0.04, 0.03, 0.5
"""What is added for all misses, and for those of the side itself, where no forecast is open whose outcome may
be a miss too; with so many open ones half of it."""
LEAK = 0.015
"""The share of the misses so far that each outcome has forgotten."""
NEAR = 1.0
"""On the log scale: forecasts whose medians are so far apart weigh 1/e of like ones for each other."""
OF_ONE_WAIT = 20.0
"""What all outcomes of a stretch as long as the wait weigh, at most: they share what came of that stretch."""
OTHER_KIND = 0.25
"""What an outcome of another kind of job weighs."""
MINUTE = 60.0
STEP = 0.25
"""On the log scale of waits: jobs of a line whose medians are so near share one correction."""


@dataclass(slots=True)
class Foretold:
    """A forecast of a wait, on the log scale; ``counts``: its hit or miss moves the levels."""

    key: Hashable
    made_at: float
    median: float
    spread: float
    low: float
    high: float
    kind: Hashable = None
    counts: bool = True
    start: float | None = None
    gone: bool = False
    judged: bool = False


def log_wait(seconds: float) -> float:
    """The scale of waits: log of the seconds plus a minute."""
    return math.log(max(seconds, 0.0) + MINUTE)


def wait_of(log: float) -> float:
    """The seconds back from that scale, 0 at least."""
    return max(math.exp(log) - MINUTE, 0.0)


def censored_quantiles(values: Floats, known: Bools, weights: Floats, levels: Sequence[float]) -> list[float]:
    """Quantiles where values that are not ``known`` are only known to be above theirs (Kaplan & Meier 1958).

    >>> values = np.array([1.0, 2.0, 3.0, 4.0])
    >>> censored_quantiles(values, values != 2.0, np.ones(4), [0.25, 0.5, 0.9])
    [1.0, 3.0, 4.0]
    """
    # At equal values known ones go first: a censored one is known to lie above, so it is still at risk.
    order = np.lexsort((~known, values))
    values, known, weights = values[order], known[order], weights[order]
    risk = weights.sum() - np.concatenate(([0.0], np.cumsum(weights)[:-1]))
    left = np.cumprod(np.where(known, 1.0 - weights / np.maximum(risk, 1e-12), 1.0))
    found = []
    for level in levels:
        # The small step keeps a level that is met exactly, but for rounding, at its own value.
        place = int(np.searchsorted(1.0 - left, level - 1e-12))
        if place < len(values):
            found.append(float(values[place]))
        else:
            # So many are censored that it is unknown: a spread beyond what was seen.
            found.append(float(values[known].max()) + 1.0 if known.any() else float(values.max()) + 1.0)
    return found


def spread_of(low: float, high: float) -> float:
    """A standard deviation from the 5 % and 95 % quantiles of roll-outs, log scale."""
    return math.hypot((high - low) / 3.29, LEAST_SPREAD)


class Calibration:
    """Forecasts and what became of them; intervals for the next ones. Times ascend from call to call."""

    def __init__(self, confidence: float = CONFIDENCE) -> None:
        self.confidence = confidence
        self._window: deque[Foretold] = deque(maxlen=WINDOW)
        self._open: dict[Hashable, list[Foretold]] = {}
        self._due: list[tuple[float, int, Foretold]] = []
        self._turn = 0
        self.judged = 0
        """Forecasts whose interval is over, of those that count."""
        self.missed_below = self.missed_above = 0
        self._excess = 0.0
        """Misses more than there should be, of which a part is forgotten."""
        self._sides = (0.0, 0.0)
        """The same below and above."""
        self._unjudged = 0
        normal = NormalDist(PSEUDO_MEAN, PSEUDO_SPREAD)
        self._pseudo = np.array([normal.inv_cdf((place + 0.5) / PSEUDO) for place in range(PSEUDO)])

    def wait_interval(
        self, now: float, median: float, spread: float, kind: Hashable = None
    ) -> tuple[float, float]:
        """Where the log of the wait lies with the confidence. O(window · log window)."""
        low, high = self.interval_corrections(now, median, kind)
        # A wait is never below 0, which is the log of a minute on this scale.
        return max(median + low * spread, math.log(MINUTE)), median + high * spread

    def interval_corrections(self, now: float, median: float, kind: Hashable = None) -> tuple[float, float]:
        """How many spreads below and above a median the interval reaches."""
        self._judge_overdue(now)
        past = [one for one in self._window if not one.gone]
        count = len(past)
        # An outcome that lies after `now` is not used: forecasts are replayed in order, and may not see
        # ahead.
        known = np.array([one.start is not None and one.start <= now for one in past], np.bool_)
        waited = np.array([now if one.start is None else min(one.start, now) for one in past], float)
        made_at = np.array([one.made_at for one in past], float)
        medians = np.array([one.median for one in past], float)
        spreads = np.array([one.spread for one in past], float)
        like = np.array([1.0 if one.kind == kind else OTHER_KIND for one in past], float)
        values = (np.log(np.maximum(waited - made_at, 0.0) + MINUTE) - medians) / spreads
        weights = like * np.exp(-np.arange(count, 0, -1) / DECAY - np.abs(medians - median) / NEAR)
        heavy = float(weights.sum())
        if heavy > 0.0:
            # Outcomes of one stretch of the queue are not independent: together they weigh as much as the
            # number of waits of this length that the stretch holds, `OF_ONE_WAIT` each, or the interval would
            # be far too sure.
            span = 2.0 * float(weights @ (now - made_at)) / heavy
            weights *= min(OF_ONE_WAIT * max(span / math.exp(median), 1.0) / heavy, 1.0)
        low, high = censored_quantiles(
            np.concatenate([values, self._pseudo]),
            np.concatenate([known, np.ones(PSEUDO, np.bool_)]),
            # Made-up outcomes are always there and weigh little beside a full window: they widen the first
            # intervals.
            np.concatenate([weights, np.ones(PSEUDO)]),
            self._current_levels(),
        )
        return low, high

    def line_corrections(self, now: float, medians: Floats) -> Floats:
        """`interval_corrections` of all jobs of a line, shape (2, jobs)."""
        # The search for quantiles costs more than all the rest of a forecast: jobs of like waits share one.
        about, which = np.unique(np.round(medians / STEP), return_inverse=True)
        known = [self.interval_corrections(now, float(one) * STEP) for one in about]
        found: Floats = np.array(known, float).reshape(-1, 2).T[:, which.ravel()]
        return found

    def _current_levels(self) -> tuple[float, float]:
        """The quantiles of z that bound the interval, after the misses of late."""
        # Outcomes that are not known yet were not answered by the misses so far: the more there are, the
        # less each miss may count, or the levels overshoot.
        calm = 1.0 / (1.0 + self._unjudged / PATIENCE)
        level = (1.0 - self.confidence) / 2.0 - (GAIN + QUICK_GAIN * calm) * self._excess
        low, high = (
            min(max(level - SIDE_GAIN * calm * side, LEAST_LEVEL), MOST_LEVEL) for side in self._sides
        )
        return low, 1.0 - high

    def make_forecast(
        self,
        key: Hashable,
        now: float,
        median: float,
        spread: float,
        *,
        kind: Hashable = None,
        counts: bool = True,
    ) -> Foretold:
        """A forecast with its interval, which is remembered until its outcome is known."""
        low, high = self.wait_interval(now, median, spread, kind)
        made = Foretold(key, now, median, spread, low, high, kind, counts)
        self._window.append(made)
        self._open.setdefault(key, []).append(made)
        if counts:
            self._turn += 1
            self._unjudged += 1
            # `_turn` breaks ties, so that the heap never compares forecasts.
            heapq.heappush(self._due, (now + wait_of(high), self._turn, made))
        return made

    def start(self, key: Hashable, at: float) -> list[Foretold]:
        """The job has started: the forecasts of it."""
        made = self._open.pop(key, [])
        for one in made:
            one.start = at
            # Beyond its interval it was counted as missed when that was over, by `_judge_overdue`.
            if one.counts and not one.judged and log_wait(at - one.made_at) <= one.high + 1e-9:
                self._count_outcome(one, below=log_wait(at - one.made_at) < one.low - 1e-9)
        return made

    def drop_forecast(self, key: Hashable) -> None:
        """The job never starts: forecasts of it count for nothing."""
        for one in self._open.pop(key, ()):
            one.gone = True
            self._unjudged -= one.counts and not one.judged

    def _judge_overdue(self, now: float) -> None:
        """Count as missed the forecasts whose interval is over by now while their jobs wait."""
        while self._due and self._due[0][0] < now:
            one = heapq.heappop(self._due)[2]
            if not one.gone and not one.judged:
                self._count_outcome(one, above=True)

    def _count_outcome(self, one: Foretold, *, below: bool = False, above: bool = False) -> None:
        """A forecast is judged: as soon as its job starts, or its interval is over."""
        one.judged = True
        self._unjudged -= 1
        self.judged += 1
        self.missed_below += below
        self.missed_above += above
        side = (1.0 - self.confidence) / 2.0
        excess = (1.0 - LEAK) * self._excess + (below or above) - 2.0 * side
        # Bounded, so that a long run of misses does not have to be worked off before the levels move back.
        self._excess = min(max(excess, (side - MOST_LEVEL) / GAIN), (side - LEAST_LEVEL) / GAIN)
        old_below, old_above = self._sides
        self._sides = (1.0 - LEAK) * old_below + below - side, (1.0 - LEAK) * old_above + above - side

    @property
    def waiting_keys(self) -> list[Hashable]:
        """Whose outcome is not known."""
        return list(self._open)

    def as_dict(self) -> dict[str, Any]:
        """What is kept from one process to the next; keys and kinds are texts."""
        # What is due goes beyond the window: a long wait may outlast 300 later forecasts, and still counts.
        due = {id(one) for _, _, one in self._due if not one.judged}
        kept = {id(one): one for one in [*self._window, *(one for _, _, one in self._due)]}
        rows: list[Any] = []
        for number, one in kept.items():
            if not one.gone:
                scale = (one.median, one.spread, one.low, one.high)
                rows.append([one.key, one.made_at, *scale, one.start, one.kind, number in due])
        rows.sort(key=lambda row: row[1])
        return {
            "judged": self.judged,
            "missed_below": self.missed_below,
            "missed_above": self.missed_above,
            "excess": self._excess,
            "sides": self._sides,
            "forecasts": rows,
        }

    def restore_state(self, kept: Mapping[str, Any]) -> None:
        """Go on from what `as_dict` has kept. Raises `KeyError`, `TypeError`, `ValueError` for others."""
        self.judged = int(kept["judged"])
        self.missed_below, self.missed_above = int(kept["missed_below"]), int(kept["missed_above"])
        self._excess = float(kept.get("excess", 0.0))
        below, above = kept.get("sides", (0.0, 0.0))
        self._sides = float(below), float(above)
        for key, made_at, median, spread, low, high, start, kind, due in kept["forecasts"]:
            made = Foretold(key, made_at, median, spread, low, high, kind, bool(due), start, judged=not due)
            self._window.append(made)
            if start is None:
                self._open.setdefault(key, []).append(made)
            if due:
                self._turn += 1
                self._unjudged += 1
                heapq.heappush(self._due, (made_at + wait_of(high), self._turn, made))
