"""One handshake for all channels, and one place that asks the kernel to end processes together."""

from __future__ import annotations

import ast
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

import dovetail
import dovetail.process.channel
from dovetail.process.channel import NONCE, Handshake, nonce_of

SOURCES = [Path(dovetail.__file__).parent, Path(__file__).parents[1] / "packages" / "lab" / "src"]


def test_both_sides_know_the_token() -> None:
    client, server = Handshake(b"token", "client"), Handshake(b"token", "server")
    assert server.is_proven("client", client.nonce, client.make_proof(server.nonce))
    assert client.is_proven("server", server.nonce, server.make_proof(client.nonce))


def test_who_does_not_know_the_token_proves_nothing() -> None:
    client, server, stranger = (
        Handshake(b"token", "client"),
        Handshake(b"token", "server"),
        Handshake(b"another", "client"),
    )
    assert not server.is_proven("client", stranger.nonce, stranger.make_proof(server.nonce))
    answer = client.make_proof(server.nonce)
    # Said back to the one who said it, on another connection, as another role, or as no text at all.
    assert not client.is_proven("server", server.nonce, answer)
    assert not client.is_proven("client", server.nonce, answer)
    assert not Handshake(b"token", "server").is_proven("client", client.nonce, answer)
    assert not server.is_proven("agent", client.nonce, answer)
    for said in (None, "", 0, [answer], answer.upper(), "\udcff"):
        assert not server.is_proven("client", client.nonce, said)


@pytest.mark.parametrize("text", ["", "ab", "zz" * NONCE, "ab" * (NONCE + 1)])
def test_a_nonce_is_32_bytes(text: str) -> None:
    with pytest.raises(ValueError, match=r"32|non-hexadecimal"):
        nonce_of(text)


def test_a_process_ends_with_its_parent() -> None:
    path = dovetail.process.channel.__file__
    child = (
        f"import sys, time; sys.path.insert(0, {os.path.dirname(path)!r}); import channel; "
        "channel.end_with(int(sys.argv[1]), int(sys.argv[2])); print('set', flush=True); time.sleep(600)"
    )
    parent = (
        "import os, subprocess, sys; "
        f"p = subprocess.Popen([sys.executable, '-I', '-S', '-c', {child!r}, str(os.getpid()), '15'], "
        "stdout=subprocess.PIPE); p.stdout.readline(); print(p.pid, flush=True)"
    )
    pid = int(
        subprocess.run([sys.executable, "-c", parent], capture_output=True, check=True, timeout=200).stdout
    )
    try:
        found = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([found], [], [], 200)[0]
    finally:
        os.close(found)


def test_whose_parent_has_ended_already_ends_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from dovetail.process.channel import end_with; end_with(1); print('here')"],
        capture_output=True, timeout=200, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, b"")


def test_only_the_channel_has_proofs_and_asks_the_kernel() -> None:
    users = set()
    for folder in SOURCES:
        for path in folder.rglob("*.py"):
            text = path.read_text()
            if "hmac" not in text and "prctl" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                names = (
                    [alias.name for alias in node.names] if isinstance(node, ast.Import)
                    else [str(node.module)] if isinstance(node, ast.ImportFrom)
                    else [node.attr] if isinstance(node, ast.Attribute)
                    else [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str)
                    else []
                )  # fmt: skip
                if any(name == "hmac" or "prctl(" in name or name == "prctl" for name in names):
                    users.add(path.name)
    assert users == {"channel.py"}


def test_it_needs_nothing_but_the_standard_library() -> None:
    tree = ast.parse(Path(dovetail.process.channel.__file__).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert all(alias.name.partition(".")[0] in sys.stdlib_module_names for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert str(node.module).partition(".")[0] in sys.stdlib_module_names
