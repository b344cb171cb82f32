"""The former name of `dovetail_remote`, for programs that import ``dovetail.remote``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dovetail.errors import InputError


def __getattr__(name: str) -> Any:
    # By name: nothing of the core imports a distribution that stands beside it.
    try:
        return getattr(import_module("dovetail_remote"), name)
    except ModuleNotFoundError as error:
        if error.name != "dovetail_remote":
            raise
        raise InputError(
            "dovetail.remote is in dovetail-remote, which is not installed: "
            "pip install 'dovetail-scheduler[remote]'"
        ) from error
