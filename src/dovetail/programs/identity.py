"""How an app and its inputs are known from a command.

The app is the program and the script that it runs. Numbers among the arguments and the sizes of files that
are named become features of the prediction, other arguments categories, so that a history builds up from
ordinary scripts. docs/reference/commands.md states the rules.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from dovetail.errors import InputError
from dovetail.files.sentences import show_value, spell_bytes
from dovetail.files.units import number_of
from dovetail.model.templates import DEVICE, escape_template
from dovetail.programs.shell_words import INSIDE_A_SHELL, OF_THE_SHELL, Simple, simple_commands
from dovetail.programs.wrappers import ASSIGNMENT, unwrap_command
from dovetail.records import dataclass
from dovetail.spec.values import MOST_INPUTS

SCRIPT_SUFFIXES = (
    *(".py", ".ipynb", ".sh", ".bash", ".zsh", ".r", ".jl", ".pl", ".rb", ".js", ".mjs", ".ts", ".lua"),
    *(".m", ".tcl", ".awk", ".scm", ".nf"),
)
SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
# Options of interpreters that take the next word: the word after them is not the script.
INTERPRETERS: Mapping[str, tuple[str, ...]] = {
    "python": ("-W", "-X", "--check-hash-based-pycs"),
    "pypy": ("-W", "-X"),
    "Rscript": (),
    "julia": ("-t", "--threads", "-p", "--procs", "-J", "-L"),
    "perl": (),
    "ruby": ("-I", "-r"),
    "node": ("-r", "--require"),
    "lua": ("-l",),
    "php": ("-d", "-c"),
    **dict.fromkeys(SHELLS, ("-o", "+o", "-O", "+O", "--rcfile", "--init-file")),
}
# python3.11 and python are one program; gcc-12 and gcc are not.
_VERSIONED = re.compile(r"(python|pypy|perl|ruby|lua|php|node|julia)-?[0-9][0-9.]*")
_HOLE = "{" + DEVICE + "}"
_SUBCOMMAND = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_GLUED = re.compile(r"-([A-Za-z])([0-9].*)")
# What a program writes exists after its first run only: as a feature it would change the app's identity.
_OUTPUT = re.compile(r"o|of|out.*|log.*|save.*|dest.*")
SEPARATE_FILES = 4
"""More files in a row than this are one argument: their total size, and how many there are."""
LONGEST_APP = 120


@dataclass(frozen=True, slots=True)
class Identity:
    """What a command is taken for.

    ``argv`` is the template: every brace is literal but ``{device}``. ``explanation`` lists, for each
    argument, what was made of it, for the user.
    """

    app: str
    inputs: Mapping[str, float | str]
    argv: tuple[str, ...]
    explanation: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def identify_command(
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

    >>> words = ["nice", "python3.11", "-m", "mypkg.train", "fit", "--rows", "1e6", "--fast"]
    >>> found = identify_command(words)
    >>> found.app, dict(found.inputs)
    ('python:mypkg.train:fit', {'rows': 1000000.0, 'fast': 'yes'})
    """
    if not argv or not argv[0]:
        raise InputError("command: found no program, expected a program and its arguments")
    reading = _Reading(Path(cwd))
    name, source = reading.command(argv)
    if app is not None:
        name, source = app, "as named"
    name = spell_bytes(name)  # the history keeps it
    explained = [f"app {name!r} ({source})", *reading.explained]
    dropped = tuple(key for key in drop if reading.inputs.pop(key, None) is not None)
    explained.extend(f"{key}: dropped" for key in dropped)
    for text in add:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"feature: found {show_value(text)}, expected NAME=VALUE")
        number = number_of(value)
        reading.inputs[key] = value if number is None else number
        explained.append(f"{key} = {value} (added)")
    return Identity(
        name, reading.inputs, tuple(template_of(word) for word in argv), tuple(explained), dropped
    )


def template_of(word: str) -> str:
    """A word of a plain command as a template, in which only ``{device}`` stands for something."""
    return _HOLE.join(escape_template(part) for part in word.split(_HOLE))


def with_file_sizes(
    inputs: Mapping[str, float | str], cwd: str | os.PathLike[str] = "."
) -> dict[str, float | str]:
    """Inputs with ``NAME_bytes``, a size, in the place of each ``NAME`` that is the name of a file.

    >>> _ = Path("data.csv").write_text("1,2,3")
    >>> with_file_sizes({"file": "data.csv", "mode": "fast"})
    {'file_bytes': 5.0, 'mode': 'fast'}
    """
    found: dict[str, float | str] = {}
    for name, value in inputs.items():
        size = file_size(value, Path(cwd)) if isinstance(value, str) else None
        # An input of that very name is the user's own, and stays.
        free = size is not None and f"{name}_bytes" not in inputs
        found.update({f"{name}_bytes": float(size or 0)} if free else {name: value})
    return found


