"""Remote-GPU queueing with migration: borrowed GPUs go back as soon as one at home is free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from dovetail.interfaces import Traits, View
from dovetail.model import Decision
from dovetail.policies.parts.lending import going_home
from dovetail_remote.policies.rq import starts_in_order


@dataclass(frozen=True, slots=True)
class Mrq:
    """As ``rq``, and work on a borrowed GPU goes home to a local one that comes free, before a new job does.

    ``held`` keeps the borrowed GPU until the work has moved, as it is live. ``local``, ``skip``: see ``rq``.
    """

    local: int = 0
    skip: int = 0
    held: bool = False

    paper: ClassVar[str] = "Markthub 2015, section 3"
    traits: ClassVar[Traits] = Traits(settles=True, priorities=True, migrates=True)

    def decide(self, view: View) -> Iterable[Decision]:
        """First what goes home; then, with what is free after it, new jobs."""
        free = view.free()
        home = list(going_home(view, free, held=self.held))
        return [*home, *starts_in_order(view, free, local=self.local, skip=self.skip)]
