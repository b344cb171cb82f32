"""Jobs that a supervisor is to start when others have ended. The standard library only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class Successor:
    """A job that begins when those in ``before`` have ended; its request is kept as the line that came."""

    def __init__(self, request: dict[str, Any], line: bytes, before: set[str]) -> None:
        self.request, self.line, self.before = request, line, before


class DroppedSuccessors:
    """Jobs that will never begin; in the lists of their successors, the jobs they waited for replace them."""

    def __init__(self) -> None:
        self._before: dict[str, set[str]] = {}

    def drop_job(self, job: str, before: set[str]) -> None:
        """This job will never begin."""
        self._replace_job(job, before)
        # Remembered only while a job before it is left: a request may still name the dropped one.
        if before:
            self._before[job] = before

    def restore_job(self, job: str) -> None:
        """It is to begin after all."""
        self._before.pop(job, None)

    def forget_job(self, job: str) -> None:
        """Nothing is left of this one."""
        if self._before:
            self._replace_job(job, set())

    def _replace_job(self, job: str, before: set[str]) -> None:
        # Copied, since entries go while it is walked.
        for name, others in list(self._before.items()):
            if job in others:
                others.discard(job)
                others |= before
                if not others:
                    del self._before[name]

    def replacements_of(self, jobs: Iterable[str], known: Callable[[str], bool]) -> set[str]:
        """Those of these that are ``known`` (have not ended), and who of those stands for the others."""
        found: set[str] = set()
        for job in jobs:
            # A dropped job is replaced by what it waited for, or its successors would begin too early.
            found |= {job} if known(job) else set(filter(known, self._before.get(job, ())))
        return found


class Successors:
    """By uid, in the order in which they came; a job comes after those that it waits for."""

    def __init__(self) -> None:
        self.waiting: dict[str, Successor] = {}
        self._dropped = DroppedSuccessors()

    def __len__(self) -> int:
        return len(self.waiting)

    def __contains__(self, uid: str) -> bool:
        return uid in self.waiting

    def restore_job(self, uid: str) -> None:
        """A new request for this job has come, which may have been dropped before."""
        self._dropped.restore_job(uid)

    def before(self, uids: Iterable[str], runs: Callable[[str], bool]) -> set[str]:
        """The jobs that a successor of these has to wait for; ``runs`` tests for begun and not ended."""
        return self._dropped.replacements_of(uids, lambda uid: uid in self.waiting or runs(uid))

    def add(self, uid: str, one: Successor) -> None:
        """One more."""
        self.waiting[uid] = one

    def release_followers(self, uid: str) -> Iterator[Successor]:
        """Nothing is left of this job: its successors that wait for no other."""
        self._dropped.forget_job(uid)
        # In the order in which they came, which is the order of the places that they wait for.
        for name, one in list(self.waiting.items()):
            if uid in one.before:
                one.before.discard(uid)
                if not one.before:
                    del self.waiting[name]
                    yield one

    def followers_of(self, uid: str) -> list[str]:
        """All that wait for this job, or for one that does."""
        # One pass is enough: a job comes after those that it waits for.
        late, found = {uid}, []
        for name, one in self.waiting.items():
            if not late.isdisjoint(one.before):
                late.add(name)
                found.append(name)
        return found

    def drop_jobs(self, uids: Iterable[str]) -> None:
        """These will not begin: who follows them follows those that they waited for."""
        for uid in uids:
            before = self.waiting.pop(uid).before
            for one in self.waiting.values():
                if uid in one.before:
                    one.before.discard(uid)
                    one.before |= before
            self._dropped.drop_job(uid, before)
