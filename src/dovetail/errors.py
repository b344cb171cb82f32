"""Everything that Dovetail raises on purpose.

    DovetailError
    ├── InputError               bad input or use: exit status 2
    │   ├── NothingKnown         no time of any job is known: a simulation would be a guess
    │   ├── UnsupportedWorkload  the policy cannot place these jobs on this cluster
    │   └── PolicyMistake        the code of a policy of your own fails, or decides what is no decision
    ├── PolicyError              a policy made a decision that cannot be carried out: status 3 (your own: 2)
    ├── InvariantError           a schedule breaks a rule (raised by the checker)
    ├── JournalError             a journal cannot be read, or a replay differs from it
    ├── HistoryError             the history database cannot be used
    ├── ExecutorError            a backend failed, not the job
    ├── DeviceError              a device server refuses, or cannot be used
    │   └── DeviceLost           a device is gone, and what it held
    └── MapError                 a map cannot go on: status 1
        └── ItemError            one item of a map has failed

    UserWarning
    └── DovetailWarning          the input can be used, but not quite as it was meant

The command line prints the message alone, as one sentence, and so it does with warnings; ``--debug`` shows
the traceback.
"""

from __future__ import annotations

import reprlib
import warnings
from functools import partial
from typing import Any

__all__ = [
    "DeviceError",
    "DeviceLost",
    "DovetailError",
    "DovetailWarning",
    "ExecutorError",
    "HistoryError",
    "InputError",
    "InvariantError",
    "ItemError",
    "JournalError",
    "MapError",
    "NothingKnown",
    "PolicyError",
    "PolicyMistake",
    "UnsupportedWorkload",
    "warn_caller",
]


class DovetailError(Exception):
    """Base of all errors that Dovetail raises on purpose."""

    # That of the command which the error ends: 2 where its user can mend it, 1 for work that failed.
    exit_status = 3


class DovetailWarning(UserWarning):
    """The input can be used, but not quite as it was meant; one sentence explains how."""


def warn_caller(sentence: str) -> None:
    """Warn the Python caller."""
    warnings.warn(sentence, DovetailWarning, stacklevel=2)


class InputError(DovetailError):
    """Input or use is wrong; one sentence names where, what was found and what was expected.

    ``where`` names the file, line or field (``jobs.toml: job 3: times``); it is put before the message.
    """

    exit_status = 2

    def __init__(self, message: str, *, where: str | None = None) -> None:
        # In the message itself, so that a traceback, a log and the command line read the same.
        super().__init__(f"{where}: {message}" if where else message)
        self.where = where


class NothingKnown(InputError):  # noqa: N818 - reads as what it is
    """No time of any job is known; ``result`` is a `Result` of that state, for comparisons."""

    def __init__(self, message: str, *, where: str | None = None, result: Any = None) -> None:
        super().__init__(message, where=where)
        self.result = result


class UnsupportedWorkload(InputError):  # noqa: N818 - reads as what it is
    """The policy cannot place these jobs on this cluster; raised before anything runs."""


class PolicyError(DovetailError):
    """A policy made a decision that breaks capacity or state; names the policy and the job.

    ``place`` is the file and line of a user's own policy.
    """

    def __init__(self, policy: str, job: str, message: str, place: str = "") -> None:
        at = f"{place}: " if place else ""
        about = f"policy {policy}, job {job}" if job else f"policy {policy}"
        super().__init__(f"{at}{about}: {message}")
        self.policy = policy
        self.job = job
        self.message = message
        self.place = place
        # A policy of ours that decides so is an internal error; one of a user's own, its author's to mend.
        self.exit_status = 2 if place else 3

    def __reduce__(self) -> tuple[type[PolicyError], tuple[str, str, str, str]]:
        """From its parts, not from the whole sentence: workers send errors to their parent."""
        return type(self), (self.policy, self.job, self.message, self.place)


class PolicyMistake(InputError):  # noqa: N818 - reads as what it is
    """The code of a user's own policy fails, or decides what is no decision.

    The sentence names the policy, the job where it is known, and ``place``: the file and line.
    """

    def __init__(self, policy: str, job: str, message: str, place: str = "") -> None:
        about = f"policy {policy}, job {job}" if job else f"policy {policy}"
        super().__init__(f"{about}: {message}", where=place or None)
        self.policy, self.job, self.message, self.place = policy, job, message, place

    def __reduce__(self) -> tuple[type[PolicyMistake], tuple[str, str, str, str]]:
        """From its parts, not from the whole sentence: workers send errors to their parent."""
        return type(self), (self.policy, self.job, self.message, self.place)


class InvariantError(DovetailError):
    """A schedule breaks a rule that every schedule keeps."""


class JournalError(DovetailError):
    """A journal cannot be read, or its replay does not give the decisions it holds."""

    exit_status = 2


class HistoryError(DovetailError):
    """The history database cannot be opened, is of a newer version, or is damaged."""

    exit_status = 2


class ExecutorError(DovetailError):
    """A backend failed in a way that is not the job's own failure."""


class DeviceError(DovetailError):
    """A device server cannot be reached, refuses, or does not keep to the protocol."""


class DeviceLost(DeviceError):  # noqa: N818 - reads as what it is
    """A device server ended while it held arrays of this process."""


class MapError(DovetailError):
    """A map cannot go on: its function cannot be loaded, results cannot be combined, kinds disagree."""

    exit_status = 1


class ItemError(MapError):
    """One item of a map has failed, after the retries it was given.

    ``item`` is the item itself, ``index`` its place among the items, ``kind`` and ``reason`` are what went
    wrong, ``worker`` where, ``attempts`` how often it was tried. ``worker_traceback`` is the traceback in
    the worker; the exception that was raised there, where it could travel, is this one's cause.
    """

    def __init__(
        self,
        item: Any,
        index: int,
        reason: str,
        *,
        kind: str = "",
        worker: str = "",
        worker_traceback: str = "",
        attempts: int = 1,
    ) -> None:
        where = f" ({worker})" if worker else ""
        tries = f" after {attempts} attempts" if attempts > 1 else ""
        super().__init__(f"item {index} {_short_item(item)}: {reason}{where}{tries}")
        self.item, self.index, self.reason, self.kind = item, index, reason, kind
        self.worker, self.worker_traceback, self.attempts = worker, worker_traceback, attempts
        # A note and no cause: a traceback object cannot travel between processes, its text can.
        if worker_traceback:
            self.add_note(f"In the worker:\n{worker_traceback.rstrip()}")

    def __reduce__(self) -> tuple[Any, ...]:
        """From its parts, not from the whole sentence."""
        parts = {name: getattr(self, name) for name in ("kind", "worker", "worker_traceback", "attempts")}
        return partial(type(self), **parts), (self.item, self.index, self.reason)


# An item may be an array of gigabytes: its `repr` is never made as a whole.
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80


def _short_item(item: Any) -> str:
    """An item as a sentence shows it: what it is rather than all that is in it."""
    shape = getattr(item, "shape", None)
    if shape is not None:
        return f"({type(item).__name__} of shape {shape})"
    return f"({_REPR.repr(item)})"
