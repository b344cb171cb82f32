"""A process that may have little memory (`ulimit -v`): what needs more ends in a sentence, not in a library.

Libraries that are loaded late find it out first. Most raise an error that can be read as what it is;
OpenBLAS, which numpy and scipy bring along, ends the process from C instead, after it has reserved memory
for each core of the machine.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from dovetail.errors import InputError

PLENTY = 1_024_000_000
"""Bytes of memory from which a limit on a process is not why something does not fit."""
NUMPY = 100 << 20
"""Bytes of addresses that numpy needs with one thread: 85 MB were measured."""
_THREADS = "OPENBLAS_NUM_THREADS"
_LIBRARIES = ("numpy", "scipy")


def explain_limit() -> str:
    """A sentence where this process may have little memory (`ulimit -v`); empty where it has no limit."""
    found = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    # Both limits, since allocators may run into either of them.
    limits = [limit for limit in found if limit != resource.RLIM_INFINITY]
    if not limits or min(limits) >= PLENTY:
        return ""
    return (
        f"found a limit of {min(limits) // 1024:,} kB of memory for a process (ulimit -v), too little for "
        f"this; expected {PLENTY // 1024:,} kB or more, or none ('ulimit -v unlimited')"
    )


def refuse_little_memory() -> None:
    """Raise `InputError` where a service would die at some later moment: it maps 0.9 GB of addresses."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < PLENTY:
        raise InputError(f"a service: {explain_limit()}")


def is_about_memory(error: BaseException | None) -> bool:
    """Whether an error is one for want of memory: that of a library which is loaded late, for example."""
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        if isinstance(error, ImportError | OSError) and "memory" in str(error).lower():
            return True
        if isinstance(error, ImportError) and "failed to map segment" in str(error):  # the loader's words
            return True
        if isinstance(error, RuntimeError | SystemError) and "thread" in str(error):  # it has no stack
            return True
        # Libraries wrap it: the reason is at the end of the chain.
        error = error.__cause__ or error.__context__
    return False


def guard_libraries() -> None:
    """Have numpy and scipy loaded with one thread, or refused by a `MemoryError`, where memory may be little.

    Call it before either is loaded; without such a limit it changes nothing.
    """
    if explain_limit() and not any(isinstance(one, _Guard) for one in sys.meta_path):
        sys.meta_path.insert(0, _Guard())


class _Guard:
    """Finds the libraries as Python does, and has their modules loaded with one thread."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As `PathFinder.find_spec`. Raises `MemoryError` where a library's first module cannot fit."""
        if name.partition(".")[0] not in _LIBRARIES:
            return None
        if name in _LIBRARIES and _free_addresses() < NUMPY:
            raise MemoryError(name)
        found = PathFinder.find_spec(name, path, target)
        if found is not None and found.loader is not None:
            loader: Any = found.loader
            execute = loader.exec_module

            def execute_with_one_thread(module: ModuleType) -> None:
                with _one_thread():
                    execute(module)

            loader.exec_module = execute_with_one_thread
        return found


@contextmanager
def _one_thread() -> Iterator[None]:
    """Only while a module is loaded: the environment is also that of jobs."""
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = before


def _free_addresses() -> int:
    """Bytes of addresses that this process may still have."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return NUMPY
    with open("/proc/self/statm", "rb") as file:
        return limit - int(file.read().split()[0]) * resource.getpagesize()
