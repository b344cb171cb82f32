"""Mail about jobs, by a command that the site names: ``--mail-type`` and ``--mail-user``, as Slurm has them.

The service sends no mail itself. Where a job wants mail of an event, the command gets the job as JSON, with
its recipient, and sends it as the site does. An array has one mail, as one job has: when its first job
begins and when its last one has ended, unless ``ARRAY_TASKS`` is among the types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.model import JobId, Record, State
from dovetail.running.ledger import Ledger
from dovetail.service.hooks import EventName, Hook
from dovetail.service.notices import SUCCEEDED, Subscription, Wanted

ALL = frozenset({"BEGIN", "END", "FAIL", "INVALID_DEPEND", "REQUEUE", "STAGE_OUT"})
"""What ``ALL`` stands for (sbatch(1) of Slurm 22.05)."""
MOST_REMEMBERED = 1000
"""Arrays whose end is remembered, so that one end is one mail."""


def mail_subscription(hook: Hook, ledger: Ledger, *, idle: bool = False) -> Subscription:
    """Have a hook get the events of which mail is to be sent; ``idle``: of unused GPUs, too."""
    return Subscription(hook, _Mail(ledger, idle=idle).wants_event)


class _Mail:
    def __init__(self, ledger: Ledger, *, idle: bool) -> None:
        self._ledger = ledger
        self._idle = idle
        self._begun: dict[int, None] = {}
        self._over: dict[int, None] = {}

    def wants_event(self, record: Record, event: EventName) -> Wanted | None:
        """Recipient and subject of a mail of this event; ``None``: no mail is sent."""
        options = record.job.options
        named = frozenset(str(options.get("mail_type", "NONE")).split(","))
        if event == "GPU_IDLE":  # it is the site that wants it, whatever mail the job is to have
            mail = {"user": options.get("mail_user") or record.job.user, "types": ["GPU_IDLE"]}
            return Wanted(event, {"mail": mail}) if self._idle else None
        if "NONE" in named:
            return None
        types = named | ALL if "ALL" in named else named
        about = {"mail": {"user": options.get("mail_user") or record.job.user, "types": sorted(named)}}
        number = array_of(record.job.id)
        # Slurm sends one mail for a whole array unless ARRAY_TASKS is among the types.
        if number is None or "ARRAY_TASKS" in types or event not in ("BEGIN", "END", "FAIL"):
            return Wanted(event, about) if _is_wanted(record, event, types) else None
        return self._of_array(number, record, event, types, about)

    def _of_array(
        self, number: int, record: Record, event: EventName, types: frozenset[str], mail: Mapping[str, Any]
    ) -> Wanted | None:
        """The event, if it is one of the array as a whole."""
        if event == "BEGIN":
            if number in self._begun or self._ledger.array_began_before(number, record.job.id):
                # From the ledger, since a restart forgets what was sent.
                return None
            _remember_number(self._begun, number)
            self._over.pop(number, None)  # one that was over goes on
            about = {**mail, "array": {"id": str(number), "states": {}}}
            return Wanted(event, about) if event in types else None
        if number in self._over or self._ledger.array_is_open(number):
            return None
        _remember_number(self._over, number)
        states = self._ledger.array_states(number)
        whole: EventName = "END" if all(State(name) in SUCCEEDED for name in states) else "FAIL"
        about = {**mail, "array": {"id": str(number), "states": states}}
        return Wanted(whole, about) if _is_wanted(record, whole, types) else None


def _remember_number(numbers: dict[int, None], number: int) -> None:
    numbers[number] = None
    # Bounded; the ledger answers for older arrays.
    if len(numbers) > MOST_REMEMBERED:
        del numbers[next(iter(numbers))]


def _is_wanted(record: Record, event: EventName, types: frozenset[str]) -> bool:
    if event == "FAIL":  # as Slurm has it: where mail of failures is not wanted, a failure is an end
        return "FAIL" in types or "END" in types
    if event == "END":
        invalid = record.state is State.CANCELLED and record.start is None and bool(record.job.depends)
        return "END" in types or (invalid and "INVALID_DEPEND" in types)
    return event in types


def array_of(job: JobId) -> int | None:
    """The number of the array that a job of a service is in.

    >>> array_of("12_3"), array_of("12")
    (12, None)
    """
    number, _, index = job.partition("_")
    return int(number) if index and number.isdecimal() else None
