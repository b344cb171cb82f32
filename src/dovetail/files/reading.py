"""Reading files: plain or gzip, piece by piece, within bounds, every fault one sentence.

Whatever is read may come from a stranger: a small file can unpack to more than any memory holds, and a path
can lead to a device that never ends. So every function here counts what it reads, and reports when it is too
much. Text has no null bytes: the first one ends the reading.
"""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Iterator
from typing import BinaryIO

from dovetail.errors import InputError
from dovetail.files.sentences import error_reason, file_name, show_value

GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
PIECE = 1 << 20
BLOCK = 16 << 20
"""Bytes of whole lines that are looked at together; a longer line is refused."""
MOST_TEXT = 64 << 20
"""Bytes of a file that is taken in as a whole: a job file, a cluster file, a list of commands."""
MOST_BYTES = 4 << 30
"""Bytes, unpacked, of a file that is read piece by piece: a trace."""

_BREAK = re.compile(r"\r\n?|\n")


def read_bytes(path: str | os.PathLike[str], expected: str = "a file", *, most: int = MOST_BYTES) -> bytes:
    """The file's bytes, unpacked where it is gzip (by its first bytes, not its name).

    ``expected`` names what kind of file was wanted. Raises `InputError` for a file that is missing,
    unreadable or longer than ``most``, and for damaged gzip data.
    """
    return b"".join(_read_pieces(path, expected, most))


def read_text(
    path: str | os.PathLike[str], expected: str = "text", *, lenient: bool = False, most: int = MOST_TEXT
) -> str:
    """The text of a UTF-8 file; a byte order mark is dropped.

    Raises `InputError` as `read_bytes`, for an empty or a binary file, and names the line of the first byte
    that is no UTF-8; with ``lenient`` such bytes stay in the text as lone surrogates, for the caller to find.
    """
    where = file_name(path)
    data = b"".join(_text_pieces(path, expected, most)).removeprefix(BYTE_ORDER_MARK)
    if not data.strip():
        raise InputError(f"found an empty file, expected {expected}", where=where)
    try:
        return data.decode("utf-8", "surrogateescape" if lenient else "strict")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"line {line}: found a byte 0x{data[error.start]:02x}, expected text in UTF-8"
        raise InputError(found, where=where) from None


def read_blocks(path: str | os.PathLike[str], expected: str = "text") -> Iterator[bytes]:
    """The bytes of a text file in blocks that end where a line ends, without the byte order mark.

    Only one block is in memory at a time. Raises `InputError` as `read_text` does, but for an empty file.
    """
    held: list[bytes] = []
    size, fresh = 0, True
    for piece in _text_pieces(path, expected, MOST_BYTES):
        held.append(piece)
        size += len(piece)
        if size < BLOCK:
            continue
        whole = b"".join(held)
        # A carriage return at the very end may belong to a line feed that has not been read yet.
        end = max(whole.rfind(b"\n"), whole.rfind(b"\r", 0, size - 1)) + 1
        if not end:
            found = f"found a line of more than {_format_size(BLOCK)}, expected {expected}"
            raise InputError(found, where=file_name(path))
        yield whole[:end].removeprefix(BYTE_ORDER_MARK) if fresh else whole[:end]
        held, size, fresh = [whole[end:]], size - end, False
    rest = b"".join(held)
    if rest := rest.removeprefix(BYTE_ORDER_MARK) if fresh else rest:
        yield rest


def read_lines(path: str | os.PathLike[str], expected: str = "text") -> Iterator[str]:
    """The lines of a text file without their ends, whatever these are; bytes that are no UTF-8 as surrogates.

    Raises `InputError` as `read_blocks`.
    """
    for block in read_blocks(path, expected):
        found = _BREAK.split(block.decode("utf-8", "surrogateescape"))
        yield from found if found[-1] else found[:-1]


def peek_pipe(path: str | os.PathLike[str], most: int) -> bytes:
    """Up to so many first bytes of a pipe; the functions here yield them again. Raises `OSError`."""
    key = _pipe_at(path)
    assert key is not None
    if key not in _pipes:
        file = open(path, "rb")  # noqa: SIM115 - a second opening of a named pipe would wait for ever
        _pipes[key] = (file.read(most), file)
    return _pipes[key][0]


