"""Devices shared by the tests of the apps: opened once, since building kernels takes longest."""

from __future__ import annotations

import os

import pytest

from dovetail.apps.arrays import ArrayDevice
from dovetail.apps.devices import Device, open_device
from dovetail.errors import InputError

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def cpu() -> Device:
    return open_device("cpu")


@pytest.fixture(scope="session")
def opencl() -> Device:
    try:
        return open_device("opencl")
    except InputError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def strict() -> ArrayDevice:
    """The array-API source on array-api-strict, which refuses everything beyond the standard."""
    import array_api_strict
    import numpy as np

    return ArrayDevice(
        array_api_strict,
        "array-api-strict",
        "cpu",
        to_device=array_api_strict.asarray,
        from_device=np.asarray,
        remote=False,
    )
