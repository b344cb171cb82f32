"""What numba compiled from other sources than are there now is forgotten."""

from __future__ import annotations

import contextlib
import os
from hashlib import blake2b, sha1
from pathlib import Path


def forget_stale(folder: Path) -> bool:
    """Make numba forget what it compiled from other sources than are there now; whether it had to.

    Numba keeps the machine code of a kernel until the kernel's own file changes, whatever becomes of the
    kernels of other files that were compiled into it: after `git pull` an old one might go on running. What
    the sources hold is noted beside the code that was made of them. Where nothing can be written, nothing
    could be made anew, and so nothing is deleted; nor is the code of another copy of these kernels.
    """
    sources = sorted(e.path for e in os.scandir(folder) if e.name.endswith(".py"))
    held = blake2b(digest_size=16)
    for path in sources:
        held.update(f"{os.path.basename(path)} {os.stat(path).st_size} ".encode())
        held.update(Path(path).read_bytes())
    now = held.hexdigest().encode()
    kept = _cache_of(folder)
    stamp, coming = kept / "sources", kept / f"sources.{os.getpid()}"
    with contextlib.suppress(OSError):
        if stamp.read_bytes() == now:
            return False
    with contextlib.suppress(OSError):
        kept.mkdir(parents=True, exist_ok=True)
        coming.write_bytes(now)  # first of all: it shows whether numba can write there
        for index in kept.glob("*.nbi"):
            index.unlink(missing_ok=True)
        coming.replace(stamp)
    return True


def _cache_of(folder: Path) -> Path:
    """Where numba keeps what it compiles of the files of a folder, if it can write there."""
    elsewhere = os.environ.get("NUMBA_CACHE_DIR")
    if not elsewhere:
        return folder / "__pycache__"
    whole = os.path.abspath(folder)
    return Path(elsewhere) / f"{os.path.basename(whole)}_{sha1(whole.encode()).hexdigest()}"
