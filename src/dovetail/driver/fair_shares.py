"""What each user has used of the machine, of which half is forgotten after every half-life.

Usage is counted in seconds of the whole machine: a job is charged its dominant share, the larger of its
parts of the CPUs and of the devices (Ghodsi et al. 2011, section 4), and charged while it runs.
A user's standing is the usage divided by the user's share: the lowest goes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp2, log

from dovetail.model import Cluster, JobId, Placed, Seconds
from dovetail.records import dataclass


def dominant_share(placed: Placed, cluster: Cluster) -> float:
    """The larger of the parts of the CPUs and of the devices of the machine that a job holds; 0 to 1."""
    cpus = sum(part.nodes.bit_count() * part.cpus for part in placed.allocation.parts)
    request = placed.allocation.request
    devices = request.nodes * request.gpus
    parts = ((cpus, cluster.total_cpus), (devices, cluster.total_devices))
    return max((float(held) / total for held, total in parts if total), default=0.0)


@dataclass(slots=True)
class _Account:
    """A user's usage as of a moment, and how fast it grows: the dominant shares of what runs."""

    used: float = 0.0
    at: Seconds = 0.0
    rate: float = 0.0


class FairShares:
    """Usage by user. Times are the driver's; they must not go back.

    ``half_life`` in seconds. A user without an entry in ``shares`` has 1. ``used`` is what was used before
    time 0, as of then.
    """

    def __init__(
        self,
        half_life: Seconds,
        shares: Mapping[str, float] | None = None,
        used: Mapping[str, float] | None = None,
    ) -> None:
        if not half_life > 0:
            raise ValueError(f"half-life {half_life:g}")
        self.half_life = half_life
        self._shares = dict(shares or {})
        self._accounts = {user: _Account(amount) for user, amount in (used or {}).items()}
        self._runs: dict[JobId, tuple[str, float]] = {}

    def started(self, placed: Placed, cluster: Cluster, now: Seconds) -> None:
        """From now on the job's user is charged for it."""
        if placed.job.foreign:
            return
        user, rate = placed.job.user or "", dominant_share(placed, cluster)
        self._runs[placed.job.id] = user, rate
        self._brought_to(user, now).rate += rate

    def ended(self, job: JobId, now: Seconds) -> None:
        """From now on its user is not charged any more; nothing happens where no user was."""
        user, rate = self._runs.pop(job, ("", 0.0))
        if rate:
            account = self._brought_to(user, now)
            account.rate = max(0.0, account.rate - rate)

    def used(self, user: str, now: Seconds) -> float:
        """Seconds of the whole machine. O(1)."""
        return self._brought_to(user, now).used if user in self._accounts else 0.0

    def standing(self, user: str, now: Seconds) -> float:
        """Usage divided by share; who has less goes first."""
        return self.used(user, now) / self.share_of_user(user)

    def factor(self, user: str, now: Seconds) -> float:
        """2^(-used / share), both as parts of what all users have: 1 unused, 1/2 for just the share.

        O(users). So Slurm's priority/multifactor has it (its classic fair-share factor).
        """
        everyone = self._accounts.keys() | self._shares.keys() | {user}
        used = sum(self.used(one, now) for one in self._accounts)
        if used <= 0.0:
            return 1.0
        share = self.share_of_user(user) / sum(map(self.share_of_user, everyone))
        return exp2(-self.used(user, now) / used / share)

    def share_of_user(self, user: str) -> float:
        """A user's share; 1 by default."""
        return self._shares.get(user, 1.0)

    def all(self, now: Seconds) -> dict[str, float]:
        """What everybody has used. O(users)."""
        return {user: self.used(user, now) for user in self._accounts}

    def _brought_to(self, user: str, now: Seconds) -> _Account:
        account = self._accounts.setdefault(user, _Account(at=now))
        if now > account.at:
            left = exp2((account.at - now) / self.half_life)
            # What came in at a constant rate has been forgotten in part, too.
            account.used = account.used * left + account.rate * self.half_life / log(2) * (1 - left)
            account.at = now
        return account
