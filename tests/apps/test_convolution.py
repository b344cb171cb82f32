from __future__ import annotations

import numpy as np
import pytest

from dovetail_lab.apps import convolution
from dovetail_lab.apps.interfaces import Device
from dovetail_lab.apps.registry import compute_once


@pytest.mark.parametrize("n", [1, 4, 5, 64, 71])
def test_against_scipy(n: int, opencl: Device, cpu: Device) -> None:
    from scipy.signal import convolve2d  # which takes two seconds: not while tests are collected

    image, mask = inputs = convolution.inputs(n, np.random.default_rng(n))
    expected = convolve2d(image.astype(float), mask.astype(float))[2 : n + 2, 2 : n + 2]
    for device in (opencl, cpu):
        np.testing.assert_allclose(compute_once("convolution", device, inputs)[0], expected, rtol=1e-5)
