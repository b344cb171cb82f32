"""Jobs that a supervisor is to start when others have ended. The standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Next", "Successors"]


@dataclass
class Next:
    """A job that begins when those in ``before`` have ended; the line that asks for it is as it came."""

    request: dict[str, Any]
    line: bytes
    before: set[str]


class Successors:
    """By uid, in the order in which they came; a job comes after those that it waits for."""

    def __init__(self) -> None:
        self.waiting: dict[str, Next] = {}

    def __len__(self) -> int:
        return len(self.waiting)

    def __contains__(self, uid: str) -> bool:
        return uid in self.waiting

    def add(self, uid: str, one: Next) -> None:
        """One more."""
        self.waiting[uid] = one

    def over(self, uid: str) -> Iterator[Next]:
        """Nothing is left of this job, or it will never be: those that waited for nobody else."""
        for name, one in list(self.waiting.items()):
            if uid in one.before:
                one.before.discard(uid)
                if not one.before:
                    del self.waiting[name]
                    yield one

    def behind(self, uid: str) -> list[str]:
        """All that wait for this job, or for one that does."""
        late, found = {uid}, []
        for name, one in self.waiting.items():
            if not late.isdisjoint(one.before):
                late.add(name)
                found.append(name)
        return found

    def drop(self, uids: list[str]) -> None:
        """These will not begin."""
        for uid in uids:
            del self.waiting[uid]
