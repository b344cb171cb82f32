"""What one option is: its names, unit, limits, default and help, and where a person may say it."""

from __future__ import annotations

from typing import Any, NamedTuple

DURATION = "DURATION"
"""Stands for the value of an option that takes seconds, or a text such as ``1h30m``."""
SIZE = "SIZE"
"""Stands for the value of an option that takes bytes, or a text such as ``8GB``."""


class Option(NamedTuple):
    """One thing that a person may say of a job, a run, a service or a simulation.

    ``name`` is that of the field in files, forms and Python, and of the parameter of a command. ``value``
    stands for its value in help; where it is empty the option is a flag, or its type says enough. ``lines``
    are its names in ``#DOVETAIL`` and ``#SBATCH`` lines, ``form`` what the schemas say of it: ``None`` where
    it is no field of a job in HTTP.
    """

    name: str
    help: str = ""
    value: str = ""
    flags: str = ""
    """On command lines, e.g. ``--name -J``; empty: made from the name."""
    at: str = ""
    """The commands that take it, joined by commas."""
    default: Any = None
    least: float | None = None
    most: float | None = None
    above: bool = False
    """Whether its value is more than ``least``, not equal to it."""
    lines: str = ""
    form: str | None = None
    complete: str = ""
    """What the shell offers for it: policies, models, apps, runs, sources, files."""
    positional: bool = False
    required: bool = False

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that take it."""
        return tuple(name for name in self.at.split(", ") if name)

    @property
    def spellings(self) -> tuple[str, ...]:
        """Its names on command lines, the first one first."""
        return tuple(self.flags.split()) or (f"--{self.name.replace('_', '-')}",)
