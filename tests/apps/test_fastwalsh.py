from __future__ import annotations

import numpy as np
import pytest

from dovetail_lab.apps import fastwalsh
from dovetail_lab.apps.interfaces import Device
from dovetail_lab.apps.registry import compute_once


@pytest.mark.parametrize(("n", "length"), [(1, 1), (2, 2), (3, 4), (8, 8), (100, 128), (256, 256)])
def test_against_the_matrix(n: int, length: int, opencl: Device, cpu: Device) -> None:
    from scipy.linalg import hadamard

    inputs = fastwalsh.inputs(n, np.random.default_rng(n))
    expected = hadamard(length)[:, :n] @ inputs[0].astype(float)
    for device in (opencl, cpu):
        got, _ = compute_once("fastwalsh", device, inputs)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
