"""Run folders: where they lie, what they are called, how they describe themselves.

``run.json`` names the history, the policy and everything else that is needed to take the run up again;
``ledger.db`` holds the jobs, ``journal.jsonl`` (then ``journal-2.jsonl`` …) the decisions, ``spawn.log`` is
the local executor's. Runs lie in the XDG state folder, or are linked there; a run is known by its unique id,
or by so many first characters of it as no other run has.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dovetail.engine.journal.checked import DAMAGED, check_fields
from dovetail.engine.journal.codec import decode_cluster, encode_cluster
from dovetail.errors import InputError
from dovetail.files.reading import read_text
from dovetail.files.sentences import show_value
from dovetail.files.writing import create_file, private_folder
from dovetail.history.sqlite import default_history_path
from dovetail.interfaces import RunFolder
from dovetail.model import Cluster, Seconds
from dovetail.process.recovery import UNRECORDED
from dovetail.records import dataclass
from dovetail.spec.values import Overrun

_OWN = ("supervisor.err", "supervisor.sock", "agents", "ledger.db-wal", "ledger.db-shm", "ledger.db-journal")
SHORT = 8
"""Characters of a run's id that people are shown."""
MAP = "map"
"""The executor of a run whose jobs are maps (`dovetail.mapping`): no other Dovetail can take it up."""
LAST = "last"
"""The newest run."""
_ID = re.compile(r"[0-9a-f]{4,32}")


def default_runs_folder() -> Path:
    """Where live runs keep their files: beside the default history, in the XDG state folder."""
    return default_history_path().parent / "runs"


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What a run keeps to; ``created`` is in seconds since the epoch."""

    uid: str
    created: Seconds
    workload: str
    policy: str
    executor: str
    model: str
    history: str
    cwd: str
    grace: Seconds
    overrun: Overrun
    default_walltime: Seconds | None
    seed: int | None
    cluster: Cluster


def short_id(uid: str) -> str:
    """A run's id as people are shown it; commands take it."""
    return uid[:SHORT]


def check_run_folder(path: Path) -> None:
    """That a new run may keep its files in this folder; raises `InputError`. Changes nothing.

    None of the names that a run uses may be there: links and files of another origin are neither
    followed nor overwritten.
    """
    for name in ("spawn.log", "run.json", "ledger.db"):
        if os.path.lexists(path / name):
            raise InputError("found another run in the folder, expected a new one", where=str(path))
    for name in _OWN:
        if os.path.lexists(path / name):
            raise InputError(
                f"found {name} in the folder, a name that a run uses itself; expected another folder",
                where=str(path),
            )
    above = next(part for part in (path, *path.absolute().parents) if os.path.lexists(part))
    if not above.is_dir():
        raise InputError(f"cannot be made: found the file {above}, expected a folder", where=str(path))
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"cannot be made: {above} cannot be written to", where=str(path))


@contextmanager
def new_run_folder(path: Path | None, uid: str) -> Iterator[Path]:
    """A folder (mode 0700) for a new run; gone again where nothing came to lie in it.

    Raises `InputError` where it cannot be made, or holds a run already.
    """
    folder = path or default_runs_folder() / uid
    check_run_folder(folder)
    try:
        fresh = private_folder(folder)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", where=str(folder)) from error
    try:
        yield folder
    finally:
        if fresh and not os.listdir(folder):
            folder.rmdir()


def encoded_about(about: RunSettings) -> bytes:
    """What ``run.json`` holds."""
    data = {name: getattr(about, name) for name in RunSettings.__dataclass_fields__ if name != "cluster"} | {
        "version": 1,
        "cluster": encode_cluster(about.cluster),
    }
    return json.dumps(data).encode()


