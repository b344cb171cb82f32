"""A short letter means the same in every command; the exceptions are named."""

from __future__ import annotations

from pathlib import Path

from dovetail.spec.commands import LETTERS, OLD_LETTERS, commands_with_options, options_of

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"


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


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for letter in LETTERS:
        assert f"| `-{letter}` |" in page
