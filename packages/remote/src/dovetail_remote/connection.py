"""A client's side of the first words with a device server."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from typing import Any

import orjson

from dovetail.errors import DeviceError, DovetailError
from dovetail.process.channel import NONCE, Handshake
from dovetail.records import dataclass
from dovetail_remote.address import TOKEN_FILE, Address, parse_address, read_token
from dovetail_remote.standard import DTYPES
from dovetail_remote.wire import MAGIC, Channel, Kind, ProtocolError, set_options

CONNECT_TIMEOUT = 20.0
"""Seconds until a server must have answered; it may be starting."""
SILENCE = 5.0
"""Seconds without a byte of a server until the client checks whether it is alive."""
SIGN_OF_LIFE = 10.0
"""Seconds that it has to answer that check."""


@dataclass(frozen=True, slots=True)
class ServerHello:
    """A server's description of a device."""

    library: str
    device_name: str
    dtypes: frozenset[str]
    default_dtypes: dict[str, str]
    quota: int


def token_from_environment() -> bytes | None:
    """The token of the file that ``DOVETAIL_TOKEN_FILE`` names, if it does. Raises `InputError`."""
    path = os.environ.get(TOKEN_FILE)
    return read_token(path) if path else None


def connect_to_server(
    address: Address,
    token: bytes | None = None,
    *,
    wants: dict[str, Any] | None = None,
    timeout: float = CONNECT_TIMEOUT,
) -> tuple[Channel, Any]:
    """A channel to a server that has let us in, and the content of its WELCOME.

    ``wants`` is put into the HELLO: a device for this client (the default), or ``{"status": true}``.
    ``timeout`` is how long to wait for each answer, in seconds.

    Raises:
        DeviceError: there is no server, or it refuses.
        InputError: the token is needed and cannot be read.
    """
    if token is None:
        token = token_from_environment()
    if address.kind == "tcp" and token is None:
        raise DeviceError(f"{address}: a server on the network needs a token; set {TOKEN_FILE}")
    try:
        connection = address.connect_to_server(timeout)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DeviceError(f"{address}: no device server answers there ({reason})") from None
    channel = Channel(connection)
    with ExitStack() as undo:
        undo.callback(channel.close)
        try:
            reply = _let_in(channel, connection, address, token, wants)
        except (OSError, ProtocolError) as error:
            raise DeviceError(f"{address}: what answers there is no device server ({error})") from None
        undo.pop_all()
    return channel, reply


def _let_in(
    channel: Channel,
    connection: socket.socket,
    address: Address,
    token: bytes | None,
    wants: dict[str, Any] | None,
) -> Any:
    """The exchange before the first call; returns the content of the server's WELCOME.

    Raises:
        DeviceError: it refuses, or does not know the token.
        OSError, ProtocolError: it does not speak as a device server does.
    """
    set_options(connection)
    greeting = memoryview(bytearray(len(MAGIC) + NONCE))
    channel.receive_into(greeting)
    if greeting[: len(MAGIC)] != MAGIC:
        raise ProtocolError("a greeting that is none")
    theirs, handshake = bytes(greeting[len(MAGIC) :]), Handshake(token, "client")
    hello: dict[str, Any] = {"nonce": handshake.nonce.hex(), "pid": os.getpid(), "device": address.device}
    hello |= {"job": os.environ.get("DOVETAIL_JOB", "")[:200], **(wants or {})}
    if token is not None:
        hello["proof"] = handshake.make_proof(theirs)
    channel.send_frame(Kind.HELLO, orjson.dumps(hello))
    kind, reply, _ = channel.receive_frame()
    if kind == Kind.REFUSED:
        raise DeviceError(f"{address}: the device server refuses: {reply}")
    if kind != Kind.WELCOME or not isinstance(reply, dict):
        raise ProtocolError(f"a frame {kind} for a welcome")
    if address.kind == "tcp" and not handshake.is_proven("server", theirs, reply.get("proof")):
        raise DeviceError(f"{address}: who answers there does not know the token")
    connection.settimeout(None)
    return reply


class Watch:
    """Distinguishes a server that computes from one that is gone, while a client waits for it.

    A process that computes for an hour sends nothing meanwhile, so the server is probed instead, which is
    another process and never computes, over a connection of its own. It looks whether the kernel still lets
    the device's process run. A server that does not answer itself, or whose device has been stopped twice in
    a row, is lost.
    """

    def __init__(self, address: Address, token: bytes | None) -> None:
        self._address = address
        self._token = token
        self._stopped = False

    def check_silence(self) -> None:
        """Nothing has come for a while. Raises `TimeoutError` where nothing will."""
        try:
            channel, reply = connect_to_server(
                self._address, self._token, wants={"status": True}, timeout=SIGN_OF_LIFE
            )
            channel.close()
            stopped = reply["devices"][self._address.device].get("stopped") is True
        except (DovetailError, LookupError, TypeError, AttributeError) as error:
            raise TimeoutError(f"it does not answer any more: {error}") from None
        if stopped and self._stopped:
            raise TimeoutError("the process of its device is stopped")
        self._stopped = stopped


def watch_server(channel: Channel, address: str, token: bytes | None) -> None:
    """From now on a wait for this server ends when the server is gone."""
    channel.watch(SILENCE, Watch(parse_address(address), token).check_silence)


def parse_welcome(address: Address, welcome: Any) -> ServerHello:
    """The server's description of its device, checked. Raises `DeviceError`."""
    try:
        defaults = {str(key): str(value) for key, value in welcome["defaults"].items()}
        dtypes = frozenset(str(name) for name in welcome["dtypes"]) & frozenset(DTYPES)
        return ServerHello(
            str(welcome["library"]), str(welcome["name"]), dtypes, defaults, int(welcome["quota"])
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DeviceError(f"{address}: the device server sent an unknown description ({error!r})") from None
