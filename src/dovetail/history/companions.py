"""What ran beside a run, as JSON: for the database, and for files of runs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from dovetail.model import Companions

MOST = 64
"""Apps on a device, and on cores, that are kept of one run."""


def companions_form(beside: Companions) -> dict[str, Any]:
    """Plain values; what is not known is left out."""
    form: dict[str, Any] = {"device": dict(beside.device), "cores": dict(beside.cores)}
    form |= {"alone": beside.alone, "slowdown": beside.slowdown}
    return {name: value for name, value in form.items() if value not in ({}, None)}


def companions_of(form: object) -> Companions:
    """The inverse. Raises `ValueError` for what cannot be one."""
    if not isinstance(form, Mapping) or form.keys() - {"device", "cores", "alone", "slowdown"}:
        raise ValueError("expected a table of device, cores, alone and slowdown")
    spans = []
    for name in ("device", "cores"):
        part = form.get(name, {})
        if not isinstance(part, Mapping) or len(part) > MOST or not all(isinstance(app, str) for app in part):
            raise ValueError(f"{name}: expected seconds by app, at most {MOST}")
        spans.append(tuple((str(app), _check_number(part[app], name)) for app in part))
    known = [
        None if form.get(name) is None else _check_number(form[name], name) for name in ("alone", "slowdown")
    ]
    return Companions(spans[0], spans[1], *known)


def _check_number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{name}: expected a number of at least 0")
    return float(value)


def companions_text(beside: Companions | None) -> str | None:
    """For the database."""
    return None if beside is None else json.dumps(companions_form(beside), separators=(",", ":"))


def companions_from(text: str | None) -> Companions | None:
    """Inverse of `companions_text`. Raises `ValueError`."""
    return None if text is None else companions_of(json.loads(text))
