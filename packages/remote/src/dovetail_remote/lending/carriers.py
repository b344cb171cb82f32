"""Carriers: programs that bring a GPU's own interface over the network, so that any CUDA program can borrow.

A carrier is a server beside a GPU, and a client library in the place of CUDA's. Dovetail neither brings one
along nor looks into it: a `Carrier` defines how the server of one GPU is started, and which variables bring a
borrowing job to the servers of its GPUs. `LUPINE` is built in; a site's own is a few lines of a file::

    name = "rcuda"
    server = ["rCUDAd", "-i", "-p", "{port}"]
    server_env = { CUDA_VISIBLE_DEVICES = "{device}" }
    job_env = { RCUDA_DEVICE_COUNT = "{count}", "RCUDA_DEVICE_{n}" = "{host}:{port}" }

Carriers move nothing: a job that has borrowed through one stays where it is to its end.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

from dovetail.errors import InputError
from dovetail.model import EMPTY
from dovetail.records import dataclass

MOST_BYTES = 1 << 16
"""Of a carrier's file."""
_SERVER = ("host", "port", "device")
_JOB = ("host", "port", "n", "count", "servers", "alone")
_LISTENING = "0A"
"""The state of a socket that listens, in /proc/net/tcp."""


class Endpoint(NamedTuple):
    """Where the server of a GPU listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Carrier:
    """How one carries: templates of a command and of variables.

    In ``server`` and ``server_env`` stand ``{port}``, ``{host}`` (where it is to listen) and ``{device}``,
    the number of its GPU on that node. In ``job_env``: ``{servers}``, HOST:PORT of each borrowed GPU, apart
    by commas; ``{count}``, how many these are; ``{alone}``, 1 for a job without a GPU of its own node, or 0.
    An entry with ``{n}``, ``{host}`` or ``{port}`` is made for each of them, ``{n}`` from 0 on.
    ``libraries`` is the variable of Dovetail's environment that names the folder of the client's libraries.
    """

    name: str
    server: tuple[str, ...]
    server_env: Mapping[str, str] = field(default=EMPTY)
    job_env: Mapping[str, str] = field(default=EMPTY)
    libraries: str = ""

    def server_command(self, at: Endpoint, device: int | str) -> list[str]:
        """The command of the server of a GPU."""
        return [_filled(word, host=at.host, port=at.port, device=device) for word in self.server]

    def server_environment(self, at: Endpoint, device: int | str) -> dict[str, str]:
        """The variables that it has beside Dovetail's own."""
        return {
            name: _filled(value, host=at.host, port=at.port, device=device)
            for name, value in self.server_env.items()
        }

    def job_environment(
        self, borrowed: Sequence[Endpoint], own: int, environ: Mapping[str, str]
    ) -> dict[str, str]:
        """The variables of a job that has borrowed these GPUs, and has ``own`` of its node beside them."""
        shared = {"servers": ",".join(map(str, borrowed)), "count": len(borrowed), "alone": int(not own)}
        found: dict[str, str] = {}
        for name, value in self.job_env.items():
            each = any(f"{{{word}}}" in name + value for word in ("n", "host", "port"))
            for n, at in enumerate(borrowed if each else borrowed[:1]):
                words = {**shared, "n": n, "host": at.host, "port": at.port}
                found[_filled(name, **words)] = _filled(value, **words)
        folder = environ.get(self.libraries, "") if self.libraries else ""
        if folder:
            found["LD_LIBRARY_PATH"] = ":".join(filter(None, (folder, environ.get("LD_LIBRARY_PATH", ""))))
        return found


LUPINE = Carrier(
    "lupine",
    ("lupine_driver_server",),
    {"LUPINE_PORT": "{port}", "CUDA_VISIBLE_DEVICES": "{device}", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    {"LUPINE_SERVER": "{servers}", "LUPINE_DISABLE_LOCAL": "{alone}"},
    "LUPINE_LIBDIR",
)
"""Lupine (formerly scuda): CUDA's driver API and NVML. Its server listens everywhere, without a secret."""
KNOWN = {LUPINE.name: LUPINE}


def load_carrier(text: str) -> Carrier | None:
    """The carrier of this name, or of this file (``*.toml``); ``None`` for what is neither, as ``numpy``.

    Raises `InputError` for a file that describes none.
    """
    if text in KNOWN:
        return KNOWN[text]
    return read_carrier(Path(text)) if text.endswith(".toml") else None


def read_carrier(path: Path) -> Carrier:
    """A carrier from its file. Raises `InputError`, which names file and field."""
    where = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise InputError(f"has more than {MOST_BYTES} bytes, expected a carrier", where=where)
        found: dict[str, Any] = tomllib.loads(data.decode())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=where) from None
    except ValueError as error:  # no UTF-8, or no TOML
        raise InputError(f"is no TOML: {error}", where=where) from None
    unknown = sorted(found.keys() - {"name", "server", "server_env", "job_env", "libraries"})
    if unknown:
        expected = "name, server, server_env, job_env, libraries"
        raise InputError(f"found {unknown[0]!r}, expected {expected}", where=where)
    server = found.get("server")
    if not isinstance(server, list) or not server or not all(isinstance(w, str) and w for w in server):
        raise InputError(f"server: found {server!r:.60}, expected a list of words", where=where)
    for key in ("name", "libraries"):
        if not isinstance(found.get(key, ""), str):
            raise InputError(f"{key}: found {found[key]!r:.60}, expected a text", where=where)
    tables = {key: _table(found, key, where) for key in ("server_env", "job_env")}
    if not any("{port}" in word for word in (*server, *tables["server_env"].values())):
        raise InputError("found no {port} in server or server_env, expected where it listens", where=where)
    for key, words, known in (
        ("server", server, _SERVER),
        ("server_env", [*tables["server_env"].values()], _SERVER),
        ("job_env", [*tables["job_env"], *tables["job_env"].values()], _JOB),
    ):
        for word in words:
            _check(word, known, f"{key}: ", where)
    return Carrier(
        found.get("name") or path.stem, tuple(server), **tables, libraries=found.get("libraries", "")
    )


