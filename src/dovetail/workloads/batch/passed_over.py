"""Values of options that are passed over: sbatch refuses wrong ones, and so does the reader.

Each check raises `ValueError` with what was found and what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from dovetail.workloads.batch.units import parse_count, parse_limit, parse_memory

Check = Callable[[str], object]
HINTS = ("compute_bound", "memory_bound", "multithread", "nomultithread")
LIMITS = ("ALL", "NONE", "AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK")
PROFILES = ("all", "none", "energy", "task", "lustre", "filesystem", "network")
GRES_FLAGS = (
    *("disable-binding", "enforce-binding", "allow-task-sharing", "multiple-tasks-sharing"),
    "one-task-per-sharing",
)
_DISTRIBUTION = re.compile(
    r"(\*|block|cyclic|arbitrary|plane(=\d+)?)(:(\*|block|cyclic|fcyclic)){0,2}(,(no)?pack)?", re.IGNORECASE
)
_MEMORY_BIND = re.compile(
    r"(q(uiet)?|v(erbose)?|no(ne)?|rank|(map|mask)_mem(:\S+)?|local|(no)?sort|p(refer)?)"
)
_FREQUENCY = re.compile(r"((task|energy|network|filesystem)=)?\d+", re.IGNORECASE)


def _one_of(words: Sequence[str], *, many: bool = False) -> Check:
    """One of some words, in any case; ``many``: several, with commas between them."""
    known = [word.lower() for word in words]

    def check_known_values(value: str) -> None:
        parts = value.split(",") if many else [value]
        for part in parts:
            if part.lower() not in known:
                raise ValueError(
                    f"found {part!r}, expected {'some' if many else 'one'} of {', '.join(words)}"
                )

    return check_known_values


def _match_pattern(pattern: re.Pattern[str], example: str, *, many: bool = False) -> Check:
    def check_pattern(value: str) -> None:
        for part in value.split(",") if many else [value]:
            if not pattern.fullmatch(part):
                raise ValueError(f"found {value!r}, expected e.g. {example}")

    return check_pattern


def _at_least_count(least: int) -> Check:
    return lambda value: parse_count(value, least=least)


def _priority(value: str) -> None:
    """A number that is not negative, or ``TOP``; sbatch takes any other word for 0."""
    if re.match(r"-\d*[1-9]", value, re.ASCII):
        raise ValueError(f"found {value!r}, expected a number of at least 0, or TOP")


def _least_time(value: str) -> None:
    if parse_limit(value) is None:
        raise ValueError(f"found {value!r}, expected a time above 0")


def _extra_node_info(value: str) -> None:
    """``SOCKETS[:CORES[:THREADS]]``, each a number, a range, or any."""
    parts = value.split(":")
    if len(parts) > 3 or not all(re.fullmatch(r"\*|\d+(-\d+)?", part) for part in parts):
        raise ValueError(f"found {value!r}, expected SOCKETS[:CORES[:THREADS]]")


def _check_switches(value: str) -> None:
    count, at, most = value.partition("@")
    parse_count(count)
    if at:
        parse_limit(most)


CHECKS: Mapping[str, Check] = {
    "acctg-freq": _match_pattern(_FREQUENCY, "30 or task=30", many=True),
    "core-spec": _at_least_count(0),
    "cores-per-socket": _at_least_count(1),
    "delay-boot": parse_limit,
    "get-user-env": _match_pattern(re.compile(r"(\d*[sl]?)?", re.IGNORECASE | re.ASCII), "10L"),
    "distribution": _match_pattern(_DISTRIBUTION, "block, cyclic or block:cyclic"),
    "extra-node-info": _extra_node_info,
    "gres-flags": _one_of(GRES_FLAGS, many=True),
    "hint": _one_of(HINTS, many=True),
    "mem-bind": _match_pattern(_MEMORY_BIND, "local", many=True),
    "no-kill": _one_of(("", "set", "off", "no")),
    "ntasks-per-core": _at_least_count(1),
    "ntasks-per-socket": _at_least_count(1),
    "priority": _priority,
    "profile": _one_of(PROFILES, many=True),
    "propagate": lambda value: value and _one_of(LIMITS, many=True)(value),
    "switches": _check_switches,
    "thread-spec": _at_least_count(1),
    "threads-per-core": _at_least_count(1),
    "time-min": _least_time,
    "tmp": parse_memory,
    "wait-all-nodes": _one_of(("0", "1")),
}
"""By the names of options. What is not here has values that only a site knows."""
