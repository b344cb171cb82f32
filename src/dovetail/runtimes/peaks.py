"""How much memory the next run may need, by the runs before it, and the amount that is worth reserving.

Peaks are positive and scatter in proportion, so everything is in logarithms. A few laws put a peak beside the
inputs: none at all, a line in a size, a power of a size, the runs nearest in size. What each law misses by,
run by run with that run left out, is its *miss*; the misses of the past are the distribution of the next
one. Beyond the largest miss seen the tail is exponential, as wide as the misses above the middle are on
average (drawn towards a usual program while there are few). The next of n + 1 misses is the largest with
probability 1 / (n + 1) if nothing changes; since the law was chosen and runs that end early come first, that
counts `DOUBT` times.

Of a law the *cheapest* amount is reserved: the one with the least expected memory x time, where a run that
is killed has wasted what it held, and its next try holds what a second try gets (the measure of Tovar et al.
2018 and of Bader et al. 2024, "Sizey"). The law is the one whose amounts would have been cheapest for the
runs seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dovetail.files.arrays import Floats, np
from dovetail.records import dataclass

KILL_RISK = 0.05
"""The largest probability of a kill that is accepted, however cheap it would be."""
DOUBT = 2.0
"""The next miss counts so many times as the one beyond all others, and more where those before often were."""
USUAL_SPREAD = 0.03
"""Mean distance of log peaks above (or below) their middle in a usual program …"""
USUAL_WEIGHT = 1.0
"""… worth so many runs."""
TAIL = 0.05
"""Probability below the lower end of the interval, and above its upper end."""
STEPS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0)
"""Amounts that are tried beyond the largest miss, in units of the tail."""
FEWEST_SIZED = 3
"""Runs from which on a law in a size is tried …"""
FEWEST_NEAR = 6
"""… and the runs nearest in size."""
MOST_SIZES = 6
"""Inputs of which laws are tried."""
LARGEST = 80.0
"""Logarithm of an amount beyond which nothing is computed: there is no such memory."""
LIKE_LARGEST = 1.1
"""A reservation beyond the person's request is at most so many times the largest peak."""