def file_size(word: str, cwd: Path) -> int | None:
    """Bytes of the regular file of that name, or ``None``."""
    try:
        path = cwd / word
        return path.stat().st_size if path.is_file() else None
    except (OSError, ValueError):
        # A name that no file can have.
        return None


def _is_value(word: str, flag: str) -> bool:
    """Whether the word after a flag is its value; a negative number can be that of a long flag."""
    return not word.startswith("-") or (flag.startswith("--") and number_of(word[1:]) is not None)


def _canonical_name(program: str) -> str:
    name = os.path.basename(program) or program
    match = _VERSIONED.fullmatch(name)
    return match[1] if match else name


@dataclass
class _Reading:
    """Goes through a command from left to right, and through what it starts."""

    cwd: Path
    inputs: dict[str, float | str] = field(default_factory=dict)
    explained: list[str] = field(default_factory=list)
    position: int = 0
    contained: bool = False

    # -- programs --------------------------------------------------------------------------------------

    def command(self, argv: Sequence[str]) -> tuple[str, str]:
        """(app, what it was found from); the inputs that the arguments give are noted."""
        found = unwrap_command(argv)
        for name in found.started_by:
            self.explained.append(f"{name}: starts the program, no part of the app")
        for folder in found.folders:
            self.cwd = self.cwd / folder
        if found.image is not None:
            self.contained = True
            # Without tag and digest: a new build of an image is the same app.
            self._keep_input("image", re.split("[:@]", found.image)[0], "image of the container")
        if found.ranks is not None:
            self._keep_input("ranks", found.ranks, "number of processes")
        words = found.argv
        program = _canonical_name(words[0])
        if program in SHELLS:
            script = _shell_script(words)
            # A short script is the programs that it runs: their inputs are what the time depends on.
            commands = None if script is None else simple_commands(words[script])
            if commands and script is not None:
                return self._read_shell(program, commands, words[script + 2 :])
        name, source, rest = self._read_program(program, words)
        self.arguments(words[rest:])
        return name, source

    def _read_shell(
        self, shell: str, commands: Sequence[Simple], parameters: Sequence[str]
    ) -> tuple[str, str]:
        """The programs of ``sh -c``; ``parameters`` are $1, $2 … of the script.

        A script that runs none, and only controls the shell (``exit 5``), counts as the shell.
        """
        names: list[str] = []
        values = {f"${i}": text for i, text in enumerate(parameters, 1)}
        used: set[str] = set()
        for simple in commands:
            used.update(word for word in (*simple.argv, *simple.read) if word in values)
            if simple.argv[0] == "cd":
                self.cwd = self.cwd / (simple.argv[1] if len(simple.argv) > 1 else ".")
                continue
            if os.path.basename(simple.argv[0]) in INSIDE_A_SHELL:
                continue
            # Arguments are counted for each program: the same call has the same features in any script.
            self.position = 0
            names.append(self.command([values.get(word, word) for word in simple.argv])[0])
            for file in simple.read:
                self._read_value("stdin", values.get(file, file), "standard input")
        if not names:
            names = [simple.argv[0] for simple in commands if simple.argv[0] not in OF_THE_SHELL] or [shell]
        self.arguments([text for name, text in values.items() if name not in used])
        app = "+".join(names)
        # A long pipeline is cut, and still differs from others by its length.
        if len(app) > LONGEST_APP:
            app = f"{app[:LONGEST_APP]}+{len(names)}"
        return app, "program of the script" if len(names) == 1 else "programs of the script"

    def _read_program(self, program: str, argv: Sequence[str]) -> tuple[str, str, int]:
        """(app, what it was found from, place of the first argument)."""
        if program == "java":
            return self._read_java(argv)
        options = INTERPRETERS.get(program)
        at = 1
        while at < len(argv):
            word = argv[at]
            if program in ("python", "pypy"):
                if word == "-m" and at + 1 < len(argv):
                    return self._read_module(program, argv, at + 1)
                # Code on the command line is no file: the interpreter is all that is known.
                if word == "-c":
                    break
            if self._is_script(word, interpreted=options is not None):
                return f"{program}:{os.path.basename(word)}", "program and script", at + 1
            if options is not None and not word.startswith("-"):
                # The first word that is no option is what an interpreter runs.
                break
            at += 2 if options is not None and word in options else 1
        return program, "program", 1

    def _is_script(self, word: str, *, interpreted: bool) -> bool:
        named_so = os.path.splitext(word)[1].lower() in SCRIPT_SUFFIXES
        if self.contained and interpreted and named_so:
            # Inside an image files cannot be looked at: the name has to do.
            return True
        return (named_so or interpreted) and file_size(word, self.cwd) is not None

    def _read_module(self, program: str, argv: Sequence[str], at: int) -> tuple[str, str, int]:
        """``python -m MODULE [SUB-COMMAND]``: several programs under one name, so it belongs to the app."""
        name = f"{program}:{argv[at]}"
        sub = argv[at + 1] if at + 1 < len(argv) else ""
        # A word that is a file is an argument.
        if _SUBCOMMAND.fullmatch(sub) and not os.path.exists(self.cwd / sub):
            return f"{name}:{sub}", "module and sub-command", at + 2
        return name, "module", at + 1

    def _read_java(self, argv: Sequence[str]) -> tuple[str, str, int]:
        """``java -jar FILE`` or ``java CLASS``."""
        at = 1
        while at < len(argv):
            if argv[at] == "-jar" and at + 1 < len(argv):
                return f"java:{os.path.basename(argv[at + 1])}", "program and archive", at + 2
            if not argv[at].startswith("-"):
                return f"java:{argv[at]}", "program and class", at + 1
            at += 2 if argv[at] in ("-cp", "-classpath", "--class-path", "-p", "--module-path") else 1
        return "java", "program", 1

    # -- arguments -------------------------------------------------------------------------------------

    def arguments(self, words: Sequence[str]) -> None:
        """Flags with their values, and what belongs to no flag."""
        i = 0
        while i < len(words):
            # A command line may be generated: beyond a number, features would only cost.
            if len(self.inputs) >= MOST_INPUTS:
                self.explained.append(f"further arguments: left out, beyond {MOST_INPUTS} inputs")
                return
            word, following = words[i], words[i + 1] if i + 1 < len(words) else None
            if not word.startswith("-") or word in ("-", "--"):
                i += self._read_file_group(words, i) or self._read_positional(word)
                continue
            i += 1
            flag, equals, value = word.partition("=")
            glued = _GLUED.fullmatch(word)
            # --name=value, -n100, --name value and --flag, in this order: each is the more certain reading.
            if equals:
                self._read_value(flag.lstrip("-") or flag, value, flag)
            elif glued and number_of(glued[2]) is not None:
                self._read_value(glued[1], glued[2], f"-{glued[1]}")
            # "-1" and "-2" are switches of many programs, and take no value.
            elif following is not None and not flag[1:].isdigit() and _is_value(following, flag):
                self._read_value(flag.lstrip("-") or flag, following, flag)
                i += 1
            else:
                self._keep_input(flag.lstrip("-") or flag, "yes", f"{flag} is given")

    def _read_file_group(self, words: Sequence[str], i: int) -> int:
        """Takes many files in a row as one argument; returns how many, 0 where there are few."""
        sizes: list[int] = []
        while i + len(sizes) < len(words) and number_of(words[i + len(sizes)]) is None:
            size = file_size(words[i + len(sizes)], self.cwd)
            if size is None:
                break
            sizes.append(size)
        # A few files keep their own places (input, reference); of many only the sum means anything.
        if len(sizes) <= SEPARATE_FILES:
            return 0
        self.position += 1
        self._keep_input(f"arg{self.position}_files", float(len(sizes)), "files named")
        self._keep_input(f"arg{self.position}_bytes", float(sum(sizes)), "their size")
        return len(sizes)

    def _read_positional(self, word: str) -> int:
        if word not in ("-", "--"):
            self.position += 1
            match = ASSIGNMENT.fullmatch(word)
            if match is not None:  # as dd takes them: count=10
                self._read_value(match[1], match[2], f"{match[1]}=")
            else:
                self._read_value(f"arg{self.position}", word, f"argument {self.position}")
        return 1

    def _read_value(self, name: str, text: str, source: str) -> None:
        if _HOLE in text:
            self.explained.append(f"{source}: stands for the device")
            return
        number = number_of(text)
        if number is not None:
            self._keep_input(name, number, source)
        elif _OUTPUT.fullmatch(name):
            self.explained.append(f"{source}: left out, taken for an output")
        elif (size := file_size(text, self.cwd)) is not None:
            self._keep_input(f"{name}_bytes", float(size), f"size of {text}")
        else:
            self._keep_input(name, text, source)

    def _keep_input(self, name: str, value: float | str, source: str) -> None:
        key, again = name, 1
        while key in self.inputs:
            again += 1
            key = f"{name}_{again}"
        self.inputs[key] = value
        text = f"{value:g}" if isinstance(value, float) else value
        self.explained.append(f"{key} = {text} ({source})")


def _shell_script(argv: Sequence[str]) -> int | None:
    """Place of the text after ``-c``, if the shell is given one."""
    at = 1
    while at < len(argv) and argv[at].startswith(("-", "+")):
        word = argv[at]
        if not word.startswith("--") and word.startswith("-") and "c" in word:
            return at + 1 if at + 1 < len(argv) else None
        at += 2 if word in INTERPRETERS["sh"] else 1
    return None
