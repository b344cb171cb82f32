"""Clients that mean harm, or are broken: they are refused, and others on the same device do not feel it."""

from __future__ import annotations

import os
import secrets
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from device_servers import Served, serving
from waiting import until

import dovetail_remote
from dovetail.process.channel import NONCE
from dovetail_remote.address import parse_address
from dovetail_remote.connection import connect_to_server
from dovetail_remote.server import HANDSHAKE, MOST_WAITING
from dovetail_remote.session import MOST_ARRAYS
from dovetail_remote.wire import (
    HEAD_SIZE,
    MAGIC,
    MOST_JSON,
    Channel,
    ClosedError,
    Kind,
    frame_head,
    parse_head,
    set_options,
)

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("remote")]

MEMORY = 200_000_000
COUNT = 1_000_000 if os.environ.get("DOVETAIL_TEST_FULL") else MOST_ARRAYS + 20_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("hostile"), "numpy", options=["--memory", str(MEMORY)]) as found:
        yield found


@pytest.fixture(autouse=True)
def bystander(served: Served) -> Iterator[None]:
    """Somebody else on the device, whose work must come out right, and whose process must be the same."""
    xp = dovetail_remote.namespace(served.address())
    x = xp.arange(1000.0)
    worker = served.workers()
    yield
    for _ in range(50):
        x = x + 1
    assert np.array_equal(np.asarray(x), np.arange(1000.0) + 50)
    assert served.workers() == worker
    xp.device.close()


@pytest.fixture
def channel(served: Served) -> Iterator[Channel]:
    """A client that has been let in, and can say what it likes."""
    found, _ = connect_to_server(parse_address(served.address()))
    found.connection.settimeout(100)
    yield found
    found.close()


def ask(channel: Channel, kind: Kind = Kind.SYNC, question: Any = None) -> tuple[int, Any]:
    channel.send_frame(kind, orjson.dumps({} if question is None else question))
    answer, said, size = channel.receive_frame(most=1 << 30)
    channel.skip(size)
    return answer, said


def failure(channel: Channel) -> str:
    """What the server tells of the oldest failure."""
    answer, said = ask(channel)
    assert answer == Kind.ERROR
    return ": ".join(said["failure"][:2])


def refused(channel: Channel) -> str:
    """Why the server ends the connection."""
    while True:
        kind, said, size = channel.receive_frame(most=1 << 30)
        if kind == Kind.REFUSED:
            break
        channel.skip(size)
    with pytest.raises((ClosedError, ConnectionError)):
        channel.receive_frame()
    return str(said)


def call(channel: Channel, *calls: Any) -> None:
    channel.send_frame(Kind.CALLS, orjson.dumps(calls))


# -- frames --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (frame_head(Kind.CALLS, MOST_JSON + 1), "bytes of JSON, expected at most"),
        (frame_head(Kind.CALLS, 2**32 - 1, 2**64 - 1), "bytes of JSON, expected at most"),
        (frame_head(99, 2) + b"{}", "a frame 99"),
        (frame_head(Kind.HELLO, 2) + b"{}", "a frame 1"),
        (frame_head(Kind.CALLS, 5) + b"hello", "no JSON"),
        (frame_head(Kind.CALLS, 2, 5) + b"[]", "a frame 3 with 5 bytes"),
        (frame_head(Kind.CALLS, 2) + b"{}", "calls that are no list"),
        (frame_head(Kind.FETCH, 2) + b"[]", "a question that is no object"),
        (frame_head(Kind.LOAD, 2) + b"{}", "a snapshot that is none"),
        (frame_head(Kind.PUT, 2, 2**63) + b"[]", "an array of 9223372036854775808 bytes"),
    ],
)
def test_frames_that_are_none(channel: Channel, data: bytes, why: str) -> None:
    channel.send_all(data)
    assert why in refused(channel)


def test_noise(served: Served) -> None:
    rng = np.random.default_rng(5)
    for _ in range(30):
        found, _ = connect_to_server(parse_address(served.address()))
        found.connection.settimeout(100)
        noise = rng.bytes(64)
        try:
            found.send_all(noise * 100)
            # A frame may claim to be long; then it waits for the rest, as it may.
            found.connection.shutdown(socket.SHUT_WR)
            while found.connection.recv(4096):
                pass
        except ConnectionError:
            pass
        found.close()


