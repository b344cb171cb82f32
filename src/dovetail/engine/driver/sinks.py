"""Where a driver writes down what happens: a journal of all instants, a ledger of all jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dovetail.engine.driver.orders import Order
from dovetail.engine.state.core import Engine
from dovetail.model import Decision, Event, Seconds

__all__ = ["JournalSink", "LedgerSink"]


class JournalSink(Protocol):
    """Takes what happened at each instant (see `dovetail.engine.journal.journal`)."""

    def batch(
        self,
        now: Seconds,
        events: Sequence[Event],
        engine: Engine,
        decisions: Sequence[Decision],
        *,
        ask: bool = True,
        imposed: bool = False,
    ) -> None:
        """One call of the engine: its events, the predictions used, its decisions; was the policy asked.

        ``imposed`` decisions were made before.
        """
        ...


class LedgerSink(Protocol):
    """Keeps what every job has become, before anything is done about it (`dovetail.running.ledger`)."""

    @property
    def blocked(self) -> bool:
        """Whether something could not be kept yet: until it is, nothing is to start."""
        ...

    @property
    def why_blocked(self) -> str:
        """A sentence for people: what keeps it from being kept."""
        ...

    def settle(self) -> bool:
        """Try again to keep it; whether nothing is left to keep."""
        ...

    def keep(self, now: Seconds, events: Sequence[Event], orders: Sequence[Order], engine: Engine) -> None:
        """One instant: what the engine was told, and what is to be carried out now."""
        ...