_pipes: dict[tuple[int, int], tuple[bytes, BinaryIO]] = {}


def is_pipe(path: str | os.PathLike[str]) -> bool:
    """Whether a path names a pipe, such as ``<(…)`` of a shell."""
    try:
        return _pipe_at(path) is not None
    except (OSError, ValueError):
        return False


def _pipe_at(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    status = os.stat(path)
    return (status.st_dev, status.st_ino) if stat.S_ISFIFO(status.st_mode) else None


def _open_source(path: str | os.PathLike[str]) -> BinaryIO | _Rewound:
    """A file to read from its beginning; of a pipe that was looked into, too."""
    key = _pipe_at(path)
    return _Rewound(*_pipes[key]) if key in _pipes else open(path, "rb")


def _text_pieces(path: str | os.PathLike[str], expected: str, most: int) -> Iterator[bytes]:
    read = 0
    for piece in _read_pieces(path, expected, most):
        if not read and piece.startswith(UTF_16):
            # UTF-16 has null bytes too: the better sentence comes first.
            raise InputError(f"found text in UTF-16, expected {expected} in UTF-8", where=file_name(path))
        at = piece.find(0)
        if at >= 0:
            found = f"found binary data at byte {read + at}, expected {expected}"
            raise InputError(found, where=file_name(path))
        read += len(piece)
        yield piece


def _read_pieces(path: str | os.PathLike[str], expected: str, most: int) -> Iterator[bytes]:
    """The bytes as they come; every failure, and more than ``most``, is one sentence."""
    where = file_name(path)
    if not os.fspath(path):
        raise InputError(f"found no name of a file, expected {expected}")
    read = 0
    try:
        with _open_source(path) as file:
            # By the first bytes: files lose and gain their endings on the way.
            head = file.read(len(GZIP_MAGIC))
            packed = head == GZIP_MAGIC
            if not packed and head and os.fspath(path).lower().endswith(".gz"):
                found = show_value(head + file.read(6))
                raise InputError(f"found {found} at the start, expected gzip data", where=where)
            source = _Rewound(head, file)
            for piece in _unpack_pieces(source, where) if packed else iter(lambda: source.read(PIECE), b""):
                read += len(piece)
                if read > most:
                    unpacked = ", unpacked" if packed else ""
                    raise InputError(
                        f"found more than {_format_size(most)}{unpacked}, expected {expected} of "
                        f"at most that",
                        where=where,
                    )
                yield piece
    except FileNotFoundError:
        raise InputError(f"found no such file, expected {expected}", where=where) from None
    except IsADirectoryError:
        raise InputError(f"found a folder, expected {expected}", where=where) from None
    except OSError as error:
        raise InputError(
            f"cannot be read ({error_reason(error)}), expected {expected}", where=where
        ) from None
    except ValueError:
        # A null character in the path.
        raise InputError(f"found the file name {where}, expected {expected}") from None


def _unpack_pieces(packed: _Rewound, where: str) -> Iterator[bytes]:
    """What gzip data hold. Raises `InputError` where they are damaged."""
    # Imported here: what starts often, such as sbatch of the shims, reads plain text.
    import gzip
    import zlib

    source = gzip.GzipFile(fileobj=packed)
    try:
        while piece := source.read(PIECE):
            yield piece
    except EOFError:
        raise InputError("the gzip data end too early; expected a whole gzip file", where=where) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"damaged gzip data ({error}); expected a whole gzip file", where=where) from None


class _Rewound(io.RawIOBase):
    """A file whose first bytes were read already: they come again. Pipes cannot be wound back."""

    def __init__(self, head: bytes, file: BinaryIO | _Rewound) -> None:
        super().__init__()
        self._head, self._file = head, file

    def read(self, count: int = -1) -> bytes:
        """Up to so many bytes."""
        head, self._head = self._head[:count], self._head[count:]
        return head + self._file.read(count - len(head))


def _format_size(count: int) -> str:
    for power, name in ((30, "GiB"), (20, "MiB")):
        if count >= 1 << power:
            return f"{count >> power} {name}"
    return f"{count} bytes"
