"""The description of the API is whole: every reference in it leads somewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from dovetail.service.core import Service
from dovetail.service.gate import Sessions
from dovetail.service.routes import application
from dovetail.service.tokens import Tokens


def references(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        if isinstance(data.get("$ref"), str):
            yield data["$ref"]
        for value in data.values():
            yield from references(value)
    elif isinstance(data, list):
        for value in data:
            yield from references(value)


def test_every_reference_leads_somewhere(tmp_path: Any) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    app = application(cast("Service", None), Sessions(tokens), tokens)
    described = app.openapi()
    found = set(references(described))
    assert "#/components/schemas/JobForm" in found
    for reference in found:
        place: Any = described
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
    assert set(described["paths"]) >= {"/api/v1/jobs", "/api/v1/events", "/metrics"}
