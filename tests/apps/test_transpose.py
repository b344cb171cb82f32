from __future__ import annotations

import numpy as np
import pytest

from dovetail_lab.apps import transpose
from dovetail_lab.apps.interfaces import Device
from dovetail_lab.apps.registry import compute_once


@pytest.mark.parametrize("n", [1, 15, 16, 17, 100])
def test_rows_become_columns(n: int, opencl: Device, cpu: Device) -> None:
    inputs = transpose.inputs(n, np.random.default_rng(n))
    for device in (opencl, cpu):
        got, _ = compute_once("transpose", device, inputs)
        assert got.flags.c_contiguous
        assert got.tolist() == [list(column) for column in zip(*inputs[0].tolist(), strict=True)]
