"""The spawn log as its writer keeps it: lines appended, owed while the disk is full, dropped when over.

`dovetail.process.spawn_log` describes the lines. Standard library only: the supervisor is run by path.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from dovetail.files.locks import try_lock

if TYPE_CHECKING:
    from collections.abc import Set


class Log:
    """Append-only lines; what could not be written (full disk) is owed and tried again."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.owed = b""
        self.error: OSError | None = None  # of the last line that could not be written

    def write(self, line: bytes, *, must: bool = True) -> str | None:
        """Append one line; returns why it failed. A line that ``must`` be kept is owed."""
        data = self.owed + line + b"\n"
        done = 0
        try:
            while done < len(data):
                done += os.write(self.fd, data[done:] if done else data)
        except OSError as error:
            why, self.error = str(error.strerror), error
        else:
            self.owed = b""
            return None
        whole = data.rfind(b"\n", 0, done) + 1
        rest = data[whole:]
        if not must:
            rest = rest[: -len(line) - 1]
        # A torn line stays in the file; readers skip it, and the next line begins after a newline.
        self.owed = (b"\n" + rest) if done > whole else rest
        return why

    def write_owed(self) -> None:
        """Write what is owed, as far as the disk takes it."""
        if self.owed:
            line, self.owed = self.owed.removesuffix(b"\n"), b""
            self.write(line)

    def shorten_file(self, after: str, setups: Set[int], environs: Set[int]) -> bool:
        """Begin anew without what is over: ends up to that of ``after`` are recorded elsewhere.

        ``setups`` and ``environs`` are numbers that requests may name without sending them again. The new
        file takes the place of the old one when it is whole; ``False`` where it cannot be written.
        """
        if self.owed:
            return False
        path = os.readlink(f"/proc/self/fd/{self.fd}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            with open(path, "rb", buffering=0) as file:
                lines = still_needed(file.readall(), after, setups, environs)
            if os.path.lexists(path + ".new"):
                os.unlink(path + ".new")  # of one that was killed
            fd = os.open(path + ".new", flags, 0o600)
            text = memoryview(b"\n".join(lines) + b"\n")
            try:
                while text:
                    text = text[os.write(fd, text) :]
                # After a power loss there is the old log or the new one, not an empty one.
                os.fsync(fd)
                try_lock(fd)
                os.rename(path + ".new", path)
            except OSError:
                os.close(fd)
                os.unlink(path + ".new")
                raise
        except OSError:
            return False
        os.close(self.fd)
        self.fd = fd
        return True


def still_needed(text: bytes, after: str, setups: Set[int], environs: Set[int]) -> list[bytes]:
    """The lines of a log that are not over: ends up to that of job ``after`` are recorded elsewhere.

    ``setups`` and ``environs`` are those that requests may name without sending them again.
    """
    records: list[tuple[bytes, dict[str, Any]]] = []
    for line in text.split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue  # empty, or torn
        if isinstance(record, dict) and "t" in record:
            records.append((line, record))
    ends = [record["uid"] for _, record in records if record["t"] == "end"]
    over = set(ends[: ends.index(after) + 1]) if after in ends else set()
    jobs = [(line, r) for line, r in records if "uid" in r and r["uid"] not in over]
    used = {record["setup"] for _, record in jobs if record["t"] == "intent"}
    used |= setups
    around = [(line, r) for line, r in records if r["t"] == "setup" and r["setup"] in used]
    outer = {record.get("outer") for _, record in around} | environs
    brought = [line for line, r in records if r["t"] == "environ" and r["environ"] in outer]
    whole = [line for line, record in records if record["t"] == "run"][:1]
    for kind in ("client", "supervisor", "groups"):
        whole += [line for line, record in records if record["t"] == kind][-1:]
    return [*whole, *brought, *(line for line, _ in around), *(line for line, _ in jobs)]
