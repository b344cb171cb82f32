"""``dovetail policies``: what there is to choose from."""

from __future__ import annotations

import json
from dataclasses import asdict

from dovetail import plugins
from dovetail.cli.options import Json
from dovetail.report import tables

__all__ = ["policies"]


def policies(as_json: Json = False) -> None:
    """List policies and planners with their paper and parameters."""
    found = plugins.policies()
    if as_json:
        print(json.dumps([asdict(info) for info in found], indent=2))
        return
    console = tables.console()
    for info in found:
        kind = "" if info.kind == "policy" else f" ({info.kind})"
        console.print(
            f"[bold]{info.name}[/bold]{kind}" + (f"  [dim]{info.paper}[/dim]" if info.paper else "")
        )
        console.print(f"    {info.summary}")
        for name, what in info.parameters.items():
            console.print(f"    ?{name}=  {what}", style="dim", markup=False)
    obey = ", ".join(info.name for info in found if info.priorities)
    console.print(f"\nPriorities of jobs count in {obey}; the others ignore them.")
    console.print("Use one as NAME, NAME?option=value&…, or path/to/file.py:ClassName.")
