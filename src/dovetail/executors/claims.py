"""Which cores and devices of this machine each Dovetail uses now, so that two of them never share one.

A folder on the machine has one small file for each run or service that lives: what it uses, and who it is. A
file counts as long as somebody holds a shared lock on it: its Dovetail, or the supervisor that inherited the
lock and outlives it. So a claim can be stale for no reason at all, whatever was killed. Who takes units reads
all files and writes its own under one more lock, that of the folder, which is held for some microseconds.

All of it is advisory: it keeps Dovetails apart that mean well.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dovetail.model import Cluster, Placed, bits

__all__ = ["MAP", "Claims", "Holder", "around", "claims_folder", "holders", "units_of", "units_of_cluster"]

Unit = str
"""``core:3``, ``gpu:0``: a core, or a device by its kind and number."""
VARIABLE = "DOVETAIL_CLAIMS"
AROUND = "DOVETAIL_AROUND"
"""The maps whose worker this process is, or runs under: their claims are not in its way."""
MAP = "map-"
"""What the uid of a map begins with; all others are those of runs."""
LONGEST = 1 << 20
PATIENCE = 2.0
"""Seconds for the folder's lock; after that nothing is claimed, and nothing started, for now."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A Dovetail that uses something of this machine."""

    uid: str
    pid: int
    user: int
    units: frozenset[Unit]

    @property
    def label(self) -> str:
        """For people."""
        what = f"map {self.uid.removeprefix(MAP)}" if self.uid.startswith(MAP) else f"run {self.uid[:8]}"
        return f"{what} (process {self.pid})"


def around(uid: str) -> dict[str, str]:
    """What to set for processes that use what ``uid`` holds, so that a Dovetail among them may."""
    return {AROUND: f"{os.environ.get(AROUND, '')} {uid}".strip()}


def claims_folder() -> Path:
    """``$DOVETAIL_CLAIMS``, or a folder that all users of this machine share."""
    named = os.environ.get(VARIABLE, "")
    if os.path.isabs(named):
        return Path(named)
    base = "/run/lock" if os.access("/run/lock", os.W_OK) else "/tmp"
    return Path(base, "dovetail-claims")


def units_of_cluster(cluster: Cluster) -> dict[Unit, tuple[int, int | None]]:
    """The units of a cluster on this machine: the node of each, and the index of a device (``None``: a core).

    The cores that belong to a device are the device's, by its index.
    """
    found: dict[Unit, tuple[int, int | None]] = {}
    for n, node in enumerate(cluster.nodes):
        for core in node.cores:
            found[f"core:{core}"] = n, None
        for d, device in enumerate(node.devices):
            found[f"{device.kind}:{device.local}"] = n, d
            for core in device.cores:
                found.setdefault(f"core:{core}", (n, d))
    return found


def units_of(placed: Placed, cluster: Cluster) -> Iterator[Unit]:
    """What a job that runs holds."""
    for part in placed.allocation.parts:
        for n in bits(part.nodes):
            node = cluster.nodes[n]
            for core in placed.allocation.cores_on(n, node):
                yield f"core:{core}"
            for d in part.devices:
                device = node.devices[d]
                yield f"{device.kind}:{device.local}"
                yield from (f"core:{core}" for core in device.cores)


