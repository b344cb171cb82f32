"""Who talks to the service, and what they may do."""

from __future__ import annotations

import os
import pwd
from dataclasses import field

from dovetail.records import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """A person at the socket, or with a token. An ``admin`` may do everything with all jobs.

    ``token`` is the digest of the token that all rights come from; empty at the socket.
    """

    name: str
    admin: bool = False
    token: str = field(default="", repr=False)

    def may_change(self, user: str | None) -> bool:
        """Whether this person may change jobs of that user, or read what they wrote."""
        return self.admin or user == self.name


def name_of(uid: int) -> str:
    """The name of a user of this machine, or the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def at_socket(uid: int) -> Principal:
    """The account at the other end of the socket: the service's own, and root, may do everything."""
    return Principal(name_of(uid), uid in (0, os.geteuid()))