@pytest.mark.parametrize(
    "calls",
    [
        b"[[]]",
        b"[5]",
        b"[null]",
        b'[["add"]]',
        b'[["add", 1, 0, 5, null, 0]]',
        b'[["add", 1, "site", [], null, 0]]',
        b'[["__import__", 1, 0, ["os"], null, 0]]',
        b'[["fft.__class__", 1, 0, [], null, 0]]',
        b'[[{"a": 1}, 1, 0, [], null, 0]]',
        b'[["add", 1, 0, [{"a": 1}], null, 0]]',
        b'[["add", 1, 0, [["x", 1]], null, 0]]',
        b'[["add", 1, 0, [["c", 1, "x"]], null, 0]]',
        b'[["add", 1, 0, [["i", "' + b"9" * 5000 + b'"]], null, 0]]',
        b'[["ones", 1, 0, [["i", 3]], {"dtype": ["d", "object"]}, 0]]',
        b'[["ones", 1, 0, [["i", 3]], [1], 0]]',
        b'[["ones", -5, 0, [["i", 3]], null, 0]]',
        b'[["ones", ' + str(2**63).encode() + b', 0, [["i", 3]], null, 0]]',
        b'[["kernel", "x", 0, ["a", "b"], null, 0]]',
        b'[["add", 1, 0, [' + b'["t", ' * 30 + b"1" + b"]" * 30 + b"], null, 0]]",
    ],
)
def test_calls_that_are_none(channel: Channel, calls: bytes) -> None:
    channel.send_frame(Kind.CALLS, calls)
    assert refused(channel)


def test_json_nested_beyond_all_bounds(channel: Channel) -> None:
    channel.send_frame(Kind.CALLS, b"[" * 500_000 + b"]" * 500_000)
    assert "no JSON" in refused(channel)


def test_calls_that_are_only_wrong_are_failures(channel: Channel) -> None:
    call(channel, ["ones", 1, 0, [["i", 3]], {"out": 1}, 0])
    assert "ones() has no argument 'out'" in failure(channel)
    call(channel, ["full", 1, 0, [["i", 3], None], None, 0])
    assert "which no array of the standard is" in failure(channel)
    call(channel, ["full", 1, 0, [["i", 3], "text"], None, 0])
    assert "which no array of the standard is" in failure(channel)
    call(channel, ["add", [1, 2], 0, [["i", 3], ["i", 4]], None, 0])
    assert "another number of arrays" in failure(channel)
    call(channel, ["launch", None, 0, [5, ["t", ["i", 1]], ["t", ["i", 1]], ["i", 0], ["l"]], None, 0])
    assert "found no array 5" in failure(channel)
    assert ask(channel)[0] == Kind.REPLY


# -- what is not theirs --------------------------------------------------------------------------------


def test_arrays_of_others_are_out_of_reach(served: Served, channel: Channel) -> None:
    xp = dovetail_remote.namespace(served.address())
    secret = xp.full(10, 42.0)
    xp.device.synchronize()
    for handle in range(max(secret._handle - 3, 0), secret._handle + 3):
        call(channel, ["add", 10**6, 0, [handle, 1.0], None, 0])
        assert f"found no array {handle} of this client" in failure(channel)
        answer, said = ask(channel, Kind.FETCH, {"array": handle})
        assert (answer, said["failure"][1]) == (Kind.ERROR, "found no such array of this client")
        call(channel, [handle], ["ones", handle, 0, [["i", 2]], None, 0])
    assert ask(channel, Kind.DUMP)[1]["arrays"][0][3] == [2]
    assert np.array_equal(np.asarray(secret), np.full(10, 42.0))
    xp.device.close()


@pytest.mark.parametrize("count", [8, 1000, 10_000, 1_000_000])
def test_memory_of_others_who_have_left_is_not_shown(served: Served, channel: Channel, count: int) -> None:
    xp = dovetail_remote.namespace(served.address())
    secrets_ = [xp.asarray(np.full(count, 42.0)) for _ in range(10)]
    xp.device.synchronize()
    del secrets_
    xp.device.close()
    shape = ["t", ["i", count]]
    call(channel, ["empty", 1, 0, [shape], None, 0], ["empty_like", 2, 0, [1], None, 0])
    for handle in (1, 2):
        channel.send_frame(Kind.FETCH, orjson.dumps({"array": handle}))
        answer, _, size = channel.receive_frame()
        found = np.ones(count)
        assert (answer, size) == (Kind.REPLY, found.nbytes)
        channel.receive_into(memoryview(found).cast("B"))
        assert not found.any()


