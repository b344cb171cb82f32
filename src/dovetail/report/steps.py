"""Step functions of time: what was in use, how many jobs waited."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail.model import Seconds

__all__ = ["Step"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Step:
    """A step function: ``values[i]`` holds from ``times[i]`` until ``times[i + 1]``; both of shape (n,)."""

    times: Floats
    values: Floats

    @staticmethod
    def of(ups: Floats, downs: Floats, weights: Floats | float = 1.0) -> Step:
        """What is up: ``weights`` added at ``ups`` and taken at ``downs`` (infinite: never). O(n log n)."""
        weight = np.broadcast_to(np.asarray(weights, float), ups.shape)
        times = np.concatenate([ups, downs])
        change = np.concatenate([weight, -weight])
        known = np.isfinite(times)
        at, place = np.unique(times[known], return_inverse=True)
        values = np.cumsum(np.bincount(place, change[known], minlength=len(at)).astype(float))
        values[np.abs(values) < 1e-9] = 0.0
        return Step(at, values)

    def integral(self, start: Seconds, end: Seconds) -> float:
        """The area under the steps between two times."""
        return float(np.diff(self._area(np.array([start, end])))[0])

    def mean(self, edges: Floats) -> Floats:
        """Mean in each of the intervals between ``edges`` (n + 1,), shape (n,). Exact, not sampled."""
        width = np.diff(edges)
        area = np.diff(self._area(edges))
        return np.divide(area, width, out=np.zeros_like(area), where=width > 0)

    def _area(self, at: Floats) -> Floats:
        if len(self.times) == 0:
            return np.zeros(len(at))
        areas = np.concatenate([[0.0], np.cumsum(self.values[:-1] * np.diff(self.times))])
        area = np.interp(at, self.times, areas, left=0.0)
        beyond = np.maximum(at - self.times[-1], 0.0) * self.values[-1]
        return np.asarray(area + beyond)
