from __future__ import annotations

import math

import numpy as np
import pytest

from dovetail_lab.apps import reduction
from dovetail_lab.apps.interfaces import Device
from dovetail_lab.apps.registry import compute_once


@pytest.mark.parametrize("n", [1, 5, 4096, 300_001])
def test_against_exact_sum(n: int, opencl: Device, cpu: Device) -> None:
    inputs = reduction.inputs(n, np.random.default_rng(n))
    exact = math.fsum(inputs[0].tolist())
    for device in (opencl, cpu):
        got, _ = compute_once("reduction", device, inputs)
        assert got[0] == pytest.approx(exact, rel=1e-12)