@pytest.mark.parametrize(
    "manifest",
    [
        {"regions": [8], "arrays": [[1, 0, "float64", [2], [8], 0, False]], "failures": []},
        {"regions": [8], "arrays": [[1, 0, "float64", [1], [8], 8, False]], "failures": []},
        {"regions": [8], "arrays": [[1, 0, "float64", [2], [-8], 0, False]], "failures": []},
        {"regions": [8], "arrays": [[1, 1, "float64", [1], [8], 0, False]], "failures": []},
        {"regions": [8], "arrays": [[1, 0, "object", [1], [8], 0, False]], "failures": []},
        {"regions": [-8, 16], "arrays": [], "failures": []},
        {"regions": [8], "arrays": [[1, 0, "float64", [1] * 99, [8] * 99, 0, False]], "failures": []},
    ],
)
def test_snapshots_cannot_look_beyond_their_regions(channel: Channel, manifest: dict[str, Any]) -> None:
    text = orjson.dumps(manifest)
    channel.send_all(frame_head(Kind.LOAD, len(text), 8) + text + bytes(8))
    assert "a snapshot that is none" in refused(channel)


# -- too much ------------------------------------------------------------------------------------------


def test_a_million_arrays(channel: Channel) -> None:
    batch = 1000
    for first in range(0, COUNT, batch):
        call(channel, *[["zeros", first + k, 0, [["i", 1]], None, 0] for k in range(batch)])
    assert f"this client holds {MOST_ARRAYS} arrays, the most that it may" in failure(channel)
    call(channel, list(range(1000)))
    while ask(channel)[0] == Kind.ERROR:
        pass
    assert ask(channel)[1]["used"] == (MOST_ARRAYS - 1000) * 8


@pytest.mark.parametrize(
    "call_",
    [
        ["zeros", 9, 0, [["t", ["i", 10**6], ["i", 10**6]]], None, 0],
        ["arange", 9, 0, [["i", 0], ["i", 10**12]], None, 0],
        ["linspace", 9, 0, [0.0, 1.0, ["i", 10**10]], None, 0],
        ["eye", 9, 0, [["i", 10**6]], None, 0],
        ["add", 9, 0, [1, 2], None, 0],
        ["__mul__", 9, 0, [1, 2], None, 0],
        ["matmul", 9, 0, [1, 2], None, 0],
        ["linalg.outer", 9, 0, [3, 3], None, 0],
        ["repeat", 9, 0, [3, ["i", 10**6]], None, 0],
        ["tile", 9, 0, [3, ["t", ["i", 10**6]]], None, 0],
        ["meshgrid", [9, 10], 0, [3, 3], None, 0],
        ["tensordot", 9, 0, [3, 3], {"axes": ["i", 0]}, 0],
        ["fft.fft", 9, 0, [3], {"n": ["i", 10**9]}, 0],
        ["linalg.svd", [9, 10, 11], 0, [1], None, 0],
    ],
    ids=lambda call_: call_[0],
)
def test_more_memory_than_the_quota_is_refused_before_it_is_taken(channel: Channel, call_: list[Any]) -> None:
    n = 100_000
    call(
        channel,
        ["ones", 1, 0, [["t", ["i", n], ["i", 1]]], None, 0],
        ["ones", 2, 0, [["t", ["i", 1], ["i", n]]], None, 0],
        ["ones", 3, 0, [["i", n]], None, 0],
    )
    assert ask(channel)[0] == Kind.REPLY
    call(channel, call_)
    assert failure(channel).startswith("MemoryError: ")


