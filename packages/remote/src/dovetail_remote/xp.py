"""The namespace of this process's environment as a module, for tools that take the name of one.

``ARRAY_API_TESTS_MODULE=dovetail_remote.xp`` runs the array API standard's own suite over it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from dovetail_remote import Namespace, namespace


@cache
def _default_namespace() -> Namespace:
    return namespace()


def __getattr__(name: str) -> Any:
    if name.startswith("__") and not name.startswith("__array"):
        raise AttributeError(f"module 'dovetail_remote.xp' has no attribute {name!r}")
    return getattr(_default_namespace(), name)


def __dir__() -> list[str]:
    return sorted(vars(_default_namespace()))
