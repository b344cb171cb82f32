"""Remote-GPU queueing that borrows, and goes home, only where that is predicted to pay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from dovetail.interfaces import Traits, View
from dovetail.model import Decision
from dovetail.policies.parts.lending import going_home
from dovetail_remote.policies.rq import starts_in_order


@dataclass(frozen=True, slots=True)
class MrqAware:
    """As ``mrq``, but a job borrows only where all, those behind it too, are then predicted to end sooner.

    What runs and the first ``looks`` waiting jobs are played to their ends, by the costs of borrowed GPUs and
    predicted times: with the head borrowing now or waiting, and those behind it borrowing or not. Work goes
    home only where that saves its job more time than the move costs it. Where no costs of borrowing are
    costs, it is ``mrq``. In a crowd of small gangs 8 are too few to see what borrowing leads to: it is below
    ``mrq`` then. ``local``, ``skip``, ``held``: see ``mrq``.
    """

    looks: int = 16
    local: int = 0
    skip: int = 0
    held: bool = False

    paper: ClassVar[str] = "ours, after Markthub 2015, section 6"
    traits: ClassVar[Traits] = Traits(settles=True, priorities=True, migrates=True, forecasts=True)

    def __post_init__(self) -> None:
        if self.looks < 1:
            raise ValueError(f"found looks={self.looks}, expected at least 1")

    def decide(self, view: View) -> Iterable[Decision]:
        """First what it pays to take home; then new jobs, which borrow where it is worth it."""
        from dovetail_lab.markthub.outlook import (
            BorrowingState,  # numba: `dovetail policies` need not wait for it
        )

        free, outlook = view.free(), BorrowingState(view, self.looks, self.local)
        home = list(going_home(view, free, held=self.held, pays=outlook.pays_to_move))
        return [
            *home,
            *starts_in_order(
                view,
                free,
                local=self.local,
                skip=self.skip,
                worth=lambda started, waiting: outlook.is_worth_borrowing(home, started, waiting),
            ),
        ]
