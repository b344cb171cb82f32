"""How long a job will take: models that predict run times from history, or know them.

A part is imported when one of its names is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.runtimes.perfect import PerfectModel
    from dovetail.runtimes.registry import DEFAULT_MODEL, MODELS, make_model

__all__ = ["DEFAULT_MODEL", "MODELS", "PerfectModel", "make_model"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        home = "perfect" if name == "PerfectModel" else "registry"
        return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
