"""``dovetail schema``: JSON Schemas of the files that people write, generated from the models that read them.

They hold for one field at a time; what concerns several entries (names given twice, placeholders, node
counts) is checked by the readers alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dovetail.cli import options as opt


def all_schemas() -> dict[str, dict[str, Any]]:
    """Schemas by name (``jobfile`` and so on); ``docs/reference/schemas`` keeps them."""
    from dovetail.model.conditions_file import ClusterFile
    from dovetail.model.remote_costs import remote_costs_file
    from dovetail.workloads.jobfile_schema import JobFile

    models = {"jobfile": JobFile, "clusterfile": ClusterFile, "remotecosts": remote_costs_file()}
    return {
        name: {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}
        for name, model in models.items()
    }


def schema_text(schema: dict[str, Any]) -> str:
    """A schema as the text of its file."""
    return json.dumps(schema, indent=2) + "\n"


@opt.takes_options("schema")
def schema(out: Path | None) -> None:
    """Print the JSON Schemas of the files that people write, or write them to a folder."""
    from dovetail.files.writing import make_folder, write_text

    found = all_schemas()
    if out is None:
        print(schema_text(found), end="")
        return
    make_folder(out)
    for name, data in found.items():
        write_text(out / f"{name}.schema.json", schema_text(data))
