import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.model.templates import device_word, escape_template, placeholder_names, render_template


def test_placeholders_once_each_in_order() -> None:
    assert placeholder_names(["--n={n}", "{device}", "{n}{{x}}"]) == ["n", "device"]


@pytest.mark.parametrize("text", ["{", "}", "a{b", "{a}}"])
def test_a_single_brace_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a single"):
        placeholder_names([text])


def test_render_writes_whole_numbers_without_a_point() -> None:
    values = {"n": 2048.0, "x": 0.5, "mode": "fast", "big": 1e20}
    assert render_template("{n} {x} {mode} {big} {{n}}", values) == "2048 0.5 fast 1e+20 {n}"


def test_render_needs_every_value() -> None:
    with pytest.raises(KeyError):
        render_template("{n}", {})


@pytest.mark.parametrize(
    ("kind", "word"), [("cpu", "cpu"), ("gpu", "cuda"), ("cpu+gpu", "cuda"), ("opencl", "opencl")]
)
def test_device_words(kind: str, word: str) -> None:
    assert device_word(kind) == word


@settings(deadline=None, derandomize=True)
@given(st.text())
def test_escaped_text_renders_to_itself(text: str) -> None:
    assert placeholder_names([escape_template(text)]) == []
    assert render_template(escape_template(text), {}) == text
