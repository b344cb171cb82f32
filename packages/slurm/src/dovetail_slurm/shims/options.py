"""Words into options as getopt_long reads them: abbreviations, letters together, options after words."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Wrong(Exception):  # noqa: N818 - reads as what it is
    """A command was used wrongly, or cannot do what is wanted: lines for standard error, and a status."""

    def __init__(self, *lines: str, status: int = 1) -> None:
        super().__init__(*lines)
        self.lines, self.status = lines, status


class Given(NamedTuple):
    """An option as it was given; ``value`` is ``None`` where it has none."""

    name: str
    value: str | None


class Options:
    """The options of one command.

    ``table`` has one a word: ``jobs=j`` takes a value and has the letter j, ``noheader!h`` takes none,
    ``signal?s`` may take one, ``jobs~j`` also the next word, if that is no option. What begins with a dot
    (``.clusters=M``) is known and changes nothing here.
    """

    def __init__(self, command: str, table: str) -> None:
        self.command = command
        self.values: dict[str, str] = {}
        self.letters: dict[str, str] = {}
        self.idle: set[str] = set()
        for word in table.split():
            at = next(i for i, sign in enumerate(word) if sign in "=?!~")
            name, takes, letters = word[:at], word[at], word[at + 1 :]
            if name.startswith("."):
                name = name[1:]
                self.idle.add(name)
            self.values[name] = takes
            self.letters.update(dict.fromkeys(letters, name))

    def read(self, words: Sequence[str], *, permute: bool = True) -> tuple[list[Given], list[str]]:
        """The options that count, and the other words. Raises `Wrong` as getopt_long would put it."""
        found: list[Given] = []
        rest: list[str] = []
        at = 0
        while at < len(words):
            word = words[at]
            at += 1
            if word == "--":
                rest += words[at:]
                break
            if not word.startswith("-") or word == "-":
                rest.append(word)
                # What follows a batch script's name belongs to the script.
                if not permute:
                    rest += words[at:]
                    break
                continue
            for name, value, shown in self._options_of(word):
                if self.values[name] == "=" and value is None:
                    if at == len(words):
                        raise self._make_error(f"option {shown} requires an argument")
                    value = words[at]
                    at += 1
                if self.values[name] == "~" and value is None and at < len(words) and words[at][:1] != "-":
                    value = words[at]
                    at += 1
                if name not in self.idle:
                    found.append(Given(name, value))
        return found, rest

    def _options_of(self, word: str) -> Iterator[tuple[str, str | None, str]]:
        if word.startswith("--"):
            given, equals, value = word[2:].partition("=")
            name = self._find_long_option(given)
            if equals and self.values[name] == "!":
                raise self._make_error(f"option '--{name}' doesn't allow an argument")
            yield name, value if equals else None, f"'--{name}'"
            return
        for at, letter in enumerate(word[1:], 1):
            if letter not in self.letters:
                raise self._make_error(f"invalid option -- '{letter}'")
            name = self.letters[letter]
            takes = self.values[name]
            rest = word[at + 1 :]
            # The rest of the word is the value: `-n4`.
            if takes == "=" or (takes in "?~" and rest):
                yield name, rest or None, f"-- '{letter}'"
                return
            yield name, None, f"-- '{letter}'"

    def _find_long_option(self, given: str) -> str:
        if given in self.values:
            return given
        near = [name for name in self.values if name.startswith(given)]
        if len(near) == 1:
            return near[0]
        if near:
            names = " ".join(f"'--{name}'" for name in near)
            raise self._make_error(f"option '--{given}' is ambiguous; possibilities: {names}")
        raise self._make_error(f"unrecognized option '--{given}'")

    def _make_error(self, what: str) -> Wrong:
        # getopt_long has two forms of this sentence, one for letters and one for words.
        what = (
            what.replace("option -- ", "option requires an argument -- ", 1) if "requires" in what else what
        )
        what = what.removesuffix(" requires an argument") if what.startswith("option requires") else what
        return Wrong(f"{self.command}: {what}", f'Try "{self.command} --help" for more information')


def last_value(given: Sequence[Given], *names: str) -> str | None:
    """The value of the last of these options, ``None`` where none was given."""
    return next((one.value for one in reversed(given) if one.name in names), None)


def has_option(given: Sequence[Given], *names: str) -> bool:
    """Whether one of these was given."""
    return any(one.name in names for one in given)


def listed_values(given: Sequence[Given], *names: str) -> list[str]:
    """The parts between commas of the last of these options."""
    return [part.strip() for part in (last_value(given, *names) or "").split(",") if part.strip()]


def write_complaint(*lines: str) -> None:
    """Write lines to standard error."""
    for line in lines:
        print(line, file=sys.stderr)


def outlive_our_job() -> None:
    """Go on where the job in which we are is ended by this command, so that our caller has its answer."""
    if "DOVETAIL_JOB" in os.environ:
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
