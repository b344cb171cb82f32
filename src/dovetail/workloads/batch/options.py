"""Words into options, as getopt_long reads them for sbatch: abbreviations, letters together, ``--``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from dovetail.errors import InputError
from dovetail.files.sentences import show_value
from dovetail.records import dataclass
from dovetail.spec.sbatch import BY_LETTER, BY_NAME, BY_VARIABLE, LATER, PLACEMENT, ScriptOption
from dovetail.workloads.batch.head import read_directives

HEAD, ENVIRONMENT, COMMAND_LINE = "script", "environment", "command line"
"""Where an option may come from; later ones win."""
_TRUE = ("", "yes")
_NOT_ZERO = re.compile(r"[+-]?0*[1-9]", re.ASCII)


class UnknownOptionError(InputError):
    """An option that sbatch has only where a plugin of the site adds it."""


@dataclass(frozen=True, slots=True)
class Given:
    """One option as it was given: what it is, its value (``None``: none), and where it stands.

    ``text`` is what was written, ``line`` its line in the script, ``where`` begins a sentence about it.
    """

    option: ScriptOption
    value: str | None
    text: str
    where: str
    origin: str = HEAD
    line: int | None = None

    @property
    def as_word(self) -> str:
        """It as one word, by its long name."""
        return f"--{self.option.name}" if self.value is None else f"--{self.option.name}={self.value}"


@dataclass(frozen=True, slots=True)
class Placed:
    """A word, and where it stands."""

    text: str
    where: str
    line: int | None = None


def parse_words(
    words: Sequence[Placed],
    origin: str = HEAD,
    *,
    into: list[Given] | None = None,
    unknown: list[UnknownOptionError] | None = None,
) -> tuple[list[Given], list[Placed]]:
    """The options of a row of words, and what follows them. Raises `InputError` with the place of the word.

    The row of a script is that of all its lines together: a value may stand on the next line. Options are
    added to ``into``, which has those before the wrong word where it raises. With ``unknown`` the options of
    a site's plugins are no wrong words: they are added to it, and the words behind them, which may be their
    values, are passed over.
    """
    found: list[Given] = [] if into is None else into
    at = 0
    while at < len(words):
        word = words[at]
        text = word.text
        # As getopt: "--" ends the options and belongs to neither side, "-" is a file (standard input).
        if text == "--":
            return found, list(words[at + 1 :])
        if not text.startswith("-") or text == "-":
            return found, list(words[at:])
        at += 1
        try:
            options = list(_options_of(word))
        except UnknownOptionError as error:
            if unknown is None:
                raise
            unknown.append(error)
            while at < len(words) and not words[at].text.startswith("-"):
                at += 1
            continue
        for option, value, name in options:
            # A value may be the next word, even on the next #SBATCH line.
            if option.value == "required" and value is None:
                if at == len(words):
                    raise InputError(f"found {name} without a value, expected one", where=word.where)
                value = words[at].text
                text = f"{text} {value}"
                at += 1
            found.append(Given(option, value, text, word.where, origin, word.line))
    return found, []


def _options_of(word: Placed) -> Iterator[tuple[ScriptOption, str | None, str]]:
    """The option of a word that begins with two dashes, or the several of one that begins with one."""
    if word.text.startswith("--"):
        name, equals, value = word.text[2:].partition("=")
        option = find_option(name, word.where)
        if equals and option.value == "none":
            raise InputError(
                f"found {show_value(word.text)}, expected --{option.name} without a value", where=word.where
            )
        yield option, value if equals else None, f"--{name}"
        return
    # One dash may stand for several letters (-HN2): the first one with a value takes the rest of the word.
    for at, letter in enumerate(word.text[1:], 1):
        if letter not in BY_LETTER:
            raise UnknownOptionError(
                f"found -{letter}, which sbatch does not know, expected one of its options", where=word.where
            )
        option = BY_LETTER[letter]
        if option.value == "required":
            yield option, word.text[at + 1 :] or None, f"-{letter}"
            return
        # An optional value stands in the same word: -kH is -k with the value H.
        if option.value == "optional":
            yield option, word.text[at + 1 :] or None, f"-{letter}"
            return
        yield option, None, f"-{letter}"


def find_option(name: str, where: str) -> ScriptOption:
    """The option of that long name, or of the only one that begins so. Raises `InputError`.

    >>> find_option("cpus-per-ta", "job.sh: line 2").name
    'cpus-per-task'
    """
    if name in BY_NAME:
        return BY_NAME[name]
    # Unique abbreviations, as getopt_long allows them; aliases of one option are no ambiguity.
    near = {known: option for known, option in BY_NAME.items() if known.startswith(name)}
    if len(set(near.values())) == 1:
        return next(iter(near.values()))
    # What sbatch 22.05 takes goes on to be taken though later versions have further options.
    earlier = {option for option in near.values() if option.name not in LATER}
    if len(earlier) == 1:
        return earlier.pop()
    if near:
        several = ", ".join(f"--{known}" for known in near)
        raise InputError(
            f"found --{name}, which begins several options, expected one of {several}", where=where
        )
    raise UnknownOptionError(
        f"found --{name}, which sbatch does not know without a plugin of its site, expected one of its own "
        "options (a #DOVETAIL line holds those of 'dovetail submit')",
        where=where,
    )


def head_options(text: str) -> list[Given]:
    """The options of a script's ``#SBATCH`` lines, for what hands it to sbatch as it is.

    From the first line on that sbatch will refuse, they are left to sbatch; options that only a plugin of
    the site's Slurm knows are so alone.

    >>> [one.as_word for one in head_options("#!/bin/sh\\n#SBATCH -N2 --comm='a b' # c\\necho")]
    ['--nodes=2', '--comment=a b']
    """
    # Errors are left to sbatch, which words them as its users know them.
    row: list[Placed] = []
    with suppress(InputError):
        for line in read_directives(text, ""):
            row += [Placed(word, "", line.line) for word in line.words]
    found: list[Given] = []
    with suppress(InputError):
        parse_words(row, into=found, unknown=[])
    return found


def placement_words(text: str) -> list[str]:
    """Those of a script's options that decide whether and where it can start, each as one word.

    >>> placement_words("#!/bin/sh\\n#SBATCH -p a -J name\\n#SBATCH --exclusive\\n")
    ['--partition=a', '--exclusive']
    """
    return [one.as_word for one in head_options(text) if one.option.name in PLACEMENT]


def from_environment(environ: Mapping[str, str]) -> list[Given]:
    """The options that ``SBATCH_*`` variables hold, in the order of the table.

    An option without a value is set by a variable that is empty, ``yes`` or a number other than 0; one with
    an optional value has that of the variable, unless it is empty. Of
    ``SLURM_HINT`` and ``SLURM_CLUSTERS`` those of sbatch win.
    """
    found: dict[str, Given] = {}
    # Sorted so that SBATCH_* come last, and win over the SLURM_* of the same option.
    for name in sorted(BY_VARIABLE, key=lambda name: name.startswith("SBATCH_")):
        value, option = environ.get(name), BY_VARIABLE[name]
        if value is None or (option.value == "none" and not _is_true(value)):
            continue
        # An empty variable is unset to sbatch.
        if option.value == "required" and not value:
            continue
        given = None if option.value == "none" or not value else value
        found[option.name] = Given(option, given, f"{name}={value}", f"the environment: {name}", ENVIRONMENT)
    return list(found.values())


def _is_true(value: str) -> bool:
    return value.lower() in _TRUE or _NOT_ZERO.match(value) is not None
