"""A short letter means the same in every command; the exceptions are named, and the page has the table."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from dovetail.spec.commands import (
    LETTERS,
    OLD_LETTERS,
    WITHOUT_LETTERS,
    commands_with_options,
    options_of,
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"
LETTER = re.compile(r"\| `-\w` \|")


def test_a_letter_means_one_thing() -> None:
    found = {
        (spelling[1], option.name)
        for command in commands_with_options()
        for option in options_of(command)
        for spelling in option.spellings
        if len(spelling) == 2
    }
    assert (
        found == {(letter, name) for letter, names in LETTERS.items() for name in names} | OLD_LETTERS.keys()
    )


def test_an_option_has_its_letter_in_every_command() -> None:
    everywhere = [
        (command, option)
        for command in commands_with_options()
        for option in options_of(command)
        if not option.positional
    ]
    letters = {
        long: f"-{letter}"
        for letter, names in LETTERS.items()
        for _, option in everywhere
        if option.name in names and f"-{letter}" in option.spellings
        for long in option.spellings
        if long.startswith("--")
    }
    without = {
        (command, long)
        for command, option in everywhere
        for long in option.spellings
        if long in letters
        and letters[long] not in option.spellings
        and not any((one[1:], option.name) in OLD_LETTERS for one in option.spellings)
    }
    assert without == WITHOUT_LETTERS.keys()


def test_the_page_has_the_table() -> None:
    commands: dict[tuple[str, str], list[str]] = defaultdict(list)
    for command in commands_with_options():
        for option in options_of(command):
            for letter, names in LETTERS.items():
                if option.name in names and f"-{letter}" in option.spellings:
                    long = next(one for one in option.spellings if one.startswith("--"))
                    commands[letter, long].append(command)
    page = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line for line in page if LETTER.match(line)] == [
        f"| `-{letter}` | `{long}` | {', '.join(sorted(of))} |"
        for letter in LETTERS
        for (one, long), of in commands.items()
        if one == letter
    ]
