"""The same functions on other libraries: PyTorch, OpenCL, and CUDA where there is a device.

What fails is listed in `KNOWN` with its reason; a test holds that each of them still fails.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import array_api_compat.numpy as np_compat
import numpy as np
import pytest
from array_calls import CALLS
from array_programs import smooth_step
from device_servers import Served, device_result, numpy_result, quiet, serving
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import dovetail_remote
from dovetail.errors import InputError
from dovetail_remote import Device, LocalMemory, Namespace
from dovetail_remote.backends.opencl import ON_HOST
from dovetail_remote.failures import CALL_ERRORS
from dovetail_remote.standard import FUNCTIONS

FULL = bool(os.environ.get("DOVETAIL_TEST_FULL"))
EXAMPLES = 100 if FULL else 2
_CHECKS = list(HealthCheck)
_DEFAULT_TYPES = (
    "arange",
    "empty",
    "eye",
    "fft.fftfreq",
    "fft.rfftfreq",
    "full",
    "linspace",
    "ones",
    "zeros",
)
_TOLERANCE = {"float32": 2e-4, "complex64": 2e-4, "float64": 1e-9, "complex128": 1e-9}

Excused = Callable[[str, list[Any], dict[str, Any]], bool]


def _arrays(arguments: list[Any], named: dict[str, Any]) -> list[np.ndarray]:
    inside = [*arguments, *named.values()]
    return [
        x
        for value in inside
        for x in (value if isinstance(value, list) else [value])
        if isinstance(x, np.ndarray)
    ]


def _unsigned(name: str, arguments: list[Any], named: dict[str, Any]) -> bool:
    return any(x.dtype.name in ("uint16", "uint32", "uint64") for x in _arrays(arguments, named))


def _infinite_complex(name: str, arguments: list[Any], named: dict[str, Any]) -> bool:
    return any(x.dtype.kind == "c" and not np.isfinite(x).all() for x in _arrays(arguments, named))


@dataclass(frozen=True)
class Excuse:
    """Why some calls fail, which they are, and one of them."""

    reason: str
    applies: Excused
    example: tuple[str, list[Any], dict[str, Any]]


_SHORT = np.ones(3, np.uint16)
_ZERO = np.zeros(2, np.complex128)

#: What fails, by library.
KNOWN: dict[str, list[Excuse]] = {
    "torch": [
        Excuse(
            "PyTorch stores uint16, uint32 and uint64 and computes almost nothing with them",
            _unsigned,
            ("abs", [_SHORT], {}),
        ),
        Excuse(
            "PyTorch gives other complex numbers where a part is infinite or NaN",
            _infinite_complex,
            ("add", [np.asarray(complex(0, -np.inf)), np.asarray([[complex(0, -np.inf)]])], {}),
        ),
        Excuse(
            "PyTorch's log2 of a complex zero is another",
            lambda name, given, named: name == "log2" and given[0].dtype.kind == "c" and not given[0].all(),
            ("log2", [np.asarray(complex(-0.0, 0.0))], {}),
        ),
        Excuse(
            "PyTorch has no unique_all",
            lambda name, given, named: name == "unique_all",
            ("unique_all", [np.ones(2)], {}),
        ),
        Excuse(
            "PyTorch sorts no complex numbers, so it has no sets of them",
            lambda name, given, named: name.startswith("unique") and given[0].dtype.kind == "c",
            ("unique_values", [_ZERO], {}),
        ),
        Excuse(
            "PyTorch takes only whole numbers for the correction of std",
            lambda name, given, named: name == "std" and named.get("correction") == 0.5,
            ("std", [np.ones(3)], {"correction": 0.5}),
        ),
        Excuse(
            "array-api-compat reduces over all axes, or none, where it is asked for those of ()",
            lambda name, given, named: (
                name in ("count_nonzero", "std", "var", "mean") and named.get("axis") == ()
            ),
            ("count_nonzero", [np.ones((0, 1), np.uint8)], {"axis": ()}),
        ),
        Excuse(
            "PyTorch adds uint8 up to int64",
            lambda name, given, named: (
                name in ("cumulative_prod", "cumulative_sum", "prod", "sum") and given[0].dtype == np.uint8
            ),
            ("cumulative_sum", [np.ones(3, np.uint8)], {"axis": 0}),
        ),
    ],
    "opencl": [],
    "cuda:0": [],
}


def _there(where: str) -> str:
    """The reason why a device cannot be tested here, or nothing."""
    if where == "torch" and importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed"
    try:
        Device(f"local:{where}")
    except InputError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module", params=list(KNOWN))
def device(request: pytest.FixtureRequest) -> tuple[str, Namespace]:
    reason = _there(request.param)
    if reason:
        pytest.skip(reason)
    return request.param, dovetail_remote.namespace(f"local:{request.param}")


def excused(where: str, name: str, arguments: list[Any], named: dict[str, Any]) -> list[str]:
    return [excuse.reason for excuse in KNOWN[where] if excuse.applies(name, arguments, named)]


def agrees(found: Any, expected: Any, *, any_float: bool = False) -> bool:
    """Whether elements agree within the tolerance of their type, type and shape exactly."""
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(agrees, found, expected))
    if found.shape != expected.shape:
        return False
    if any_float and found.dtype.kind == expected.dtype.kind and found.dtype.kind in "fc":
        expected = expected.astype(found.dtype)
    if found.dtype != expected.dtype:
        return False
    tolerance = _TOLERANCE.get(expected.dtype.name, 0.0)
    return bool(np.allclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True))


def computes(xp: Namespace, name: str, arguments: list[Any], named: dict[str, Any]) -> bool:
    found = device_result(xp, name, arguments, named)
    expected = numpy_result(name, arguments, named)
    if name in ("empty", "empty_like"):
        return bool(found.shape == expected.shape)
    with quiet():
        # Without a type asked for, a library takes its own default of the kind.
        return agrees(found, expected, any_float=name in _DEFAULT_TYPES and "dtype" not in named)


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=_CHECKS, derandomize=True)
@given(data=st.data())
def test_function_agrees_with_numpy(device: tuple[str, Namespace], name: str, data: st.DataObject) -> None:
    where, xp = device
    if (where, name) == ("torch", "unique_all"):
        pytest.skip("PyTorch has no unique_all")
    arguments, named = data.draw(CALLS[name])
    assume(not excused(where, name, arguments, named))
    if name in ("linalg.svd", "linalg.qr", "linalg.eig", "linalg.eigh"):
        assert factors_give_the_matrix_back(xp, name, arguments, named)
    elif name == "linalg.eigvals":
        found, expected = device_result(xp, name, arguments, named), numpy_result(name, arguments, named)
        assert same_in_any_order(found, expected)
    else:
        assert computes(xp, name, arguments, named)


def same_in_any_order(found: Any, expected: Any) -> bool:
    """Eigenvalues have no order: each is close to one of the others, and so is their sum."""
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return False
    tolerance = _TOLERANCE[expected.dtype.name]
    close = np.isclose(found[..., :, None], expected[..., None, :], rtol=tolerance, atol=tolerance)
    sums = np.allclose(found.sum(-1), expected.sum(-1), rtol=tolerance, atol=tolerance)
    return bool(close.any(-1).all() and close.any(-2).all() and sums)


def factors_give_the_matrix_back(
    xp: Namespace, name: str, arguments: list[Any], named: dict[str, Any]
) -> bool:
    """Factors are not unique, their product is; of eigenvectors neither sign nor phase."""
    found = device_result(xp, name, arguments, named)
    x = arguments[0]
    tolerance = 100 * _TOLERANCE[x.dtype.name]
    if name == "linalg.eig":  # there may be fewer vectors than rows, and no product that gives it back
        values, vectors = found
        lengths = np.linalg.vector_norm(vectors, axis=-2)
        scaled = vectors * values[..., None, :]
        return (
            vectors.dtype == values.dtype == np.result_type(x, np.complex64)
            and bool(np.allclose(x @ vectors, scaled, rtol=tolerance, atol=tolerance))
            and bool(np.allclose(lengths, 1, rtol=tolerance))
        )
    if name == "linalg.qr":
        made = found[0] @ found[1]
    elif name == "linalg.eigh":
        made = (found[1] * found[0][..., None, :]) @ np.conj(np.swapaxes(found[1], -1, -2))
    else:
        k = found[1].shape[-1]
        made = (found[0][..., :k] * found[1][..., None, :]) @ found[2][..., :k, :]
    return made.dtype == x.dtype and bool(np.allclose(made, x, rtol=tolerance, atol=tolerance))


@pytest.mark.parametrize("excuse", KNOWN["torch"], ids=lambda excuse: excuse.reason)
def test_what_is_excused_still_fails(excuse: Excuse) -> None:
    if absent := _there("torch"):
        pytest.skip(absent)
    assert excuse.applies(*excuse.example)
    xp = dovetail_remote.namespace("local:torch")
    try:
        right = computes(xp, *excuse.example)
    except CALL_ERRORS:
        right = False
    assert not right


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=_CHECKS, derandomize=True)
@given(
    seeds=st.lists(st.integers(0, 2**32 - 1), min_size=5, max_size=25),
    every=st.integers(2, 4),
)
def test_programs_that_move_between_libraries(numpy_server: Served, seeds: list[int], every: int) -> None:
    """On NumPy elsewhere, and on every other library that is here, by turns."""
    others = [f"local:{where}" for where in KNOWN if not _there(where)]
    device = Device(numpy_server.address(0))
    xp = Namespace([device])
    try:
        ours: list[Any] = [xp.linspace(-1, 2, 12, dtype=xp.float64), xp.ones((3, 4), dtype=xp.float64)]
        theirs: list[Any] = [np.linspace(-1, 2, 12), np.ones((3, 4))]
        where = itertools.cycle([*others, numpy_server.address(0)])
        for number, seed in enumerate(seeds, 1):
            with quiet():
                smooth_step(xp, ours, seed)
                smooth_step(np_compat, theirs, seed)
            if number % every == 0:
                device.migrate(next(where))
        for one, other in zip(ours, theirs, strict=True):
            assert agrees(np.asarray(one), np.asarray(other))
    finally:
        device.close()


# -- raw kernels ---------------------------------------------------------------------------------------

SAXPY = """
__kernel void saxpy(__global float *y, __global const float *x, const float a, const int n)
{
    const int i = get_global_id(0);
    if (i < n) y[i] = a * x[i] + y[i];
}
__kernel void turn(__global float *x, __local float *spare)
{
    const int i = get_local_id(0), n = get_local_size(0);
    spare[i] = x[get_group_id(0) * n + i];
    barrier(CLK_LOCAL_MEM_FENCE);
    x[get_group_id(0) * n + i] = spare[n - 1 - i];
}
"""


@pytest.fixture(scope="module")
def opencl_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    if reason := _there("opencl"):
        pytest.skip(reason)
    with serving(tmp_path_factory.mktemp("opencl"), "opencl", "opencl") as served:
        yield served


@pytest.mark.parametrize("start", ["local", "remote"])
def test_raw_opencl_kernels_compute_and_move(opencl_server: Served, start: str) -> None:
    places = ["local:opencl", opencl_server.address(0), opencl_server.address(1)]
    xp = dovetail_remote.namespace(places[start == "remote"])
    x, y = xp.arange(100, dtype=xp.float32), xp.ones(100, dtype=xp.float32)
    saxpy, turn = (xp.device.kernel(SAXPY, name) for name in ("saxpy", "turn"))
    expected = np.ones(100, np.float32)
    for place in [*places, places[0]]:
        saxpy((7,), (16,), y, x, np.float32(2), np.int32(100))
        expected = 2 * np.arange(100, dtype=np.float32) + expected
        assert np.array_equal(np.asarray(y), expected)
        turn(10, 10, y, LocalMemory(40))
        expected = expected.reshape(10, 10)[:, ::-1].reshape(100)
        assert np.array_equal(np.asarray(y), expected)
        xp.device.migrate(place)
    xp.device.close()


def test_wrong_kernels_are_told(opencl_server: Served) -> None:
    xp = dovetail_remote.namespace(opencl_server.address(0))
    with pytest.raises(RuntimeError, match=r"kernel, called at .*test_backends"):
        xp.device.kernel("this is no C", "nothing")
    kernel = xp.device.kernel(SAXPY, "saxpy")
    with pytest.raises(TypeError, match="found float, expected an array, a NumPy scalar"):
        kernel(1, 1, xp.ones(1), 2.5)
    elsewhere = dovetail_remote.namespace("local:numpy")
    with pytest.raises(ValueError, match="found an array on local:numpy"):
        kernel(1, 1, elsewhere.ones(1))
    elsewhere.device.close()
    with pytest.raises(TypeError, match="runs no raw kernels"):
        dovetail_remote.namespace("local:numpy").device.kernel(SAXPY, "saxpy")
    xp.device.close()


CUDA_SAXPY = """
extern "C" __global__ void saxpy(float *y, const float *x, const float a, const int n)
{
    const int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""


def test_raw_cuda_kernels_compute() -> None:
    if reason := _there("cuda:0"):
        pytest.skip(reason)
    xp = dovetail_remote.namespace("local:cuda:0")
    x, y = xp.arange(100, dtype=xp.float32), xp.ones(100, dtype=xp.float32)
    xp.device.kernel(CUDA_SAXPY, "saxpy")((7,), (16,), y, x, np.float32(2), np.int32(100))
    assert np.array_equal(np.asarray(y), 2 * np.arange(100, dtype=np.float32) + 1)


@pytest.mark.parametrize("shape", [(1_048_577,), (3, 349_526)], ids=["whole", "rows"])
def test_reductions_of_many_elements_in_parts(shape: tuple[int, ...]) -> None:
    """More parts are made than there are elements for: those that are empty count nothing twice."""
    if reason := _there("opencl"):
        pytest.skip(reason)
    xp = dovetail_remote.namespace("local:opencl")
    host = np.random.default_rng(3).integers(1, 1000, shape)
    x = xp.asarray(host)
    for name in ("sum", "max", "min", "argmax", "argmin", "count_nonzero"):
        found, expected = getattr(xp, name)(x, axis=-1), getattr(np_compat, name)(host, axis=-1)
        assert np.array_equal(np.asarray(found), expected), name
    xp.device.close()


def test_functions_of_the_device_are_not_computed_on_the_host() -> None:
    """The documentation names what is computed on the host; element-wise functions and the like are not."""
    assert not ON_HOST & {f.name for f in FUNCTIONS.values() if f.is_elementwise}
    assert not ON_HOST & {
        "sum",
        "prod",
        "max",
        "min",
        "mean",
        "std",
        "var",
        "all",
        "any",
        "argmax",
        "argmin",
        "matmul",
    }
