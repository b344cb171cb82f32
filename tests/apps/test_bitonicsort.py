from __future__ import annotations

import numpy as np
import pytest

from dovetail_lab.apps.interfaces import Device
from dovetail_lab.apps.registry import compute_once


@pytest.mark.parametrize("n", [1, 2, 7, 128, 1000])
@pytest.mark.parametrize("distinct", [2, 1 << 30])
def test_against_sorted(n: int, distinct: int, opencl: Device, cpu: Device) -> None:
    numbers = np.random.default_rng(n).integers(-distinct, distinct, n, dtype=np.int32)
    numbers[n // 2] = np.iinfo(np.int32).max
    for device in (opencl, cpu):
        assert compute_once("bitonicsort", device, (numbers,))[0].tolist() == sorted(numbers.tolist())
