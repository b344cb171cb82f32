import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.model.templates import device_word, escape, placeholders, render


def test_placeholders_once_each_in_order() -> None:
    assert placeholders(["--n={n}", "{device}", "{n}{{x}}"]) == ["n", "device"]


@pytest.mark.parametrize("text", ["{", "}", "a{b", "{a}}"])
def test_a_single_brace_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a single"):
        placeholders([text])


def test_render_writes_whole_numbers_without_a_point() -> None:
    values = {"n": 2048.0, "x": 0.5, "mode": "fast", "big": 1e20}
    assert render("{n} {x} {mode} {big} {{n}}", values) == "2048 0.5 fast 1e+20 {n}"


def test_render_needs_every_value() -> None:
    with pytest.raises(KeyError):
        render("{n}", {})


@pytest.mark.parametrize(
    ("kind", "word"), [("cpu", "cpu"), ("gpu", "cuda"), ("cpu+gpu", "cuda"), ("opencl", "opencl")]
)
def test_device_words(kind: str, word: str) -> None:
    assert device_word(kind) == word


@settings(deadline=None, derandomize=True)
@given(st.text())
def test_escaped_text_renders_to_itself(text: str) -> None:
    assert placeholders([escape(text)]) == []
    assert render(escape(text), {}) == text
