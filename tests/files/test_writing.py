"""Writing: whole or not at all, through no planted link, private where that is asked for."""

from __future__ import annotations

import gzip
import os
import resource
import stat
from contextlib import contextmanager

import pytest

from dovetail.errors import InputError
from dovetail.files.writing import create_file, make_folder, private_folder, replace_file, write_text


@contextmanager
def files_of_at_most(count):
    """The system refuses to let a file grow beyond so many bytes, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "x.txt"
    write_text(path, "before")
    with (
        files_of_at_most(100_000),
        pytest.raises(InputError, match=r"x\.txt: cannot be written \(file too large"),
    ):
        write_text(path, "after" * 100_000)
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["x.txt"]
    with pytest.raises(InputError, match=r"/dev/full: cannot be written \(no space left on device"):
        write_text("/dev/full", "x")


def test_the_name_of_the_new_file_cannot_be_known_beforehand(tmp_path, monkeypatch):
    (tmp_path / "theirs").write_text("precious")
    seen = []
    real_open = os.open

    def watched(path, flags, *rest, **named):
        if os.fspath(path).endswith(".part"):
            seen.append(os.fspath(path))
            assert flags & os.O_EXCL
            assert flags & os.O_NOFOLLOW
        return real_open(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", watched)
    for planted in ("x.txt.part", ".x.txt.part"):
        (tmp_path / planted).symlink_to(tmp_path / "theirs")
    write_text(tmp_path / "x.txt", "mine")
    write_text(tmp_path / "x.txt", "mine again")
    assert len(set(seen)) == 2
    assert (tmp_path / "theirs").read_text() == "precious"
    assert (tmp_path / "x.txt").read_text() == "mine again"


def test_the_mode_of_the_old_file_stays_and_a_private_one_is_ones_own(tmp_path):
    path = tmp_path / "x.txt"
    with umask(0o022):
        write_text(path, "1")
        assert mode(path) == 0o644
        path.chmod(0o640)
        write_text(path, "2")
        assert mode(path) == 0o640
    with umask(0):
        replace_file(path, "3")
        assert mode(path) == 0o600


def test_a_link_is_followed_to_what_it_names(tmp_path):
    (tmp_path / "there").write_text("old")
    (tmp_path / "link").symlink_to("there")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there").read_text() == "new"


def test_what_is_named_gz_is_gzip(tmp_path):
    write_text(tmp_path / "x.json.gz", "{}")
    assert gzip.decompress((tmp_path / "x.json.gz").read_bytes()) == b"{}"


def test_what_cannot_be_written_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none/x\.txt: cannot be written \(no such file"):
        write_text(tmp_path / "none" / "x.txt", "")
    with pytest.raises(InputError, match="cannot be written"):
        write_text("a\0b", "")


def test_a_new_file_takes_no_place_and_no_link(tmp_path):
    with umask(0), create_file(tmp_path / "new") as file:
        file.write(b"x")
    assert mode(tmp_path / "new") == 0o600
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("new", "dangling"):
        with pytest.raises(FileExistsError):
            create_file(tmp_path / name)
    assert not (tmp_path / "nowhere").exists()


def test_a_private_folder_is_entered_by_its_owner_only(tmp_path):
    with umask(0):
        assert private_folder(tmp_path / "a" / "b")
        assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700
        assert mode(make_folder(tmp_path / "c")) == 0o777
    assert not private_folder(tmp_path / "c")
    assert mode(tmp_path / "c") == 0o777  # it was there before: it is not ours to change


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "inner", f"{tmp_path}/a\0b"):
        with pytest.raises(InputError, match=r"cannot be made: "):
            make_folder(path)
