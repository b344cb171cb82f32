"""How long jobs run, as distributions: what has ended so far, weighted by how like it is and how long ago.

Forecasts of starts, look-ahead and ``whatif`` draw from the same distributions.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from dovetail.files.arrays import Floats, Ints, np
from dovetail.kernels.starts import Ends, Kinds, draw_lengths

WEIGHTS = (
    *(16.0, 1000.0),  # ends after which the weight is 1/e: of this user's, of all others'
    *(0.6, 0.7, 1.0),  # unlikeness of app (a factor), width and walltime (rates): of this user's
    *(1.0, 1.0),  # by which power of the walltimes' ratio a length is carried over: this user's, others'
    *(0.6, 1.2, 4.0),  # unlikeness of others' app, width and walltime
    0.5,  # the others' weight, in like ends of this user
)
"""Chosen on three samples (KTH, HPC2N, Theta); most of them hardly matter."""

OF_APPS = (*WEIGHTS[:2], 0.02, *WEIGHTS[3:7], 0.02, *WEIGHTS[8:])
"""Where an app is a program, as in a service: another one shows next to nothing."""

UNKNOWN = -1


class JobKind(NamedTuple):
    """What is known of a job beforehand; ``None``: an unknown ``user``, no ``walltime`` (seconds).

    ``width`` is how much it takes of what is scarce: nodes, or their devices, or their CPUs.
    """

    user: Hashable
    app: Hashable
    width: int
    walltime: float | None


class Column:
    """Numbers that are appended one by one, seen as an array."""

    def __init__(self, kind: str, width: int = 0) -> None:
        self._values = np.empty((64, width) if width else 64, kind)
        self._count = 0

    def append(self, value: float | Sequence[int]) -> None:
        """One more, O(1) on average."""
        # Doubling: appending n numbers copies fewer than 2n.
        if self._count == len(self._values):
            self._values = np.concatenate([self._values, np.empty_like(self._values)])
        self._values[self._count] = value
        self._count += 1

    def array(self, first: int = 0) -> Any:
        """Those from a place on; it is of no use to write to it."""
        return self._values[first : self._count]

    def __setitem__(self, place: int, value: float) -> None:
        self._values[place] = value

    def __len__(self) -> int:
        return self._count


class RunTimes:
    """The jobs that have ended, in the order of their ends, and draws of how long others run."""

    def __init__(self, weights: Sequence[float] = WEIGHTS) -> None:
        self._weights = np.array(weights, float)
        self._user, self._app, self._width, self._before = (Column("int64") for _ in range(4))
        self._wall, self._ran = Column("float64"), Column("float64")
        self._users: dict[Hashable, int] = {}
        self._apps: dict[Hashable, int] = {}
        self._last: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._ran)

    def end(self, kind: JobKind, ran: float) -> None:
        """A job has ended after so many seconds."""
        user = self._user_number(kind.user)
        # A chain through all ends, from each to the one before of the same user, so that a draw finds them
        # without a search.
        if user != UNKNOWN:
            self._before.append(self._last.get(user, UNKNOWN))
            self._last[user] = len(self._ran)
        else:
            self._before.append(UNKNOWN)
        self._user.append(user)
        self._app.append(self._apps.setdefault(kind.app, len(self._apps)))
        self._width.append(kind.width)
        self._wall.append(math.inf if kind.walltime is None else kind.walltime)
        self._ran.append(ran)

    def _user_number(self, user: Hashable) -> int:
        return UNKNOWN if user is None else self._users.setdefault(user, len(self._users))

    def user_and_app(self, kind: JobKind) -> tuple[int, int]:
        """User and app as numbers, the same for the same as long as this lives."""
        return self._user_number(kind.user), self._apps.setdefault(kind.app, len(self._apps))

    def draw(self, kinds: Sequence[JobKind], spent: Floats, seeds: Ints, draws: int) -> Floats:
        """Seconds that jobs run in all, shape (draws, jobs).

        ``spent`` are the seconds that they have run so far (0: not begun), those that run first; ``seeds``
        are numbers of theirs that stay the same.
        """
        pairs = [self.user_and_app(kind) for kind in kinds]
        users = np.array([user for user, _ in pairs], np.int64)
        jobs = Kinds(
            users,
            np.array([app for _, app in pairs], np.int64),
            np.array([kind.width for kind in kinds], np.int64),
            np.array([self._last.get(user, UNKNOWN) for user, _ in pairs], np.int64),
            np.array([math.inf if kind.walltime is None else kind.walltime for kind in kinds], float),
            np.ascontiguousarray(spent, float),
            np.ascontiguousarray(seeds, np.int64),
        )
        columns = (self._user, self._app, self._width, self._before, self._wall, self._ran)
        found = np.empty((draws, len(kinds)))
        draw_lengths(jobs, Ends(*(column.array() for column in columns)), self._weights, found)
        return found
