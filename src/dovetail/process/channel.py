"""How two of our processes prove that they know a token, and how one ends with the other.

One file of the standard library alone: supervisors and agents, which run by path where nothing of Dovetail
can be imported, load it as device servers, map workers and their clients do.

A handshake: each side sends 32 random bytes (its nonce), and an HMAC-SHA256 (RFC 2104) over its role, the
other side's nonce and its own. So the token is never sent, an answer serves for one connection only, and what
a proof that one side has sent cannot be sent back to it by a process that does not know the token.
"""

from __future__ import annotations

import os
import signal
import socket

NONCE = 32
"""Bytes of a nonce."""
SET_PDEATHSIG, SET_CHILD_SUBREAPER = 1, 36
"""Of ``prctl`` (linux/prctl.h)."""


class Handshake:
    """One side of a handshake, which plays ``role``; ``nonce`` is what it sends first.

    ``token`` may be ``None`` where the kernel identifies the other side: then nothing can be proven.
    """

    __slots__ = ("_role", "_token", "nonce")

    def __init__(self, token: bytes | None, role: str) -> None:
        self._token, self._role = token, role
        self.nonce = os.urandom(NONCE)

    def make_proof(self, theirs: bytes) -> str:
        """Our answer to the other side's nonce."""
        return self._authentication_code(self._role, theirs, self.nonce)

    def is_proven(self, role: str, theirs: bytes, offered: object) -> bool:
        """Whether ``offered`` answers our nonce as only one who plays this role and knows the token can."""
        # Late: a supervisor, which proves nothing, starts in 20 ms.
        from hmac import compare_digest

        return compare_digest(
            str(offered).encode(errors="replace"),
            self._authentication_code(role, self.nonce, theirs).encode(),
        )

    def _authentication_code(self, role: str, first: bytes, second: bytes) -> str:
        import hmac

        assert self._token is not None
        return hmac.new(self._token, b"dovetail " + role.encode() + first + second, "sha256").hexdigest()


def nonce_of(text: str) -> bytes:
    """The other side's nonce, of its hexadecimal text. Raises `ValueError`, `TypeError`."""
    nonce = bytes.fromhex(text)
    if len(nonce) != NONCE:
        raise ValueError(f"expected {NONCE} random bytes")
    return nonce


def bracket_host(host: str) -> str:
    """A host as it stands before a colon and a port."""
    return f"[{host}]" if ":" in host else host


def keep_alive(connection: socket.socket, idle: int, interval: int) -> None:
    """Send small messages at once, and notice that the other side's machine is gone.

    That takes ``idle`` seconds of silence and four probes, ``interval`` seconds apart.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", idle), ("TCP_KEEPINTVL", interval), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def become_subreaper() -> None:
    """Orphans among our descendants become our children (Linux 3.4)."""
    _call_prctl(SET_CHILD_SUBREAPER, 1)


def end_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Get this signal when our parent ends, whatever we do then; end now where it has ended already."""
    _call_prctl(SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def _call_prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
