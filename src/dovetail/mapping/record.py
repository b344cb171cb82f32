"""What a map of programs has done, written down beside its results, so that it can be resumed.

``OUT/.dovetail-map/record.jsonl`` has one JSON object a line, each appended by one write: ``map`` (the
commands), ``done`` (an item, where its output lies as a part, what the item's file was like), ``reduced``.
An item is recorded first and its output is put in its place then: after a crash between the two the
output is still there as a part, and the next map puts it in its place.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from dovetail.errors import InputError
from dovetail.files.locks import try_lock
from dovetail.files.writing import write_all
from dovetail.mapping.programs import FileItem, Ran
from dovetail.records import dataclass

FOLDER = ".dovetail-map"
FILE, PARTS, LOCK = "record.jsonl", "parts", "lock"


@dataclass(slots=True)
class Record:
    """The record of one output folder, held by one map at a time. ``out`` is the folder."""

    out: Path
    _lock: int = -1
    _log: int = -1
    _done: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _reduced: Mapping[str, Any] | None = None

    @staticmethod
    def open(out: Path, commands: Mapping[str, str], *, resume: bool) -> Record:
        """Take an output folder; without ``resume`` what was recorded there is forgotten.

        Raises `InputError` where the folder cannot be made, another map holds it, or (with ``resume``) what
        is there came from other commands.
        """
        record = Record(out)
        folder = out / FOLDER
        try:
            folder.mkdir(parents=True, exist_ok=True)
            record._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            # Held until `close`: two maps that write to one folder would mix their results.
            if not try_lock(record._lock):
                raise InputError("another map writes there, expected a folder of its own", where=str(out))
            if resume:
                record._read_record(folder / FILE, commands)
            else:
                shutil.rmtree(folder / PARTS, ignore_errors=True)
                (folder / FILE).unlink(missing_ok=True)
            record._log = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            (folder / PARTS).mkdir(exist_ok=True)
        except (OSError, InputError) as error:
            record.close()
            if isinstance(error, InputError):
                raise
            raise InputError(f"cannot be written: {error.strerror}", where=str(out)) from error
        record._write_entry({"t": "map", "version": 1, "commands": commands})
        return record

    def _read_record(self, path: Path, commands: Mapping[str, str]) -> None:
        """What was done before; lines that a crash has torn are skipped."""
        if not path.exists():
            return
        for line in path.read_bytes().split(b"\n"):
            try:
                entry = json.loads(line)
                kind = entry["t"]
                if kind == "map":
                    _compare_commands(entry["commands"], commands, self.out)
                elif kind == "done":
                    self._done[entry["in"]] = entry
                elif kind == "reduced":
                    self._reduced = entry
            except (KeyError, TypeError, ValueError):
                continue

    def is_done(self, item: FileItem) -> bool:
        """Whether an item needs no work: it was done, its file is still the same, its output is there."""
        entry = self._done.get(os.path.abspath(item.path))
        if entry is None or entry["name"] != item.name or entry["file"] != _file_identity(item.path):
            return False
        place = self.out / item.name
        part = Path(entry["part"])
        # A crash came between the record and the move: the move is made up for here.
        if part.is_file():
            self._move_output(part, place)
        return place.is_file()

    def done(self, ran: Ran) -> None:
        """An item is done: write it down, then put its output in its place."""
        item = ran.item
        entry = {
            "t": "done",
            "in": os.path.abspath(item.path),
            "name": item.name,
            "part": ran.part,
            "file": _file_identity(item.path),
            "seconds": ran.seconds,
        }
        self._write_entry(entry)
        self._move_output(Path(ran.part), self.out / item.name)

    def is_reduced(self, name: str, items: Sequence[FileItem]) -> bool:
        """Whether the reduce of these very items is there."""
        entry = self._reduced
        return (
            entry is not None
            and entry["name"] == name
            and entry["items"] == [item.name for item in items]
            and (self.out / name).is_file()
        )

    def note_reduced(self, name: str, items: Sequence[FileItem], part: str) -> None:
        """The results are reduced."""
        # The other order than for items: a reduce that is recorded and not there would never be made again.
        self._move_output(Path(part), self.out / name)
        self._write_entry({"t": "reduced", "name": name, "items": [item.name for item in items]})

    def close(self, *, finished: bool = False) -> None:
        """Give the folder back; when all is finished the parts of lost copies go too."""
        if finished:
            shutil.rmtree(parts_of(self.out), ignore_errors=True)
        for fd in (self._log, self._lock):
            if fd >= 0:
                os.close(fd)
        self._log = self._lock = -1

    def _write_entry(self, entry: Mapping[str, Any]) -> None:
        try:
            write_all(self._log, json.dumps(entry).encode() + b"\n")
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", where=str(self.out / FOLDER)) from error

    def _move_output(self, part: Path, place: Path) -> None:
        """Move an output from its part to its place, and the part's folder away."""
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            part.replace(place)
            if part.parent.parent == parts_of(self.out):
                part.parent.rmdir()
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", where=str(place)) from error


def parts_of(out: Path) -> Path:
    """The folder for outputs on their way to an output folder."""
    return out / FOLDER / PARTS


def _file_identity(path: str) -> list[int]:
    """Size and time of last change: a file with the same ones is taken to be the same."""
    found = os.stat(path)
    return [found.st_size, found.st_mtime_ns]


def _compare_commands(before: Mapping[str, str], now: Mapping[str, str], out: Path) -> None:
    for name, command in now.items():
        if before.get(name, command) != command:
            raise InputError(
                f"found results of {name} {before[name]!r}, expected the same command to resume "
                "(without --resume all items are run anew)",
                where=str(out),
            )


def items_of(paths: Iterable[str], out: Path) -> list[FileItem]:
    """The items of these files: results are called as the files are, with folders where names repeat.

    Raises `InputError` for what is no file, for one that is given twice, for one whose result would take
    its own place in ``out``, and where there are none.
    """
    given = list(paths)
    for path in given:
        if not os.path.isfile(path):
            what = "a folder" if os.path.isdir(path) else "no such file"
            raise InputError(f"found {what}, expected a file", where=path)
    if not given:
        raise InputError("found no items, expected files", where="ITEMS")
    names = [os.path.basename(path) for path in given]
    if len(set(names)) < len(names):
        whole = [os.path.abspath(path) for path in given]
        if len(set(whole)) < len(whole):
            twice = next(path for path in given if whole.count(os.path.abspath(path)) > 1)
            raise InputError("found twice, expected each item once", where=twice)
        common = os.path.commonpath([os.path.dirname(path) for path in whole])
        names = [os.path.relpath(path, common) for path in whole]
    for path, name in zip(given, names, strict=True):
        if os.path.realpath(path) == os.path.realpath(out / name):
            raise InputError(
                "its result would take its own place, expected another folder for --out", where=path
            )
    return [FileItem(path, name) for path, name in zip(given, names, strict=True)]
