"""Which cores and devices of this machine each Dovetail uses now, so that two of them never share one.

Each user has a folder on the machine with one small file for each run or service that lives: what it uses,
what it waits for, and who it is. A file counts as long as a process holds a shared lock on it: its Dovetail,
or the supervisor that inherited the lock and outlives it. So a claim can be stale for no reason at all,
whatever was killed. Who takes units reads all files and writes its own under one more lock, that of the
folder, which is held for some microseconds. Other users' folders are read only: there, a taker of units
writes them down first and looks again, and of two who see each other both let go.

All of it is advisory: it keeps Dovetails apart that mean well. What others wrote is data, and bounded.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from itertools import islice
from pathlib import Path

from dovetail.files.folders import state_folder
from dovetail.files.locks import try_lock
from dovetail.model import Cluster, Placed, bit_indices
from dovetail.records import dataclass

Unit = str
"""``core:3``, ``gpu:0``: a core, or a device by its kind and number."""
VARIABLE = "DOVETAIL_CLAIMS"
AROUND = "DOVETAIL_AROUND"
"""The maps whose worker this process is, or runs under: their claims are not in its way."""
MAP = "map-"
"""What the uid of a map begins with; all others are those of runs."""
BASES = ("/run/lock", "/tmp")
"""Where each user has a folder of claims, unless ``$DOVETAIL_CLAIMS`` names one."""
NAMED = re.compile(r"dovetail-claims-([0-9]{1,10})", re.ASCII)
LONGEST = 1 << 20
MOVED = 1.0
"""Seconds by which an expected end moves before it is written down anew."""
LATEST = 1e11
"""Seconds since the epoch beyond which nothing is expected."""
MOST_FILES = 4096
"""Files of one user's folder that are read."""
PATIENCE = 2.0
"""Seconds for the folder's lock; after that nothing is claimed, and nothing started, for now."""
_UID = re.compile(r"[\w.@+=-]{1,100}", re.ASCII)
_KIND = re.compile(r"[\w.+-]{1,60}", re.ASCII)
_UNIT = re.compile(rf"{_KIND.pattern}:[0-9]{{1,7}}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Holder:
    """A Dovetail that uses something of this machine, or waits for it.

    ``wants`` counts the cores (``core``) and devices of a kind it lacks for its next job, and ``since``
    when it has begun to wait for them, by the machine's monotonic clock. ``began`` is when it began to use
    something, ``until`` when what it runs is expected to end, seconds since the epoch; ``None``: not known.
    """

    uid: str
    pid: int
    user: int
    units: frozenset[Unit]
    wants: Mapping[str, int] = field(default_factory=dict)
    since: float = math.inf
    began: float | None = None
    until: float | None = None

    @property
    def label(self) -> str:
        """For people."""
        what = f"map {self.uid.removeprefix(MAP)}" if self.uid.startswith(MAP) else f"run {self.uid[:8]}"
        return f"{what} (process {self.pid})"


def claim_environment(uid: str) -> dict[str, str]:
    """What to set for processes that use what ``uid`` holds, so that a Dovetail among them may."""
    return {AROUND: f"{os.environ.get(AROUND, '')} {uid}".strip()}


def claims_folders() -> list[Path]:
    """Where claims are, ours first: ``$DOVETAIL_CLAIMS``, or one folder for each user of this machine.

    A folder that does not belong to the user in its name, or that is a link, does not count.
    """
    named = os.environ.get(VARIABLE, "")
    if os.path.isabs(named):
        return [Path(named)]
    found: list[Path] = []
    for base in BASES:
        with contextlib.suppress(OSError), os.scandir(base) as entries:
            for entry in entries:
                match = NAMED.fullmatch(entry.name)
                # Any user can make a folder in /tmp, also a link, or one with the name of another user.
                if match and entry.is_dir(follow_symlinks=False):
                    owner = entry.stat(follow_symlinks=False).st_uid
                    found += [Path(entry.path)] if owner == int(match[1]) else []
    own = _own_folder()
    return [own, *(path for path in found if path != own)]


def _own_folder() -> Path:
    """Where this user's claims go: a place of that name that another user has made is not used.

    Nor one that cannot be written: the whole file system may be read-only, as in many containers.
    """
    name = f"dovetail-claims-{os.geteuid()}"
    for base in BASES:
        path = Path(base, name)
        try:
            found = path.lstat()
        except FileNotFoundError:
            if os.access(base, os.W_OK):
                return path
        except OSError:
            continue
        else:
            ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            if ours and os.access(path, os.W_OK | os.X_OK):
                return path
    return state_folder() / "dovetail" / "claims"


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
        for n in bit_indices(part.nodes):
            node = cluster.nodes[n]
            for core in placed.allocation.cores_on(n, node):
                yield f"core:{core}"
            for d in part.devices:
                device = node.devices[d]
                yield f"{device.kind}:{device.local}"
                yield from (f"core:{core}" for core in device.cores)


class Claims:
    """What one run or service uses of this machine.

    ``held`` are its units now, ``waiting`` who waited when others were last read. Nothing is written before
    the first claim. A Dovetail that runs as a job of another one uses what that job was given: the claims of
    that one are not in its way. ``patience`` is how long it waits for the folder's lock, in seconds.
    """

    def __init__(self, uid: str, folder: Path | None = None, *, patience: float = PATIENCE) -> None:
        self.uid = uid
        self.patience = patience
        self.held: frozenset[Unit] = frozenset()
        self.until: float | None = None
        """When what runs is expected to end, seconds since the epoch; written down with the units."""
        self.waiting: list[Holder] = []
        self._folder = folder or claims_folders()[0]
        self._shared = folder is None and not os.path.isabs(os.environ.get(VARIABLE, ""))
        self._path = self._folder / f"{uid}.claims"
        self._fd = -1
        self._note: dict[str, object] = {}  # what we wait for
        self._began: float | None = None
        self._until: float | None = None  # as it was written down
        self._around = {_run_of(os.environ.get("DOVETAIL_UID", "")), *os.environ.get(AROUND, "").split()}

    @property
    def inheritable_descriptor(self) -> int:
        """For the supervisor to inherit: as long as it lives, what is claimed stays so. Raises `OSError`."""
        self._open_claim()
        return self._fd

    def _open_claim(self) -> None:
        if self._fd >= 0:
            return
        _make_folder(self._folder)
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        deadline = time.monotonic() + self.patience
        while self._fd < 0:
            try:
                fd = os.open(self._path, flags)
            except FileNotFoundError:
                # 0644: others must be able to read what we use, and only we may change it.
                fd = os.open(self._path, flags | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                _lock_within(fd, deadline, self._path, shared=True)
            except OSError:
                os.close(fd)
                raise
            if _is_at(fd, self._path):
                self._fd = fd
            else:
                # Another process took it for one of the dead, before we had the lock.
                os.close(fd)

    def take(self, units: Iterable[Unit]) -> dict[Unit, Holder]:
        """Take all of these that no other holds; returns who holds the others.

        Raises `OSError` where the folder cannot be used.
        """
        wanted = frozenset(units)
        others = self.choose_units(lambda others: self.held | (wanted - others.keys()))
        return {unit: holder for unit, holder in others.items() if unit in wanted}

    def choose_units(self, choice: Callable[[Mapping[Unit, Holder]], Iterable[Unit]]) -> dict[Unit, Holder]:
        """Hold what ``choice`` makes of what others hold now, which stays unchanged meanwhile; returns that.

        Raises `OSError` where the folder cannot be used.
        """
        self._open_claim()
        with self._hold_lock():
            others = self.held_by_others()
            units, before = frozenset(choice(others)), self.held
            if units != before:
                self._write_claim(units)
                # Other users take under locks of their own: who sees that both have written lets go.
                late = self.held_by_others() if self._shared and units - before else others
                lost = (units - before) & late.keys()
                if lost:
                    self._write_claim(units - lost)
                    return late
        return others

    def held_by_others(self) -> dict[Unit, Holder]:
        """What others hold now, as far as it is in our way. Raises `OSError`."""
        folders = claims_folders() if self._shared else [self._folder]
        living = [
            holder
            for holder in _living_in(folders)
            if holder.uid != self.uid and holder.uid not in self._around
        ]
        self.waiting = sorted((one for one in living if one.wants), key=lambda one: (one.since, one.uid))
        return {unit: holder for holder in living for unit in holder.units}

    def keep(self, units: Iterable[Unit]) -> None:
        """Let everything go but these, of those that are held. Raises `OSError`."""
        kept = self.held & frozenset(units)
        moved = abs((self.until or 0.0) - (self._until or 0.0)) > MOVED
        if kept != self.held or (kept and moved):
            with self._hold_lock():
                self._write_claim(kept)

    def wait_for(self, wants: Mapping[str, int], since: float) -> None:
        """Note what is lacking, so that who frees it lets us go first; nothing, if ``wants`` is empty.

        Raises `OSError`.
        """
        note: dict[str, object] = {"wants": dict(wants), "since": since} if wants else {}
        if note != self._note:
            self._open_claim()
            with self._hold_lock():
                self._note = note
                self._write_claim(self.held)

    def adopt_units(self, units: Iterable[Unit]) -> None:
        """What jobs hold that run already is ours. Raises `OSError`."""
        self._open_claim()
        with self._hold_lock():
            self._write_claim(frozenset(units))

    def _hold_lock(self) -> contextlib.AbstractContextManager[None]:
        return _lock_folder(self._folder, self.patience)

    def _write_claim(self, units: frozenset[Unit]) -> None:
        self._began = (self._began or time.time()) if units else None
        self._until = self.until if units else None
        content = {"uid": self.uid, "pid": os.getpid(), "units": sorted(units), **self._note}
        content |= {} if self._began is None else {"began": self._began}
        content |= {} if self._until is None else {"until": self._until}
        data = json.dumps(content).encode()
        # Padded to its old size, in one write where possible: readers take no lock, and must find whole JSON.
        size = max(os.fstat(self._fd).st_size, len(data) + 1)
        data, done = data.ljust(size - 1) + b"\n", 0
        while done < size:
            done += os.pwrite(self._fd, data[done:], done)
        self.held = units

    def close(self) -> None:
        """Hold nothing any more."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                # Removed before the lock goes: a file without a lock is taken for that of a dead process.
                self._path.unlink(missing_ok=True)
            self.leave()
            self.held = frozenset()

    def leave(self) -> None:
        """Go; what is claimed stays so as long as the supervisor lives."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def list_holders(folder: Path | None = None) -> list[Holder]:
    """Who uses what on this machine now. O(Dovetails that live)."""
    folders = claims_folders() if folder is None else [folder]
    return [holder for holder in _living_in(folders) if holder.units]


def _run_of(uid: str) -> str:
    """The run in the uid of one of its jobs."""
    return uid.partition("/")[0].partition(".")[0]


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _make_folder(folder: Path) -> None:
    """Our folder; others may read it. Raises `OSError` where another user has made it."""
    try:
        folder.mkdir(mode=0o755)
    except FileNotFoundError:
        folder.mkdir(mode=0o755, parents=True)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), 0):
            raise PermissionError(errno.EPERM, f"{folder} was made by another user") from None


