"""Waiting jobs by their requests, so that all that cannot start now are passed over at once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any

from dovetail.model import Job, Request, Seconds

BLOCK = 64

Entry = tuple[Any, float, Seconds, Job]
"""Key of an order, place of submission, limit of the run time, job: entries compare as the order."""


class LikeJobs:
    """Waiting jobs with the same request, in order, with the least limit of every block of them.

    A change costs O(n / 64) at worst and is next to free at the ends. The first job that ends in time is
    found in O(n / 64 + 64).
    """

    __slots__ = ("_blocks", "_least", "size")

    def __init__(self) -> None:
        self.size = 0
        self._blocks: list[list[Entry]] = []
        self._least: list[Seconds] = []

    def __iter__(self) -> Iterator[Job]:
        for block in self._blocks:
            for entry in block:
                yield entry[3]

    def add(self, entry: Entry) -> None:
        """Put an entry at its place."""
        self.size += 1
        blocks, least = self._blocks, self._least
        if not blocks or (entry > blocks[-1][-1] and len(blocks[-1]) >= BLOCK):
            blocks.append([entry])
            least.append(entry[2])
            return
        at = max(0, bisect_right(blocks, entry, key=_first_place) - 1) if len(blocks) > 1 else 0
        block = blocks[at]
        insort(block, entry)
        if entry[2] < least[at]:
            least[at] = entry[2]
        if len(block) > 2 * BLOCK:
            blocks.insert(at + 1, block[BLOCK:])
            del block[BLOCK:]
            least[at : at + 1] = [min(map(_entry_limit, block)), min(map(_entry_limit, blocks[at + 1]))]

    def remove_entry(self, key: Any, place: float) -> None:
        """Take an entry out."""
        self.size -= 1
        blocks = self._blocks
        at = 0
        if len(blocks) > 1:
            at = max(0, bisect_right(blocks, (key, place), key=_first_order) - 1)
        block = blocks[at]
        # By the place itself: one that was moved may lie between it and the next whole number.
        limit = block.pop(bisect_left(block, (key, place)))[2]
        if not block:
            del blocks[at], self._least[at]
        elif limit <= self._least[at]:
            self._least[at] = min(map(_entry_limit, block))

    def first(self, after: Entry | None) -> Entry | None:
        """The first entry, or the first after another one."""
        if after is None:
            return self._blocks[0][0] if self._blocks else None
        return next(self._entries_from(after), None)

    def first_in_time(self, after: Entry | None, now: Seconds, deadline: Seconds) -> Entry | None:
        """The first entry, after another one, that has ended by the deadline if it starts now."""
        blocks = self._blocks
        at = 0
        if after is not None:
            at = max(0, bisect_right(blocks, after, key=_first_place) - 1)
        for number in range(at, len(blocks)):
            if now + self._least[number] <= deadline:
                for entry in blocks[number]:
                    if now + entry[2] <= deadline and (after is None or entry > after):
                        return entry
        return None

    def _entries_from(self, after: Entry) -> Iterator[Entry]:
        blocks = self._blocks
        at = max(0, bisect_right(blocks, after, key=_first_place) - 1)
        for number in range(at, len(blocks)):
            for entry in blocks[number]:
                if entry > after:
                    yield entry


def _first_place(block: list[Entry]) -> tuple[Any, ...]:
    return block[0]


def _first_order(block: list[Entry]) -> tuple[Any, ...]:
    return block[0][:2]


def _entry_limit(entry: Entry) -> Seconds:
    return entry[2]


class ByRequest(dict[Request, LikeJobs]):
    """The waiting jobs by request; ``several`` jobs could run in several ways and are left out.

    Jobs that enter the queue are ``new``, by their places, and are put in at the next look: many have left
    by then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.several = 0
        self.new: dict[float, Job] = {}

    def insert(self, key: Any, place: float, job: Job, limit: Seconds) -> None:
        """Put a job among those with the same request."""
        if len(job.choices) > 1:
            self.several += 1
            return
        request = job.choices[0].request
        alike = self.get(request)
        if alike is None:
            alike = self[request] = LikeJobs()
        alike.add((key, place, limit, job))

    def remove_job(self, key: Any, place: float, job: Job) -> None:
        """Take a job out again."""
        if len(job.choices) > 1:
            self.several -= 1
            return
        request = job.choices[0].request
        alike = self[request]
        if alike.size == 1:
            del self[request]
        else:
            alike.remove_entry(key, place)
