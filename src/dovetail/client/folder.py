"""Where a service keeps its things, and how its clients find it.

    service/             in the XDG state folder, mode 0700
      run.json           what it keeps to (`dovetail.running.folder.RunSettings`), with its unique id
      address.json       where it listens now, and its process
      lock               held as long as it lives; holds the name of its host until it ends in good order
      ledger.db          every job
      spawn.log …        the executor's
      journal/           what was decided, in segments
      output/12/12345.out  what jobs wrote
      scripts/           batch scripts, as they were when they were submitted
      drained.json       the nodes that were drained by hand
      forgotten          the highest number of a job that the ledger has dropped
      paused.json        the kinds of devices for which the queue was paused by hand
      reservations.json  the devices that are reserved, until when and for which user
      shared             there, once others than its account might submit
      terminals/         sockets of interactive jobs
      tokens.json        who may come in over the network
      token              that of the service's own account
      service.log        the log of a service in the background

The socket lies in ``$XDG_RUNTIME_DIR`` where that is set (a home on a network cannot hold sockets), with a
name of its own for each state folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dovetail.errors import InputError
from dovetail.files.folders import state_folder
from dovetail.files.locks import is_locked, try_lock
from dovetail.files.sentences import make_printable
from dovetail.files.shortage import lack_of
from dovetail.files.writing import private_folder, replace_file
from dovetail.process.processes import process_origin, standing_of, started_at
from dovetail.records import dataclass


def default_service_folder() -> Path:
    """``dovetail/service`` in the `state_folder`. Raises `InputError` where there is none."""
    return state_folder() / "dovetail" / "service"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service listens; ``urls`` are of its network addresses."""

    socket: str
    pid: int
    urls: tuple[str, ...] = ()
    version: str = ""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A service on another host: its process there, and whether it is seen to live (by its lock)."""

    host: str
    pid: int
    lives: bool

    def __str__(self) -> str:
        host = make_printable(self.host)
        if self.lives:
            return f"the service of this folder runs on {host} (process {self.pid})"
        return (
            f"the service of this folder was started on {host} (process {self.pid}) and has not ended in "
            "good order there; whether it runs cannot be seen from here"
        )


class ServiceFolder:
    """The state folder of one service."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = (default_service_folder() if path is None else Path(path)).absolute()

    def make_private(self) -> None:
        """Make it, readable by its owner only. Raises `OSError`."""
        # The folder itself first: all others lie within it.
        for name in ("", "journal", "output", "scripts", "terminals"):
            try:
                private_folder(self.path / name)
            except FileExistsError as error:
                # "File exists" would leave out what is wrong with that.
                place = str(self.path / name)
                raise NotADirectoryError(errno.ENOTDIR, "found a file, expected a folder", place) from error

    def check_access(self) -> None:
        """Raises `InputError` where the folder cannot be looked into: what it holds is not known then."""
        try:
            os.stat(self.path / "lock")
        except PermissionError as error:
            raise InputError(
                f"cannot be looked into: {error.strerror}; expected the folder of a service of this account",
                where=str(self.path),
            ) from error
        except OSError:  # there is none yet
            pass

    @property
    def ledger_path(self) -> Path:
        """The database of all jobs."""
        return self.path / "ledger.db"

    @property
    def journals_path(self) -> Path:
        """The folder of the journal's segments."""
        return self.path / "journal"

    @property
    def scripts_path(self) -> Path:
        """The folder of batch scripts."""
        return self.path / "scripts"

    @property
    def terminals(self) -> Path:
        """The folder of the sockets of jobs on terminals."""
        return self.path / "terminals"

    @property
    def tokens_path(self) -> Path:
        """The file of tokens."""
        return self.path / "tokens.json"

    @property
    def secret_path(self) -> Path:
        """The token of the service's own account, where it listens on a network."""
        return self.path / "token"

    @property
    def usage_path(self) -> Path:
        """What users have used, where they have fair shares."""
        return self.path / "usage.json"

    @property
    def gpu_hours_path(self) -> Path:
        """The GPU hours that users have used, where these are limited."""
        return self.path / "gpu_hours.json"

    @property
    def drained(self) -> Path:
        """The names of the nodes that were drained by hand."""
        return self.path / "drained.json"

    def drained_nodes(self) -> list[str]:
        """These names. Raises `InputError`."""
        return _names_in(self.drained, "names of nodes; without the file none is drained")

    def note_drained(self, name: str, drained: bool) -> None:
        """Have a node among them, or not. Raises `InputError`, `OSError`."""
        names = {*self.drained_nodes(), name} if drained else {*self.drained_nodes()} - {name}
        # Replaced as a whole, so that a crash leaves the old list or the new one.
        replace_file(self.drained, json.dumps(sorted(names)))

    @property
    def paused_path(self) -> Path:
        """The kinds of devices on which nothing new starts."""
        return self.path / "paused.json"

    def paused_kinds(self) -> list[str]:
        """These kinds; ``all`` stands for the whole queue. Raises `InputError`."""
        return _names_in(self.paused_path, "kinds of devices; without the file nothing is paused")

    def note_paused(self, kinds: Iterable[str]) -> None:
        """Have these be all that are paused. Raises `OSError`."""
        replace_file(self.paused_path, json.dumps(sorted(kinds)))

    def forgotten_number(self) -> int:
        """The highest number of a job that the ledger has dropped; 0 where that is not known."""
        try:
            return int((self.path / "forgotten").read_bytes()[:32])
        except (OSError, ValueError):
            return 0

    def note_forgotten(self, number: int) -> None:
        """Note that jobs up to this number may lack in the ledger. Raises `OSError`."""
        if number > self.forgotten_number():
            replace_file(self.path / "forgotten", f"{number}\n".encode())

    @property
    def log(self) -> Path:
        """The log of a service that runs in the background."""
        return self.path / "service.log"

    @property
    def default_socket(self) -> Path:
        """Where the socket is, unless its user chooses another place."""
        runtime = os.environ.get("XDG_RUNTIME_DIR", "")
        if not (os.path.isabs(runtime) and os.access(runtime, os.W_OK | os.X_OK)):
            return self.path / "service.sock"
        # The path of the folder is in the name: a user may keep several services. A digest, since paths of
        # sockets have 107 bytes at most.
        name = hashlib.blake2b(os.fsencode(self.path), digest_size=6).hexdigest()
        return Path(runtime) / f"dovetail-{name}.sock"

    def is_shared(self, *, now: bool) -> bool:
        """Whether others may submit ``now``, or might once: their processes may be there still.

        Raises `OSError`.
        """
        marker = self.path / "shared"
        # Kept for good: a process that another user's job left behind may still write.
        if now and not marker.exists():
            replace_file(marker, b"others than this account may have submitted jobs here\n")
        return now or marker.exists()

    def last_number(self) -> int:
        """The highest number of a job of which there is output or a record of its start, 0 without any."""

        from dovetail.process.spawn_log import read_log

        jobs = []
        for log in self.path.glob("spawn.log*"):
            with contextlib.suppress(OSError):
                jobs += [intent["job"] for intent in read_log(log).intents.values()]
        return max(self.last_output(), _highest_job_number(jobs))

    def last_output(self) -> int:
        """The highest number of a job of which there is output, 0 without any. O(1,000)."""
        output = self.path / "output"
        buckets = (
            [int(one.name) for one in output.iterdir() if one.name.isdecimal()] if output.is_dir() else []
        )
        names = (output / str(max(buckets))).iterdir() if buckets else ()
        return _highest_job_number(one.name for one in names)

    def take_lock(self) -> int | None:
        """A descriptor that holds the folder until it is closed; ``None`` while another service lives."""
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        held = False
        try:
            held = try_lock(fd)
        finally:
            if not held:
                os.close(fd)
        return fd if held else None

    def note_holder(self, lock: int) -> None:
        """Write on the lock, which we hold, where we are. Raises `OSError`."""
        text = json.dumps({**process_origin(), "pid": os.getpid()}).encode()
        os.ftruncate(lock, 0)
        os.pwrite(lock, text, 0)

    def elsewhere(self) -> Elsewhere | None:
        """Who has this folder on another host, as far as that is known here; ``None`` where none has.

        Where the folder's file system carries locks from host to host, it is known whether that one lives.
        """
        try:
            holder = read_form(self.path / "lock")
        except (OSError, ValueError):
            return None
        if not isinstance(holder, Mapping) or not isinstance(holder.get("boot_id"), str):
            return None
        lives = self.is_locked()
        if standing_of(holder, locked=lives) != "host":
            return None
        pid = holder.get("pid")
        return Elsewhere(str(holder.get("host", "")), pid if isinstance(pid, int) else 0, lives)

    def holder_process(self) -> int:
        """The process that has this folder, where it is one that can be seen from here; else 0."""
        try:
            holder = read_form(self.path / "lock")
        except (OSError, ValueError):
            return 0
        if not isinstance(holder, Mapping) or standing_of(holder) != "here" or not self.is_locked():
            return 0
        pid = holder.get("pid")
        return pid if isinstance(pid, int) and pid > 0 and started_at(pid) is not None else 0

    def release(self) -> None:
        """Note that no service has this folder any more, on whatever host. Raises `OSError`."""
        with contextlib.suppress(FileNotFoundError):
            os.truncate(self.path / "lock", 0)

    def is_locked(self) -> bool:
        """Whether a service lives. Raises `InputError` where the file system has no locks."""
        try:
            return is_locked(self.path / "lock")
        except OSError as error:
            if error.errno == errno.ENOLCK:
                raise InputError(lack_of(error), where=str(self.path / "lock")) from error
            return False

    def address(self) -> Address | None:
        """Where the service listens, or last did; ``None`` if there never was one."""
        try:
            form = read_form(self.path / "address.json")
        except (OSError, ValueError):
            return None
        if not isinstance(form, Mapping) or not isinstance(form.get("socket"), str):
            return None
        pid, urls = form.get("pid"), form.get("urls")
        return Address(
            form["socket"],
            pid if isinstance(pid, int) else 0,
            tuple(map(str, urls)) if isinstance(urls, list) else (),
            str(form.get("version", "")),
        )


def _highest_job_number(jobs: Iterable[str]) -> int:
    """The highest number of these jobs, or files of theirs; 0 without any."""
    return max((int(number) for job in jobs if (number := re.split(r"[._]", job)[0]).isdecimal()), default=0)


def read_form(path: Path) -> Any:
    """The JSON of a file, which may be damaged. Raises `OSError`, `ValueError`."""
    # Without waiting: a pipe may lie in its place, to which nothing is written.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("no file")
        data = file.read()
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("hundreds of nested brackets") from error


def _names_in(path: Path, what: str) -> list[str]:
    """A file's list of texts; none without the file. Raises `InputError`."""
    try:
        names = read_form(path)
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"is damaged: expected a list of {what}", where=str(path))
    return names
