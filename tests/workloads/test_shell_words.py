"""Words are split as a shell splits them, and what is quoted is not expanded."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.programs.shell_words import Unexpandable, split_tokens, split_words


@settings(derandomize=True)
@given(st.text("ab '\"\\$=-*.\t", max_size=30))
def test_words_are_those_of_shlex(line: str) -> None:
    try:
        expected: list[str] | None = shlex.split(line)
    except ValueError:
        expected = None
    try:
        found: list[str] | None = [word.text for word in split_words(line)]
    except ValueError:
        found = None
    if expected is not None and '"' in line and "\\" in line:
        return  # shlex keeps the backslash before $ and ` in double quotes; the shell, and we, do not
    if "$'" in line or '$"' in line:
        return  # bash has quotes of its own there, and so have we
    assert found == expected


@pytest.mark.parametrize(
    "line",
    [
        "a 'b c' \"d e\"f g\\ h",
        "\"$HOME\"/x '$HOME' \\$HOME ${HOME} ~ ~/y '~'/y a~",
        'x"*"y \\* \'*\' "a\\"b\\$c\\d"',
        "*.txt [ab].txt 'a'.tx? sub/* '*'.none --all=*.txt",
        "a#b c #d",
        "'' \"\" a''b",
    ],
)
def test_lines_become_what_a_shell_makes_of_them(tmp_path: Path, line: str) -> None:
    for name in ("a.txt", "b.txt", "c.dat"):
        (tmp_path / name).write_text("")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "z").write_text("")
    env = {"HOME": "/home of me"}
    quoted = line.replace("${HOME}", '"${HOME}"')  # an unquoted value with a blank is two words there
    shell = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {quoted}"],
        cwd=tmp_path, env={**env, "PATH": "/usr/bin:/bin", "LC_ALL": "C"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", env["HOME"])
        found = [text for word in split_words(line) for text in word.expand_word(tmp_path, env)]
    assert found == shell.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("$NOPE", "found $NOPE, expected a variable that is set, or single quotes around it"),
        ('"${NOPE}"', "found $NOPE, expected a variable that is set"),
        ("${X:-1}", "found ${X:-1}, expected ${NAME}: no shell reads this line"),
        ("a$(date)", "found $(…), expected words: no shell reads this line"),
        ("`date`", "found `…`, expected words: no shell reads this line"),
        ("*.none", "found '*.none', expected files of that pattern, or quotes around it"),
    ],
)
def test_what_cannot_be_expanded_is_refused(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(Unexpandable) as caught:
        split_words(line)[0].expand_word(tmp_path, {})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("line", ["a$", "$1", "$?", "'$NOPE'", "\\$NOPE", "f?o", "[x", "--in=*.none"])
def test_what_no_shell_would_change_stays(tmp_path: Path, line: str) -> None:
    (word,) = split_words(line)
    assert word.expand_word(tmp_path, {}) == [word.text]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a|b", ["a", "|", "b"]),
        ("a&&b||c;d&e", ["a", "&&", "b", "||", "c", ";", "d", "&", "e"]),
        ("a 2>&1 >>b <c &>d 10>e", ["a", "2>&", "1", ">>", "b", "<", "c", "&>", "d", "10>", "e"]),
        ("a 'x;y' \"|\"", ["a", "x;y", "|"]),
        ("a\nb # c | d\ne", ["a", ";", "b", ";", "e"]),
        ("(a)", ["(", "a", ")"]),
        ("a<<E", ["a", "<<", "E"]),
    ],
)
def test_operators_of_scripts(script: str, expected: list[str]) -> None:
    assert [token.text for token in split_tokens(script)] == expected


@pytest.mark.parametrize("line", ["'", '"', "a\\", '"a\\"'])
def test_open_quotations_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match="no "):
        split_words(line)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (r"$'a\tb'", "a\tb"),
        (r"x$'\'\\'y", "x'\\y"),
        (r"$'\x41\102\u00e9\e[0m'", "AB\u00e9\x1b[0m"),
        (r"$'\xc3\xa9'", "\u00e9"),
        (r"$'\z$HOME'", r"\z$HOME"),
        (r'$"plain"', "plain"),
        (r"'$'x", "$x"),
        (r"\$'a'", "$a"),
    ],
)
def test_the_quotes_of_bash(text: str, word: str) -> None:
    (found,) = split_words(text)
    assert found.expand_word(".", {"HOME": "/h"}) == [word]


@pytest.mark.parametrize("text", [r"$'a", r"$'a\'", r"$'\0'", r"$'\U00110000'"])
def test_what_bash_would_not_take(text: str) -> None:
    with pytest.raises(ValueError, match=r"no closing quotation|which is no character|a null character"):
        split_words(text)
