"""Other places: process 1 of a new PID namespace, another host, a file system with few inodes.

Each is made with ``unshare``; where that is not permitted, tests are skipped with a reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

AS_PROCESS_1 = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
"""Each command is process 1 of a PID namespace of its own, which ends with it."""
_BARE = (
    'mount --bind "$PWD" "$PWD" && mount -o remount,bind,ro / && { ! mountpoint -q /tmp || '
    "mount -o remount,bind,ro /tmp; } && mount -t tmpfs none /dev/shm -o size=64m,mode=1777 && "
    "{ ! test -d /sys/fs/cgroup || mount -t tmpfs none /sys/fs/cgroup -o ro; } && "
    'cd "$PWD" && unset HOME && exec unshare --user --map-user=54321 --map-group=54321 "$@"'
)
BARE_PROCESS_1 = (*AS_PROCESS_1, "--mount", "sh", "-c", _BARE, "sh")
"""The same in a small container: only the working folder can be written, the account has neither an entry nor
a home, ``/dev/shm`` has 64 MB, and there are no cgroups."""
_AS_HOST = (
    'hostname "$1"; [ -z "$2" ] || mount --bind "$2" /proc/sys/kernel/random/boot_id; shift 2; exec "$@"'
)


@cache
def why_not(*options: str) -> str:
    """Why no such namespaces can be made here; empty where they can."""
    if shutil.which("unshare") is None:
        return "there is no unshare here"
    done = subprocess.run(["unshare", *options, "true"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"unshare is not permitted here: {done.stderr.strip()}"


def needs(*options: str) -> pytest.MarkDecorator:
    """Skips where namespaces of these kinds cannot be made."""
    why = why_not(*options)
    return pytest.mark.skipif(bool(why), reason=why or "namespaces can be made")


def containers() -> pytest.MarkDecorator:
    """Skips where a command cannot be process 1 of a PID namespace."""
    return needs(*AS_PROCESS_1[1:])


def bare_containers() -> pytest.MarkDecorator:
    """Skips where such a container cannot be made."""
    return needs(*AS_PROCESS_1[1:], "--mount", "--user", "--map-user=54321", "--map-group=54321")


def hosts() -> pytest.MarkDecorator:
    """Skips where no other host can be made up."""
    return needs("--mount", "--uts")


def as_host(name: str, boot: Path | None = None) -> tuple[str, ...]:
    """Runs a command on a host of this name, with the boot id of a file (`new_boot`), by default ours."""
    return (
        "unshare",
        "--mount",
        "--uts",
        "sh",
        "-c",
        _AS_HOST,
        "sh",
        name,
        "" if boot is None else str(boot),
    )


def new_boot(folder: Path) -> Path:
    """A file with the id of a boot that is not ours."""
    path = folder / f"boot-{uuid.uuid4().hex[:8]}"
    path.write_text(f"{uuid.uuid4()}\n")
    return path


def pid_outside(pid: int, first: int) -> int:
    """A process by its number in the PID namespace of which ``first`` (by ours) is process 1; 0 for none."""
    ns = _namespace(first)
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and ns and _namespace(int(folder.name)) == ns:
            try:
                status = (folder / "status").read_text(errors="replace")
            except OSError:
                continue
            numbers = status.partition("NSpid:")[2].partition("\n")[0].split()
            if numbers and int(numbers[-1]) == pid:
                return int(folder.name)
    return 0


def _namespace(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink().name
    except OSError:
        return ""


class Around(subprocess.Popen[bytes]):
    """A command with something around it that has it as its only child: signals go to the command."""

    def inner(self) -> int:
        """The command's process, by our number; 0 where it has ended, or has not begun."""
        try:
            found = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        except OSError:
            return 0
        return int(found[0]) if found else 0

    def send_signal(self, sig: int) -> None:
        """To the command; nothing, if it has ended."""
        pid = self.inner()
        if pid:
            try:
                os.kill(pid, sig)
            except ProcessLookupError:
                return


def dovetail_at(around: Sequence[str], *arguments: str) -> list[str]:
    """The command line of ``dovetail ARGUMENTS`` at such a place."""
    return [*around, sys.executable, "-m", "dovetail", *arguments]
