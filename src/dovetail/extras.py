"""What is installed only on request: which extra brings which module, and the message without it.

A module that imports one of them does so where it is used, so that everything else works without. The
names are those of ``[project.optional-dependencies]`` in ``pyproject.toml``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

from dovetail.errors import InputError

DISTRIBUTION = "dovetail-scheduler"
"""What `pip install` takes."""

EXTRAS = {
    "array_api_compat": "remote",
    "matplotlib": "plots",
    "mpi4py": "mpi",
    "networkx": "exact",
    "ortools": "exact",
    "pandas": "pandas",
    "pyopencl": "opencl",
    "ray": "ray",
    "scipy": "statistics",
}
"""The extra that brings a module."""


# Written down here, since what is not installed cannot be looked up.
DISTRIBUTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "slurm": {
        "dovetail.executors": ("slurm", "slurm-queue"),
        "dovetail.accounting": ("slurm",),
        "dovetail.crews": ("slurm",),
        "dovetail.commands": ("slurm-shims",),
    },
    "ray": {"dovetail.executors": ("ray",), "dovetail.crews": ("ray",)},
    "remote": {
        "dovetail.executors": ("lent",),
        "dovetail.policies": ("rq", "mrq", "rq-backfill", "mrq-backfill"),
        "dovetail.rates": ("remote_gpu",),
        "dovetail.commands": ("device-server",),
    },
    "integrations": {"dovetail.commands": ("mcp",)},
    "lab": {
        "dovetail.policies": ("mrq-aware", "pack"),
        "dovetail.commands": ("pack", "bench", "bench-remote", "bench-sharing", "reproduce"),
    },
}
"""What each of our other distributions registers, by entry-point group: what is missing names its package."""


def distribution_of(group: str, name: str) -> str | None:
    """The extra whose distribution registers a name under an entry-point group; ``None`` where none does."""
    return next((extra for extra, doors in DISTRIBUTIONS.items() if name in doors.get(group, ())), None)


def need_distribution(group: str, name: str, what: str) -> None:
    """Raise `InputError` for a name that one of our other distributions registers, with its command."""
    extra = distribution_of(group, name)
    if extra is not None:
        raise InputError(
            f"{what} {name} is in dovetail-{extra}, which is not installed: "
            f"pip install '{DISTRIBUTION}[{extra}]'"
        )


# An `ImportError`, too: code that guards an import by `except ImportError` goes on working.
class MissingExtra(InputError, ImportError):  # noqa: N818 - reads as what it is
    """A request needs a package that is not installed; the sentence names the extra."""

    def __init__(self, module: str, *, what: str = "this") -> None:
        super().__init__(
            f"{what} needs {module}, which is not installed: pip install '{DISTRIBUTION}[{EXTRAS[module]}]'"
        )
        self.name = module


def missing_extra(error: ImportError, *, what: str = "this") -> MissingExtra | None:
    """The message for an import's failure; ``None`` where no extra would bring the module."""
    module = (error.name or "").partition(".")[0]
    # A module that is there and fails to import is broken, not missing: its own error is the better one.
    return MissingExtra(module, what=what) if module in EXTRAS and not is_installed(module) else None


@contextmanager
def needing_extra(what: str) -> Iterator[None]:
    """Around an import (or a load) on behalf of ``what``: raises `MissingExtra` where an extra is missing.

    Of several, one around the other, the outermost names what it was for.
    """
    try:
        yield
    except ImportError as error:
        found = missing_extra(error, what=what)
        if found is None:
            raise
        raise found from error


def need_module(module: str, what: str) -> None:
    """Raise `MissingExtra` at once where a module is not installed; the module is not imported."""
    if not is_installed(module):
        raise MissingExtra(module, what=what)


# `find_spec` does not run the module, which may take seconds (ray) or load a driver (OpenCL).
@cache
def is_installed(module: str) -> bool:
    """Whether a module is installed; it is not imported."""
    return find_spec(module) is not None
