from __future__ import annotations

import numpy as np

from dovetail_lab.apps import quasirandom
from dovetail_lab.apps.interfaces import Device
from dovetail_lab.apps.registry import compute_once


def test_against_scipy(opencl: Device, cpu: Device) -> None:
    from scipy.stats import qmc  # which takes half a second: not while tests are collected

    inputs = quasirandom.inputs(1024, np.random.default_rng(0))
    expected = qmc.Sobol(quasirandom.DIMENSIONS, scramble=False, bits=32).random(1024).T
    expected = np.floor(expected * 2**24) / 2**24
    for device in (opencl, cpu):
        np.testing.assert_array_equal(compute_once("quasirandom", device, inputs)[0], expected)


def test_points_fill_every_dimension_evenly() -> None:
    points = quasirandom.cpu(*quasirandom.inputs(1 << 10, np.random.default_rng(0)))
    for row in points:
        np.testing.assert_array_equal(np.sort(row), np.arange(1 << 10) / (1 << 10))
