"""A value that is no default, for any option of a job of a simple kind: what tests of all options give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.spec.option import Option

BY_KIND: Mapping[str, Any] = {
    "whole": 2,
    "within": 2,
    "real": 0.25,
    "duration": "1h",
    "size or auto": "1GB",
    "cpus": 2,
    "devices": 1,
    "retry memory": "no",
    "name": "word",
    "text": "word",
    "kinds": "cpu",
    "depends": "afterok:1",
    "inputs": "n=1",
    "options": "-x",
    "words": "word",
    "flag": True,
    "mail types": "END,FAIL",
    "moment": "2030-01-20T12:34",
}


def value_of(option: Option) -> Any:
    """As JSON or TOML has it."""
    assert option.kind is not None
    return BY_KIND[option.kind.name]
