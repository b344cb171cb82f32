"""``dovetail policies``: what there is to choose from."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from dataclasses import asdict

from dovetail import plugins
from dovetail.cli import options as opt


@opt.takes_options("policies")
def policies(as_json: bool) -> None:
    """List policies and planners with their paper and parameters."""
    found = plugins.list_policies()
    if as_json:
        print(json.dumps([asdict(info) for info in found], indent=2))
        return
    styled = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = max(40, shutil.get_terminal_size().columns)
    for info in found:
        name = f"\033[1m{info.name}\033[0m" if styled else info.name
        print(name + (f" ({info.kind})" if info.kind != "policy" else ""))
        for line in (info.summary, *(f"?{key}={what}" for key, what in info.parameters.items()), info.paper):
            if line:  # what is too long for its line goes on below itself
                print(textwrap.fill(line, width, initial_indent="    ", subsequent_indent="    "))
    obey = ", ".join(info.name for info in found if info.priorities)
    print()
    print(textwrap.fill(f"Priorities of jobs count in {obey}; the others ignore them.", width))
    print("Use one as NAME, NAME?option=value&…, or path/to/file.py:ClassName.")
