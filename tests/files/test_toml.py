"""Reading TOML within bounds. The faults of job files and cluster files are tests of these."""

from __future__ import annotations

import tomllib

import pytest

from dovetail.errors import InputError
from dovetail.files.toml import read_toml


def read(tmp_path, text):
    path = tmp_path / "x.toml"
    path.write_text(text)
    return read_toml(path, "tables")


@pytest.mark.parametrize(
    "key",
    [
        "a." * 50_000 + "a = 1",
        " . ".join(["a"] * 65) + "= 1",
        "[" + '"a\\"b".' * 64 + "a]",
        "[[" + "'a.b'." * 64 + "a]]",
        "x = { " + "a." * 64 + "a = 1 }",
        's = """\n' + "text.\n" + '"""\n' + "a." * 64 + "a = 1",
    ],
)
def test_a_key_of_very_many_parts_is_refused_at_its_line(tmp_path, key):
    line = key.count("\n") + 2
    with pytest.raises(InputError, match=rf"x\.toml: line {line}: found a key of more than 64 parts"):
        read(tmp_path, f"first = 1\n{key}\n")


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * 64) + " = 1",
        f"s = '{'a.' * 200}a'",
        f's = "{"a." * 200}a"',
        f"# {'a.' * 200}a\ns = 1",
        f's = """\n{"a." * 200}a = "b"\n"""',
        f"s = '''\n{'a.' * 200}a = 1\n'''",
        "s = [" + "1.5, " * 200 + "]",
    ],
)
def test_many_dots_elsewhere_are_no_key(tmp_path, text):
    assert read(tmp_path, text) == tomllib.loads(text)


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "9" * 5000])
def test_numbers_and_nesting_beyond_all_bounds(tmp_path, text):
    with pytest.raises(InputError, match="a number or a nesting beyond all bounds"):
        read(tmp_path, text)
