"""Orders that would begin something and are not on record yet: the disk is full."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.engine.driver.orders import HandOver, Move, Order
from dovetail.model import JobId, Placed, Seconds

__all__ = ["Withheld"]

INFINITE = float("inf")
PATIENCE: Seconds = 1.0
"""Between attempts to keep what could not be kept."""


class Withheld:
    """They are given as soon as they are on record; ``retry`` is when that is to be tried again."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.retry: Seconds = INFINITE

    def keep_back(self, orders: Sequence[Order], now: Seconds) -> list[Order]:
        """Keep those that would begin something; returns the others, which may be given."""
        begins = (Placed, HandOver, Move)
        self.orders += [order for order in orders if isinstance(order, begins)]
        if self.retry == INFINITE:
            self.postpone(now)
        return [order for order in orders if not isinstance(order, begins)]

    def postpone(self, now: Seconds) -> None:
        """They are not on record yet."""
        self.retry = now + PATIENCE

    def let_go(self) -> list[Order]:
        """They are on record: give them."""
        self.retry = INFINITE
        orders, self.orders = self.orders, []
        return orders

    def drop(self, job: JobId) -> bool:
        """Whether the order that would have begun the job was kept back; it will not be given then."""
        left = [one for one in self.orders if not isinstance(one, Placed | HandOver) or one.job.id != job]
        found = len(left) < len(self.orders)
        self.orders = left
        return found
