"""The answer while a service reads its queue: that it is starting, and when to try again."""

from __future__ import annotations

import os
import select
import socket
import threading
from contextlib import suppress
from pathlib import Path

from dovetail.service.http import WAITING, unix_socket

PATIENCE = 1.0
"""Seconds for a request's head: others wait meanwhile."""
MOST_HEAD = 64 << 10
_BODY = b'{"error":"the service is starting: try again in a moment"}'
ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


class Starting:
    """Listens at the service's socket, in a thread, until the service does (`hand_over`), or it gives up.

    Raises `InputError` where the socket cannot be made.
    """

    def __init__(self, path: Path, group: str | None) -> None:
        self._socket = unix_socket(path, group)
        self._socket.listen(WAITING)
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC)
        self._thread: threading.Thread | None = threading.Thread(
            target=self._answer_while_starting, daemon=True
        )
        self._thread.start()

    def _answer_while_starting(self) -> None:
        door = self._socket.fileno()
        while self._woken not in select.select([door, self._woken], [], [])[0]:
            with suppress(OSError):
                one, _ = self._socket.accept()
                with one:
                    self._answer_connection(one)

    @staticmethod
    def _answer_connection(one: socket.socket) -> None:
        """Read the head, so that nothing is reset, and answer. Raises `OSError`."""
        one.settimeout(PATIENCE)
        head = b""
        while b"\r\n\r\n" not in head and len(head) < MOST_HEAD:
            data = one.recv(MOST_HEAD)
            if not data:
                return
            head += data
        one.sendall(ANSWER)

    def hand_over(self) -> socket.socket:
        """The socket, which from now on answers nothing."""
        self._stop_answering()
        return self._socket

    def close(self) -> None:
        """Answer no more, unless another answers already."""
        if self._thread is not None:
            self._stop_answering()
            self._socket.close()

    def _stop_answering(self) -> None:
        if self._thread is not None:
            os.write(self._wake, b"x")
            self._thread.join()
            os.close(self._wake)
            os.close(self._woken)
            self._thread = None