def test_an_upload_beyond_the_quota_is_not_kept(channel: Channel) -> None:
    size = MEMORY // 8 + 1
    text = orjson.dumps([1, "float64", [size], 0])
    channel.send_all(frame_head(Kind.PUT, len(text), size * 8) + text)
    for _ in range(size * 8 // 1_000_008):
        channel.send_all(bytes(1_000_008))
    channel.send_all(bytes(size * 8 % 1_000_008))
    assert failure(channel).startswith("MemoryError: ")
    assert ask(channel)[1]["used"] == 0


def test_many_small_uploads_stop_at_the_quota(channel: Channel) -> None:
    block = bytes(1_000_000)
    text = [orjson.dumps([k, "uint8", [len(block)], 0]) for k in range(300)]
    for one in text:
        channel.send_all(frame_head(Kind.PUT, len(one), len(block)) + one + block)
    assert failure(channel).startswith("MemoryError: ")
    while ask(channel)[0] == Kind.ERROR:
        pass
    assert 0 < ask(channel)[1]["used"] <= MEMORY


# -- connections ---------------------------------------------------------------------------------------


def greeted(served: Served) -> socket.socket:
    """A connection that has heard the greeting and says nothing."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(100)
    connection.connect(served.socket)
    assert connection.recv(len(MAGIC) + NONCE, socket.MSG_WAITALL).startswith(MAGIC)
    return connection


def test_half_open_connections(served: Served) -> None:
    """More than the server keeps waiting, some with half a HELLO: a real client gets in all the same."""
    waiting = []
    for k in range(MOST_WAITING + 50):
        connection = greeted(served)
        if k % 2:
            connection.sendall(frame_head(Kind.HELLO, 100)[: k % HEAD_SIZE])
        waiting.append(connection)
    xp = dovetail_remote.namespace(served.address())
    assert float(xp.asarray(5)) == 5
    xp.device.close()
    first = waiting[0]
    assert first.recv(1) == b""  # the oldest were closed
    for connection in waiting:
        connection.close()


def test_who_says_nothing_is_left(served: Served) -> None:
    connection = greeted(served)
    connection.sendall(frame_head(Kind.HELLO, 4000)[:1])
    assert connection.gettimeout() > HANDSHAKE
    assert connection.recv(1) == b""
    connection.close()


def test_who_has_left_when_it_is_handed_on_is_no_error() -> None:
    """The process of a device sets the options of a connection itself: an error would end all its clients."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()  # a reset
    with ours:
        with pytest.raises(ConnectionResetError):
            ours.recv(1)
        set_options(ours)


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        (frame_head(Kind.HELLO, 5000) + bytes(5000), "bytes of JSON, expected at most 4096"),
        (frame_head(Kind.SYNC, 2) + b"{}", "the first frame is no HELLO"),
        (frame_head(Kind.HELLO, 2, 10) + b"{}", "the first frame is no HELLO"),
        (frame_head(Kind.HELLO, 2) + b"{}", "a HELLO that is none"),
        (frame_head(Kind.HELLO, 2) + b"xx", "a HELLO that is none"),
        (frame_head(Kind.HELLO, 2) + b"[]", "a HELLO that is none"),
        (frame_head(Kind.HELLO, 16) + b'{"nonce": "abc"}', "a HELLO that is none"),
        (frame_head(Kind.HELLO, 15) + b'{"nonce": "ab"}', "without 32 random bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "bytes of JSON"),
        (struct.pack("<B3xIQ", 1, 4096, 0) + b"{" * 4096, "a HELLO that is none"),
    ],
)
def test_first_words_that_are_none(served: Served, hello: bytes, why: str) -> None:
    with greeted(served) as connection:
        connection.sendall(hello)
        head = connection.recv(HEAD_SIZE, socket.MSG_WAITALL)
        kind, length, _ = parse_head(head, 4096)
        assert kind == Kind.REFUSED
        assert why in orjson.loads(connection.recv(length, socket.MSG_WAITALL))


@pytest.mark.parametrize("device", [-1, 1, 10**9, "0", None, True])
def test_devices_that_are_none(served: Served, device: Any) -> None:
    with greeted(served) as connection:
        text = orjson.dumps({"nonce": secrets.token_hex(NONCE), "device": device})
        connection.sendall(frame_head(Kind.HELLO, len(text)) + text)
        _, length, _ = parse_head(connection.recv(HEAD_SIZE, socket.MSG_WAITALL), 4096)
        assert "found no device" in orjson.loads(connection.recv(length, socket.MSG_WAITALL))


def test_wrong_proofs_on_the_network(tmp_path: Path) -> None:
    """Guessed, empty, of another connection: none opens the door."""
    path = tmp_path / "token"
    path.write_text("0123456789abcdef")
    path.chmod(0o600)
    options = ["--listen", "127.0.0.1:0", "--token-file", str(path)]
    with serving(tmp_path, "numpy", options=options) as served:
        host, port = parse_address(served.addresses[1]).host_port
        for proof in (None, "", "00" * 32, "é" * 32, 5, ["x"]):
            with socket.create_connection((host, port), timeout=100) as connection:
                connection.recv(len(MAGIC) + NONCE, socket.MSG_WAITALL)
                text = orjson.dumps({"nonce": secrets.token_hex(NONCE), "device": 0, "proof": proof})
                connection.sendall(frame_head(Kind.HELLO, len(text)) + text)
                kind, length, _ = parse_head(connection.recv(HEAD_SIZE, socket.MSG_WAITALL), 4096)
                assert kind == Kind.REFUSED
                assert "the token is not the one" in str(connection.recv(length, socket.MSG_WAITALL))
        until(lambda: not served.status()[0]["clients"])
