"""``dovetail bench-remote``: what a borrowed device costs here, as constants for simulations."""

from __future__ import annotations

import datetime as dt
import json
import platform
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from dovetail.cli import options as opt
from dovetail.errors import InputError
from dovetail.files.streams import print_note
from dovetail.report import tables

PAPER = 5.182e-05
"""Seconds of a call over rCUDA (Markthub 2015, section 2.2, and the network's latency of Table 3)."""


def bench_remote(
    server: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="A device server that runs, e.g. tcp:n1:7321#0. Default: one of our own."
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="The device here, and of a server of our own.")
    ] = "numpy",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the constants of the rate model (TOML).")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The token of a server on the network.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often everything is measured.")] = 5,
    size: Annotated[
        int, typer.Option(min=1_000_000, max=250_000_000, help="Bytes of the large arrays.")
    ] = 100_000_000,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Measure calls, bandwidth and migrations between this process and a device server, half a minute or so.

    The medians make the constants of Equations 1 to 12 of Markthub 2015. With --out they are written to a
    file that simulations of borrowed GPUs read.
    """
    from contextlib import nullcontext

    from dovetail.files.writing import write_text
    from dovetail.model.remote_costs import RemoteCosts, remote_costs_text
    from dovetail_lab.remote_costs import as_dict, measure_server, own_server
    from dovetail_remote.address import read_token

    if out is not None and not out.absolute().parent.is_dir():
        raise InputError("found no folder for it, expected one that is there", where=str(out))
    token = read_token(token_file) if token_file is not None else None
    with own_server(device) if server is None else nullcontext((server, 0)) as (address, memory):
        found = measure_server(
            address,
            f"local:{device}",
            rounds=rounds,
            size=size,
            token=token,
            report=(lambda what: None) if quiet or as_json else print_note,
        )
    found.memory = memory or None
    today = dt.date.today().isoformat()
    transport = "a unix socket" if server is None else server.partition("#")[0]
    where = f"{today} on {platform.node()}: {device}, over {transport}"
    values = found.rate_constants()
    costs = RemoteCosts(**values, sources=dict.fromkeys(values, f"measured {where}"))
    if out is not None:
        write_text(out, remote_costs_text(costs, where))
    if as_json:
        constants = {
            c.name: {"value": c.value, "unit": c.unit, "source": c.source}
            for c in costs.described_constants()
        }
        print(json.dumps({"measured": as_dict(found), "constants": constants}, indent=1))
        return
    console = tables.make_console()
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, justify in (("what", "left"), ("here", "right"), ("Markthub 2015", "right")):
        made.add_column(name, justify=justify)  # type: ignore[arg-type]
    pause = found.pauses[size]
    for what, here, paper in (
        ("call in this process", f"{found.local_call * 1e6:.2f} us", "10 us"),
        ("call sent ahead to the server", f"{found.remote_call * 1e6:.2f} us", f"{PAPER * 1e6:.2f} us"),
        ("  CPU time of this process", f"{found.remote_call_cpu * 1e6:.2f} us", ""),
        ("  while it is recorded", f"{found.recorded_call * 1e6:.2f} us", "0.28 us more"),
        ("question and answer", f"{found.round_trip * 1e6:.1f} us", ""),
        ("the connection itself", f"{found.raw_bandwidth / 1e9:.2f} GB/s", "7 GB/s"),
        ("arrays to the server", _rate_text(found.put, found.shares["put"]), "6.80 GB/s"),
        ("  the first time", _rate_text(found.put_first, found.shares["put_first"]), ""),
        ("arrays from the server", _rate_text(found.get, found.shares["get"]), "6.80 GB/s"),
        ("  the first time", _rate_text(found.get_first, found.shares["get_first"]), ""),
        (f"migration home of {size / 1e6:.0f} MB", f"{pause:.3f} s", f"{_paper_pause(size):.3f} s"),
        ("  of nothing", f"{found.pauses[0]:.4f} s", "1.243 s"),
        ("  and back", f"{found.returns[size]:.3f} s", "never"),
        ("  opening the target before", f"{found.prepared:.4f} s", ""),
        ("the server's process", f"{found.memory / 1e6:.0f} MB" if found.memory else "-", ""),
    ):
        made.add_row(what, here, paper)
    console.print(made)
    console.print(Text(f"medians of {rounds} rounds, {where}", overflow="fold"))
    if out is not None:
        console.print(Text(f"constants: {out}", overflow="fold"))


def _rate_text(rate: float, share: float) -> str:
    return f"{rate / 1e9:.2f} GB/s, {share:.2f} of it"


def _paper_pause(size: int) -> float:
    """Equations 5 to 7 for one region, at the bandwidth of Table 3."""
    from dovetail.model.remote_costs import RemoteCosts

    paper = RemoteCosts()
    copy = size / min(paper.copy_bandwidth_per_byte * size, paper.copy_bandwidth)
    transfer = paper.remote_overhead * size / paper.network_bandwidth
    return paper.replay_constant + copy + paper.sync_per_byte * size + transfer
