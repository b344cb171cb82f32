from __future__ import annotations

import math

import numpy as np
import pytest

from dovetail_lab.apps import dwthaar1d
from dovetail_lab.apps.interfaces import Device
from dovetail_lab.apps.registry import compute_once


def _haar(signal: list[float]) -> list[float]:
    if len(signal) < 2:
        return signal
    pairs = list(zip(signal[::2], signal[1::2], strict=True))
    sums = [(a + b) / math.sqrt(2) for a, b in pairs]
    return _haar(sums) + [(a - b) / math.sqrt(2) for a, b in pairs]


@pytest.mark.parametrize("n", [1, 2, 3, 8, 100, 256])
def test_against_the_definition(n: int, opencl: Device, cpu: Device) -> None:
    inputs = dwthaar1d.inputs(n, np.random.default_rng(n))
    length = 1 << (n - 1).bit_length()
    expected = _haar(inputs[0].tolist() + [0.0] * (length - n))
    for device in (opencl, cpu):
        got, _ = compute_once("dwthaar1d", device, inputs)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_energy_is_kept() -> None:
    (signal,) = dwthaar1d.inputs(1 << 12, np.random.default_rng(0))
    assert np.linalg.norm(dwthaar1d.cpu(signal)) == pytest.approx(np.linalg.norm(signal), rel=1e-5)
