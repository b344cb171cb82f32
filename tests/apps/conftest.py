"""Devices shared by the tests of the apps: opened once, since building kernels takes longest."""

from __future__ import annotations

import os

import pytest
from opencl_kernels import need_opencl

from dovetail.errors import InputError
from dovetail_lab.apps.arrays import ArrayDevice
from dovetail_lab.apps.devices import open_device
from dovetail_lab.apps.interfaces import Device

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def cpu() -> Device:
    return open_device("cpu")


@pytest.fixture(scope="session")
def opencl() -> Device:
    need_opencl()
    try:
        return open_device("opencl")
    except InputError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def strict() -> ArrayDevice:
    """The array-API source on array-api-strict, which refuses everything beyond the standard.

    Its second device stands for a GPU: arrays made on the first one by mistake do not mix with it.
    """
    import array_api_strict
    import numpy as np

    there, here = array_api_strict.Device("device1"), array_api_strict.Device("CPU_DEVICE")

    return ArrayDevice(
        array_api_strict,
        "array-api-strict",
        "cpu",
        to_device=lambda array: array_api_strict.asarray(array, device=there),
        from_device=lambda array: np.asarray(array.to_device(here)),
        remote=False,
    )
