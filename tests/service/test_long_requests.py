"""Requests have bounds by default; long ones are worked on beside the loop, and their memory comes back."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from services import Serving, serving, submit, wait

from dovetail.client.connection import Connection, open_connection
from dovetail.service.gate import MOST_BODY
from dovetail.service.submission import MOST_WORDS

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("long"), "--cluster", "1x2cpu") as found:
        yield found


@pytest.fixture
def client(service: Serving) -> Iterator[Connection]:
    with open_connection(service.folder.path) as found:
        yield found


def resident(service: Serving) -> float:
    """Megabytes of memory of the service's process."""
    assert service.process is not None
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1e3


@pytest.mark.parametrize(
    ("job", "place"),
    [
        ({"command": ["true", *["x"] * MOST_WORDS]}, "command"),
        ({"command": "true" + " x" * MOST_WORDS}, "command"),
        ({"script": "#!/bin/sh\ntrue", "arguments": ["x"] * (MOST_WORDS + 1)}, "arguments"),
    ],
    ids=["words", "a text", "arguments"],
)
def test_a_command_has_at_most_so_many_words(client: Connection, job: dict[str, object], place: str) -> None:
    reply = client.ask("POST", "/api/v1/jobs", {"jobs": [{"command": ["true"]}, job]})
    assert reply.status == 400
    assert json.loads(reply.body)["error"] == (
        f"job 2: {place}: found {MOST_WORDS + 1:,} words, expected at most {MOST_WORDS:,}; "
        "a file has room for more"
    )


def test_a_command_of_as_many_words_as_may_be_runs_if_the_kernel_takes_it(client: Connection) -> None:
    words = ["x"] * (MOST_WORDS - 2)
    (id,) = submit(client, {"command": ["true", *words]})
    assert wait(client, [id])[id] == "COMPLETED"


def test_a_longer_request_is_refused_before_it_is_read(client: Connection) -> None:
    reply = client.ask("POST", "/api/v1/jobs", {"folder": "x" * MOST_BODY, "jobs": [{"command": ["true"]}]})
    assert reply.status == 413
    assert json.loads(reply.body)["error"] == (
        "the request is longer than 8,000,000 bytes: send it in several, or have the service take more "
        "(serve --max-request)"
    )


def test_the_bound_is_an_option(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--max-request", "20kB") as service,
        open_connection(service.folder.path) as client,
    ):
        refused = client.ask("POST", "/api/v1/jobs", {"jobs": [{"command": ["true", "x" * 20_000]}]})
        assert refused.status == 413
        assert "longer than 20,000 bytes" in json.loads(refused.body)["error"]
        submit(client, {"command": ["true"]})


def test_memory_comes_back_after_ten_of_the_longest_at_once(service: Serving, client: Connection) -> None:
    """They are well formed, and refused in the end: what they leave behind is not theirs."""
    words = ["word" * 4] * 4000
    count = (MOST_BODY - 5000) // len(json.dumps({"command": words}))
    form = {"jobs": [{"command": words}] * count, "no such field": 1}
    client.ask("POST", "/api/v1/jobs", form)
    time.sleep(6.0)
    before = resident(service)

    def send() -> None:
        with open_connection(service.folder.path) as one:
            assert one.ask("POST", "/api/v1/jobs", form).status == 400

    senders = [threading.Thread(target=send) for _ in range(10)]
    for one in senders:
        one.start()
    for one in senders:
        one.join()
    deadline = time.monotonic() + 30
    while (grown := resident(service) - before) > 40:
        assert time.monotonic() < deadline, f"{grown:.0f} MB stay"
        time.sleep(0.5)
