from __future__ import annotations

import cmath

import numpy as np
import pytest

from dovetail_lab.apps import fft
from dovetail_lab.apps.interfaces import Device
from dovetail_lab.apps.registry import compute_once


def _definition(x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    n = len(x)
    return np.array(
        [sum(v * cmath.exp(-2j * cmath.pi * j * k / n) for j, v in enumerate(x)) for k in range(n)]
    )


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 12, 16, 17, 31, 32])
def test_against_the_definition(n: int, opencl: Device, cpu: Device) -> None:
    inputs = fft.inputs(n, np.random.default_rng(n))
    expected = _definition(inputs[0])
    for device in (opencl, cpu):
        got, _ = compute_once("fft", device, inputs)
        np.testing.assert_allclose(got, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("n", [1 << 15, 1 << 16, 100_003])
def test_long_transforms_keep_their_precision(n: int, opencl: Device) -> None:
    inputs = fft.inputs(n, np.random.default_rng(n))
    inputs[0][:] -= np.complex64(0.5 + 0.5j)
    expected = np.fft.fft(inputs[0].astype(np.complex128))
    got, _ = compute_once("fft", opencl, inputs)
    assert np.linalg.norm(got - expected) < 1e-6 * np.linalg.norm(expected)
