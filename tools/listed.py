"""Write what `dovetail policies` says of our own policies, which it then need not load."""

from __future__ import annotations

import json
from dataclasses import asdict

from dovetail import plugins


def listed() -> str:
    """The text of the file."""
    own = {
        name
        for name, entry in plugins.registered_entries("dovetail.policies").items()
        if entry.value.startswith("dovetail.policies.")
    }
    found = {info.name: asdict(info) for info in plugins.list_policies(loading=True) if info.name in own}
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    plugins.LISTED.write_text(listed())
