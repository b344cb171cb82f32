"""What a service stands on: its socket, its lock, its ledger's files; looked at every few seconds.

Others remove them under a living service: a logout takes the runtime folder with the socket in it, a clean-up
of temporary files a folder in there, a person's hand the file beside the ledger that looked superfluous. What
can be mended is mended, and the log has it; where nothing can be kept on record any more the service ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dovetail.client.errors import Full
from dovetail.errors import DovetailError, InputError
from dovetail.files.shortage import NoPlaceError, lack_at
from dovetail.local.executor import MachineExecutor
from dovetail.process.processes import child_processes, is_zombie
from dovetail.service.core import Service
from dovetail.service.http import Listeners, unix_socket
from dovetail.service.people import name_of

_log = logging.getLogger(__name__)
LOOK = 2.0
"""Seconds between two looks."""
RUNTIME = Path("/run/user")
LINGERING = Path("/var/lib/systemd/linger")
LOGIN = Path("/run/systemd/seats")
"""There where logind runs, which ends what a user has left running and removes the runtime folder."""


class Ground:
    """Looks after what a service stands on; in its loop.

    ``path`` is its socket, of ``group`` where that may use it, and ``moved`` is called with where it is now
    after it had to be made elsewhere; ``lock`` is the descriptor that holds the folder.
    """

    def __init__(
        self,
        service: Service,
        listeners: Listeners,
        path: Path,
        group: str | None,
        lock: int,
        moved: Callable[[Path], object],
    ) -> None:
        self.path = path
        self._service, self._listeners, self._group, self._lock = service, listeners, group, lock
        self._moved = moved
        self._made = _socket_identity(path)
        self._noted = _state_of_file(service.folder.path / "address.json")
        self._said = ""
        self._zombies: set[int] = set()

    async def watch(self) -> None:
        """Look again and again (to be kept going by `dovetail.process.background`)."""
        while True:
            await asyncio.sleep(LOOK)
            await self.check_ground()

    async def check_ground(self) -> None:
        """One look: mend what can be mended."""
        with suppress(Full):  # it ends then, or tries again, and the log has why
            self._service.see_the_folder()
        # In this order: the lock first, since a second service must not begin on this folder while others are
        # mended.
        self._see_lock()
        self._see_room()
        await self._see_socket()
        self._see_address()
        if os.getpid() == 1:
            self._see_orphans()

    def _see_orphans(self) -> None:
        """As process 1 of a container, take the ends of processes for which no other part of us waits.

        What waits for a child of ours takes its end at once: a zombie at two looks is an orphan.
        # Two looks, since a zombie of ours may just not have been waited for yet.
        """
        executor = self._service.live.executor
        known = executor.supervisor_pid if isinstance(executor, MachineExecutor) else 0
        zombies = {pid for pid in child_processes() if pid != known and is_zombie(pid)}
        for pid in zombies & self._zombies:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._zombies = zombies

    def _see_room(self) -> None:
        """Have nothing start, and nothing be submitted, while there is no room for what it would write."""
        try:
            lack = lack_at(str(self._service.folder.path))
        except OSError:  # it is gone: the ledger is looked for, too
            return
        # A file in the place of a folder lets no job write, though the disk has room.
        for name in ("output", "scripts", "journal"):
            place = self._service.folder.path / name
            try:
                is_file = not stat.S_ISDIR(os.stat(place).st_mode)
            except PermissionError as error:
                # Its files may all be there, but nothing can be written to them.
                lack = lack or f"cannot be looked into: {error.strerror}"
                break
            except OSError:
                is_file = os.path.lexists(place)  # a link to nothing is in the way, too
            if is_file:
                lack = lack or str(NoPlaceError(str(place))).removeprefix(f"{place.parent}{os.sep}")
        if lack:
            self._service.live.pause_for_lack(f"{self._service.folder.path}: {lack}")

    def _see_lock(self) -> None:
        """Hold the folder still: without the file another service would begin beside us."""
        folder = self._service.folder
        try:
            # By identity, not by name: the lock is held on the open file, which may no longer be the one of
            # that name.
            if os.path.samestat(os.stat(folder.path / "lock"), os.fstat(self._lock)):
                return
        except FileNotFoundError:
            if not folder.path.is_dir():  # the ledger is gone, too: that ends us
                return
        except OSError as error:
            self._log_trouble(f"{folder.path / 'lock'}: cannot be looked at: {error.strerror}")
            return
        try:
            if (aside := _put_aside(folder.path / "lock")) is not None:
                _log.warning("%s: was no file, and is %s now", folder.path / "lock", aside.name)
            again = folder.take_lock()
            if again is None:
                ended = (
                    f"{folder.path}: another service has taken this folder: this one ends, what runs goes on"
                )
                # It holds the lock of the folder's name now: two services with one ledger would both start
                # its jobs.
                self._service.live.fail_run(DovetailError(ended))
                return
            folder.note_holder(again)
            # Under the same number, since others keep that number as the lock.
            os.dup2(again, self._lock, inheritable=False)
            os.close(again)
        except OSError as error:
            self._log_trouble(
                f"{folder.path / 'lock'}: was removed, and cannot be made anew: {error.strerror}"
            )
            return
        _log.warning("%s: was removed, and is made anew", folder.path / "lock")

    async def _see_socket(self) -> None:
        """Clients find the socket; where its folder has gone it is in the state folder from now on."""
        if self._made is not None and _socket_identity(self.path) == self._made:
            self._said = ""
            return
        own = self._service.folder.path / "service.sock"
        here = self.path.parent.is_dir() and not os.path.lexists(self.path)
        # At its own path if that is free, so that clients with the old address find it again.
        for path in [self.path, own] if here else [own]:
            try:
                if path.is_dir() and not path.is_symlink() and path == own:
                    _put_aside(path)
                found = unix_socket(path, self._group)
            except (InputError, OSError) as error:
                self._log_trouble(str(error))
                continue
            await self._listeners.at_socket(found)
            was, self.path, self._made = self.path, path, _socket_identity(path)
            _log.warning("%s: the socket was removed; clients find a new one at %s", was, path)
            self._moved(path)
            self._noted = _state_of_file(self._service.folder.path / "address.json")
            return

    def _see_address(self) -> None:
        """Clients read where the socket is; what has come into the place of that file is replaced."""
        place = self._service.folder.path / "address.json"
        now = _state_of_file(place)
        if now is not None and now == self._noted:
            return
        if not place.parent.is_dir():  # the ledger is gone, too: that ends us
            return
        try:
            _put_aside(place)
            self._moved(self.path)
        except (InputError, OSError) as error:
            self._log_trouble(str(error))
            return
        if self._noted is not None:
            _log.warning("%s: was removed or changed, and is written anew", place)
        self._noted = _state_of_file(place)

    def _log_trouble(self, trouble: str) -> None:
        """Log what cannot be mended; once, not at every look."""
        if trouble != self._said:
            self._said = trouble
            _log.error("%s", trouble)


def _put_aside(path: Path) -> Path | None:
    """Give what lies in the place of a file another name, and return that. Raises `OSError`."""
    try:
        if stat.S_ISREG(path.lstat().st_mode):
            return None
    except FileNotFoundError:
        return None
    aside = path.with_name(f"{path.name}.{os.urandom(4).hex()}.old")
    path.rename(aside)
    return aside


def _state_of_file(path: Path) -> tuple[int, ...] | None:
    """Which file is at this path, and when it was changed last; ``None`` where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _socket_identity(path: Path) -> tuple[int, int] | None:
    """Of a socket at this path; ``None`` where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISSOCK(found.st_mode) else None


def why_ended_at_logout(path: Path, uid: int) -> str:
    """A sentence where the last logout of this account ends what it has left running; empty elsewhere.

    ``path`` is the service's socket.
    """
    if uid == 0 or not path.is_relative_to(RUNTIME) or not LOGIN.exists():
        return ""
    if (LINGERING / name_of(uid)).exists():
        return ""
    return (
        "lingering is off for this account: at its last logout this machine may end the service, and removes "
        "its runtime folder; 'loginctl enable-linger' has both stay"
    )
