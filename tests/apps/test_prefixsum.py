from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail_lab.apps import prefixsum
from dovetail_lab.apps.interfaces import Device
from dovetail_lab.apps.registry import compute_once


@pytest.mark.parametrize("n", [1, 255, 256, 257, 3000])
def test_against_accumulate(n: int, opencl: Device, cpu: Device) -> None:
    inputs = prefixsum.inputs(n, np.random.default_rng(n))
    for device in (opencl, cpu):
        assert compute_once("prefixsum", device, inputs)[0].tolist() == list(accumulate(inputs[0].tolist()))


def test_totals_that_might_overflow_are_refused() -> None:
    with pytest.raises(InputError, match="prefixsum takes"):
        prefixsum.inputs(prefixsum.MOST + 1, np.random.default_rng(0))
