"""Where a device is, as text.

=============================  =======================================================================
``local:BACKEND``              in this process: ``local:numpy``, ``local:torch``, ``local:torch:cuda:0``,
                               ``local:cuda:0`` (CuPy), ``local:opencl``, ``local:opencl:TEXT``
``unix:PATH#N``                device N of the server that listens on this socket (default 0)
``tcp:HOST:PORT#N``            the same over the network; the token is in the file that
                               ``DOVETAIL_TOKEN_FILE`` names
=============================  =======================================================================
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

from dovetail.errors import InputError
from dovetail.records import dataclass

ADDRESSES = "DOVETAIL_DEVICE_ADDRESSES"
"""The environment variable with the addresses of a job's devices, separated by blanks."""
TOKEN_FILE = "DOVETAIL_TOKEN_FILE"
"""The environment variable that names the file with the token."""

_SERVER = re.compile(r"(unix|tcp):(.+?)(?:#([0-9]{1,4}))?")
_TOKEN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Address:
    """``kind`` is local, unix or tcp; ``place`` the backend, the path, or ``HOST:PORT``."""

    kind: str
    place: str
    device: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}" + (f"#{self.device}" if self.kind != "local" else "")

    @property
    def is_local(self) -> bool:
        """Whether the device is in this process."""
        return self.kind == "local"

    @property
    def host_port(self) -> tuple[str, int]:
        """Of a TCP address."""
        host, _, port = self.place.rpartition(":")
        return host.strip("[]"), int(port)

    def connect_to_server(self, timeout: float) -> socket.socket:
        """A connection to the server. Raises `OSError`."""
        if self.kind == "unix":
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(timeout)
            try:
                connection.connect(self.place)
            except OSError:
                connection.close()
                raise
            return connection
        return socket.create_connection(self.host_port, timeout)


def parse_address(text: str) -> Address:
    """The address that ``text`` means. Raises `InputError`."""
    kind, _, place = text.partition(":")
    if kind == "local" and place:
        return Address("local", place)
    match = _SERVER.fullmatch(text)
    if match is None:
        raise InputError(
            f"device {text!r}: found no address, expected local:BACKEND, unix:PATH#N or tcp:HOST:PORT#N"
        )
    kind, place, number = match.groups()
    if kind == "tcp":
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal() or not 0 <= int(port) < 65536:
            raise InputError(f"device {text!r}: found {place!r}, expected HOST:PORT")
    return Address(kind, place, int(number or 0))


def read_token(path: str | os.PathLike[str]) -> bytes:
    """The token in a file that only its owner may read. Raises `InputError`."""
    where = str(path)
    try:
        mode = os.stat(path).st_mode
        if mode & 0o077:
            raise InputError(
                f"found a file that others may use (mode {mode & 0o777:03o}), expected mode 600", where=where
            )
        with Path(path).open("rb") as file:
            token = file.read(_TOKEN_BYTES).strip()
    except OSError as error:
        raise InputError(
            f"found a file that cannot be read ({(error.strerror or str(error)).lower()}), "
            "expected the token of the device servers",
            where=where,
        ) from None
    if len(token) < 16:
        raise InputError(f"found a token of {len(token)} characters, expected at least 16", where=where)
    return token
