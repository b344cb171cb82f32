"""A client with a service of an older version: what is there works, and what is not is one sentence.

`older_service.json` holds what the service of an earlier commit answered; its answers had no version.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

import pytest
from dovetail_command import run_command

from dovetail.client.connection import AROUND, Connection, OlderAnswer, OlderService
from dovetail.version import API, API_HEADER

STORED: dict[str, Any] = json.loads(Path(__file__).with_name("older_service.json").read_text())


class _Answers(BaseHTTPRequestHandler):
    """Answers as it did; of a path that is not stored what it answered to one that it did not have."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(STORED.get(self.path) or STORED.get(self.path.partition("?")[0]) or self._jobs())

    def _jobs(self) -> dict[str, Any]:
        if "/api/v1/jobs?" not in self.path:
            return STORED["POST /api/v1/move"]  # type: ignore[no-any-return]
        if "jobs=1&" not in f"{self.path}&":
            some = "jobs=1-4" if "jobs=" in self.path else "limit=100"
            return STORED[f"/api/v1/jobs?{some}"]  # type: ignore[no-any-return]
        first = STORED["/api/v1/jobs?jobs=1-4"]["body"]["jobs"][0]
        return {"status": 200, "body": {"jobs": [first], "total": 1}}

    def do_POST(self) -> None:
        form = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/api/v1/jobs" and AROUND.isdisjoint(form):
            self._answer({"status": 201, "body": {"ids": ["9"], "numbers": [9], "notes": []}})
        else:
            again = " again" if self.path == "/api/v1/jobs" else ""
            self._answer(STORED.get(f"POST {self.path}{again}", STORED["POST /api/v1/move"]))

    def _answer(self, stored: dict[str, Any]) -> None:
        data = json.dumps(stored["body"]).encode()
        self.send_response(stored["status"])
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...

    def address_string(self) -> str:
        return "here"


class _Older(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "s")
    with _Older(path, _Answers) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        yield path
        server.shutdown()
        serving.join()


@pytest.mark.parametrize(
    ("command", "has"),
    [
        ("queue", "two"),
        ("queue --json", '"id"'),
        ("queue --ended", "one"),
        ("queue 1-4", "COMPLETED"),
        ("info", "Dovetail 0.1.0"),
        ("info --json", '"executor"'),
        ("nodes", "n0"),
        ("explain 1", "true"),
        ("wait 1", ""),
        ("hold 3_2", "3_2"),
        ("submit -- true", "9"),
    ],
)
def test_what_is_there_works(command: str, has: str, socket: str, tmp_path: Path) -> None:
    done = _run(command, socket, tmp_path)
    assert done.returncode == 0, done.stderr
    assert has in done.stdout
    assert "internal error" not in done.stderr
    if command.startswith("submit"):
        assert "the service is older than this command: its own umask and limits hold" in done.stderr


@pytest.mark.parametrize(
    ("command", "lacks"),
    [
        ("info 1", "lacks the field"),
        ("move 3_1 --first", "cannot do this"),
        ("update 3_1 --priority 1", "cannot do this"),
        ("requeue --failed", "does not take 'failed'"),
        ("pause", "cannot do this"),
    ],
)
def test_what_is_not_there_is_one_sentence(command: str, lacks: str, socket: str, tmp_path: Path) -> None:
    done = _run(command, socket, tmp_path)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("dovetail: the service is older than this command, and ")
    assert lacks in done.stderr
    assert (
        "it needs a restart ('dovetail serve --stop', then 'dovetail serve'; what runs goes on)"
        in done.stderr
    )
    assert done.stderr.count("\n") == 1


def _run(command: str, socket: str, tmp_path: Path) -> Any:
    environment = {**os.environ, "DOVETAIL_SERVICE": socket, "XDG_STATE_HOME": str(tmp_path / "state")}
    return run_command(command.split(), tmp_path, environment)


def test_each_answer_of_ours_has_what_it_knows(tmp_path: Path) -> None:
    from services import serving

    with serving(tmp_path) as service:
        found = Connection(str(service.folder.address().socket))  # type: ignore[union-attr]
        reply = found.ask("GET", "/api/v1/info")
        assert (reply.headers[API_HEADER], reply.read_json()["api"], found.api) == (str(API), API, API)
        assert not isinstance(reply.read_json(), OlderAnswer)
        refused = found.ask("POST", "/api/v1/no-such-route", {})
        assert (refused.status, refused.headers[API_HEADER]) == (404, str(API))
        found.close()


def test_a_field_that_an_older_service_lacks() -> None:
    with pytest.raises(OlderService, match="lacks the field 'memory'"):
        OlderAnswer()["memory"]
    assert OlderAnswer().get("memory") is None
