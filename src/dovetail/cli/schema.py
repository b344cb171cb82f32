"""``dovetail schema``: JSON Schemas of the files that people write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["schema"]


def schema(
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write one file for each schema.")
    ] = None,
) -> None:
    """Print the JSON Schemas of job and cluster files, or write them to a folder."""
    from dovetail.workloads.schemas import schemas

    found = schemas()
    if out is None:
        print(json.dumps(found, indent=2))
        return
    out.mkdir(parents=True, exist_ok=True)
    for name, data in found.items():
        (out / f"{name}.schema.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
