"""What the tools of ``dovetail mcp`` answer; the SDK makes the schemas of their results from these types.

The outer types are of `typing`: they need no package that is missing without the SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, TypedDict

Rows = dict[str, Any]
ADVICE = {
    "OUT_OF_MEMORY": "it used more memory than it had: submit it with more, or with memory='auto'",
    "TIMEOUT": "it reached its walltime: submit it with a longer one, or let it go on from a checkpoint",
    "NODE_FAIL": "its node was lost: submit it again, or with retries",
    "FAILED": "it ended by itself with this exit code: its log names the reason",
}
"""What helps, by how a job failed."""


class _Row:
    @classmethod
    def of(cls, row: Mapping[str, Any], **more: Any) -> Self:
        """These columns of one of the service's rows."""
        found = {**row, **more}
        return cls(**{one.name: found[one.name] for one in fields(cls)})  # type: ignore[arg-type]


@dataclass
class JobEnd(_Row):
    """A job, and how it ended."""

    id: str
    state: str


@dataclass
class Foretold(_Row):
    """When a job starts and ends, in seconds since the epoch; ``None``: not known."""

    id: str
    state: str
    reason: str
    start: float | None
    end: float | None
    predicted: float | None
    predicted_start: float | None
    predicted_start_low: float | None
    predicted_start_high: float | None
    predicted_end: float | None
    predicted_end_low: float | None
    predicted_end_high: float | None
    confidence: float | None


@dataclass
class Failed(_Row):
    """A job that failed, what helps, and the end of its errors."""

    id: str
    name: str
    command: str
    state: str
    exit_code: int | None
    reason: str
    detail: str
    start: float | None
    end: float | None
    attempts: int
    advice: str
    stderr: str


@dataclass
class Node(_Row):
    """A node, and which jobs use it."""

    name: str
    state: str
    cpus: int
    cpus_used: int
    cpu_model: str
    memory: int | None
    partitions: list[str]
    devices: list[Rows]
    jobs: list[str]


class Submitted(TypedDict):
    """Numbers of jobs, or, of a dry run, the jobs that there would be; notes are for the submitter."""

    ids: list[str]
    notes: list[str]
    jobs: list[Rows]


class Waited(TypedDict):
    """Jobs that have ended, and how many have not."""

    jobs: list[JobEnd]
    left: int


class Queued(TypedDict):
    """Rows of the queue, in order, and how many there are in all."""

    jobs: list[Rows]
    total: int


class Foreseen(TypedDict):
    """Predictions of jobs."""

    jobs: list[Foretold]


class WhatIf(TypedDict):
    """Start and end of each job of now, in seconds since the epoch; of how many they cannot be known."""

    at: float
    jobs: dict[str, tuple[float | None, float | None]]
    left_out: int
    unknown: int


class Log(TypedDict):
    """The end of a log, its length in bytes, and whether its job has ended."""

    text: str
    length: int
    ended: bool


class Cancelled(TypedDict):
    """Jobs that were cancelled, and why others were not."""

    jobs: list[str]
    refused: dict[str, str]


class Triage(TypedDict):
    """The last jobs that failed."""

    jobs: list[Failed]


class Devices(TypedDict):
    """The nodes of the cluster."""

    nodes: list[Node]
