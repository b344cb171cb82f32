"""Lists of commands, one a line, and how an app is known from its argv.

The app is the program and the script that it runs. Numbers among the arguments and the sizes of files that
are named become features of the prediction, other arguments categories, so that a history builds up from
ordinary scripts. docs/reference/commands.md states the rules.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dovetail.errors import InputError
from dovetail.model import App, Choice, Command, Implementation, Job, TableTruth, Workload
from dovetail.model.files import file_name, read_text, shown
from dovetail.model.templates import DEVICE, escape
from dovetail.workloads.jobfile import request_for

__all__ = ["Identity", "command_workload", "identify", "load_commands"]

SCRIPT_SUFFIXES = (
    *(".py", ".ipynb", ".sh", ".bash", ".zsh", ".r", ".jl", ".pl", ".rb", ".js", ".mjs", ".ts", ".lua"),
    *(".m", ".tcl", ".awk", ".scm", ".nf"),
)
_HOLE = "{" + DEVICE + "}"
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_NUMBER = re.compile(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_SIZED = re.compile(r"([0-9]+\.?[0-9]*)([kKMGT])(i?)B?")
_GLUED = re.compile(r"-([A-Za-z])([0-9].*)")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_SHELL = re.compile(r"(?:\|\|?|&&?|;)$|[0-9]?>>?[^=]*$|<")
# What a program writes exists after its first run only: as a feature it would change the app's identity.
_OUTPUT = re.compile(r"o|of|out.*|log.*|save.*|dest.*")
_SCALE = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


@dataclass(frozen=True, slots=True)
class Identity:
    """What a command is taken for.

    ``argv`` is the template: every brace is literal but ``{device}``. ``explanation`` says for each
    argument what was made of it, for people.
    """

    app: str
    inputs: Mapping[str, float | str]
    argv: tuple[str, ...]
    explanation: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def identify(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str] = ".",
    app: str | None = None,
    drop: Sequence[str] = (),
    add: Sequence[str] = (),
) -> Identity:
    """The app and the inputs of a command.

    ``app`` names the app instead of program and script. ``drop`` leaves inputs out by name; ``add`` puts
    some in, as ``NAME=VALUE``. Files are looked up from ``cwd``. Raises `InputError` for an empty command
    or a malformed ``add``.
    """
    if not argv or not argv[0]:
        raise InputError("command: found no program, expected a program and its arguments")
    reading = _Reading(Path(cwd))
    program = os.path.basename(argv[0]) or argv[0]
    script, rest = _script(program, argv, Path(cwd))
    name = app or (f"{program}:{script}" if script else program)
    source = "as named" if app else ("program and script" if script else "program")
    reading.said.append(f"app {name!r} ({source})")
    reading.arguments(argv[rest:])
    dropped = tuple(key for key in drop if reading.inputs.pop(key, None) is not None)
    reading.said.extend(f"{key}: dropped" for key in dropped)
    for text in add:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"feature: found {shown(text)}, expected NAME=VALUE")
        number = _number(value)
        reading.inputs[key] = value if number is None else number
        reading.said.append(f"{key} = {value} (added)")
    return Identity(
        name, reading.inputs, tuple(_template(word) for word in argv), tuple(reading.said), dropped
    )


def _template(word: str) -> str:
    return _HOLE.join(escape(part) for part in word.split(_HOLE))


def _script(program: str, argv: Sequence[str], cwd: Path) -> tuple[str, int]:
    """(script or module, index of the first argument after it); ("", 1) if there is none."""
    python = program.startswith(("python", "pypy"))
    for i, word in enumerate(argv[1:], 1):
        if python and word == "-m" and i + 1 < len(argv):
            return argv[i + 1], i + 2
        if python and word == "-c":
            break
        if os.path.splitext(word)[1].lower() in SCRIPT_SUFFIXES and _size(word, cwd) is not None:
            return os.path.basename(word), i + 1
    return "", 1


def _size(word: str, cwd: Path) -> int | None:
    """Bytes of the regular file of that name, or ``None``."""
    try:
        path = cwd / word
        return path.stat().st_size if path.is_file() else None
    except (OSError, ValueError):  # a name that no file can have
        return None


def _number(text: str) -> float | None:
    """A finite number of at least 0, also with k, M, G, T (1000) or Ki, Mi … (1024); or ``None``."""
    if _NUMBER.fullmatch(text):
        value = float(text)
        return value if value < 1e300 else None
    match = _SIZED.fullmatch(text)
    if match is None or len(text) > 30:
        return None
    base = 1024.0 if match[3] else 1000.0
    return float(match[1]) * math.pow(base, _SCALE[match[2]])


def _is_value(word: str, flag: str) -> bool:
    """Whether the word after a flag is its value; a negative number can be that of a long flag."""
    return not word.startswith("-") or (flag.startswith("--") and _number(word[1:]) is not None)


@dataclass
class _Reading:
    """Goes through the arguments from left to right."""

    cwd: Path
    inputs: dict[str, float | str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    position: int = 0

    def arguments(self, words: Sequence[str]) -> None:
        i = 0
        while i < len(words):
            word, following = words[i], words[i + 1] if i + 1 < len(words) else None
            i += 1
            if not word.startswith("-") or word in ("-", "--"):
                self._positional(word)
                continue
            flag, equals, value = word.partition("=")
            glued = _GLUED.fullmatch(word)
            if equals:
                self._value(flag.lstrip("-") or flag, value, flag)
            elif glued and _number(glued[2]) is not None:
                self._value(glued[1], glued[2], f"-{glued[1]}")
            elif following is not None and _is_value(following, flag):
                self._value(flag.lstrip("-") or flag, following, flag)
                i += 1
            else:
                self._keep(flag.lstrip("-") or flag, "yes", f"{flag} is given")

    def _positional(self, word: str) -> None:
        if word in ("-", "--"):
            return
        self.position += 1
        match = _ASSIGNMENT.fullmatch(word)
        if match is not None:  # as dd takes them: count=10
            self._value(match[1], match[2], f"{match[1]}=")
        else:
            self._value(f"arg{self.position}", word, f"argument {self.position}")

    def _value(self, name: str, text: str, source: str) -> None:
        if _HOLE in text:
            self.said.append(f"{source}: stands for the device")
            return
        number = _number(text)
        if number is not None:
            self._keep(name, number, source)
        elif _OUTPUT.fullmatch(name):
            self.said.append(f"{source}: left out, taken for an output")
        elif (size := _size(text, self.cwd)) is not None:
            self._keep(f"{name}_bytes", float(size), f"size of {text}")
        else:
            self._keep(name, text, source)

    def _keep(self, name: str, value: float | str, source: str) -> None:
        key, again = name, 1
        while key in self.inputs:
            again += 1
            key = f"{name}_{again}"
        self.inputs[key] = value
        text = f"{value:g}" if isinstance(value, float) else value
        self.said.append(f"{key} = {text} ({source})")


# -- lists ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Line:
    """One command: where it stands, its words, variables set before it."""

    where: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


def load_commands(
    path: str | os.PathLike[str],
    *,
    on: Sequence[str] = (),
    cwd: str | os.PathLike[str] = ".",
    app: str | None = None,
    drop: Sequence[str] = (),
    add: Sequence[str] = (),
) -> Workload:
    """The jobs of a list of commands, one a line; ``#`` begins a comment.

    ``on`` are the kinds of device for which each command can run (default: cpu). Raises `InputError` with
    file and line. Linear.
    """
    source = file_name(path)
    text = read_text(path, "a job file, a trace, or commands, one a line")
    lines = [
        line
        for number, raw in enumerate(text.splitlines(), 1)
        if (line := _line(raw, f"{source}: line {number}")) is not None
    ]
    if not lines:
        raise InputError("found only comments, expected commands, one a line", where=source)
    return _workload(source, lines, on=on, cwd=cwd, app=app, drop=drop, add=add)


def command_workload(
    argv: Sequence[str],
    *,
    on: Sequence[str] = (),
    cwd: str | os.PathLike[str] = ".",
    app: str | None = None,
    drop: Sequence[str] = (),
    add: Sequence[str] = (),
) -> Workload:
    """One command as a workload: what ``dovetail run -- COMMAND`` runs. Raises `InputError`."""
    if any("\0" in word for word in argv):
        raise InputError("command: found a null character, expected text without")
    line = _Line("command", tuple(argv), ())
    return _workload(shlex.join(argv), [line], on=on, cwd=cwd, app=app, drop=drop, add=add)


def _line(raw: str, where: str) -> _Line | None:
    """The command of a line, or ``None`` if it has none."""
    if "\0" in raw:
        raise InputError("found a null character, expected text without", where=where)
    try:
        words = shlex.split(raw, comments=True)
    except ValueError as error:
        raise InputError(
            f"found {str(error).lower()}, expected words as a shell splits them", where=where
        ) from None
    if not words:
        return None
    bare = _QUOTED.sub("Q", raw).partition(" #")[0].split()
    shell = next((word for word in bare if _SHELL.match(word)), None)
    if shell is not None:
        raise InputError(
            f"found {shown(shell)}, expected one program and its arguments: no shell reads this line "
            "(sh -c '…' starts one)",
            where=where,
        )
    env: list[tuple[str, str]] = []
    while words and (match := _ASSIGNMENT.fullmatch(words[0])):
        env.append((match[1], match[2]))
        del words[0]
    if not words or not words[0]:
        raise InputError("found no program, expected a program and its arguments", where=where)
    return _Line(where, tuple(words), tuple(env))


def _workload(
    name: str,
    lines: Sequence[_Line],
    *,
    on: Sequence[str],
    cwd: str | os.PathLike[str],
    app: str | None,
    drop: Sequence[str],
    add: Sequence[str],
) -> Workload:
    forms = _forms(on)
    if app is not None and not app.strip():
        raise InputError("found an empty name, expected the app's name", where="--app")
    features: set[str] = set()
    apps: dict[tuple[str, Command], tuple[App, tuple[Choice, ...]]] = {}
    counts: dict[str, int] = {}
    jobs: list[Job] = []
    for line in lines:
        try:
            identity = identify(line.argv, cwd=cwd, app=app, drop=drop, add=add)
        except InputError as error:
            raise InputError(str(error), where=line.where) from None
        features |= {*identity.inputs, *identity.dropped}
        command = Command(identity.argv, line.env)
        key = (identity.app, command)
        if key not in apps:
            mine = tuple(replace(form, command=command) for form in forms)
            apps[key] = App(identity.app, mine), tuple(Choice(i, i.request) for i in mine)
        made, choices = apps[key]
        counts[identity.app] = counts.get(identity.app, 0) + 1
        id = f"{identity.app}-{counts[identity.app]}"
        jobs.append(Job(id, made, choices, index=len(jobs), inputs=identity.inputs))
    unknown = next((key for key in drop if key not in features), None)
    if unknown is not None:
        known = ", ".join(sorted(features)) or "none"
        raise InputError(f"found {shown(unknown)}, expected a feature of a command: {known}", where="--drop")
    return Workload(name, jobs, TableTruth())


def _forms(on: Sequence[str]) -> list[Implementation]:
    kinds = list(on) or ["cpu"]
    for kind in kinds:
        device = kind.removeprefix("cpu+")
        if not device or "+" in device or not kind.isprintable() or (device == "cpu" and kind != "cpu"):
            raise InputError(f"--on: found {shown(kind)}, expected kinds of device such as cpu,gpu")
        if kinds.count(kind) > 1:
            raise InputError(f"--on: found {shown(kind)} twice, expected each kind once")
    return [Implementation(kind, kind, request_for(kind)) for kind in kinds]
