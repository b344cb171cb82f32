"""Frozen dataclasses for what is made millions of times.

``@frozen(frozen=True, slots=True)`` is ``dataclasses.dataclass`` for the type checker, which refuses every
assignment to a field. At run time the class is not guarded: setting a guarded field goes through
``object.__setattr__``, which makes an object two to six times as dear, and a simulation makes eight of
them a job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["frozen"]

if TYPE_CHECKING:
    from dataclasses import dataclass as frozen
else:
    from dovetail.records import dataclass

    def frozen(*, frozen: bool, slots: bool, eq: bool = True) -> object:
        """A slotted dataclass that is compared and hashed by value (without ``eq``: by identity)."""
        return dataclass(slots=slots, eq=eq, unsafe_hash=frozen and eq)
