from __future__ import annotations

import numpy as np
import pytest

from dovetail_lab.apps import eigenvalue
from dovetail_lab.apps.interfaces import Array, Device
from dovetail_lab.apps.registry import compute_once


def _check(inputs: tuple[Array, ...], expected: Array, *devices: Device) -> None:
    for device in devices:
        got, _ = compute_once("eigenvalue", device, inputs)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("n", [1, 2, 3, 17, 90])
def test_against_the_dense_matrix(n: int, opencl: Device, cpu: Device) -> None:
    diagonal, beside = inputs = eigenvalue.inputs(n, np.random.default_rng(n))
    dense = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    _check(inputs, np.linalg.eigvalsh(dense), opencl, cpu)


def test_second_difference_has_known_eigenvalues(opencl: Device, cpu: Device) -> None:
    n = 101
    expected = 2 - 2 * np.cos(np.pi * np.arange(1, n + 1) / (n + 1))
    _check((np.full(n, 2.0), np.full(n - 1, -1.0)), expected, opencl, cpu)


def test_multiple_eigenvalues(opencl: Device, cpu: Device) -> None:
    _check((np.full(9, 3.0), np.zeros(8)), np.full(9, 3.0), opencl, cpu)
