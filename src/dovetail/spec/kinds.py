"""Kinds of values that options have: how each is written as text, what it may be, what schemas call it.

A kind reads a value in two steps. `Kind.parse` makes of a text (a word of a command line, of a line in a
script) what JSON or TOML would hold; `Kind.check` makes of that the value itself, or raises `ValueError` with
what was expected. Files and HTTP enter at the second step, so that all languages have the same limits and
the same sentences.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from dovetail.files.moments import parse_begin
from dovetail.files.sentences import NAME as A_NAME
from dovetail.files.sentences import is_name
from dovetail.files.units import DURATION, LONGEST, MOST_BYTES, SIZE, bytes_of, seconds_of
from dovetail.spec.values import MAIL_TYPES, MOST_CPUS, MOST_DEVICES, MOST_FACTOR

Json = Any
Check = Callable[[object], Any]
Parse = Callable[[str], Any]

LONGEST_TEXT = 4096
"""Characters of a name, a path or a pattern."""
LONGEST_SCRIPT = 4 << 20
"""Characters of a batch script; sbatch's own limit."""
_NUMBERED = re.compile(r"(?:[A-Za-z_][\w.-]*:)*([0-9]+)")
# 30 digits: `int` of a longer text takes quadratic time, and every limit is far below.
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_DEPENDS = re.compile(r"\??after(ok|notok|any|corr)?:.+", re.DOTALL)
SINGLETON = "singleton"
"""The dependency of which a job is the only one of its name."""


class Kind(NamedTuple):
    """One kind of value.

    ``check`` is ``None`` for what has a structure (tables, lists of words): the reader of such a file checks
    it part by part, since a sentence has to name the part. ``unit`` is its unit, ``least`` and ``most`` its
    limits, for pages and tests. A ``many`` may be given several times, and all of them count.
    """

    name: str
    check: Check | None
    parse: Parse
    schema: Mapping[str, Json]
    unit: str = ""
    least: float | None = None
    most: float | None = None
    above: bool = False
    many: bool = False

    @property
    def is_flag(self) -> bool:
        """Whether it is there or not, without a value."""
        return self.name == "flag"


def _plain_text(text: str) -> str:
    return text


# -- numbers -------------------------------------------------------------------------------------------


def whole(least: int = 0, most: int = 1_000_000) -> Kind:
    """A whole number in a range; booleans are none, nor is 2.0."""

    def check_whole_number(value: object) -> int:
        # `True` is an `int` in Python, and 1 where a person wrote `true` is no number of nodes.
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"a whole number of at least {least}")
        if value > most:
            raise ValueError(f"at most {most}")
        return value

    schema = {"maximum": most, "minimum": least, "type": "integer"}
    return Kind("whole", check_whole_number, _whole_of, schema, "", least, most)


