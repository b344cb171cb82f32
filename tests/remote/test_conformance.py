"""The namespace against the array API standard (2025.12), with NumPy as the oracle.

Beside the standard's own suite (`test_standard_suite`): names, signatures, constants, data types, and for
each function generated valid calls whose type, shape and elements must be NumPy's; on NumPy bit by bit.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import math
import os
import pickle
from typing import Any

import array_api_strict
import numpy as np
import pytest
from array_calls import CALLS
from device_servers import Served, assert_identical, device_result, function, numpy_result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.array_api import make_strategies_namespace

import dovetail_remote
from dovetail_remote.array import Array
from dovetail_remote.standard import CONSTANTS, DTYPES, FUNCTIONS, OPERATORS, VERSION

EXAMPLES = 300 if os.environ.get("DOVETAIL_TEST_FULL") else 2
_CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@pytest.fixture(scope="module", params=["local", "remote"])
def xp(request: pytest.FixtureRequest, numpy_server: Served) -> Any:
    where = "local:numpy" if request.param == "local" else numpy_server.address()
    space = dovetail_remote.namespace(where)
    yield space
    space.device.close()


def test_all_names_of_the_standard_are_there(xp: Any) -> None:
    with array_api_strict.ArrayAPIStrictFlags(api_version=VERSION):
        expected = {name for name in array_api_strict.__all__ if hasattr(array_api_strict, name)}
    extra = {"ArrayAPIStrictFlags", "Device"}  # its own
    extra |= {name for name in expected if "strict" in name or name.startswith("__")}
    missing = [name for name in expected - extra if not hasattr(xp, name)]
    assert not missing
    assert xp.__array_api_version__ == VERSION


def test_signatures_are_the_standards(xp: Any) -> None:
    for name in FUNCTIONS:
        ours = inspect.signature(function(xp, name)).parameters
        theirs = inspect.signature(function(array_api_strict, name)).parameters
        assert list(ours) == list(theirs), name
        for key, parameter in theirs.items():
            if (name, key) != ("expand_dims", "axis"):  # by position too, and optional, in 2024.12
                assert ours[key].kind == parameter.kind, (name, key)
                if key != "device":  # a marker of its own
                    assert ours[key].default == parameter.default, (name, key)


def test_constants(xp: Any) -> None:
    for name, value in CONSTANTS.items():
        found = getattr(xp, name)
        assert found == value or (math.isnan(value) and math.isnan(found))


def test_operators_are_all_there() -> None:
    for name in OPERATORS:
        assert callable(getattr(Array, name))


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=_CHECKS)
@given(data=st.data())
def test_function_computes_what_numpy_does(xp: Any, name: str, data: st.DataObject) -> None:
    arguments, named = data.draw(CALLS[name])
    found = device_result(xp, name, arguments, named)
    expected = numpy_result(name, arguments, named)
    if name in ("empty", "empty_like"):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    else:
        assert_identical(found, expected)


_THREE = np.arange(3.0)


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("sum", [_THREE], {"axis": 1}),
        ("sum", [_THREE], {"keepdim": True}),
        ("prod", [_THREE], {"axis": (0, 0)}),
        ("max", [_THREE], {"dtype": np.dtype("float32")}),
        ("max", [_THREE[:0]], {}),
        ("min", [_THREE * 1j], {"axis": "first"}),
        ("zeros", [-1], {}),
        ("ones", [3, np.dtype("float32")], {}),
        ("matmul", [_THREE, np.ones(4)], {}),
        ("concat", [[_THREE, np.ones((2, 2))]], {}),
        ("where", [_THREE, _THREE], {}),
        ("astype", [_THREE, "float33"], {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_calls_fail_as_numpys_do(
    xp: Any, name: str, arguments: list[Any], named: dict[str, Any]
) -> None:
    with pytest.raises((TypeError, ValueError, IndexError)) as expected:
        numpy_result(name, arguments, named)
    kind = next(k for k in (TypeError, IndexError, ValueError) if isinstance(expected.value, k))
    with pytest.raises(kind):
        device_result(xp, name, arguments, named)


_OPERATOR_CALLS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "pow", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift", "eq": "equal", "ne": "not_equal",
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "matmul": "matmul",
}  # fmt: skip
_UNARY_CALLS = {"abs": "abs", "invert": "bitwise_invert", "neg": "negative", "pos": "positive"}


@pytest.mark.parametrize("name", [*_OPERATOR_CALLS, *_UNARY_CALLS])
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=_CHECKS)
@given(data=st.data())
def test_operators_compute_what_numpys_do(xp: Any, name: str, data: st.DataObject) -> None:
    arguments, _ = data.draw(CALLS[(_OPERATOR_CALLS | _UNARY_CALLS)[name]])
    ours = [xp.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments]
    method = f"__{name}__"
    with np.errstate(all="ignore"):
        expected = np.asarray(getattr(arguments[0], method)(*arguments[1:]))
        assert_identical(np.asarray(getattr(ours[0], method)(*ours[1:])), expected)
        if name in _UNARY_CALLS or f"__r{name}__" not in OPERATORS:
            return
        if not isinstance(arguments[1], np.ndarray) and name != "matmul":
            expected = np.asarray(getattr(arguments[0], f"__r{name}__")(arguments[1]))
            if name not in ("floordiv", "mod", "truediv") or np.all(arguments[0] != 0):
                assert_identical(np.asarray(getattr(ours[0], f"__r{name}__")(ours[1])), expected)
        target = arguments[0].copy()
        try:
            getattr(target, f"__i{name}__")(*arguments[1:])
        except (TypeError, ValueError):  # the result has another type or shape
            return
        before = ours[0]
        getattr(ours[0], f"__i{name}__")(*ours[1:])
        assert ours[0] is before
        assert_identical(np.asarray(ours[0]), target)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=_CHECKS)
@given(data=st.data())
def test_hypothesis_draws_arrays_of_the_namespace(xp: Any, data: st.DataObject) -> None:
    """Hypothesis's own strategies for libraries of the standard: they make arrays by its functions."""
    xps = make_strategies_namespace(xp)
    x = data.draw(xps.arrays(dtype=xps.scalar_dtypes(), shape=xps.array_shapes(max_dims=3, max_side=4)))
    assert type(x) is Array
    host = np.asarray(x)
    key = data.draw(xps.indices(x.shape, allow_newaxis=True))
    assert_identical(np.asarray(x[key]), np.asarray(host[key]))
    value = data.draw(xps.arrays(dtype=x.dtype, shape=()))
    x[key] = value
    host[key] = np.asarray(value)
    assert_identical(np.asarray(x), host)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=_CHECKS)
