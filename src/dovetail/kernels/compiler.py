"""Numba's ``njit``; where numba is not installed, a sentence that says which extra brings it."""

from __future__ import annotations

from dovetail.extras import needing

__all__ = ["njit"]

with needing("a compiled search"):
    from numba import njit
