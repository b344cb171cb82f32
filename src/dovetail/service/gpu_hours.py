"""A service's limit on GPU hours: kept from start to start in ``gpu_hours.json``, and shown.

The file is written at most every `GAP` seconds. After a kill the last of it is missing for jobs that have
ended since; what runs is charged from where the file ends, also for the time in which no service ran.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from dovetail.client.folder import read_form
from dovetail.driver.gpu_hours import GpuHours, HourLimit, describe_window
from dovetail.engine.journal.checked import DAMAGED, check_fields
from dovetail.errors import InputError
from dovetail.files.writing import replace_file
from dovetail.model import Seconds
from dovetail.records import dataclass
from dovetail.service.usage import GAP

HOUR: Seconds = 3600.0
WINDOW: Seconds = 7 * 86400.0
"""Where a limit is given and no window is."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptHours:
    """What the file holds: ``used`` is seconds on devices, by user and by moment since the epoch.

    ``most`` in ``window`` is the limit, ``at`` up to when users have been charged.
    """

    most: Seconds
    window: Seconds
    at: Seconds
    used: Mapping[str, Mapping[str, float]]


def make_limit(hours: float | None, window: Seconds | None) -> HourLimit | None:
    """The limit of these options. Raises `InputError`."""
    if hours is None:
        if window is not None:
            raise InputError("found it without --max-gpu-hours-per-user", where="--gpu-hours-window")
        return None
    if not isfinite(hours):
        raise InputError(f"found {hours:g}, expected a finite number", where="--max-gpu-hours-per-user")
    return HourLimit(hours * HOUR, WINDOW if window is None else window)


class HoursBook:
    """The file of one service. Times of its methods are the driver's, whose time 0 is ``epoch``."""

    def __init__(self, path: Path, limit: HourLimit | None, epoch: Seconds) -> None:
        self._path, self._limit, self._epoch = path, limit, epoch
        self._written: Seconds | None = None
        self.hours: GpuHours | None = None
        if limit is None:
            path.unlink(missing_ok=True)  # what is used meanwhile would be missing later
        else:
            self.hours = _hours_from(_read_hours_file(path), limit, epoch)
            self.write(0.0)

    def write(self, now: Seconds) -> None:
        """Keep it; on a full disk what was kept before stays."""
        hours, limit = self.hours, self._limit
        if hours is None or limit is None:
            return
        self._written = now
        used = {
            user: {repr(moment): seconds for moment, seconds in hours.pieces(user, now).items()}
            for user in hours.users
        }
        kept = KeptHours(limit.most, limit.window, self._epoch + now, {u: p for u, p in used.items() if p})
        try:
            replace_file(self._path, json.dumps(asdict(kept)).encode() + b"\n")
        except OSError as error:
            # The next one holds all of it.
            _log.warning("%s cannot be written: %s", self._path, error.strerror)

    def changed(self, now: Seconds) -> None:
        """Something has happened: keep it if the last time is long ago."""
        if self.hours is not None and (self._written is None or now - self._written >= GAP):
            self.write(now)

    @staticmethod
    def read_kept(path: Path, now: Seconds) -> GpuHours | None:
        """As it was kept, for a simulation that begins at ``now`` (since the epoch); ``None`` without one."""
        found = _read_hours_file(path)
        return None if found is None else _hours_from(found, HourLimit(found.most, found.window), now)


def _hours_from(kept: KeptHours | None, limit: HourLimit, epoch: Seconds) -> GpuHours:
    if kept is None:
        return GpuHours(limit, epoch)
    used = {
        user: {float(moment): seconds for moment, seconds in pieces.items()}
        for user, pieces in kept.used.items()
    }
    return GpuHours(limit, epoch, used, kept.at)


def _read_hours_file(path: Path) -> KeptHours | None:
    """What the file holds; ``None`` where there is none that can be read."""
    try:
        kept = check_fields(KeptHours(**read_form(path)))
        numbers = [kept.at, *(float(m) for pieces in kept.used.values() for m in pieces)]
        numbers += [seconds for pieces in kept.used.values() for seconds in pieces.values()]
        if not (kept.window > 0 and kept.most > 0 and all(map(isfinite, numbers))):
            raise ValueError("a number that cannot be")
    except FileNotFoundError:
        return None
    except (OSError, *DAMAGED) as error:
        _log.warning("%s cannot be read, so the GPU hours of all users begin at zero: %s", path, error)
        return None
    return kept


def hours_words(user: str, hours: GpuHours, now: Seconds, epoch: Seconds) -> str:
    """What a user has used of their GPU hours, and when some come back: why jobs wait for them."""
    used, claimed, limit = hours.used(user, now), hours.claimed(user, now), hours.limit
    words = f"{user or 'no user'} has used {used / HOUR:.4g} of {limit.most / HOUR:g} GPU hours"
    words += f" in {describe_window(limit.window)}"
    if claimed > 0:
        words += f", and jobs before it may use {claimed / HOUR:.4g}"
    back = hours.next_room(user, now)
    if back is None:
        return f"{words}; hours come back when these have ended"
    return f"{words}; enough come back by {format_moment(epoch + back)}"


def hours_row(hours: GpuHours | None, now: Seconds, epoch: Seconds) -> dict[str, Any] | None:
    """The limit and what all users have used of it, in hours, most first; ``None`` without a limit."""
    if hours is None:
        return None
    users: list[dict[str, Any]] = []
    for user in hours.users:
        used, claimed, back = hours.used(user, now), hours.claimed(user, now), hours.next_room(user, now)
        if used or claimed > 0:
            users.append(
                {
                    "user": user,
                    "used": used / HOUR,
                    "claimed": claimed / HOUR,
                    "back": None if back is None else epoch + back,
                }
            )
    users.sort(key=lambda one: (-one["used"], one["user"]))
    return {"limit": hours.limit.most / HOUR, "window": hours.limit.window, "users": users}


def format_moment(when: Seconds) -> str:
    """A moment of this day as a time, of another one with its date."""
    same = time.localtime(when)[:3] == time.localtime()[:3]
    return time.strftime("%H:%M" if same else "%Y-%m-%d %H:%M", time.localtime(when))