@given(data=st.data())
def test_masks_and_integer_arrays_as_indices(xp: Any, data: st.DataObject) -> None:
    (x, indices), named = data.draw(CALLS["take"])
    x = np.moveaxis(x, named["axis"], 0)
    ours = xp.asarray(x)
    assert_identical(np.asarray(ours[xp.asarray(indices)]), x[indices])
    with np.errstate(invalid="ignore"):
        mask = x == x.ravel()[0]
    assert_identical(np.asarray(ours[xp.asarray(mask)]), x[mask])
    ours[xp.asarray(mask)] = ours[(0,) * x.ndim]
    x = x.copy()
    x[mask] = x[(0,) * x.ndim]
    assert_identical(np.asarray(ours), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_limits_of_data_types(xp: Any, dtype: str) -> None:
    ours, theirs = getattr(xp, dtype), np.dtype(dtype)
    assert ours == theirs
    kinds = (
        "bool",
        "signed integer",
        "unsigned integer",
        "integral",
        "real floating",
        "complex floating",
        "numeric",
    )
    for kind in kinds:
        assert xp.isdtype(ours, kind) == np.isdtype(theirs, kind)
    assert xp.isdtype(ours, kinds[:2]) == np.isdtype(theirs, kinds[:2])
    if theirs.kind in "iu":
        info = xp.iinfo(ours)
        expected = np.iinfo(theirs)
        assert (info.bits, info.min, info.max, info.dtype) == (
            expected.bits,
            expected.min,
            expected.max,
            theirs,
        )
    elif theirs.kind in "fc":
        info = xp.finfo(xp.ones(2, dtype=ours))
        expected = np.finfo(theirs)
        for name in ("eps", "max", "min", "smallest_normal"):
            assert type(getattr(info, name)) is float
            assert getattr(info, name) == float(getattr(expected, name))
        assert info.bits == expected.bits


@given(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=3))
@settings(max_examples=10 * EXAMPLES, deadline=None)
def test_promotion(xp: Any, dtypes: list[str]) -> None:
    given = [np.dtype(dtype) for dtype in dtypes]
    mixed = [xp.ones(1, dtype=given[0]), *given[1:]]
    assert xp.result_type(*mixed) == np.result_type(*given)
    assert xp.can_cast(mixed[0], given[-1]) == np.can_cast(given[0], given[-1])


