"""Writing files: whole or not at all, never through another's link, private on request."""

from __future__ import annotations

import gzip
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, cast

from dovetail.errors import InputError
from dovetail.files.sentences import error_reason, file_name

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_text(path: str | os.PathLike[str], text: str | bytes | Iterable[str]) -> None:
    """Write the file whole or not at all, as gzip where its name ends in ``.gz``.

    A long text may come in pieces, which are written as they come.

    A file that was there keeps its mode; a link is followed to what it names. What is no file
    (``/dev/stdout``) is written to as it is. Raises `InputError` where it cannot be written.
    """
    zipped = os.fspath(path).lower().endswith(".gz")
    try:
        # Through a link, so that it stays one, and names the new file.
        wanted = Path(os.path.realpath(path))
        mode = _mode_of(wanted)
        if mode is None or stat.S_ISREG(mode):
            replace_file(wanted, text, mode=mode, zipped=zipped)
        else:
            with wanted.open("wb") as there:
                _write_text_to(there, text, zipped)
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot be written ({error_reason(error)}); expected a path that can", where=file_name(path)
        ) from None


def replace_file(
    path: Path, data: str | bytes | Iterable[str], *, mode: int | None = 0o600, zipped: bool = False
) -> None:
    """Have a file hold this and nothing else, on disk when this returns. Raises `OSError`.

    It is written to a new file beside it, under a name that cannot be guessed, which then takes its place.
    ``None`` for the ``mode`` is that of any new file.
    """
    part = path.with_name(f".{path.name[:40]}.{os.urandom(8).hex()}.part")
    try:
        with create_file(part, private=mode is not None) as file:
            _write_text_to(file, data, zipped)
            if mode is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(mode))
            file.flush()
            # Else a crash could leave the name without the text.
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _write_text_to(file: BinaryIO, text: str | bytes | Iterable[str], zipped: bool) -> None:
    if zipped:
        # No time in the header: the same text gives the same bytes.
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as inside:
            _write_text_to(cast(BinaryIO, inside), text, False)
    elif isinstance(text, bytes):
        file.write(text)
    else:
        for piece in [text] if isinstance(text, str) else text:
            file.write(piece.encode())


def create_file(path: str | os.PathLike[str], *, private: bool = True) -> BinaryIO:
    """A new file, open for writing; ``private``: mode 0600, whatever the umask.

    Raises `OSError`, `FileExistsError` also where a link of that name leads nowhere.
    """
    descriptor = os.open(path, NEW, 0o600 if private else 0o666)
    if private:
        # The umask may have taken bits away, or a default ACL added some.
        os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "wb")


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte: a call may take a part only. Raises `OSError`, also where a part was written."""
    while data:
        data = data[os.write(descriptor, data) :]


def make_folder(path: str | os.PathLike[str]) -> Path:
    """Make a folder and those above it, and see that it can be written to; else raises `InputError`."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        found = f"cannot be made: {error_reason(error)}"
        raise InputError(found, where=file_name(path)) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        found = "cannot be written to (permission denied), expected a folder that can"
        raise InputError(found, where=file_name(path))
    return folder


def private_folder(path: str | os.PathLike[str]) -> bool:
    """Make a folder and those above it that are missing; whether the folder itself is new.

    Each that is new can be entered by its owner only, whatever the umask. Raises `OSError`.
    """
    folder = Path(path)
    try:
        folder.mkdir(mode=0o700)
    except FileNotFoundError:
        private_folder(folder.parent)
        return private_folder(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return False
    return True


def _mode_of(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None