@dataclass(frozen=True, slots=True)
class AppPeaks:
    """Runs of one app: peaks (n,) in bytes, run times (n,) in seconds, sizes (n,) by the name of an input."""

    peaks: Floats
    seconds: Floats
    sizes: Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class _Law:
    """A law: log peaks of the runs (n,) as the others predict them, the log peak wanted, and its doubt.

    ``doubt`` is the variance of the wanted peak over that of a single run: a size far from all others has
    a large one.
    """

    name: str
    others: Floats
    wanted: float
    doubt: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """The distribution of the next peak by one law.

    ``misses`` (n,) are the logarithms of peak over law, ascending, ``middle`` their median; ``above`` and
    ``below`` the mean widths of the tails on either side; ``law`` describes it in a few words. ``growth`` is
    how many times larger the inputs are than all that ran, where runs are too few to fit a law in them,
    else 1.
    """

    law: str
    known: AppPeaks
    growth: float
    others: Floats
    wanted: float
    misses: Floats
    middle: float
    above: float
    below: float
    doubt: float

    @property
    def expected(self) -> float:
        """The middle of the distribution, in bytes."""
        return math.exp(min(self.wanted + self.middle, LARGEST))

    def peak_interval(self) -> tuple[float, float]:
        """Lower and upper end, in bytes, between which nine peaks out of ten are."""
        count = len(self.misses)
        beyond = (count + 1) * TAIL
        if beyond < self.doubt:
            reach = math.log(self.doubt / beyond)
            low, high = self.misses[0] - self.below * reach, self.misses[-1] + self.above * reach
        else:
            inside = int(beyond - self.doubt)
            low, high = self.misses[inside], self.misses[count - 1 - inside]
        return math.exp(min(self.wanted + low, LARGEST)), math.exp(min(self.wanted + high, LARGEST))

    def chance_above(self, amount: float) -> float:
        """Probability that the next peak is above an amount of bytes."""
        if not amount > 0:
            return 1.0
        return float(self._chances_beyond(np.array([math.log(amount) - self.wanted]))[0])

    def _chances_beyond(self, margins: Floats) -> Floats:
        """Probabilities of misses beyond ``margins`` (k,)."""
        count = len(self.misses)
        # Above the largest miss the chance falls exponentially; below it is counted.
        larger = count - np.searchsorted(self.misses, margins, side="right")
        beyond = np.exp(-np.maximum(margins - self.misses[-1], 0.0) / self.above)
        chances: Floats = np.minimum((larger + self.doubt * beyond) / (count + 1), 1.0)
        return chances

    def cheapest_amount(self, second: float, risk: float = KILL_RISK) -> tuple[float, float]:
        """The amount with the least expected waste, and what it would have wasted of the runs seen.

        ``second`` is what a second try gets at least, in bytes; it gets twice the first try where that is
        more. The chance of a kill is at most ``risk``, or as small as the amounts tried make it. The waste
        is a mean over the runs, in bytes, each weighing by its time.
        """
        # Below the middle no amount can be cheapest: half of all runs would be killed.
        upper = self.misses[self.misses >= self.middle]
        margins = np.concatenate([upper, self.misses[-1] + self.above * np.array(STEPS)])
        chances = self._chances_beyond(margins)
        amounts = np.exp(np.minimum(self.wanted + margins, LARGEST))
        # The expected peak is the same for every amount and left out.
        cost = amounts + chances * np.maximum(second, 2.0 * amounts)
        bearable = chances <= risk
        # Where none is bearable, the largest amount tried.
        best = int(np.argmin(np.where(bearable, cost, np.inf))) if bearable.any() else len(margins) - 1
        return float(amounts[best]), self._mean_past_waste(float(margins[best]), second)

    def _mean_past_waste(self, margin: float, second: float) -> float:
        """Mean waste of the past runs, had each got this margin on its prediction from the others."""
        held = np.exp(np.minimum(self.others + margin, LARGEST))
        peaks, seconds = self.known.peaks, self.known.seconds
        waste = held - peaks + np.where(held < peaks, np.maximum(second, 2.0 * held), 0.0)
        # The next run may lie beyond all seen: its second try is paid for in proportion.
        beyond = math.exp(-max(margin - float(self.misses[-1]), 0.0) / self.above)
        return float(waste @ seconds) / float(seconds.sum()) + beyond / (len(peaks) + 1) * second


def make_forecasts(known: AppPeaks, sizes: Mapping[str, float]) -> list[Forecast]:
    """The forecast of each law for the next run, whose inputs are ``sizes``; empty without any run.

    O(n²) in the number of runs for each size, of which `MOST_SIZES` are looked at.
    """
    if not len(known.peaks):
        return []
    logs = np.log(known.peaks)
    laws = [_mean_law(logs)]
    growth = 1.0
    if len(logs) < FEWEST_SIZED:
        seen = {name: float(column.max()) for name, column in known.sizes.items()}
        # Too few runs for a law: the amount grows in proportion to the input that grew most.
        growth = max([1.0, *(sizes[name] / most for name, most in seen.items() if most > 0)])
    else:
        for name, wanted in list(sizes.items())[:MOST_SIZES]:
            column = known.sizes.get(name)
            if column is not None and wanted > 0 and bool((column > 0).all()):
                laws.extend(_sized_laws(name, known.peaks, logs, column, wanted))
    return [_make_forecast(known, growth, logs, law) for law in laws]


