"""Names and options of the published workloads."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dovetail.errors import InputError
from dovetail.files.fields import LONGEST
from dovetail.files.sentences import closest
from dovetail.files.specs import split_spec
from dovetail.model import Workload
from dovetail.workloads.published.gregg import gregg_identical, gregg_table2
from dovetail.workloads.published.markthub import markthub
from dovetail.workloads.published.ravi_multi import ravi_multi, ravi_multi_table
from dovetail.workloads.published.ravi_single import ravi_single, ravi_single_table

__all__ = ["PUBLISHED", "describe_published", "load_published", "takes_seed"]

Maker = Callable[..., Workload]

PUBLISHED: Mapping[str, Maker] = {
    "gregg-table2": gregg_table2,
    "gregg-identical": gregg_identical,
    "markthub": markthub,
    "ravi-single": ravi_single,
    "ravi-single-table": ravi_single_table,
    "ravi-multi": ravi_multi,
    "ravi-multi-table": ravi_multi_table,
}
"""Makers by name; the keyword parameters of a maker, with their defaults, are its options."""


def load_published(spec: str, *, seed: int | None = None) -> Workload:
    """The workload of ``published:NAME?option=value&…``; ``seed`` wins over the option of that name.

    Raises `InputError` for an unknown name or option, and for a value that the option does not take.
    """
    maker, options = _parse(spec)
    if seed is not None and "seed" in _options(maker):
        options["seed"] = seed
    try:
        return replace(maker(**options), name=spec)
    except InputError as error:
        raise InputError(str(error), where=spec) from None


def takes_seed(spec: str) -> bool:
    """Whether this published workload is drawn at random."""
    return "seed" in _options(_parse(spec)[0])


def describe_published() -> list[tuple[str, str, dict[str, Any]]]:
    """(name, one line, options with their defaults) of every published workload."""
    return [
        (name, (inspect.getdoc(maker) or "").partition("\n")[0], _options(maker))
        for name, maker in PUBLISHED.items()
    ]


def _options(maker: Maker) -> dict[str, Any]:
    return {name: p.default for name, p in inspect.signature(maker).parameters.items()}


def _parse(spec: str) -> tuple[Maker, dict[str, Any]]:
    name, options = split_spec(spec)
    name = name.removeprefix("published:")
    if name not in PUBLISHED:
        raise InputError(
            f"found the unknown published workload {name!r}{closest(name, list(PUBLISHED))}", where=spec
        )
    maker = PUBLISHED[name]
    known = _options(maker)
    given: dict[str, Any] = {}
    for key, text in options.items():
        if key not in known:
            raise InputError(f"found an unknown option {key!r}{closest(key, list(known))}", where=spec)
        given[key] = _value(text, known[key], f"{spec}: {key}")
    return maker, given


def _value(text: str, default: object, where: str) -> object:
    """The text as a value of the default's type; numbers are finite and not negative."""
    if isinstance(default, int):
        if text.isascii() and text.isdigit() and len(text) <= 18:
            return int(text)
        raise InputError(f"found {text!r}, expected a whole number of at least 0", where=where)
    if isinstance(default, float):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value <= LONGEST:  # false for nan
            raise InputError(f"found {text!r}, expected a number of 0 to {LONGEST:g}", where=where)
        return value
    return text
