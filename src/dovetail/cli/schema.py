"""``dovetail schema``: JSON Schemas of the files that people write."""

from __future__ import annotations

import json
from pathlib import Path

from dovetail.cli import options as opt

__all__ = ["schema"]


@opt.takes("schema")
def schema(out: Path | None) -> None:
    """Print the JSON Schemas of the files that people write, or write them to a folder."""
    from dovetail.cli.output import make_folder, write_text
    from dovetail.workloads.schemas import schemas

    found = schemas()
    if out is None:
        print(json.dumps(found, indent=2))
        return
    make_folder(out)
    for name, data in found.items():
        write_text(out / f"{name}.schema.json", json.dumps(data, indent=2) + "\n")
