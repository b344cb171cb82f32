"""What a supervisor knows of its jobs, and their records in the spawn log. The standard library only.

No dataclasses: importing them would be a third of a supervisor's start.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import resource
    from collections.abc import Mapping

    from dovetail.process.cgroups import Group

# The C function itself: `json.dumps` of a string takes several times as long.
TEXT = json.encoder.encode_basestring_ascii


class Setup(NamedTuple):
    """What jobs of one implementation on one place have in common; sent once."""

    environ: dict[bytes, bytes]
    path: str
    cores: list[int]
    folder: str
    grace: float
    umask: int | None = None
    limits: Mapping[str, int] | None = None

    @classmethod
    def of(cls, request: dict[str, Any], environs: Mapping[int, dict[bytes, bytes]]) -> Setup:
        """A setup as it is sent, over our own environment or one of ``environs`` that was brought along.

        Raises `LookupError` where that is not among them, `ValueError` for names that no system takes.
        """
        outer = request.get("outer")
        # Copied once for all jobs of a setup, then overlaid for each: an environment may have hundreds of
        # entries.
        environ = os.environb.copy() if outer is None else environs[outer].copy()
        environ.update(encode_variables(request["env"]))
        for name in request["unset"]:
            environ.pop(os.fsencode(name), None)
        # PATH of the job and not ours: its program is looked up as its own shell would.
        path = os.fsdecode(environ.get(b"PATH", os.defpath.encode()))
        return cls(
            environ,
            path,
            request["cores"],
            request["cwd"],
            request["grace"],
            request.get("umask"),
            request.get("limits"),
        )


def encode_variables(named: Mapping[str, str]) -> dict[bytes, bytes]:
    """Environment variables as the kernel takes them."""
    return {os.fsencode(name): os.fsencode(value) for name, value in named.items()}


class Child:
    """A job that runs: ``pid`` leads its session and process group; ``memory`` is its limit in bytes."""

    # Defaults in the class: a job sets a few of these, and there may be thousands at once.
    reason: str | None = None
    kill_at: float = float("inf")
    forced: bool = False
    survivors: bool = False
    peak: int = 0  # the most that its processes were seen to hold together
    why: str = ""
    alone: bool = False  # nothing of it was left in its cgroup when it ended
    leaving: bool = False  # it ended by itself, and what is left of it has a moment to do the same
    gone: bool = False  # nothing of it is left anywhere
    status: int = 0
    asked_at: float = 0.0  # when its stop was requested
    walltime: float = 0.0  # as it was at its start
    late: float = 0.0  # seconds by which its walltime may end later than the client counts
    end: bytes = b""

    def __init__(
        self,
        uid: str,
        pid: int,
        began: float,
        grace: float,
        *,
        memory: int | None = None,
        group: Group | None = None,
        cores: list[int] | None = None,
    ) -> None:
        self.uid, self.pid, self.began, self.grace = uid, pid, began, grace
        self.memory, self.group, self.cores = memory, group, cores or []
        self.more: dict[str, Any] = {}

    def group_holds_others(self) -> bool:
        """Whether another process than the leader lives in its cgroup. Raises `OSError`."""
        return self.group is not None and bool(self.group.path) and self.group.holds_others(self.pid)

    def holds_any(self) -> bool:
        """Whether anything lives in its cgroup. Raises `OSError`."""
        return self.group is not None and bool(self.group.path) and self.group.has_processes()

    def group_is_empty(self) -> bool:
        """Whether it had a cgroup of which nothing is left. Raises `OSError`."""
        return self.group is not None and not self.group.has_processes()


def start_record(uid: str, pid: int, began: float, boot: float, group: Group | None) -> bytes:
    """The record of a start; by hand, as that of an end: an encoder takes three times as long."""
    where = "" if group is None else f',"group":{TEXT(group.path.rpartition("/")[2])}'
    return f'{{"t":"start","uid":{TEXT(uid)},"pid":{pid},"at":{began!r},"boot":{boot!r}{where}}}'.encode()


def end_record(child: Child, at: float, usage: resource.struct_rusage) -> bytes:
    """The record of an end as far as the kernel reports it; the caller adds the rest and the last brace."""
    # `ru_maxrss` is in KiB on Linux, and of the largest process alone: what was seen of all together may be
    # more.
    cpu, rss = usage.ru_utime + usage.ru_stime, max(usage.ru_maxrss * 1024, child.peak)
    return (
        f'{{"t":"end","uid":{TEXT(child.uid)},"from":{child.began!r},"at":{at!r}'
        f',"status":{child.status},"cpu":{cpu!r},"rss":{rss}'
    ).encode()