def _table(found: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
    table = found.get(key, {})
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise InputError(f"{key}: found {table!r:.60}, expected names and texts", where=where)
    return table


def _check(word: str, known: Sequence[str], key: str, where: str) -> None:
    """A template has known words only. Raises `InputError`."""
    if not set(re.findall(r"{([^{}]*)}", word)) <= set(known):
        names = ", ".join(f"{{{name}}}" for name in known)
        raise InputError(f"{key}found {word!r:.60}, expected of {names} only", where=where) from None


def _filled(word: str, **values: object) -> str:
    for name, value in values.items():  # no format(): a value of an environment may have braces
        word = word.replace(f"{{{name}}}", str(value))
    return word


# --- who could reach a server ----------------------------------------------------------------------------


def exposed_address(port: int) -> str:
    """The first public address of this machine on which the port listens; empty where there is none.

    A carrier's server may know no secret, so that all who reach it have its GPU. Read from /proc/net.
    """
    everywhere = False
    for address, _ in listening_sockets(port):
        if address.is_unspecified:
            everywhere = True
        elif is_public(address):
            return str(address)
    if everywhere:
        return next((str(address) for address in own_addresses() if is_public(address)), "")
    return ""


def foreign_listener(port: int) -> int | None:
    """The user id of another account of this machine that listens on the port, if one does.

    Between the choice of a port and the start of its server another account may have taken it, and would be
    handed what the job computes.
    """
    return next((uid for _, uid in listening_sockets(port) if uid != os.getuid()), None)


def listening_sockets(port: int) -> Iterator[tuple[Address, int]]:
    """Address and user id of each socket of this machine that listens on the port. Read from /proc/net."""
    for name, width in (("tcp", 4), ("tcp6", 16)):
        for line in _lines(f"/proc/net/{name}")[1:]:
            fields = line.split()
            place, _, number = fields[1].rpartition(":")
            if fields[3] == _LISTENING and int(number, 16) == port:
                yield _address(bytes.fromhex(place), width), int(fields[7])


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_public(address: Address) -> bool:
    """Whether hosts outside of this machine and its private network may reach an address."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return not (address.is_private or address.is_loopback or address.is_link_local)


def own_addresses() -> list[Address]:
    """The addresses of this machine."""
    found: list[Address] = []
    last = ""
    for line in _lines("/proc/net/fib_trie"):
        words = line.split()
        if words[:1] in (["|--"], ["+--"]):
            last = words[1].partition("/")[0]
        elif words[:3] == ["/32", "host", "LOCAL"]:
            found.append(ipaddress.IPv4Address(last))
    found += [ipaddress.IPv6Address(int(line.split()[0], 16)) for line in _lines("/proc/net/if_inet6")]
    return list(dict.fromkeys(found))


def _address(raw: bytes, width: int) -> Address:
    """An address as the kernel shows it: words of four bytes, each in the machine's own order."""
    words = [raw[i : i + 4][:: -1 if socket.htons(1) != 1 else 1] for i in range(0, width, 4)]
    return ipaddress.ip_address(b"".join(words))


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().splitlines()
    except OSError:  # a kernel without IPv6
        return []


def free_port(host: str) -> int:
    """A port on which nothing listens at this moment."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.bind((host, 0))
        port: int = one.getsockname()[1]
        return port


def find_program(name: str, environ: Mapping[str, str]) -> bool:
    """Whether a server's program is there: a path, or a name in PATH."""
    if os.sep in name:
        return os.access(name, os.X_OK)
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    return any(os.access(os.path.join(folder, name), os.X_OK) for folder in folders)
