"""Numba's ``njit``; where numba is not installed, a sentence that says which extra brings it.

`lazily` is for what policies call at every decision: compiling takes ten seconds and more, thirty-two jobs do
not. As long as no compiled code is in the cache, such a kernel is interpreted, which gives the same numbers.
When that has taken `PATIENCE` seconds of CPU time, another process compiles them all; no decision waits.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import time
from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.extras import needing

__all__ = ["PATIENCE", "lazily", "njit"]

with needing("a compiled search"):
    from numba import njit

PATIENCE = 10.0
"""Seconds of CPU time that a process may interpret kernels before they are compiled: as that takes."""


class _Compiling:
    """The process that fills the cache; it ends with us at the latest."""

    def __init__(self) -> None:
        words = "from dovetail.kernels import compiler; compiler.compile_all()"
        argv = [sys.executable, "-c", words]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(argv, stdin=quiet, stdout=quiet, stderr=quiet)
        atexit.register(self._process.kill)

    def is_done(self) -> bool:
        return self._process.poll() is not None


def compile_all() -> None:
    """Compile what is called lazily, into the cache."""
    _Kernel.waits = True
    from dovetail.kernels import assigning, backfilling, moldable, molding

    for module in (assigning, backfilling, moldable, molding):
        module.warm_up()


class _Kernel:
    """A function that is interpreted at first; other kernels may call it compiled."""

    spent = 0.0  # of all kernels together
    waits = False  # for the compiler
    compiling: _Compiling | None = None
    within = False  # an interpreted kernel

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self._function = function
        self._dispatcher = njit(cache=True, **options)(function)
        self._compiled: bool | None = None  # not known yet

    def __getattr__(self, name: str) -> Any:
        """What numba asks of a function that compiled code calls: its type (``_numba_type_``) first."""
        return getattr(self._dispatcher, name)

    def _is_ready(self) -> bool:
        """Whether code is in the cache; it is made when that has become worth while."""
        if self._compiled is None:
            folder, name = self._dispatcher.stats.cache_path, self._function.__qualname__
            self._compiled = folder is not None and any(Path(folder).glob(f"*.{name}-*.nbi"))
        if not self._compiled and _Kernel.waits:
            self._compiled = True
        elif not self._compiled and _Kernel.spent > PATIENCE:
            _Kernel.compiling = _Kernel.compiling or _Compiling()
            self._compiled = _Kernel.compiling.is_done()
        return self._compiled

    def __call__(self, *arguments: Any) -> Any:
        """Compiled, if that is to be had. O(1) beside the call itself."""
        if _Kernel.within:
            return self._function(*arguments)
        if self._compiled or self._is_ready():
            return self._dispatcher(*arguments)
        began, _Kernel.within = time.process_time(), True
        try:
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                return self._function(*arguments)
        finally:
            _Kernel.within = False
            _Kernel.spent += time.process_time() - began


def lazily(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile it when that pays, with these options of ``njit``."""
    return lambda function: _Kernel(function, options)
