from __future__ import annotations

import numpy as np
import pytest

from dovetail_lab.apps import floydwarshall
from dovetail_lab.apps.interfaces import Device
from dovetail_lab.apps.registry import compute_once


@pytest.mark.parametrize("n", [2, 9, 40])
def test_against_dijkstra(n: int, opencl: Device, cpu: Device) -> None:
    from scipy.sparse.csgraph import dijkstra

    inputs = floydwarshall.inputs(n, np.random.default_rng(n))
    weights = inputs[0].astype(float)
    weights[inputs[0] == floydwarshall.NO_EDGE] = 0
    expected = dijkstra(weights)
    for device in (opencl, cpu):
        got, _ = compute_once("floydwarshall", device, inputs)
        reached = got < floydwarshall.NO_EDGE
        np.testing.assert_array_equal(reached, np.isfinite(expected))
        np.testing.assert_array_equal(got[reached], expected[reached])