def _make_forecast(known: AppPeaks, growth: float, logs: Floats, law: _Law) -> Forecast:
    in_order = logs - law.others
    misses = np.sort(in_order)
    half = len(misses) // 2
    middle = float(misses[half] if len(misses) % 2 else (misses[half - 1] + misses[half]) / 2.0)
    # A size far from those that ran widens both tails, but by no more than a factor of about two.
    wider = math.sqrt(1.0 + min(law.doubt, 4.0))
    above, below = (wider * _upper_half_width(side) for side in (misses - middle, middle - misses))
    doubt = DOUBT * _record_growth(in_order)
    return Forecast(law.name, known, growth, law.others, law.wanted, misses, middle, above, below, doubt)


def _record_growth(misses: Floats) -> float:
    """How many times more of these were beyond all before them than in an order by chance, at least 1."""
    count = len(misses)
    # By chance the n-th of n is a record with probability 1/n: more records mean peaks that still grow.
    records = 1 + int((misses[1:] > np.maximum.accumulate(misses)[:-1] + 1e-9).sum())
    return max(1.0, records / float((1.0 / np.arange(1, count + 1)).sum()))


def _upper_half_width(distances: Floats) -> float:
    """Mean of the half that is above 0, drawn towards that of a usual program."""
    total = float(np.maximum(distances, 0.0).sum()) + USUAL_WEIGHT * USUAL_SPREAD
    return total / (len(distances) // 2 + USUAL_WEIGHT)


def _mean_law(logs: Floats) -> _Law:
    count = len(logs)
    total = float(logs.sum())
    # Left out by subtraction: the mean of the others, without n sums.
    others = (total - logs) / (count - 1) if count > 1 else logs
    return _Law("mean", others, total / count, 1.0 / count)


def _sized_laws(name: str, peaks: Floats, logs: Floats, column: Floats, wanted: float) -> list[_Law]:
    """Laws in one size that these runs determine."""
    found: list[_Law] = []
    sizes, size = np.log(column), math.log(wanted)
    power = _rising_line(sizes, logs, np.ones(len(logs)), size)
    if power is not None:
        found.append(_Law(f"power of {name}", *power))
    # A line through the peaks themselves; a tenth more matters as much of a small one as of a large one.
    weights = 1.0 / peaks**2
    scale = max(float(column.max()), wanted)
    line = _rising_line(column / scale, peaks, weights / weights.mean(), wanted / scale)
    if line is not None and line[1] > 0 and bool((line[0] > 0).all()):
        found.append(_Law(f"line in {name}", np.log(line[0]), math.log(line[1]), line[2]))
    if len(logs) >= FEWEST_NEAR:
        near = max(2, round(math.sqrt(len(logs))))
        apart = np.abs(sizes[:, None] - sizes[None, :])
        np.fill_diagonal(apart, np.inf)
        others = logs[np.argpartition(apart, near - 1, axis=1)[:, :near]].mean(axis=1)
        here = logs[np.argpartition(np.abs(sizes - size), near - 1)[:near]]
        found.append(_Law(f"runs nearest in {name}", others, float(here.mean()), 1.0 / near))
    return found


def _rising_line(x: Floats, y: Floats, weights: Floats, wanted: float) -> tuple[Floats, float, float] | None:
    """A rising line by weighted least squares: y (n,) by the other points, y at ``wanted``, its doubt.

    ``None`` where x does not vary or y does not rise: memory that falls as inputs grow is chance.
    """
    total = float(weights.sum())
    centre, level = float(weights @ x) / total, float(weights @ y) / total
    apart = x - centre
    spread = float(weights @ apart**2)
    if spread <= 1e-12 * total * max(centre * centre, 1e-300):
        return None
    slope = float((weights * apart) @ (y - level)) / spread
    if slope <= 0:
        return None
    # The leverage gives each residual without its own point, again without n fits.
    leverage = weights * (1.0 / total + apart**2 / spread)
    missed = (y - level - slope * apart) / np.maximum(1.0 - leverage, 1e-3)
    doubt = 1.0 / total + (wanted - centre) ** 2 / spread
    return y - missed, level + slope * (wanted - centre), doubt * float(weights.mean())
