import pytest

from dovetail.files.sentences import file_name, show_value, suggest_closest


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", "'a'"),
        ("a\n\x1b[31m", r"'a\n\x1b[31m'"),
        ("é", "'é'"),
        (b"\xff", r"b'\xff'"),
        (None, "None"),
        (True, "true"),
        (1.5, "1.5"),
        (10**100, "a number beyond all bounds"),
        ({}, "an empty table"),
        ([1], "a list"),
        ("x" * 100, "'" + "x" * 59 + "… (100 characters)"),
        ("\x00" * 20, "'" + r"\x00" * 14 + r"\x0" + "… (20 characters)"),
    ],
)
def test_a_value_is_shown_short_and_on_one_line(value, expected):
    assert show_value(value) == expected


def test_what_only_looks_like_a_digit_can_be_spelt_out():
    assert show_value("١", spell=ascii) == r"'\u0661'"


def test_near_words_are_guessed_and_long_lists_cut():
    assert suggest_closest("esay", ["easy", "fcfs"]) == ", expected one of easy, fcfs; did you mean 'easy'?"
    assert suggest_closest("x", map(str, range(100))).endswith("38, 39 …")


def test_a_file_name_stays_on_its_line():
    assert file_name("a/b.toml") == "a/b.toml"
    assert file_name("a\nb") == r"'a\nb'"
