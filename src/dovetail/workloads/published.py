"""Workloads that papers publish, ``published:NAME?option=value&…``: names and options.

Each is a function that an entry point of the group ``dovetail.published`` names; those of the papers are in
`dovetail_lab.published`. Its keyword parameters, with their defaults, are its options.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dovetail.errors import InputError
from dovetail.extras import DISTRIBUTION
from dovetail.files.sentences import suggest_closest
from dovetail.files.specs import split_spec
from dovetail.files.units import LONGEST
from dovetail.model import Workload
from dovetail.plugins import registered_entries

Maker = Callable[..., Workload]


def published_names() -> list[str]:
    """Names of all published workloads that are installed."""
    return list(registered_entries("dovetail.published"))


def load_published(spec: str, *, seed: int | None = None) -> Workload:
    """The workload of ``published:NAME?option=value&…``; ``seed`` wins over the option of that name.

    Raises `InputError` for an unknown name or option, and for a value that the option does not take.
    """
    maker, options = _parse_spec(spec)
    if seed is not None and "seed" in _maker_options(maker):
        options["seed"] = seed
    try:
        return replace(maker(**options), name=spec)
    except InputError as error:
        raise InputError(str(error), where=spec) from None


def takes_seed(spec: str) -> bool:
    """Whether this published workload is drawn at random."""
    return "seed" in _maker_options(_parse_spec(spec)[0])


def describe_published() -> list[tuple[str, str, dict[str, Any]]]:
    """(name, one line, options with their defaults) of every published workload."""
    return [
        (name, (inspect.getdoc(maker) or "").partition("\n")[0], _maker_options(maker))
        for name, maker in (
            (name, entry.load()) for name, entry in registered_entries("dovetail.published").items()
        )
    ]


def _maker_options(maker: Maker) -> dict[str, Any]:
    return {name: p.default for name, p in inspect.signature(maker).parameters.items()}


def _parse_spec(spec: str) -> tuple[Maker, dict[str, Any]]:
    name, options = split_spec(spec)
    name = name.removeprefix("published:")
    known_names = registered_entries("dovetail.published")
    if not known_names:
        install = f"pip install '{DISTRIBUTION}[lab]'"
        raise InputError(
            f"found no published workload: the papers' tables are in dovetail-lab: {install}", where=spec
        )
    if name not in known_names:
        raise InputError(
            f"found the unknown published workload {name!r}{suggest_closest(name, list(known_names))}",
            where=spec,
        )
    maker: Maker = known_names[name].load()
    known = _maker_options(maker)
    given: dict[str, Any] = {}
    for key, text in options.items():
        if key not in known:
            raise InputError(
                f"found an unknown option {key!r}{suggest_closest(key, list(known))}", where=spec
            )
        given[key] = _parse_value(text, known[key], f"{spec}: {key}")
    return maker, given


def _parse_value(text: str, default: object, where: str) -> object:
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
