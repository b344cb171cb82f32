"""What users have used, kept from start to start in ``usage.json``.

It is written at most every `GAP` seconds: after a kill the last of it is missing. What runs while no service
does is not charged.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from math import exp2, isfinite
from pathlib import Path

from dovetail.client.folder import read_form
from dovetail.driver.fair_shares import FairShares
from dovetail.engine.journal.checked import DAMAGED, check_fields
from dovetail.errors import InputError
from dovetail.files.writing import replace_file
from dovetail.model import Seconds
from dovetail.records import dataclass

HALF_LIFE: Seconds = 7 * 86400.0
"""Where shares are given and no half-life is."""
GAP: Seconds = 10.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FairUse:
    """Fair shares: the half-life of usage in seconds, and the shares of users other than 1."""

    half_life: Seconds = HALF_LIFE
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kept:
    """What the file holds: ``used`` is core-seconds by user, as of ``at`` seconds since the epoch."""

    half_life: Seconds
    shares: Mapping[str, float]
    at: Seconds
    used: Mapping[str, float]


def parse_shares(texts: Sequence[str]) -> dict[str, float]:
    """The shares of ``USER=N`` options. Raises `InputError`.

    >>> parse_shares(["ada=2", "grace=0.5"])
    {'ada': 2.0, 'grace': 0.5}
    """
    found: dict[str, float] = {}
    for text in texts:
        user, _, number = text.rpartition("=")
        try:
            share = float(number)
        except ValueError:
            share = 0.0
        if not user or not (share > 0 and isfinite(share)):
            raise InputError(f"found {text!r}, expected USER=N with N above 0, e.g. ada=2", where="--share")
        found[user] = share
    return found


class Usage:
    """The file of one service. Times of its methods are the driver's, whose time 0 is ``epoch``."""

    def __init__(self, path: Path, fair: FairUse | None, epoch: Seconds) -> None:
        self._path, self._fair, self._epoch = path, fair, epoch
        self._written: Seconds | None = None
        if fair is None:
            self.shares: FairShares | None = None
            # A gap in the records would charge some users and not others: without fair shares the file goes.
            path.unlink(missing_ok=True)  # what was used meanwhile would be missing later
        else:
            self.shares = FairShares(
                fair.half_life, fair.shares, _as_of(epoch, _read_usage_file(path), fair.half_life)
            )
            self.write(0.0)

    def write(self, now: Seconds) -> None:
        """Keep it; on a full disk what was kept before stays."""
        if self.shares is None or self._fair is None:
            return
        self._written = now
        fair = self._fair
        kept = Kept(fair.half_life, dict(fair.shares), self._epoch + now, dict(self.shares.all(now)))
        try:
            replace_file(self._path, json.dumps(asdict(kept)).encode() + b"\n")
        except OSError:
            return  # the next one holds all of it

    def changed(self, now: Seconds) -> None:
        """Something has happened: keep it if the last time is long ago."""
        # At most every GAP seconds: a decayed sum loses little if the last seconds are missing.
        if self.shares is not None and (self._written is None or now - self._written >= GAP):
            self.write(now)

    @staticmethod
    def read_kept(path: Path, now: Seconds) -> FairShares | None:
        """As it was kept, for a simulation that begins at ``now`` (since the epoch); ``None`` without one."""
        found = _read_usage_file(path)
        if found is None:
            return None
        return FairShares(found.half_life, found.shares, _as_of(now, found, found.half_life))


def _read_usage_file(path: Path) -> Kept | None:
    """What the file holds; ``None`` where there is none that can be read."""
    try:
        kept = check_fields(Kept(**read_form(path)))
    except FileNotFoundError:
        return None
    except (OSError, *DAMAGED) as error:
        _log.warning("%s cannot be read, so the usage of all users begins at zero: %s", path, error)
        return None
    return kept if kept.half_life > 0 else None


def _as_of(now: Seconds, kept: Kept | None, half_life: Seconds) -> dict[str, float]:
    """Usage by user, of which time has taken its part since it was written."""
    if kept is None:
        return {}
    left = exp2(-max(0.0, now - kept.at) / half_life)
    return {user: used * left for user, used in kept.used.items()}
