from __future__ import annotations

from bisect import bisect_left

import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail_lab.apps import binarysearch
from dovetail_lab.apps.interfaces import Device
from dovetail_lab.apps.registry import compute_once


@pytest.mark.parametrize("n", [1, 2, 3, 64, 100, 1025])
def test_against_bisect(n: int, opencl: Device, cpu: Device) -> None:
    numbers, keys = inputs = binarysearch.inputs(n, np.random.default_rng(n))
    assert (np.diff(numbers) >= 0).all()
    expected = [bisect_left(numbers.tolist(), key) for key in keys.tolist()]
    for device in (opencl, cpu):
        assert compute_once("binarysearch", device, inputs)[0].tolist() == expected


def test_too_many_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="binarysearch takes"):
        binarysearch.inputs(binarysearch.MOST + 1, np.random.default_rng(0))
