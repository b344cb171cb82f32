"""A cluster's agent as it is started on a node: by path, with nothing of Dovetail importable."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.executors.agents import SCRIPT, Connection, Hello, connect_all

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Hello]:
    """One of this machine, that knows the token ``right``."""
    node = socket.gethostname()
    (tmp_path / "nodes").write_text(f"other 127.0.0.2 8\n{node} 127.0.0.1 1\n")
    config = {
        "token": "right",
        "folder": str(tmp_path),
        "run": "r",
        "term_grace": 1.0,
        "nodes": str(tmp_path / "nodes"),
    }
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(config).encode() + b"\n")
        process.stdin.flush()
        said = json.loads(process.stdout.readline())
        assert said.pop("t") == "hello"
        yield Hello(**said)
        process.kill()


def test_who_knows_the_token_is_let_in_and_nobody_else(agent: Hello) -> None:
    refused = connect_all({"n": agent}, "wrong")["n"]
    assert isinstance(refused, str)
    assert "did not answer as an agent" in refused
    found = connect_all({"n": agent}, "right")["n"]
    assert isinstance(found, Connection)
    with found.socket:
        assert not found.busy
        assert not found.log().intents
        second = connect_all({"n": agent}, "right")["n"]
        assert isinstance(second, Connection)
        with second.socket:
            assert second.busy


@pytest.mark.parametrize(
    "said", [b"\n", b"[]\n", b'{"nonce":"00","mac":""}\n', b'{"nonce":1,"mac":"\\udcff"}\n']
)
def test_what_is_no_proof_ends_the_connection_and_not_the_agent(agent: Hello, said: bytes) -> None:
    with socket.create_connection((agent.address, agent.port), timeout=280) as stranger:
        assert b"challenge" in stranger.recv(4096)
        stranger.sendall(said)
        assert stranger.recv(4096) == b""
    found = connect_all({"n": agent}, "right")["n"]
    assert isinstance(found, Connection)
    found.socket.close()