def _lock_within(fd: int, deadline: float, path: Path, *, shared: bool = False) -> None:
    """Raises `TimeoutError` (an `OSError`) where another process keeps it."""
    while True:
        if try_lock(fd, shared=shared):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} is locked")
        time.sleep(0.001)


@contextmanager
def _lock_folder(folder: Path, patience: float) -> Iterator[None]:
    """The folder's lock, which only this user can open: to lock a file, it is enough to read it.

    Raises `TimeoutError` (an `OSError`) where another process keeps it.
    """
    path = folder / "lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if stat.S_IMODE(os.fstat(fd).st_mode) & 0o007:  # as they were once made
            os.fchmod(fd, 0o600)
        _lock_within(fd, time.monotonic() + patience, path)
        yield
    finally:
        os.close(fd)


def _living_in(folders: Iterable[Path]) -> Iterator[Holder]:
    for folder in folders:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            yield from _living_holders(folder)


def _living_holders(folder: Path) -> Iterator[Holder]:
    """Every file that a process holds; those of the dead are removed on the way, where that is ours to do."""
    with os.scandir(folder) as entries:
        for entry in islice(entries, MOST_FILES):
            if not entry.name.endswith(".claims"):
                continue
            # O_NONBLOCK: a pipe of this name must not hang the reader.
            flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            try:
                try:
                    fd = os.open(entry.path, os.O_RDWR | flags)  # NFS locks no other for one owner
                except PermissionError:
                    fd = os.open(entry.path, os.O_RDONLY | flags)
            except OSError:
                continue
            try:
                holder = _read_holder(fd, entry.path)
            finally:
                os.close(fd)
            if holder is not None:
                yield holder


