"""Where Dovetail keeps what it is to remember, also for an account that has no home."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dovetail.errors import InputError
from dovetail.files.streams import print_note

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
"""Where the folder of an account without a home lies, in the first that can be written."""


def state_folder() -> Path:
    """``$XDG_STATE_HOME``, by default ``~/.local/state``; without a home ``/tmp/dovetail-UID``, mode 0700.

    A home is there where it is a folder that can be written, or holds Dovetail's state already. The folder
    under ``/tmp`` is named once, when it is made. Raises `InputError` where there is none of them.
    """
    named = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification: a relative path is invalid and is to be ignored.
    if os.path.isabs(named):
        return Path(named)
    # Unchanged where neither HOME nor the accounts of this machine has it.
    home = os.path.expanduser("~")
    state = Path(home, ".local", "state")
    if os.path.isabs(home) and ((state / "dovetail").is_dir() or os.access(home, os.W_OK | os.X_OK)):
        return state
    return _temporary_folder(home)


def _temporary_folder(home: str) -> Path:
    name = f"dovetail-{os.geteuid()}"
    why = f"{home} cannot be written" if os.path.isabs(home) else "this account has no home (HOME is not set)"
    for base in TEMPORARY:
        path = Path(base, name)
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            pass
        except OSError:  # read-only, or not there
            continue
        else:
            print_note(
                f"{why}: what is to be remembered is kept in {path}; XDG_STATE_HOME names another folder"
            )
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
            return path
        raise InputError(
            "found a folder that others may use, or that is another account's; expected XDG_STATE_HOME to "
            "name one of this account",
            where=str(path),
        )
    raise InputError(
        f"{why}, and none of {', '.join(TEMPORARY)} can be written; expected XDG_STATE_HOME to name a folder "
        "that can"
    )


def home_folder() -> str:
    """This account's home, or ``/`` where there is none."""
    home = os.path.expanduser("~")
    return home if os.path.isdir(home) else "/"
