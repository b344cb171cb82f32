"""``dovetail device-server``: lend this node's devices to programs elsewhere."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

from rich.table import Table

from dovetail.cli import options as opt
from dovetail.errors import InputError
from dovetail.files.streams import print_note
from dovetail.history.sqlite import default_history_path
from dovetail.report import tables


def default_socket() -> str:
    """Where the server listens by default: in the runtime folder, else beside the history."""
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    beside = Path(folder) / "dovetail" if os.path.isabs(folder) else default_history_path().parent
    return str(beside / "devices.sock")


@opt.takes_options("device-server")
def device_server(
    device: list[str] | None,
    socket: Path | None,
    listen: str | None,
    token_file: Path | None,
    memory: int,
    quota: int,
    clients: int,
    status: bool,
    as_json: bool,
) -> int:
    """Lend this node's devices: programs on other nodes, or here, compute on them through an array namespace.

    Runs until Ctrl-C or SIGTERM. Each device has a process of its own, each client its own arrays and quota;
    all of a client's memory is free when it ends. The unix socket is for this user alone; on the network, a
    client has to know the token. Once the devices are open, a line with the addresses is printed.
    """
    path = _path_of(socket, listen)
    if status:
        _show_status(path if listen is None else None, listen, token_file, as_json=as_json)
        return 0
    from dovetail_remote.address import read_token
    from dovetail_remote.server import DeviceServer, LendingLimits

    lent = LendingLimits(tuple(device or _find_devices()), memory, quota, clients)
    token = read_token(token_file) if token_file is not None else None
    if listen is not None and token is None:
        raise InputError("is missing, expected one with --listen", where="--token-file")
    at = _host_port(listen) if listen is not None else None

    def report_ready(addresses: list[str], devices: list[dict[str, Any]]) -> None:
        if as_json:
            print(json.dumps({"addresses": addresses, "devices": devices}), flush=True)
            return
        for found in devices:
            size = f"{found['memory'] / 1e9:.1f} GB"
            print(f"device {found['number']}: {found['library']} on {found['name']}, {size}")
        print(f"listening on {', '.join(addresses)}", flush=True)

    async def serve_devices() -> int:
        return await DeviceServer(lent, path=path, listen=at, token=token, report=print_note).run(
            report_ready
        )

    ended_by = asyncio.run(serve_devices())
    return 130 if ended_by == signal.SIGINT else 0


def _path_of(socket: Path | None, listen: str | None) -> str | None:
    """Of the unix socket; none where only the network is listened to. Raises `InputError`."""
    if str(socket) != "-":
        return str(socket) if socket is not None else default_socket()
    if listen is None:
        raise InputError("found -, expected a path where there is no --listen", where="--socket")
    return None


def _find_devices() -> list[str]:
    """The CUDA devices of this node. Raises `InputError` where there is none."""
    from dovetail.local.discovery import take_inventory

    found = [d for d in take_inventory().devices if d.probe == "nvidia" and d.used]
    if not found:
        raise InputError(
            "found no CUDA device here, expected what to lend, e.g. --device opencl or --device numpy",
            where="--device",
        )
    return [f"cuda:{number}" for number in range(len(found))]


def _host_port(text: str) -> tuple[str, int]:
    from dovetail_remote.address import parse_address

    try:
        return parse_address(f"tcp:{text}").host_port
    except InputError:
        raise InputError(f"found {text!r}, expected HOST:PORT", where="--listen") from None


def _show_status(path: str | None, listen: str | None, token_file: Path | None, *, as_json: bool) -> None:
    from dovetail_remote.address import parse_address, read_token
    from dovetail_remote.connection import connect_to_server

    address = parse_address(f"unix:{path}" if path is not None else f"tcp:{listen}")
    token = read_token(token_file) if token_file is not None else None
    channel, reply = connect_to_server(address, token, wants={"status": True})
    channel.close()
    devices = reply["devices"]
    if as_json:
        print(json.dumps({"devices": devices}, indent=1))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("DEVICE", "LIBRARY", "MODEL", "MEMORY", "IN USE", "CLIENTS"):
        table.add_column(name, overflow="fold")
    for found in devices:
        if "state" in found:
            table.add_row(str(found["number"]), found["device"], found["state"], "", "", "")
            continue
        memory, used = f"{found['memory'] / 1e9:.1f} GB", f"{found['bytes'] / 1e9:.3f} GB"
        clients = ", ".join(f"{c['job'] or 'pid'} {c['pid']}".strip() for c in found["clients"]) or "none"
        table.add_row(str(found["number"]), found["library"], found["name"], memory, used, clients)
    tables.make_console().print(table)
