"""Every app gives the same result on every device, for tiny, odd and empty inputs too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dovetail_lab.apps.interfaces import Array, Device
from dovetail_lab.apps.registry import APPS, compute_once, load_implementation, weighted_checksum

_FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def _inputs(name: str, n: int, seed: int = 0) -> tuple[Array, ...]:
    return load_implementation(name).inputs(n, np.random.Generator(np.random.PCG64(seed)))


def _check(name: str, device: Device, reference: Device, n: int, seed: int) -> None:
    inputs = _inputs(name, n, seed)
    before = [array.copy() for array in inputs]
    expected, _ = compute_once(name, reference, inputs)
    got, timing = compute_once(name, device, inputs)
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    scale = float(np.max(np.abs(expected), initial=0.0))
    np.testing.assert_allclose(got, expected, rtol=0, atol=APPS[name].tolerance * scale)
    assert timing.kernel_seconds >= 0
    for array, copy in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("name", APPS)
@example(n=0, seed=0)
@example(n=1, seed=0)
@example(n=2, seed=1)
@example(n=3, seed=1)
@example(n=64, seed=2)
@example(n=65, seed=2)
@example(n=127, seed=3)
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=_FIXTURES)
@given(n=st.integers(0, 150), seed=st.integers(0, 1000))
def test_opencl_agrees_with_cpu(name: str, opencl: Device, cpu: Device, n: int, seed: int) -> None:
    _check(name, opencl, cpu, n, seed)


@pytest.mark.parametrize("name", APPS)
@example(n=0, seed=0)
@example(n=1, seed=0)
@example(n=2, seed=1)
@example(n=33, seed=2)
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=_FIXTURES)
@given(n=st.integers(0, 48), seed=st.integers(0, 1000))
def test_array_api_source_keeps_to_the_standard_and_agrees(
    name: str, strict: Device, cpu: Device, n: int, seed: int
) -> None:
    _check(name, strict, cpu, n, seed)


@pytest.mark.parametrize("name", APPS)
def test_larger_odd_size_agrees(name: str, opencl: Device, cpu: Device) -> None:
    side = "side" in APPS[name].n_means
    _check(name, opencl, cpu, 301 if side else 70_001, 5)


@pytest.mark.parametrize("name", APPS)
def test_checksums_of_devices_agree(name: str, opencl: Device, cpu: Device) -> None:
    inputs = _inputs(name, 200)
    sums = [weighted_checksum(compute_once(name, device, inputs)[0]) for device in (cpu, opencl)]
    assert sums[1] == pytest.approx(sums[0], rel=max(APPS[name].tolerance, 1e-12) * 10)


@pytest.mark.parametrize("name", APPS)
def test_seed_decides_the_inputs(name: str) -> None:
    for one, same in zip(_inputs(name, 50, 7), _inputs(name, 50, 7), strict=True):
        np.testing.assert_array_equal(one, same)
