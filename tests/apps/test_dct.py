from __future__ import annotations

import numpy as np
import pytest

from dovetail_lab.apps import dct
from dovetail_lab.apps.interfaces import Device
from dovetail_lab.apps.registry import compute_once


@pytest.mark.parametrize(("n", "side"), [(1, 8), (8, 8), (9, 16), (40, 40)])
def test_against_scipy(n: int, side: int, opencl: Device, cpu: Device) -> None:
    from scipy.fft import dctn

    inputs = dct.inputs(n, np.random.default_rng(n))
    framed = np.zeros((side, side))
    framed[:n, :n] = inputs[0]
    blocks = framed.reshape(side // 8, 8, side // 8, 8)
    expected = dctn(blocks, axes=(1, 3), norm="ortho").reshape(side, side)
    for device in (opencl, cpu):
        got, _ = compute_once("dct", device, inputs)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


def test_basis_is_orthonormal() -> None:
    np.testing.assert_allclose(dct.cosine_basis() @ dct.cosine_basis().T, np.eye(8), atol=1e-6)
