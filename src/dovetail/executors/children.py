"""What a supervisor knows of its jobs, and their records in the spawn log. The standard library only."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import resource

    from dovetail.executors.job_groups import Group

__all__ = ["Child", "Setup", "ended", "started"]

TEXT = json.encoder.encode_basestring_ascii


@dataclass
class Setup:
    """What jobs of one implementation on one place have in common; sent once."""

    environ: dict[bytes, bytes]
    path: str
    cores: list[int]
    folder: str
    grace: float


@dataclass
class Child:
    """A job that runs: ``pid`` leads its session and process group; ``memory`` is its limit in bytes."""

    uid: str
    pid: int
    began: float
    grace: float
    reason: str | None = None
    kill_at: float = float("inf")
    forced: bool = False
    survivors: bool = False
    memory: int | None = None
    peak: int = 0  # the most that its processes were seen to hold together
    group: Group | None = None
    cores: list[int] = field(default_factory=list)
    why: str = ""
    alone: bool = False  # nothing of it was left in its cgroup when it ended
    status: int = 0
    end: bytes = b""
    more: dict[str, Any] = field(default_factory=dict)


def started(uid: str, pid: int, began: float, boot: float, group: Group | None) -> bytes:
    """The record of a start; by hand, as that of an end: an encoder takes three times as long."""
    where = "" if group is None else f',"group":{TEXT(group.path.rpartition("/")[2])}'
    return f'{{"t":"start","uid":{TEXT(uid)},"pid":{pid},"at":{began!r},"boot":{boot!r}{where}}}'.encode()


def ended(child: Child, at: float, usage: resource.struct_rusage) -> bytes:
    """The record of an end as far as the kernel tells it; the last brace is left to who knows the rest."""
    cpu, rss = usage.ru_utime + usage.ru_stime, max(usage.ru_maxrss * 1024, child.peak)
    return (
        f'{{"t":"end","uid":{TEXT(child.uid)},"from":{child.began!r},"at":{at!r}'
        f',"status":{child.status},"cpu":{cpu!r},"rss":{rss}'
    ).encode()
