"""``--notify`` of serve and of jobs: begin, end and failure, to a command and to an address."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from services import serving, submit, wait
from waiting import until

from dovetail.client.connection import open_connection
from dovetail.errors import InputError
from dovetail.service.webhook import check_notify, parse_notify

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


@pytest.fixture
def address() -> Iterator[tuple[str, list[tuple[str | None, dict[str, Any]]]]]:
    """An address, and what came there: the token, and the document."""
    came: list[tuple[str | None, dict[str, Any]]] = []

    class Takes(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.append((self.headers["Authorization"], json.loads(body)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Takes)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook?to=us", came
    server.shutdown()
    server.server_close()


def test_a_command_and_an_address_get_each_job(
    tmp_path: Path, address: tuple[str, list[tuple[str | None, dict[str, Any]]]]
) -> None:
    url, came = address
    got = tmp_path / "got"
    program = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"
    command = f'"{sys.executable}" -c "{program}" {got}'
    options = ("--notify", command, "--notify", url, "--notify", "http://127.0.0.1:1/nobody")
    with serving(tmp_path, "--cluster", "1x1cpu", *options, DOVETAIL_NOTIFY_TOKEN="secret") as service:
        with open_connection(service.folder.path) as asked:
            ids = submit(asked, {"command": ["true"]}, {"command": ["false"]})
            assert set(wait(asked, ids).values()) == {"COMPLETED", "FAILED"}
        until(lambda: len(came) == 4, "the address has all")
        until(lambda: got.exists() and len(got.read_text().splitlines()) == 4, "the command has all")
        log = service.folder.log
        until(lambda: "hook 127.0.0.1:1: BEGIN of job" in log.read_text(), "a refusal is in the log")
        assert "secret" not in log.read_text()
    expected = {("BEGIN", ids[0]), ("END", ids[0]), ("BEGIN", ids[1]), ("FAIL", ids[1])}
    assert {(one["event"], one["job"]["id"]) for _, one in came} == expected
    assert {token for token, _ in came} == {"Bearer secret"}
    documents = [json.loads(line) for line in got.read_text().splitlines()]
    assert {(one["event"], one["job"]["id"]) for one in documents} == expected


def test_a_job_has_a_hook_of_its_own(
    tmp_path: Path, address: tuple[str, list[tuple[str | None, dict[str, Any]]]]
) -> None:
    url, came = address
    # Relative, and a variable: the command runs in the job's folder and environment.
    program = "import os, sys; open('got', 'a').write(os.environ['WHO'] + ' ' + sys.stdin.read())"
    around = {"PATH": os.environ["PATH"], "WHO": "ada", "DOVETAIL_NOTIFY_TOKEN": "mine"}
    with serving(tmp_path, "--cluster", "1x1cpu", DOVETAIL_NOTIFY_TOKEN="the service's") as service:
        with open_connection(service.folder.path) as asked:
            jobs = [
                {"command": ["true"], "notify": shlex.join([sys.executable, "-c", program])},
                {"command": ["false"], "notify": url},
                {"command": ["true"]},
                {"command": ["true"], "notify": "/nothing/there"},
            ]
            form = {"folder": str(tmp_path), "environment": around, "jobs": jobs}
            ids = asked.post("/api/v1/jobs", form)["ids"]
            states = list(wait(asked, ids).values())
            assert states == ["COMPLETED", "FAILED", "COMPLETED", "COMPLETED"]
            with pytest.raises(InputError, match="notify: found 'http://'"):
                submit(asked, {"command": ["true"], "notify": "http://"})
        got = tmp_path / "got"
        until(lambda: got.exists() and len(got.read_text().splitlines()) == 2, "the command has both")
        until(lambda: len(came) == 2, "the address has both")
        log = service.folder.log
        until(lambda: "hook there: END of job" in log.read_text(), "a command that is not there is logged")
        assert "mine" not in log.read_text()
    lines = got.read_text().splitlines()
    assert all(line.startswith("ada ") for line in lines)
    documents = [json.loads(line.removeprefix("ada ")) for line in lines]
    assert {(one["event"], one["job"]["id"]) for one in documents} == {("BEGIN", ids[0]), ("END", ids[0])}
    assert {(one["event"], one["job"]["id"]) for _, one in came} == {("BEGIN", ids[1]), ("FAIL", ids[1])}
    assert {token for token, _ in came} == {"Bearer mine"}, "the service's token is for its own address"


def test_hooks_of_jobs_that_hang_hold_nothing_up(tmp_path: Path) -> None:
    got = tmp_path / "got"
    site = shlex.join([sys.executable, "-c", "import sys; open(sys.argv[1], 'a').write('x')", str(got)])
    with serving(tmp_path, "--cluster", "1x1cpu", "--notify", site) as service:
        with open_connection(service.folder.path) as asked:
            ids = submit(asked, *[{"command": ["true"], "notify": "sleep 1000"}] * 5)
            assert set(wait(asked, ids).values()) == {"COMPLETED"}
        until(lambda: got.exists() and len(got.read_text()) == 10, "the site's hook has all ten")


def test_another_account_names_an_address() -> None:
    check_notify("https://host/path", "notify", owner=False)
    check_notify("mail me", "notify", owner=True)
    with pytest.raises(InputError, match="notify: found a command, expected an address"):
        check_notify("mail me", "notify", owner=False)


@pytest.mark.parametrize("text", ["http://", "https://host:port/", "http://a b/", "'", ""])
def test_what_is_neither(text: str) -> None:
    with pytest.raises(InputError, match="--notify: found"):
        parse_notify(text, "--notify")
