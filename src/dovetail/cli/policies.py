"""``dovetail policies``: what there is to choose from."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.padding import Padding
from rich.text import Text

from dovetail import plugins
from dovetail.cli import options as opt
from dovetail.report import tables

__all__ = ["policies"]

INDENT = 4


@opt.takes("policies")
def policies(as_json: bool) -> None:
    """List policies and planners with their paper and parameters."""
    found = plugins.policies()
    if as_json:
        print(json.dumps([asdict(info) for info in found], indent=2))
        return
    console = tables.console()
    for info in found:
        head = Text(info.name, style="bold")
        head.append(f" ({info.kind})" if info.kind != "policy" else "", style="not bold")
        console.print(head)
        lines = [Text(info.summary)]
        lines += [Text(f"?{name}={what}", style="dim") for name, what in info.parameters.items()]
        lines += [Text(info.paper, style="dim italic")] if info.paper else []
        for line in lines:  # what is too long for its line goes on below itself
            console.print(Padding(line, (0, 0, 0, INDENT), expand=False))
    obey = ", ".join(info.name for info in found if info.priorities)
    console.print(f"\nPriorities of jobs count in {obey}; the others ignore them.")
    console.print("Use one as NAME, NAME?option=value&…, or path/to/file.py:ClassName.")
