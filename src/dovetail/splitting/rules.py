"""Who takes the next task: the online rules of a map.

A rule is called when slots are idle and tasks are left, and returns how many tasks one idle slot of a kind
may take in a row. Slots of the kind that is fastest always take one. It knows what has been measured, never
what a task will take. The first phase is the paper's (Shirahata 2010, section IV-B): until a task of each
kind has ended, every idle slot gets one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar, Protocol

from dovetail.splitting.finish_time import CLOSE, Floats, least_finish, whole_tasks


@dataclass
class SplitState:
    """What a rule may know at one instant.

    ``left`` tasks are not given out yet (infinite while more may come); it falls as slots take some at
    this instant. ``ready`` has, by kind, when each slot is expected to be free: ``now`` for idle slots, and
    never before. ``seconds`` is the mean time of a task by kind; a kind of which nothing is known is missing.
    """

    now: float
    left: float
    ready: Mapping[str, Floats]
    seconds: Mapping[str, float]

    @cached_property
    def is_known(self) -> bool:
        """Whether every kind that has slots has a mean."""
        return all(kind in self.seconds for kind, slots in self.ready.items() if len(slots))

    @cached_property
    def fastest_seconds(self) -> float:
        """Seconds of a task on the fastest kind that has slots."""
        return min(self.seconds[kind] for kind, slots in self.ready.items() if len(slots))

    @cached_property
    def finish(self) -> float:
        """T*: when what was left at first can be done; it does not move while slots take what ends by it."""
        return math.inf if math.isinf(self.left) else least_finish(self.ready, self.seconds, int(self.left))


class Rule(Protocol):
    """Decides for one idle slot at a time."""

    name: ClassVar[str]

    def slot_quota(self, kind: str, at: SplitState) -> float:
        """How many tasks one idle slot of this kind may take now, one after the other; 0: it stays idle."""
        ...


@dataclass(frozen=True, slots=True)
class Greedy:
    """Hadoop's rule: an idle slot takes the next task."""

    name: ClassVar[str] = "greedy"

    def slot_quota(self, kind: str, at: SplitState) -> float:
        """Without end."""
        return math.inf


@dataclass(frozen=True, slots=True)
class Shares:
    """The paper's rule on the tasks that remain: slots of a slower kind take one while their share is 1.

    The share of a kind is the paper's x (or y) of the tasks left, without regard to what runs.
    """

    name: ClassVar[str] = "shares"

    def slot_quota(self, kind: str, at: SplitState) -> float:
        """The slot's part of its kind's share."""
        if not at.is_known or math.isinf(at.left):
            return math.inf if at.is_known else 1
        speed = {k: len(slots) / at.seconds[k] for k, slots in at.ready.items() if len(slots)}
        share = at.left * speed[kind] / sum(speed.values())
        if share < 1 and at.seconds[kind] > at.fastest_seconds:
            return 0
        return max(1, math.floor(share / len(at.ready[kind])))


@dataclass(frozen=True, slots=True)
class FinishTime:
    """A slot takes a task if that task ends by T*, the least time by which all that is left can be done.

    For tasks of one size, known times and no delays the map then ends at the optimum: T* does not move
    when slots take what ends by it, and slots that stay idle could only make it end later.
    """

    name: ClassVar[str] = "finish-time"

    def slot_quota(self, kind: str, at: SplitState) -> float:
        """How many tasks in a row end by T*."""
        if not at.is_known:
            return 1
        if math.isinf(at.left) or sum(map(bool, map(len, at.ready.values()))) == 1:
            # Where all slots are alike an idle one is never too slow.
            return math.inf
        return whole_tasks((at.finish - at.now) + CLOSE * abs(at.finish), at.seconds[kind])


RULES: Mapping[str, Rule] = MappingProxyType({rule.name: rule for rule in (Greedy(), Shares(), FinishTime())})
DEFAULT_RULE = FinishTime.name
