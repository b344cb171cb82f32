"""Gregg 2011, Figure 1: do predicted times lie between the least and the greatest measured?

The paper runs each application 150 times at one size and predicts that size after training. Here every
app has one size that was run often. Models predict it from all other sizes alone, so that they must
interpolate, and ``learned`` once more when it has seen the size too. (The paper's model then answers with the
average, which always lies between.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from statistics import fmean

from dovetail.model import Prediction, Seconds
from dovetail.runtimes import make_model
from dovetail_lab.apps.bench.accuracy import predict_run
from dovetail_lab.apps.bench.measured import MeasuredRun, read_measurements, to_history
from dovetail_lab.apps.registry import APPS


@dataclass(frozen=True, slots=True)
class Bar:
    """One app on one device at one size: what was measured, and what two models predict."""

    app: str
    device: str
    n: int
    trials: int
    mean: Seconds
    least: Seconds
    most: Seconds
    paper_model: Seconds | None
    learned: Seconds | None
    lower: Seconds | None
    upper: Seconds | None
    learned_seen: Seconds | None

    @property
    def paper_within(self) -> bool:
        """Whether the paper's model predicts a time between the least and the greatest measured."""
        return self.paper_model is not None and self.least <= self.paper_model <= self.most

    @property
    def learned_within(self) -> bool:
        """The same for ``learned``."""
        return self.learned is not None and self.least <= self.learned <= self.most

    @property
    def seen_within(self) -> bool:
        """The same for ``learned`` when it has seen this size."""
        return self.learned_seen is not None and self.least <= self.learned_seen <= self.most


def prediction_bars(measured: Sequence[MeasuredRun]) -> list[Bar]:
    """For each app and device its medium size, predicted from the runs of its other sizes."""
    places = dict.fromkeys((m.app, m.device) for m in measured)
    found: list[Bar] = []
    for app, device in places:
        own = [m for m in measured if (m.app, m.device) == (app, device)]
        counts: dict[int, int] = {}
        for m in own:
            counts[m.n] = counts.get(m.n, 0) + 1
        if len(counts) < 3:
            continue  # two other sizes at least, or there is no line
        n = _trial_size(app, counts)
        trials = [m for m in own if m.n == n]
        # Without the runs of the size that is predicted: the paper's claim is about what was never run.
        others = to_history(m for m in own if m.n != n)
        paper, learned = (
            predict_run(make_model(model, others), trials[0]) for model in ("least-squares", "learned")
        )
        seen = predict_run(make_model("learned", to_history(own)), trials[0])
        times = [m.seconds for m in trials]
        found.append(
            Bar(
                app,
                device,
                n,
                len(trials),
                fmean(times),
                min(times),
                max(times),
                _expected_seconds(paper),
                _expected_seconds(learned),
                None if learned is None else learned.lower,
                None if learned is None else learned.upper,
                _expected_seconds(seen),
            )
        )
    return found


def _trial_size(app: str, counts: Mapping[int, int]) -> int:
    """The medium size of the app where it was run; else the one run most often, of several the middle one."""
    if app in APPS and APPS[app].sizes.medium in counts:
        return APPS[app].sizes.medium
    most = sorted(size for size in counts if counts[size] == max(counts.values()))
    return most[len(most) // 2]


def _expected_seconds(found: Prediction | None) -> Seconds | None:
    return None if found is None else found.expected


def stored_measurements() -> list[MeasuredRun]:
    """What a 2-core AMD EPYC virtual machine measured on 2026-11-20 at the sizes of ``bench --accuracy``."""
    name = "data/suite_measurements.csv"
    text = resources.files("dovetail_lab").joinpath(name).read_text(encoding="utf-8")
    return read_measurements(text, name)
