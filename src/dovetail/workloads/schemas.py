"""JSON Schemas of the files that people write, generated from the models that read them.

They hold for one field at a time; what concerns several entries (names given twice, placeholders, node
counts) is checked by the readers alone.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from dovetail.model.cluster_file import ClusterFile
from dovetail.model.remote_costs import remote_costs_file
from dovetail.workloads.jobfile_schema import JobFile

__all__ = ["schema_text", "schemas"]

_MODELS: dict[str, type[BaseModel]] = {
    "jobfile": JobFile,
    "clusterfile": ClusterFile,
    "remotecosts": remote_costs_file(),
}


def schemas() -> dict[str, dict[str, Any]]:
    """Schemas by name (``jobfile`` and so on); ``docs/reference/schemas`` keeps them."""
    return {
        name: {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}
        for name, model in _MODELS.items()
    }


def schema_text(schema: dict[str, Any]) -> str:
    """A schema as the text of its file."""
    return json.dumps(schema, indent=2) + "\n"
