"""Jobs that a supervisor is to start when others have ended. The standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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
        self._dropped: dict[str, set[str]] = {}  # for whom those wait that were to follow them

    def __len__(self) -> int:
        return len(self.waiting)

    def __contains__(self, uid: str) -> bool:
        return uid in self.waiting

    def before(self, uids: Iterable[str], runs: Callable[[str], bool]) -> set[str]:
        """Which of these have not ended, ``runs`` says of those that have begun; who was dropped counts
        for whom it waited for."""
        found: set[str] = set()
        for uid in uids:
            if uid in self.waiting or runs(uid):
                found.add(uid)
            elif uid in self._dropped:
                found |= self._dropped[uid]
        return found

    def add(self, uid: str, one: Next) -> None:
        """One more."""
        self.waiting[uid] = one

    def over(self, uid: str) -> Iterator[Next]:
        """Nothing is left of this job: those that waited for nobody else."""
        for name, before in list(self._dropped.items()):
            before.discard(uid)
            if not before:
                del self._dropped[name]
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

    def drop(self, uids: Iterable[str]) -> None:
        """These will not begin: who follows them follows those that they waited for."""
        for uid in uids:
            before = self.waiting.pop(uid).before
            for others in (*(one.before for one in self.waiting.values()), *self._dropped.values()):
                if uid in others:
                    others.discard(uid)
                    others |= before
            self._dropped[uid] = before
