"""The argv of a job."""

from __future__ import annotations

import pytest

from dovetail.errors import InputError
from dovetail.model.command_line import command_words
from dovetail.testing.processes import placed


def test_inputs_fill_the_placeholders_and_nothing_else_is_read() -> None:
    job = placed(
        "a",
        "./mm",
        "--n={n}",
        "{x}{s}",
        "{{n}}",
        "$(rm)",
        "{device}",
        inputs={"n": 2048.0, "x": 0.5, "s": "a b"},
    )
    assert command_words(job) == ["./mm", "--n=2048", "0.5a b", "{n}", "$(rm)", "cpu"]


def test_a_missing_command_or_value_is_one_sentence() -> None:
    with pytest.raises(InputError, match="implementation 'cpu' of app 'app' has no command"):
        command_words(placed("a", command=False))
    with pytest.raises(InputError, match=r"names \{m\}, expected one of \{n\}, \{device\}"):
        command_words(placed("a", "x", "{m}", inputs={"n": 1.0}))
