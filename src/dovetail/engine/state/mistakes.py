"""What the author of a policy got wrong: code of theirs that fails, decisions that are none."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, get_type_hints

from dovetail.errors import DovetailError, PolicyError, PolicyMistake
from dovetail.extras import DISTRIBUTIONS
from dovetail.model import Job

OURS = ("dovetail", *(f"dovetail_{name}" for name in DISTRIBUTIONS))
"""Packages whose policies have no author to blame but us: what fails there is an internal error."""


def mistake_in(policy: object, name: str, error: BaseException, call: str = "decide") -> PolicyMistake | None:
    """The sentence where a policy's method ``call`` has raised; ``None`` where the fault is ours."""
    if isinstance(error, DovetailError) or not _is_of_others(policy):
        return None
    file = inspect.getfile(type(policy))
    frames = [(frame, line) for frame, line in _iterate_frames(error) if frame.f_code.co_filename == file]
    message = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    if not frames:
        return PolicyMistake(
            name, "", f"{call} gives what cannot be used: {message}", _locate_method(policy, call)
        )
    frame, line = frames[-1]
    return PolicyMistake(name, _job_in(frame), message, f"{_shorten_path(file)}, line {line}")


@contextmanager
def blame_policy(policy: object, name: str, call: str) -> Iterator[None]:
    """Around a call of a policy's method: raises `PolicyMistake` where its author's code fails."""
    try:
        yield
    except (Exception, SystemExit) as error:
        mistake = mistake_in(policy, name, error, call)
        if mistake is None:
            raise
        raise mistake from error


def wrong_decision(
    policy: object, name: str, decision: object, kinds: tuple[type, ...]
) -> PolicyMistake | None:
    """What is no decision, or one with fields of other types; ``None`` where nothing is wrong with it."""
    if not _is_of_others(policy):
        return None
    where = _locate_method(policy, "decide")
    if type(decision) not in kinds:
        expected = ", ".join(sorted(kind.__name__ for kind in kinds))
        return PolicyMistake(name, "", f"decides {decision!r}, expected one of {expected}", where)
    for field, kind in get_type_hints(type(decision)).items():
        value = getattr(decision, field, None)
        if isinstance(kind, type) and not isinstance(value, int if kind is float else kind):
            if kind is float and isinstance(value, float):
                continue
            job = str(getattr(decision, "job", ""))
            what = f"{type(decision).__name__} has {field} {value!r}, expected {kind.__name__}"
            return PolicyMistake(name, job if field != "job" else "", what, where)
    return None


def with_place(error: PolicyError, policy: object) -> PolicyError:
    """The error with the place of the policy's method, where the policy is a user's own."""
    if error.place or not _is_of_others(policy):
        return error
    return PolicyError(error.policy, error.job, error.message, _locate_method(policy, "decide"))


def _is_of_others(policy: object) -> bool:
    return type(policy).__module__.partition(".")[0] not in OURS


def _iterate_frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _job_in(frame: FrameType) -> str:
    """The id of the job that the code was about: its variable ``job``, else the only one there is."""
    local = frame.f_locals
    jobs = {value.id for value in local.values() if isinstance(value, Job)}
    if isinstance(local.get("job"), Job):
        return str(local["job"].id)
    return str(jobs.pop()) if len(jobs) == 1 else ""


def _locate_method(policy: object, call: str) -> str:
    """Where a method stands."""
    method: Callable[..., Any] | None = getattr(type(policy), call, None)
    code = getattr(method, "__code__", None)
    return f"{_shorten_path(code.co_filename)}, line {code.co_firstlineno}" if code is not None else ""


def _shorten_path(file: str) -> str:
    """A path as a user in this folder writes it."""
    near = os.path.relpath(file)
    return file if near.startswith("..") else near