class Claims:
    """What one run or service uses of this machine.

    ``held`` are its units now. Nothing is written before the first claim. A Dovetail that runs as a job of
    another one uses what that job was given: the claims of that one are not in its way.
    """

    def __init__(self, uid: str, folder: Path | None = None) -> None:
        self.uid = uid
        self.held: frozenset[Unit] = frozenset()
        self._folder = folder or claims_folder()
        self._path = self._folder / f"{uid}.claims"
        self._fd = -1
        self._around = {_run_of(os.environ.get("DOVETAIL_UID", "")), *os.environ.get(AROUND, "").split()}

    @property
    def descriptor(self) -> int:
        """For the supervisor to inherit: as long as it lives, what is claimed stays so. Raises `OSError`."""
        self._open()
        return self._fd

    def _open(self) -> None:
        if self._fd >= 0:
            return
        _make(self._folder)
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        while self._fd < 0:
            try:
                fd = os.open(self._path, flags)
            except FileNotFoundError:
                fd = os.open(self._path, flags | os.O_CREAT | os.O_EXCL, 0o644)
            fcntl.flock(fd, fcntl.LOCK_SH)
            if _is_at(fd, self._path):
                self._fd = fd
            else:  # somebody took it for one of the dead, before we had the lock
                os.close(fd)

    def take(self, units: Iterable[Unit]) -> dict[Unit, Holder]:
        """Take all of these that nobody else holds; returns who holds the others.

        Raises `OSError` where the folder cannot be used.
        """
        wanted = frozenset(units)
        others = self.choose(lambda others: self.held | (wanted - others.keys()))
        return {unit: holder for unit, holder in others.items() if unit in wanted}

    def choose(self, choice: Callable[[Mapping[Unit, Holder]], Iterable[Unit]]) -> dict[Unit, Holder]:
        """Hold what ``choice`` makes of what others hold now, which nobody changes meanwhile; returns that.

        Raises `OSError` where the folder cannot be used.
        """
        self._open()
        with _locked(self._folder):
            others = self.others()
            units = frozenset(choice(others))
            if units != self.held:
                self._write(units)
        return others

    def others(self) -> dict[Unit, Holder]:
        """What others hold now, as far as it is in our way. Raises `OSError`."""
        return {
            unit: holder
            for holder in holders(self._folder)
            if holder.uid != self.uid and holder.uid not in self._around
            for unit in holder.units
        }

    def keep(self, units: Iterable[Unit]) -> None:
        """Let everything go but these, of those that are held. Raises `OSError`."""
        kept = self.held & frozenset(units)
        if kept != self.held:
            with _locked(self._folder):
                self._write(kept)

    def adopt(self, units: Iterable[Unit]) -> None:
        """What jobs hold that run already is ours. Raises `OSError`."""
        self._open()
        with _locked(self._folder):
            self._write(frozenset(units))

    def _write(self, units: frozenset[Unit]) -> None:
        data = json.dumps({"uid": self.uid, "pid": os.getpid(), "units": sorted(units)}).encode()
        size = max(os.fstat(self._fd).st_size, len(data) + 1)
        data, done = data.ljust(size - 1) + b"\n", 0
        while done < size:
            done += os.pwrite(self._fd, data[done:], done)
        self.held = units

    def close(self) -> None:
        """Hold nothing any more."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            self.leave()
            self.held = frozenset()

    def leave(self) -> None:
        """Go; what is claimed stays so as long as the supervisor lives."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def holders(folder: Path | None = None) -> list[Holder]:
    """Who uses what on this machine now. O(Dovetails that live)."""
    place = folder or claims_folder()
    return [holder for holder in _living(place) if holder.units] if place.is_dir() else []


def _run_of(uid: str) -> str:
    """The run in the uid of one of its jobs."""
    return uid.partition("/")[0].partition(".")[0]


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _make(folder: Path) -> None:
    """The folder, for all users; each of them can remove only files of their own."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return
    os.chmod(folder, 0o1777 if VARIABLE not in os.environ else 0o700)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The folder's lock. Raises `TimeoutError` (an `OSError`) where somebody keeps it."""
    path = folder / "lock"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path} is locked") from None
                time.sleep(0.001)
        yield
    finally:
        os.close(fd)


def _living(folder: Path) -> Iterator[Holder]:
    """Every file that somebody holds; those of the dead are removed on the way, where that is ours to do."""
    for entry in os.scandir(folder):
        if not entry.name.endswith(".claims"):
            continue
        try:
            fd = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            holder = _read(fd, entry.path)
        finally:
            os.close(fd)
        if holder is not None:
            yield holder


def _read(fd: int, path: str) -> Holder | None:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size > LONGEST:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _parsed(os.pread(fd, LONGEST, 0), found.st_uid)
    with contextlib.suppress(OSError):  # another user's: it stays, and counts for nothing
        os.unlink(path)
    return None


def _parsed(data: bytes, user: int) -> Holder | None:
    """What a file says, which a stranger may have written."""
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, Mapping):
        return None
    uid, pid, units = said.get("uid"), said.get("pid"), said.get("units")
    if not isinstance(uid, str) or not isinstance(pid, int) or not isinstance(units, list):
        return None
    return Holder(uid, pid, user, frozenset(unit for unit in units if isinstance(unit, str)))
