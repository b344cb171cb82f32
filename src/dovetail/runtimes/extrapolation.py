"""Predictions far from anything that has run do not shout.

A law of one or two sizes is mostly the prior that time goes with size. Far beyond what has run that is a
factor of hundreds for what may have been the start of a process. Until a law is known to hold, a prediction
stays near the times that were seen: the farther, and the less sure, the more so.
"""

from __future__ import annotations

import math

from dovetail.history.base import InputsKey
from dovetail.runtimes.base import numeric_inputs
from dovetail.runtimes.fits import Fit

NEAR = math.log(4.0)
"""Up to this factor beyond the times that were seen a law is believed."""
SURE, UNSURE = 0.3, 0.55
"""Spread of a prediction as a part of its distance: below the first it is sure, at the second a guess."""
SLOWEST = 2e5
"""Bytes a second that any program reads: what took longer for its size has been its start."""
FEW = 3
"""Sizes from which on a law itself shows how fast a program reads."""


def calm_prediction(fit: Fit, inputs: InputsKey, mean: float, unsure: float) -> float:
    """Log time ``mean`` at these inputs, drawn towards the times of the fit's cells. O(cells)."""
    times = [cell.y for cell in fit.cells]
    low, high = min(times), max(times)
    edge = min(max(mean, low), high)
    distance = abs(mean - edge)
    if distance > NEAR:
        doubt = min(1.0, max(0.0, (unsure / distance - SURE) / (UNSURE - SURE)))
        near = NEAR + 0.5 * math.log1p(distance - NEAR)
        mean = edge + math.copysign(doubt * near + (1.0 - doubt) * distance, mean - edge)
    if len({numeric_inputs(cell.inputs) for cell in fit.cells}) >= FEW:
        return mean
    mean = _in_order(fit, inputs, mean, low, high)
    size = sum(value for name, value in numeric_inputs(inputs) if name.endswith("_bytes"))
    if size > 0 and mean > high:
        mean = min(mean, math.log(math.exp(min(high, 690.0)) + size / SLOWEST))
    return mean


def _in_order(fit: Fit, inputs: InputsKey, mean: float, low: float, high: float) -> float:
    """Larger inputs than any that ran take no less than the least time, smaller ones no more than the most.

    A law of a few sizes, of which one was slowed down, may break this.
    """
    given = dict(numeric_inputs(inputs))
    larger = smaller = bool(given)
    for cell in fit.cells:
        known = dict(numeric_inputs(cell.inputs))
        larger = larger and all(value >= known.get(name, value) for name, value in given.items())
        smaller = smaller and all(value <= known.get(name, value) for name, value in given.items())
    return max(mean, low) if larger else min(mean, high) if smaller else mean