def write_about(folder: Path, about: RunSettings) -> None:
    """Write ``run.json``, whole or not at all, where none is; raises `InputError` where it cannot be."""
    path = folder / "run.json"
    try:
        part = path.with_name(f"run.json.{about.uid[:32]}.part")
        try:
            with create_file(part) as file:
                file.write(encoded_about(about))
            part.rename(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from error


def read_about(folder: Path) -> RunSettings:
    """Read ``run.json``. Raises `InputError` where it is missing, damaged, or of another version."""
    path = folder / "run.json"
    try:
        data: Any = json.loads(read_text(path, "the description of a run"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no JSON: {error}", where=str(path)) from error
    if not isinstance(data, Mapping) or data.get("version") != 1:
        raise InputError(
            "found something else, expected the description of a run, version 1", where=str(path)
        )
    try:
        fields = {name: data[name] for name in RunSettings.__dataclass_fields__ if name != "cluster"}
        return check_fields(RunSettings(**fields, cluster=decode_cluster(data["cluster"])))
    except DAMAGED as error:
        raise InputError(f"is damaged: found {show_value(str(error))}", where=str(path)) from error


def run_folders() -> list[Path]:
    """Folders of known runs, those that were begun or taken up last first."""
    try:
        entries = [entry for entry in os.scandir(default_runs_folder()) if entry.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(default_runs_folder())) from error
    entries.sort(key=_last_driven, reverse=True)
    return [Path(os.path.realpath(entry.path)) for entry in entries]


def _last_driven(entry: os.DirEntry[str]) -> Seconds:
    """When a Dovetail last began to drive it; the folder itself changes when a reader opens the ledger."""
    try:
        return os.stat(os.path.join(entry.path, "run.json")).st_mtime
    except OSError:
        # What is left of a run that never began.
        return entry.stat().st_mtime


def note_driven(folder: Path) -> None:
    """Note that a Dovetail takes the run up: it is the newest now."""
    with suppress(OSError):
        os.utime(folder / "run.json")


def find_run(name: str | None = None, *, maps: bool = True) -> Path:
    """The folder of a run: by path, by the beginning of its id, or (``None`` or `LAST`) the newest.

    Without ``maps`` the newest is one that can be taken up. Raises `InputError` where there is none, or
    several begin so.
    """
    name = None if name == LAST else name
    if name is not None and os.path.isfile(os.path.join(name, "run.json")):
        return Path(name).resolve()
    folders = run_folders()
    if name is None:
        if not folders:
            raise InputError("found no run on this machine, expected one to have been started")
        return next((one for one in folders if maps or read_about(one).executor != MAP), folders[0])
    root = default_runs_folder()
    matching = sorted({entry.name for entry in os.scandir(root)} if root.is_dir() else ())
    # Names of all entries, not only of folders that can be read: a run elsewhere is a link here.
    matching = [entry for entry in matching if entry.startswith(name)]
    if len(matching) != 1 or not name:
        found = "no run" if not matching else f"{len(matching)} runs"
        raise InputError(
            f"found {found} whose id begins with {name!r}, expected one ('dovetail runs' lists them)"
        )
    return Path(os.path.realpath(root / matching[0]))


def journal_of(name: str) -> Path | None:
    """The newest journal of the run that a word names: ``last``, a folder, or the beginning of an id.

    ``None`` where the word is no name of a run: a file, a text that is too short or no hexadecimal number.
    Raises `InputError` where it looks like an id and there is no such run, or several.
    """
    if os.path.isfile(name):
        return None
    if os.path.isdir(name):
        folder = Path(name)
    elif name == LAST or _ID.fullmatch(name):
        folder = find_run(name)
    else:
        return None
    journals = sorted(folder.glob("journal*.jsonl"), key=lambda path: path.stat().st_mtime)
    return journals[-1] if journals else folder / "journal.jsonl"


def new_journal(folder: Path) -> Path:
    """Path of the next journal of a run: one for each Dovetail that drove it."""
    path, number = folder / "journal.jsonl", 1
    while os.path.lexists(path):
        number += 1
        path = folder / f"journal-{number}.jsonl"
    return path


def mark_unrecorded(folder: Path) -> None:
    """Note that the ledger holds runs that are not in the history. Raises `OSError`."""
    (folder / UNRECORDED).touch(mode=0o600)


def is_marked_unrecorded(folder: Path) -> bool:
    """Whether the ledger may hold runs that are not in the history."""
    return (folder / UNRECORDED).exists()


def as_run_folder(folder: Path, about: RunSettings) -> RunFolder:
    """What a backend needs to know of it."""
    return RunFolder(folder, about.uid, about.cwd, about.grace)
