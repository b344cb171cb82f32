from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from dovetail.errors import ExecutorError, InputError
from dovetail_lab.apps.devices import open_device
from dovetail_lab.apps.interfaces import Implementation
from dovetail_lab.apps.opencl import OpenCL, round_up


@pytest.mark.parametrize(("value", "multiple", "expected"), [(0, 8, 0), (1, 8, 8), (8, 8, 8), (9, 8, 16)])
def test_round_up(value: int, multiple: int, expected: int) -> None:
    assert round_up(value, multiple) == expected


def test_a_device_is_chosen_by_its_name(opencl: OpenCL) -> None:
    assert open_device(f"opencl:{opencl.device_name.upper()}").device_name == opencl.device_name


def test_too_large_a_buffer_is_refused(opencl: OpenCL) -> None:
    with pytest.raises(InputError, match="n is too large for device"):
        opencl.allocate_buffer(1 << 30, 1 << 20, dtype=np.float32)


def test_a_kernel_that_does_not_compile_is_a_failure_of_the_device(opencl: OpenCL) -> None:
    broken = SimpleNamespace(opencl=lambda device: device.kernel("__kernel void k( {", "k"))
    with pytest.raises(ExecutorError, match="failed"):
        opencl.run(cast(Implementation, broken), ())


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32, np.float64, np.complex64])
def test_padding_holds_the_fill_and_the_array_comes_back(opencl: OpenCL, dtype: type[np.generic]) -> None:
    array = np.arange(12).reshape(3, 4).astype(dtype)
    buffer = opencl.upload_array(array, (6, 9), fill=7, origin=(2, 3))
    whole = opencl.download_array(buffer, (6, 9), dtype)
    np.testing.assert_array_equal(whole[2:5, 3:7], array)
    assert np.count_nonzero(whole == 7) == 6 * 9 - 12 + np.count_nonzero(array == 7)
    corner = opencl.download_array(buffer, (2, 2), dtype, 9)
    np.testing.assert_array_equal(corner, whole[:2, :2])
    row = opencl.upload_array(array[0], (7,), fill=5)
    np.testing.assert_array_equal(opencl.download_array(row, (7,), dtype), [*array[0], 5, 5, 5])


def test_a_group_respects_the_device(opencl: OpenCL) -> None:
    kernel = opencl.kernel("__kernel void k(__global int *x) { x[get_global_id(0)] = 1; }", "k")
    most = opencl.device.max_work_group_size
    group = opencl.group(kernel, 2 * most, 2)
    assert group[0] * group[1] <= most
