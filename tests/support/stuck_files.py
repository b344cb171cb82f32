"""A file system that answers nothing: mounted, then its helper stands still, until it is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import until

INIT = 26
LAZY = 2


def _mount(folder: str) -> int:
    """The kernel's end of a file system in user space. Raises `OSError` where none may be mounted."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if libc.mount(b"stuck", folder.encode(), b"fuse.stuck", 0, options.encode()):
        raise OSError(ctypes.get_errno(), "cannot mount")
    return fd


def stand_still(folder: str) -> None:
    """Mount, answer the kernel's first question, and stop."""
    fd = _mount(folder)
    request = os.read(fd, 1 << 17)
    _, code, unique = struct.unpack_from("<IIQ", request)
    assert code == INIT
    body = struct.pack("<IIIIHHIIHHI28x", 7, 31, 1 << 16, 0, 0, 0, 1 << 16, 1, 0, 0, 0)
    os.write(fd, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)
    os.kill(os.getpid(), signal.SIGSTOP)


@contextmanager
def stuck(folder: Path) -> Iterator[Path]:
    """``folder`` as such a file system. Raises `OSError` where none can be mounted."""
    folder.mkdir()
    helper = subprocess.Popen([sys.executable, __file__, str(folder)], stderr=subprocess.PIPE)
    try:
        until(lambda: helper.poll() is not None or _state(helper.pid) == "T", "the helper stands still")
        if helper.poll() is not None:
            assert helper.stderr is not None
            raise OSError(helper.stderr.read().decode())
        yield folder
    finally:
        helper.kill()  # and all that waits for it goes on, with an error
        helper.communicate()
        ctypes.CDLL(None).umount2(str(folder).encode(), LAZY)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


if __name__ == "__main__":
    stand_still(sys.argv[1])
