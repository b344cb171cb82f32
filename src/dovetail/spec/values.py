"""Defaults, limits and choices that the command line, files and the Python API share."""

from __future__ import annotations

from typing import Literal, TypeAlias

DEFAULT_MODEL = "learned"
"""How run times are predicted by default."""
RECORDED = "recorded"
"""In a policy's place: the schedule of the log itself."""
MOST_RETRIES = 1_000
"""So often, at most, may a job start again after failures."""
MOST_NODES = 1_000_000
MOST_INPUTS = 100
"""Of a job: what a model of run times costs grows with the square of their number, and more."""
MOST_CPUS = 1_000_000
MOST_DEVICES = 10_000
LEAST_LENT = 1 << 20
"""Bytes of a device below which lending makes no sense."""
MOST_PRIORITY = 1_000_000
"""Of a job that is submitted, above and below 0; a job file's go from 0 to 1e15."""
MOST_FACTOR = 100.0
"""By how much, at most, a job's memory grows after a kill."""

# Literals, so that type checkers, the command line and schemas have the choices from one place.
Overrun: TypeAlias = Literal["kill", "run"]
"""What happens to a job at its walltime."""
Knowledge: TypeAlias = Literal["perfect", "learned"]
"""What policies know of run times in a simulation."""
Compilation: TypeAlias = Literal["auto", "off"]
"""Whether compiled code may stand in for the engine."""
Breakdown: TypeAlias = Literal["user", "group", "queue", "app", "implementation", "size"]
"""What divides jobs into groups."""
Bootstrap: TypeAlias = Literal["week", "none"]
"""What of a trace is drawn anew."""
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
"""The least level of messages in a service's log."""
LogFormat: TypeAlias = Literal["text", "json"]
"""How a service's log is written."""
LimitName: TypeAlias = Literal[
    "AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK"
]
"""A limit of a process, as `setrlimit` names it without its prefix."""
Neighbourhood: TypeAlias = Literal["avoid", "memory", "ignore"]
"""What processes of others on a device mean: it is left alone, their memory is left out, or nothing."""


MAIL_TYPES = (
    "NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT",
    "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS",
)  # fmt: skip
"""What ``--mail-type`` may have, as in sbatch."""
