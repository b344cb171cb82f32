"""A cluster's agent as it is started on a node: by path, with nothing of Dovetail importable."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from dovetail.testing.processes import is_running
from dovetail_slurm.agents import SCRIPT, Connection, Hello, connect_all

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


COMPANION = """
import os, sys, time
print(os.getpid(), os.environ["DOVETAIL_STARTED_BY"], sys.argv[1], flush=True)
time.sleep(300)
"""


def companion(folder: Path, id: str, *words: str) -> bytes:
    """What a client asks for where a node lends."""
    asked = {"t": "companion", "id": id, "argv": [sys.executable, "-c", *words], "env": {}}
    asked |= {"complaints": str(folder / f"{id}.err"), "secret": str(folder / "secret")}
    return json.dumps(asked).encode() + b"\n"


def test_a_companion_is_heard_is_replaced_and_ends_with_the_client(agent: Hello, tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    found = connect_all({"n": agent}, "right")["n"]
    assert isinstance(found, Connection)
    with found.socket:
        found.socket.sendall(companion(tmp_path, "one", COMPANION, "{host}:0"))
        ready = found.next_answer("companion", 280)
        assert (ready["id"], ready["over"]) == ("one", False)
        first, parent, where = ready["said"].split()
        assert (int(parent), where) == (agent.pid, "127.0.0.1:0")
        found.socket.sendall(companion(tmp_path, "two", COMPANION, ""))
        told = [found.next_answer("companion", 280) for _ in range(2)]
        over = next(one for one in told if one["id"] == "one")
        assert over["over"]
        second = next(one for one in told if one["id"] == "two")["said"].split()[0]
        assert not is_running(int(first))
        assert is_running(int(second))
        found.socket.sendall(companion(tmp_path, "bad", "import sys; sys.exit('no such device')"))
        told = [found.next_answer("companion", 280) for _ in range(2)]
        assert {(one["id"], one["over"]) for one in told} == {("two", True), ("bad", True)}
        assert next(one for one in told if one["id"] == "bad")["said"] == "no such device"
        found.socket.sendall(companion(tmp_path, "last", COMPANION, ""))
        last = int(found.next_answer("companion", 280)["said"].split()[0])
        assert not found.log().intents
    until(lambda: not is_running(last), "it ends with the client")
    until(lambda: not (tmp_path / "secret").exists(), "so does the secret")
    until(lambda: not is_running(agent.pid), "and the agent, that has nothing to do")
