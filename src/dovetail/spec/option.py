"""What one option is: its names, unit, limits, default and help, and where it may be given."""

from __future__ import annotations

from typing import Any, NamedTuple

from dovetail.spec.kinds import Kind

DURATION = "DURATION"
"""Stands for the value of an option that takes seconds, or a text such as ``1h30m``."""
SIZE = "SIZE"
"""Stands for the value of an option that takes bytes, or a text such as ``8GB``."""


# A named tuple, as cheap to make as any: a command makes hundreds of them when it starts.
class Option(NamedTuple):
    """One option of a job, a run, a service or a simulation.

    ``name`` is that of the field in Python, and of the parameter of a command. ``value`` stands for its value
    in help; where it is empty the option is a flag, or its type is enough. The rest, from ``kind`` on, only
    options of a job have (`dovetail.spec.jobs`).
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
    """Its names in ``#DOVETAIL`` and ``#SBATCH`` lines."""
    complete: str = ""
    """What the shell offers for it: policies, models, apps, runs, sources, files."""
    positional: bool = False
    required: bool = False
    kind: Kind | None = None
    """How its value is read and checked."""
    about: str = ""
    """What schemas and pages print about it."""
    http: str = ""
    """Its name in the HTTP form; empty: it is no field there."""
    file: str = ""
    """Its name in a ``[[job]]`` of a job file; empty: it is no key there."""
    file_kind: Kind | None = None
    """Its kind there, where it is another one."""
    python: bool = False
    """Whether `Client` takes it beside the function or the command."""
    becomes: str = ""
    """What is made of it, e.g. ``Job.walltime``; see `dovetail.workloads.job_builder`."""

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that take it."""
        return tuple(name for name in self.at.split(", ") if name)

    @property
    def spellings(self) -> tuple[str, ...]:
        """Its names on command lines, the first one first."""
        return tuple(self.flags.split()) or (f"--{self.name.replace('_', '-')}",)

    @property
    def value_unit(self) -> str:
        """The unit of its value."""
        return "" if self.kind is None else self.kind.unit
