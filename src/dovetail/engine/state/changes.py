"""What an instant has changed, for policies, rate models and kept profiles to look at."""

from __future__ import annotations

from dovetail.model import Job, Placed

__all__ = ["InstantChanges"]


class InstantChanges:
    """What happened since the policy was last asked, as of the first call after it happened."""

    __slots__ = ("ended", "incident", "instant", "migrated", "moved", "started", "submitted", "withdrawn")

    def __init__(self) -> None:
        self.instant = 0
        """Another number for every instant."""
        self.submitted: list[Job] = []
        self.ended: list[Placed] = []
        self.started: list[Placed] = []
        self.moved: list[Placed] = []
        """As they will be, at the decision."""
        self.migrated: list[Placed] = []
        """When they have arrived."""
        self.incident = self.withdrawn = False

    @property
    def otherwise(self) -> bool:
        """Whether anything changed that the lists do not say."""
        return self.incident or self.withdrawn

    def begin(self) -> None:
        """Another instant: lists that somebody has kept of the last one stay as they are."""
        self.instant += 1
        if self.submitted:
            self.submitted = []
        if self.ended:
            self.ended = []
        if self.started:
            self.started = []
        if self.moved:
            self.moved = []
        if self.migrated:
            self.migrated = []
        self.incident = self.withdrawn = False