def within(most: int) -> Kind:
    """A whole number, at most so far above or below 0."""

    def check_within(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= most:
            return value
        raise ValueError(f"a whole number within {most}")

    schema = {"maximum": most, "minimum": -most, "type": "integer"}
    return Kind("within", check_within, _whole_of, schema, "", -most, most)


# A text that is no number is passed on as it is: the check refuses it with the sentence that files get, too.
def _whole_of(text: str) -> Json:
    return int(text) if _WHOLE.fullmatch(text) else text


def check_finite(value: object, what: str) -> float:
    """A finite number of at least 0; raises `ValueError`, in which ``what`` names what it measures."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what}, a finite number of at least 0")
    if isinstance(value, int) and value.bit_length() > 1000:  # float() would overflow
        raise ValueError(f"{what}, a finite number")
    number = float(value)
    if not 0 <= number < 1e300:  # what is kept of it could not be read back (`journal.checked`)
        raise ValueError(f"{what}, a finite number of at least 0 and below 1e300")
    return number


def check_bounded(value: object, what: str, *, most: float = math.inf, above: bool = False) -> float:
    """A finite number of at least 0, or above it, and at most ``most``; raises `ValueError`."""
    number = check_finite(value, what)
    if above and not number:
        raise ValueError(f"{what}, a finite number above 0")
    if number > most:
        raise ValueError(f"{what}, at most {most:g}")
    return number


def real(what: str, *, most: float = math.inf, above: bool = False) -> Kind:
    """A finite number of at least 0, or above it; ``what`` names in sentences what it measures."""

    def check_real_number(value: object) -> float:
        return check_bounded(value, what, most=most, above=above)

    schema: dict[str, Json] = {"exclusiveMinimum" if above else "minimum": 0, "type": "number"}
    return Kind(
        "real", check_real_number, _number_of, schema, "", 0, None if most == math.inf else most, above
    )


def _number_of(text: str) -> Json:
    try:
        return float(text)
    except ValueError:
        return text


# -- numbers with a unit -------------------------------------------------------------------------------


def duration(*, above: bool = False, most: float = LONGEST) -> Kind:
    """Seconds, or a text such as ``1h30m``."""
    check = _in_units(seconds_of, DURATION, partial(check_bounded, what="seconds", most=most, above=above))
    return Kind("duration", check, _plain_text, _number_or_text(most, above=above), "s", 0, most, above)


def _in_units(
    read: Callable[[str], float], expected: str, check: Callable[[object], float]
) -> Callable[[object], float]:
    def read_either(value: object) -> float:
        if isinstance(value, str):
            try:
                value = read(value)
            except ValueError:
                raise ValueError(expected) from None
        return check(value)

    return read_either


def _number_or_text(most: float, *, above: bool = False) -> dict[str, Json]:
    number = {"type": "number", "exclusiveMinimum" if above else "minimum": 0, "maximum": most}
    return {"anyOf": [number, {"type": "string"}]}


_SIZED = _in_units(bytes_of, SIZE, partial(check_bounded, what="bytes", most=MOST_BYTES))


def _size_or_auto(value: object) -> int | str:
    # Before the units are tried: "auto" is no size.
    if value == "auto":
        return "auto"
    try:
        return round(_SIZED(value))
    except ValueError:
        raise ValueError(f"{SIZE}, or auto") from None


SIZE_OR_AUTO = Kind(
    "size or auto", _size_or_auto, _plain_text, _number_or_text(MOST_BYTES), "bytes", 0, MOST_BYTES
)
"""Bytes, a text such as ``8GB``, or ``auto``: to be learned."""


# -- numbers that may be words -------------------------------------------------------------------------


def _check_cpus(value: object) -> int | str:
    if value == "all":
        return "all"
    # 0 is for programs (a job on a GPU that needs no core); `parse_cpus` refuses it of a person.
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_CPUS:
        return value
    raise ValueError("a number of CPUs, or 'all'")


def parse_cpus(text: str) -> int | str:
    """``4`` or ``all``; a person who writes a number of CPUs means at least one. Raises `ValueError`."""
    if text == "all":
        return text
    count = int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0
    if not count:
        raise ValueError("a whole number of at least 1, or 'all'")
    return count


CPUS = Kind(
    "cpus",
    _check_cpus,
    parse_cpus,
    {"anyOf": [{"maximum": MOST_CPUS, "minimum": 0, "type": "integer"}, {"const": "all"}]},
)
"""A number of CPUs, or ``all`` of the node."""


def _check_share(value: object) -> float:
    number = check_bounded(value, "a number of devices", most=MOST_DEVICES)
    # Shares are kept in millionths (`Request`): a smaller one would be none, which is to be written 0.
    if 0 < number < 1e-6:
        raise ValueError("a share of a device of at least 0.000001")
    if number > 1 and not number.is_integer():
        raise ValueError("a whole number, or a share of one device below 1")
    return number


def parse_devices(text: str) -> float:
    """``2``, ``0.5``, ``gpu:a100:2`` (as ``--gres`` has it). Raises `ValueError`."""
    match = _NUMBERED.fullmatch(text)
    if match is not None:
        return float(match[1])
    found = _number_of(text)
    if not (isinstance(found, float) and 0 < found < 1):
        raise ValueError("a number of devices")
    return found


def _share_or_auto(value: object) -> float | str:
    if isinstance(value, str):
        if value == "auto":
            return value
        # A text from a file or HTTP is refused here; on a command line `parse` has made a number of it
        # before.
        raise ValueError("a number of devices, or auto")
    return _check_share(value)


def _or_auto(text: str) -> float:
    try:
        return parse_devices(text)
    except ValueError:
        raise ValueError("a number of devices, or auto") from None


def _parse_devices_or_auto(text: str) -> float | str:
    return text if text == "auto" else _or_auto(text)


DEVICES = Kind(
    "devices",
    _share_or_auto,
    _parse_devices_or_auto,
    {"anyOf": [{"minimum": 0, "type": "number"}, {"const": "auto"}]},
)
"""Devices on each node: a whole number, 0 for none, a share of one, or ``auto``: one, shared if that pays."""


def _retry_memory(value: object) -> float | str:
    if value in ("learned", "no"):
        return str(value)
    try:
        factor = check_bounded(value, "a factor", most=MOST_FACTOR)
    except ValueError:
        # Refused by the range below, so that there is one sentence for every wrong value.
        factor = 0.0
    if factor <= 1:
        raise ValueError("learned, no, or a factor above 1, at most 100")
    return factor


RETRY_MEMORY = Kind("retry memory", _retry_memory, _number_of, _number_or_text(MOST_FACTOR))
"""``learned``, ``no``, or a factor above 1."""


# -- text ----------------------------------------------------------------------------------------------


def _check_name(value: object) -> str:
    if not is_name(value):
        raise ValueError(A_NAME)
    return str(value)


NAME = Kind("name", _check_name, _plain_text, {"maxLength": 200, "minLength": 1, "type": "string"})
"""A name, as it stands in tables and messages."""


def _check_text(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_TEXT:
        raise ValueError(f"text of 1 to {LONGEST_TEXT} characters")
    if "\0" in value:
        raise ValueError("text without a null character")
    return value


TEXT = Kind("text", _check_text, _plain_text, {"maxLength": LONGEST_TEXT, "minLength": 1, "type": "string"})
"""A text of one line or more: a path, a pattern."""


def _mail_types(value: object) -> str:
    types = [part.strip().upper() for part in _check_text(value).split(",")]
    if not all(one in MAIL_TYPES for one in types):
        raise ValueError(f"some of {', '.join(MAIL_TYPES)}, with commas between them")
    # Upper case and each once, so that the same events are written in one way.
    return ",".join(dict.fromkeys(types))


MAIL = Kind(
    "mail types", _mail_types, _plain_text, {"maxLength": LONGEST_TEXT, "minLength": 1, "type": "string"}
)
"""Events of which mail is sent: ``END,FAIL``, in any case."""


def _check_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _always_true(text: str) -> bool:
    return True


FLAG = Kind("flag", _check_flag, _always_true, {"type": "boolean"})
"""There or not."""


def _read_moment(value: object) -> float:
    """Seconds since 1970 of a number, or of a text such as ``now+1hour`` as it is read now."""
    # Now is the moment of submission: "now+1hour" counts from there.
    if isinstance(value, str):
        return parse_begin(value, datetime.now().astimezone()).timestamp()
    return check_bounded(value, "seconds since 1970", most=LONGEST)


MOMENT = Kind(
    "moment", _read_moment, _plain_text, {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}
)
"""A moment: seconds since 1970, or a text as sbatch has it, such as ``16:00`` or ``now+1hour``."""


# -- what has a structure ------------------------------------------------------------------------------


def _split_kinds(text: str) -> list[str]:
    """``cpu,gpu`` as a list. Raises `ValueError` for an empty name."""
    found = [kind.strip() for kind in text.split(",")]
    if not all(found):
        raise ValueError("kinds of device joined by commas, e.g. cpu,gpu")
    return found


def _split_dependencies(text: str) -> list[str]:
    """``afterok:3:4,singleton`` as sbatch writes it: one text for each job that is waited for.

    ``?`` in the place of commas: one of them is enough, and each text begins with it.
    """
    found: list[str] = []
    # "?" is between alternatives, where Slurm has a comma between conditions that all must hold.
    either = "?" if "?" in text else ""
    for part in (part.strip() for part in text.replace("?", ",").split(",") if part.strip()):
        kind, *jobs = part.split(":")
        found += [f"{either}{kind}:{job}" for job in jobs] or [part]
    return found


def _parse_input(text: str) -> dict[str, Json]:
    """``NAME=VALUE``: a number or a word. Raises `ValueError`."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError("NAME=VALUE")
    # Imported here: most command lines have no inputs.
    from dovetail.files.units import number_of

    # The sign is taken off first: `number_of` reads durations and sizes as well, which are never negative.
    number = number_of(value.removeprefix("-"))
    if number is None:
        if value.lower().lstrip("+-") in ("nan", "inf", "infinity"):
            raise ValueError("a finite number or a word")
        return {name: value}
    return {name: -number if value.startswith("-") else number}


def is_dependency(value: object) -> bool:
    """Whether it names when a job may start: ``afterok:JOB`` and its kin, with ``?`` an alternative."""
    return isinstance(value, str) and _DEPENDS.fullmatch(value) is not None


def _check_script(value: object) -> str:
    """The text of a program; bytes that are no UTF-8 are in it as Python spells them."""
    if not isinstance(value, str):
        raise ValueError("the text of a program")
    if len(value) > LONGEST_SCRIPT:
        raise ValueError(f"at most {LONGEST_SCRIPT} characters")
    return value


# No check: tables and lists are checked part by part by their readers, which can name the part.
def _structured_kind(name: str, parse: Parse, *, many: bool = False) -> Kind:
    return Kind(name, None, parse, {}, many=many)


KINDS = _structured_kind("kinds", _split_kinds, many=True)
"""Kinds of device."""
DEPENDS = _structured_kind("depends", _split_dependencies, many=True)
"""What a job waits for."""
INPUTS = _structured_kind("inputs", _parse_input, many=True)
"""Numbers and words by name."""
WORDS = _structured_kind("words", lambda text: [text], many=True)
"""Texts, each as it stands."""
OPTIONS = _structured_kind("options", lambda text: [text], many=True)
"""Options for another program."""
ARGV = _structured_kind("argv", _plain_text)
"""A program and its arguments: a list of words, or one text that is split as a shell splits it."""
COMMANDS = _structured_kind("commands", _plain_text)
"""A program and its arguments for each kind of device."""
ENV = _structured_kind("env", _plain_text)
"""Variables and their values."""
SCRIPT = Kind("script", _check_script, _plain_text, {"maxLength": LONGEST_SCRIPT, "type": "string"})
"""A program as text, that begins with ``#!``."""
TABLE = _structured_kind("table", _plain_text)
"""What only files have: a table of its own."""