def test_shapes_that_broadcast(xp: Any) -> None:
    assert xp.broadcast_shapes((2, 1), (3,), ()) == (2, 3)
    with pytest.raises(ValueError, match="shape"):
        xp.broadcast_shapes((2,), (3,))


def test_tools_can_name_the_namespace(numpy_server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the standard's own suite does, which imports what ``ARRAY_API_TESTS_MODULE`` says."""
    monkeypatch.setenv("DOVETAIL_DEVICE_ADDRESSES", numpy_server.address(1))
    module = importlib.import_module("dovetail_remote.xp")
    module._default_namespace.cache_clear()
    assert module.__array_api_version__ == VERSION
    assert module.ones(3).device.address == numpy_server.address(1)
    assert {"sum", "linalg", "fft", "float64", "pi"} <= set(dir(module))
    assert not hasattr(module, "__path__")
    module.device.close()
    module._default_namespace.cache_clear()


def test_numbers_of_python_and_arrays_of_one(xp: Any) -> None:
    assert float(xp.asarray(2.5)) == 2.5
    assert int(xp.asarray(7)) == 7
    assert complex(xp.asarray(1 + 2j)) == 1 + 2j
    assert bool(xp.asarray(True)) is True
    assert [10, 20, 30][xp.asarray(1)] == 20
    with pytest.raises(TypeError, match="whole numbers"):
        [1, 2, 3][xp.asarray(1.0)]
    with pytest.raises(TypeError, match="no dimension"):
        float(xp.ones(1))


def test_arrays_know_their_namespace_and_device(xp: Any) -> None:
    x = xp.ones((2, 3))
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2023.12") is xp
    with pytest.raises(ValueError, match="versions up to"):
        x.__array_namespace__(api_version="2099.12")
    info = xp.__array_namespace_info__()
    assert x.device is info.default_device() is info.devices()[0]
    assert x.to_device(x.device) is x
    assert info.dtypes(kind="bool") == {"bool": np.dtype("bool")}
    assert set(info.dtypes()) == set(DTYPES)
    assert info.default_dtypes()["real floating"] == np.dtype("float64")
    assert (x.ndim, x.size, x.T.shape, x.mT.shape) == (2, 6, (3, 2), (3, 2))
    assert [part.shape for part in x] == [(3,), (3,)]
    with pytest.raises(ValueError, match="2 dimensions"):
        _ = xp.ones(3).T


def test_arrays_come_from_and_go_to_elsewhere(xp: Any) -> None:
    host = np.arange(6.0).reshape(2, 3)
    x = xp.asarray(host)
    host[0, 0] = 99  # asarray has copied
    assert float(x[0, 0]) == 0
    assert_identical(np.asarray(xp.from_dlpack(host)), host)
    assert_identical(np.from_dlpack(x), np.asarray(x))
    assert_identical(np.asarray(xp.asarray(memoryview(b"abc"))), np.frombuffer(b"abc", dtype=np.uint8))
    assert_identical(np.asarray(xp.asarray([[1, 2], [3, 4]])), np.asarray([[1, 2], [3, 4]]))
    assert_identical(np.asarray(xp.asarray([1, 2.5], dtype=xp.float32)), np.asarray([1, 2.5], np.float32))
    same = xp.asarray(x)
    assert same is x
    other = xp.asarray(x, copy=True)
    other[0, 0] = 5
    assert float(x[0, 0]) == 0
    with pytest.raises(ValueError, match="copy=False"):
        xp.asarray(x, dtype=xp.int8, copy=False)
    for wrong in ([1, 2], np.ones(2, np.float16)):
        with pytest.raises(ValueError, match="copy=False"):
            xp.asarray(wrong, copy=False)
    if xp.device.is_local:
        shared = xp.asarray(host, copy=False)
        host[0, 0] = 7
        assert float(shared[0, 0]) == 7
        seen = np.from_dlpack(shared, copy=False)
        shared[0, 1] = 8
        assert seen[0, 1] == host[0, 1] == 8
        assert float(xp.from_dlpack(host, copy=False)[0, 1]) == 8
        return
    with pytest.raises(ValueError, match="copy=False"):
        xp.asarray(host, copy=False)
    with pytest.raises(BufferError, match="copy=False"):
        xp.from_dlpack(host, copy=False)
    with pytest.raises(BufferError, match="without a copy"):
        np.from_dlpack(x, copy=False)


def test_lists_of_arrays_become_one(xp: Any) -> None:
    x = xp.asarray([1.5, 2.5], dtype=xp.float32)
    for items, dtype in (
        ([x[0], x[1]], "float32"),
        ([x, [3.0, 4.0]], "float64"),
        (((x, x), [x, xp.asarray([1, 2])]), "float64"),
        ([xp.asarray(True), False], "bool"),
    ):
        host = [
            [np.asarray(i).tolist() for i in item] if isinstance(item, list | tuple) else item
            for item in items
        ]
        found = xp.asarray(items)
        assert found.dtype == np.dtype(dtype)
        assert np.asarray(found).tolist() == np.asarray([np.asarray(item).tolist() for item in host]).tolist()
    assert xp.asarray([x, x], dtype=xp.float64).dtype == np.float64
    with pytest.raises(ValueError, match="shape"):
        xp.asarray([x, x[:1]])


def test_arrays_do_what_pythons_objects_do(xp: Any) -> None:
    x = xp.asarray([1.5, 2.5, 3.5])
    for made in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        made[0] = 9
        assert (made.device, float(x[0])) == (x.device, 1.5)
        assert_identical(np.asarray(made), np.asarray([9, 2.5, 3.5]))
    assert (f"{x[1]:.3f}", f"{xp.asarray(7):>3}", len(x)) == ("2.500", "  7", 3)
    assert f"{x}" == str(x)
    with pytest.raises(TypeError, match="no length"):
        len(x[0])


@pytest.mark.parametrize(
    "scalar", [np.float64(2), np.float32(0.1), np.int64(3), np.uint8(200), np.bool_(True)]
)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_numpys_scalars_count_with_their_type(xp: Any, scalar: Any, dtype: str) -> None:
    host = np.asarray([1, 2, 3], dtype)
    x = xp.asarray(host)
    for expected, found in (
        (host + scalar, x + scalar),
        (scalar * host, scalar * x),
        (np.maximum(host, scalar), xp.maximum(x, scalar)),
        (host >= scalar, x >= scalar),
        (np.where(host > 1, host, scalar), xp.where(x > 1, x, scalar)),
    ):
        assert_identical(np.asarray(found), expected)
    assert_identical(np.asarray(x[np.int64(1)]), host[1:2].reshape(()))
    assert_identical(np.asarray(xp.sum(x, axis=np.int64(0))), np.asarray(host.sum()))
    assert xp.zeros((np.int64(2), 3), dtype=float).dtype == np.float64
    assert (xp.ones(2, dtype=int).dtype, xp.astype(x, complex).dtype) == (np.dtype(int), np.dtype(complex))


def test_numpy_does_not_compute_behind_the_back(xp: Any) -> None:
    x = xp.ones(3)
    with pytest.raises(TypeError):
        np.sin(x)
    with pytest.raises(TypeError):
        _ = np.ones(3) + x
    with pytest.raises(TypeError):
        _ = x + np.ones(3)
    with pytest.raises(TypeError, match="found float16"):
        xp.add(x, np.float16(2))
    with pytest.raises(TypeError, match="functions of a namespace"):
        Array()
