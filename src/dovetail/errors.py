"""Everything that Dovetail raises on purpose.

    DovetailError
    ├── InputError               bad input or use: exit status 2
    │   └── UnsupportedWorkload  the policy cannot place these jobs on this cluster
    ├── PolicyError              a policy made a decision that cannot be carried out: status 3
    ├── InvariantError           a schedule breaks a rule (raised by the checker)
    ├── JournalError             a journal cannot be read, or a replay differs from it
    ├── HistoryError             the history database cannot be used
    └── ExecutorError            a backend failed, not the job

The command line prints the message alone, as one sentence; ``--debug`` shows the traceback.
"""

from __future__ import annotations

__all__ = [
    "DovetailError",
    "ExecutorError",
    "HistoryError",
    "InputError",
    "InvariantError",
    "JournalError",
    "PolicyError",
    "UnsupportedWorkload",
]


class DovetailError(Exception):
    """Base of all errors that Dovetail raises on purpose."""

    exit_status = 3


class InputError(DovetailError):
    """Input or use is wrong; one sentence says where, what was found and what was expected.

    ``where`` names the file, line or field (``jobs.toml: job 3: times``); it is put before the message.
    """

    exit_status = 2

    def __init__(self, message: str, *, where: str | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.where = where


class UnsupportedWorkload(InputError):  # noqa: N818 - reads as what it is
    """The policy cannot place these jobs on this cluster; raised before anything runs."""


class PolicyError(DovetailError):
    """A policy made a decision that breaks capacity or state; names the policy and the job."""

    def __init__(self, policy: str, job: str, message: str) -> None:
        super().__init__(f"policy {policy}, job {job}: {message}")
        self.policy = policy
        self.job = job
        self.message = message

    def __reduce__(self) -> tuple[type[PolicyError], tuple[str, str, str]]:
        """From its parts, not from the whole sentence: workers send errors to their parent."""
        return type(self), (self.policy, self.job, self.message)


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
