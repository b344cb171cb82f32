"""What a client reads at a socket: replies in pieces, and what is no reply."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from dovetail.client.connection import Connection, NoService

REPLY = b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\ndovetail-API:  1\r\n\r\n{"all":"is"}'


@contextmanager
def answering(folder: Path, *pieces: bytes, takes: int = 1) -> Iterator[tuple[str, list[bytes]]]:
    """A socket at which each connection gets these pieces, and what was sent there."""
    path = str(folder / "s")
    got: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def answer() -> None:
            for _ in range(takes):
                one, _ = server.accept()
                with one:
                    got.append(one.recv(1 << 16))
                    for piece in pieces:
                        one.sendall(piece)

        thread = Thread(target=answer)
        thread.start()
        yield path, got
        thread.join()


def test_a_reply_comes_byte_by_byte(tmp_path: Path) -> None:
    pieces = [bytes([byte]) for byte in REPLY]
    with answering(tmp_path, *pieces) as (path, got), Connection(path, "secret") as asked:
        assert asked.post("/api/v1/x", {"a": 1}) == {"all": "is"}
        assert asked.api == 1
    head, _, body = got[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /api/v1/x HTTP/1.1\r\nHost: localhost\r\n")
    assert b"\r\nAuthorization: Bearer secret\r\n" in head
    assert b"\r\nContent-Length: 8" in head
    assert body == b'{"a": 1}'


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        REPLY[:-1],
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"x" * 70_000,
    ],
)
def test_what_is_no_reply_is_no_service(tmp_path: Path, reply: bytes) -> None:
    with (
        answering(tmp_path, reply) as (path, _),
        Connection(path) as asked,
        pytest.raises(NoService, match="no service answers at"),
    ):
        asked.post("/api/v1/x")


def test_a_reply_that_ends_the_connection(tmp_path: Path) -> None:
    last = REPLY.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with answering(tmp_path, last, takes=2) as (path, _), Connection(path) as asked:
        for _ in range(2):
            assert asked.get("/api/v1/x") == {"all": "is"}


@pytest.mark.parametrize("path", ["/a b", "/a\r\nX: y", "/ä"])
def test_a_path_is_one_word(tmp_path: Path, path: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        with Connection(str(tmp_path / "s")) as asked, pytest.raises(NoService, match="printable ASCII"):
            asked.get(path)


def test_a_token_is_one_line(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        with Connection(str(tmp_path / "s"), "a\r\nX: y") as asked, pytest.raises(NoService) as caught:
            asked.get("/x")
    assert "Authorization" in str(caught.value)
    assert "X: y" not in str(caught.value)
