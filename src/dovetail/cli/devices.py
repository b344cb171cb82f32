"""``dovetail devices``: what this machine has, and why something was not found."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from dovetail.cli.options import Json
from dovetail.executors.discovery import Inventory, inventory

__all__ = ["devices"]


def devices(
    as_json: Json = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that drivers may take.")] = 20.0,
) -> None:
    """Show the cores, GPUs and OpenCL devices of this machine, and why something was not found."""
    found = inventory(timeout)
    if as_json:
        print(json.dumps(found.as_dict(), indent=2))
    else:
        Console(highlight=False, markup=False, emoji=False, soft_wrap=True).print(_table(found))
        for line in _notes(found):
            print(line)


def _table(found: Inventory) -> Table:
    cores = found.cores
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("KIND", "MODEL", "COUNT OR NUMBER", "MEMORY", "SCHEDULED", "DRIVER"):
        table.add_column(name, overflow="fold")
    usable = f"{len(cores.usable)} of {cores.machine} cores"
    table.add_row("cpu", cores.model or "?", usable, _gigabytes(cores.memory), "yes", "")
    for device in found.devices:
        scheduled = "yes" if device.used else "no"
        number = str(device.number)
        table.add_row(device.kind, device.model, number, _gigabytes(device.memory), scheduled, device.driver)
    return table


def _notes(found: Inventory) -> list[str]:
    lines = [f"cores that may be used: {_ranges(found.cores.usable)}"]
    if found.cores.quota is not None:
        lines.append(f"a cgroup limits CPU time to that of {found.cores.quota:g} cores")
    lines += [f"{d.kind} {d.number} ({d.model}): {d.note}" for d in found.devices if d.note]
    lines += [f"{m.probe}: nothing found: {m.reason}" for m in found.missing]
    return lines


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size else "?"


def _ranges(cores: tuple[int, ...]) -> str:
    """``0-3,8`` for (0, 1, 2, 3, 8)."""
    parts: list[str] = []
    first = 0
    for i, core in enumerate(cores):
        if i + 1 == len(cores) or cores[i + 1] != core + 1:
            parts.append(str(core) if first == i else f"{cores[first]}-{core}")
            first = i + 1
    return ",".join(parts)
