"""Array-only inner loops (numba), each with a plain-Python twin."""

from __future__ import annotations

import contextlib
import os
from hashlib import blake2b
from pathlib import Path

__all__ = ["forget_stale"]


def forget_stale(folder: Path) -> bool:
    """Make numba forget what it compiled from other sources than are there now; whether it had to.

    Numba keeps the machine code of a kernel until the kernel's own file changes, whatever becomes of the
    kernels of other files that were compiled into it: after `git pull` an old one might go on running.
    """
    kept = folder / "__pycache__"
    sources = sorted(e.path for e in os.scandir(folder) if e.name.endswith(".py"))
    states = [(os.path.basename(path), (s := os.stat(path)).st_mtime_ns, s.st_size) for path in sources]
    now = blake2b(repr(states).encode(), digest_size=16).hexdigest().encode()
    stamp = kept / "sources"
    with contextlib.suppress(OSError):
        if stamp.read_bytes() == now:
            return False
    elsewhere = os.environ.get("NUMBA_CACHE_DIR")
    folders = [kept, *(Path(elsewhere).glob(f"{folder.name}_*") if elsewhere else ())]
    with contextlib.suppress(OSError):  # nobody may write there: then numba keeps its own elsewhere
        for index in [index for one in folders for index in one.glob("*.nbi")]:
            index.unlink(missing_ok=True)
        kept.mkdir(exist_ok=True)
        stamp.write_bytes(now)
    return True


forget_stale(Path(__file__).parent)