def _read_holder(fd: int, path: str) -> Holder | None:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size > LONGEST:
        return None
    try:
        # An exclusive lock succeeds only where no process holds a shared one: its owners are dead.
        lives = not try_lock(fd)
    except OSError:
        lives = True  # where that cannot be known, nothing of theirs is taken
    if lives:
        return _parse_holder(os.pread(fd, LONGEST, 0), found.st_uid)
    # Another user's: it stays, and counts for nothing.
    with contextlib.suppress(OSError):
        os.unlink(path)
    return None


def _parse_holder(data: bytes, user: int) -> Holder | None:
    """The holder in a file, which a stranger may have written; names are shown to people."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, Mapping):
        return None
    uid, pid, units = content.get("uid"), content.get("pid"), content.get("units")
    if not isinstance(uid, str) or not _UID.fullmatch(uid) or type(pid) is not int or not 0 < pid < 1 << 31:
        return None
    if not isinstance(units, list):
        return None
    held = frozenset(unit for unit in units if isinstance(unit, str) and _UNIT.fullmatch(unit))
    began, until = (_parse_moment(content.get(name)) for name in ("began", "until"))
    wants, since = content.get("wants"), content.get("since")
    # A wish from the future would come first for ever.
    if not isinstance(wants, Mapping) or type(since) is not float or not 0 <= since <= time.monotonic():
        return Holder(uid, pid, user, held, began=began, until=until)
    lacks = {
        kind: count
        for kind, count in islice(wants.items(), 16)
        if _KIND.fullmatch(kind) and type(count) is int and 0 < count <= 1_000_000
    }
    return Holder(uid, pid, user, held, lacks, since, began, until)


def _parse_moment(value: object) -> float | None:
    """Seconds since the epoch that people can read; ``None`` for anything else."""
    return value if isinstance(value, float) and 0 < value < LATEST else None
