"""Arguments as JSON and back; what is estimated of results; addresses."""

from __future__ import annotations

import contextlib
import math
import os
from typing import Any

import numpy as np
import orjson
import pytest
from array_calls import CALLS
from device_servers import numpy_result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.testing.builders import full
from dovetail_remote.address import parse_address
from dovetail_remote.backends.numpy import NumpyBackend
from dovetail_remote.encoding import LocalMemory, decode_value, encode_value
from dovetail_remote.limits import ESTIMATES
from dovetail_remote.session import Session
from dovetail_remote.standard import DTYPES, FUNCTIONS
from dovetail_remote.wire import ProtocolError

FULL = bool(os.environ.get("DOVETAIL_TEST_FULL"))
DTYPE_MAP = {name: np.dtype(name) for name in DTYPES}

plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.sampled_from([np.dtype(name) for name in DTYPES]),
    st.just(...),
    st.slices(10),
    st.builds(slice, st.one_of(st.none(), st.integers(-(2**70), 2**70)), st.none(), st.none()),
)
nested = st.recursive(
    plain, lambda inner: st.one_of(st.lists(inner), st.lists(inner).map(tuple)), max_leaves=12
)


def same(found: Any, given_: Any) -> bool:
    if isinstance(given_, list | tuple):
        return type(found) is type(given_) and len(found) == len(given_) and all(map(same, found, given_))
    if isinstance(given_, float):
        return type(found) is float and (
            math.isnan(found) if math.isnan(given_) else repr(found) == repr(given_)
        )
    if isinstance(given_, complex):
        return same([found.real, found.imag], [given_.real, given_.imag])
    return type(found) is type(given_) and found == given_


def depth(value: Any) -> int:
    return 1 + max(map(depth, value), default=0) if isinstance(value, list | tuple) else 0


@given(nested.filter(lambda value: depth(value) < 8))
@settings(max_examples=full(300, 75) if FULL else 60, deadline=None)
def test_arguments_survive(value: Any) -> None:
    text = orjson.dumps([encode_value(value, lambda one: None)])
    assert same(decode_value(orjson.loads(text)[0], {}, DTYPE_MAP), value)


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.floats(), st.text(), st.just(7)), st.lists, max_leaves=9
    )
)
def test_whatever_json_says_is_a_value_or_refused(data: Any) -> None:
    with contextlib.suppress(ProtocolError):
        decode_value(data, {7: "array"}, DTYPE_MAP)


def test_arrays_are_their_handles_and_kernels_get_typed_numbers() -> None:
    marker = object()
    encoded = encode_value((marker, 3, [marker]), lambda one: 42 if one is marker else None)
    assert encoded == ["t", 42, ["i", 3], ["l", 42]]
    assert decode_value(encoded, {42: "there"}, DTYPE_MAP) == ("there", 3, ["there"])
    with pytest.raises(KeyError):
        decode_value(encoded, {}, DTYPE_MAP)
    for value in (np.int32(-5), np.float32(0.1), np.uint64(2**63), np.complex64(1 + 2j)):
        found = decode_value(encode_value(value, lambda found: None), {}, DTYPE_MAP)
        assert (found, found.dtype) == (value, value.dtype)
    assert decode_value(["m", 64], {}, DTYPE_MAP) == LocalMemory(64)


@pytest.mark.parametrize(
    "wrong", [np.float16(1), object(), {1: 2}, {1}, b"x", np.ones(2), np.dtype("float16")]
)
def test_what_no_call_takes_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError):
        encode_value(wrong, lambda one: None)


@pytest.mark.parametrize("name", sorted(ESTIMATES.keys() & FUNCTIONS.keys()))
@settings(max_examples=40 if FULL else 8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_estimates_refuse_nothing_that_fits(name: str, data: st.DataObject) -> None:
    """What is estimated before a call is at most a few times what the call then takes."""
    arguments, named = data.draw(CALLS[name])
    made = numpy_result(name, arguments, named)
    size = sum(part.nbytes for part in (made if isinstance(made, list) else [made]))
    given_ = sum(a.nbytes for a in arguments if isinstance(a, np.ndarray))
    assert ESTIMATES[name](arguments, named) <= 16 * max(size, given_, 16)


def test_a_session_counts_memory_once_for_arrays_that_share_it() -> None:
    session = Session(NumpyBackend(), 10_000)
    session.run(
        [
            ["zeros", 1, 0, [["i", 1000]], None, 0],
            ["__getitem__", 2, 0, [1, ["s", 0, 10, None]], None, 0],
            ["reshape", 3, 0, [1, ["t", ["i", 10], ["i", 100]]], None, 0],
        ]
    )
    assert (session.used, len(session.values)) == (8000, 3)
    session.run([[1, 3]])
    assert session.used == 8000  # the slice still needs it
    session.run([[2]])
    assert (session.used, session.values) == (0, {})
    session.run([["zeros", 4, 0, [["i", 2000]], None, 0], ["ones", 5, 0, [["i", 3]], None, 0]])
    assert session.unheard[0].kind == "MemoryError"
    session.run([["add", 6, 0, [4, 5], None, 0], ["__iadd__", 5, 0, [5, 1.0], None, 0]])
    assert len(session.unheard) == 1  # what follows from a failure is none of its own
    assert session.failed[6] is session.failed[4]
    assert (session.used, session.values[5].tolist()) == (24, [2, 2, 2])


@pytest.mark.parametrize(
    ("text", "kind", "place", "device"),
    [
        ("local:opencl:pocl", "local", "opencl:pocl", 0),
        ("unix:/a/b.sock", "unix", "/a/b.sock", 0),
        ("unix:/a/b#c.sock#12", "unix", "/a/b#c.sock", 12),
        ("tcp:n1:7321#3", "tcp", "n1:7321", 3),
        ("tcp:[::1]:7321", "tcp", "[::1]:7321", 0),
    ],
)
def test_addresses(text: str, kind: str, place: str, device: int) -> None:
    address = parse_address(text)
    assert (address.kind, address.place, address.device) == (kind, place, device)
    assert parse_address(str(address)) == address
    if kind == "tcp":
        assert address.host_port == (place.rpartition(":")[0].strip("[]"), 7321)


@pytest.mark.parametrize(
    "text", ["", "local", "unix", "unix:", "tcp:x", "tcp:x:port", "http:x:80", "unix:/a#x y#"]
)
def test_what_is_no_address(text: str) -> None:
    if text == "unix:/a#x y#":
        assert parse_address(text).place == "/a#x y#"
        return
    with pytest.raises(InputError, match="device "):
        parse_address(text)
