"""Bytes, blocks, lines and text of files: that they come whole, and that nothing is read without end."""

from __future__ import annotations

import gzip
import itertools
import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.files import reading
from dovetail.files.reading import read_blocks, read_bytes, read_lines, read_text


def written(folder: Path, data: bytes, name: str = "x.txt") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


texts = st.text(st.sampled_from("ab\r\n;é \ufeff"), max_size=60)


@settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(text=texts, block=st.integers(4, 12), piece=st.integers(1, 5), packed=st.booleans())
def test_blocks_and_lines_are_those_of_the_whole_text(tmp_path, text, block, piece, packed):
    data = text.encode()
    path = written(tmp_path, gzip.compress(data) if packed else data)
    whole = data.removeprefix(b"\xef\xbb\xbf")
    parts = whole.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
    expected = parts[:-1] if not parts[-1] else parts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "PIECE", piece)
        patch.setattr(reading, "BLOCK", block)
        assert read_bytes(path) == data
        if max(map(len, itertools.chain([b""], whole.replace(b"\r", b"\n").split(b"\n")))) + piece >= block:
            return  # a line longer than a block is refused; that is another test's
        assert b"".join(read_blocks(path)) == whole
        assert list(read_lines(path)) == expected


def test_a_line_that_never_ends_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "BLOCK", 1 << 20)
    path = written(tmp_path, b"a\n" + b"x" * (3 << 20))
    with pytest.raises(InputError, match=r"x\.txt: found a line of more than 1 MiB, expected text"):
        list(read_blocks(path))


@pytest.mark.parametrize("packed", [False, True])
def test_more_than_the_limit_is_refused_before_it_is_in_memory(tmp_path, packed):
    data = b"x\n" * (2 << 20)
    path = written(tmp_path, gzip.compress(data) if packed else data)
    unpacked = ", unpacked" if packed else ""
    with pytest.raises(InputError, match=f"found more than 2 MiB{unpacked}, expected a list of at most that"):
        read_text(path, "a list", most=2 << 20)
    assert len(read_text(path, "a list", most=4 << 20)) == 4 << 20


def test_devices_without_an_end_are_left_at_once():
    for read in (read_text, lambda path, expected: list(read_blocks(path, expected))):
        with pytest.raises(InputError, match="/dev/zero: found binary data at byte 0, expected a trace"):
            read("/dev/zero", "a trace")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "found an empty file, expected text"),
        (b" \r\n", "found an empty file, expected text"),
        (b"a\nb\xff", "line 2: found a byte 0xff, expected text in UTF-8"),
        (b"a\0b", "found binary data at byte 1, expected text"),
        ("a = 1".encode("utf-16"), "found text in UTF-16, expected text in UTF-8"),
        (gzip.compress(b"abc", mtime=0)[:-9], "the gzip data end too early"),
        (b"\x1f\x8bnot gzip at all", "damaged gzip data"),
    ],
)
def test_what_is_no_text_is_one_sentence(tmp_path, data, expected):
    with pytest.raises(InputError, match=expected) as caught:
        read_text(written(tmp_path, data))
    assert "\n" not in str(caught.value)


def test_lenient_text_keeps_what_is_no_utf_8(tmp_path):
    assert read_text(written(tmp_path, b"a\xffb"), lenient=True) == "a\udcffb"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("none", "none: found no such file, expected a list"),
        (".", "found a folder, expected a list"),
        ("a\0b", "found the file name '.*a.x00b', expected a list"),
        ("x" * 300, r"cannot be read \(file name too long\), expected a list"),
    ],
)
def test_what_cannot_be_opened_is_one_sentence(tmp_path, name, expected):
    with pytest.raises(InputError, match=expected):
        read_bytes(f"{tmp_path}/{name}", "a list")
    with pytest.raises(InputError, match="found no name of a file, expected a list"):
        read_bytes("", "a list")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_of_others_is_one_sentence(tmp_path):
    path = written(tmp_path, b"x")
    path.chmod(0)
    with pytest.raises(InputError, match=r"x\.txt: cannot be read \(permission denied\)"):
        read_bytes(path)


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_is_read_as_a_file_is(tmp_path, packed):
    data = b"1 2 3\n" * 1000
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(data) if packed else data,))
    writer.start()
    assert b"".join(read_blocks(pipe)) == data
    writer.join()


def test_several_gzip_members_and_padding_are_one_file(tmp_path):
    path = written(tmp_path, gzip.compress(b"a\n") + gzip.compress(b"b\n") + bytes(64))
    assert read_bytes(path) == b"a\nb\n"
