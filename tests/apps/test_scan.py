from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest

from dovetail_lab.apps import scan
from dovetail_lab.apps.interfaces import Device
from dovetail_lab.apps.registry import compute_once


@pytest.mark.parametrize("n", [1, 2, 256, 257, 40_000])
def test_against_accumulate(n: int, opencl: Device, cpu: Device) -> None:
    inputs = scan.inputs(n, np.random.default_rng(n))
    expected = list(accumulate(inputs[0].tolist()[:-1], initial=0.0))
    for device in (opencl, cpu):
        np.testing.assert_allclose(compute_once("scan", device, inputs)[0], expected, rtol=1e-12)
