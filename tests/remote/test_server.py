"""``dovetail device-server``: who may come in, what is told, and what is left of it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
from pathlib import Path

import pytest
from device_servers import ENVIRONMENT, serving, start_server
from dovetail_command import DOVETAIL, run_command
from waiting import until

import dovetail_remote
from dovetail.errors import DeviceError, InputError
from dovetail.testing.processes import is_running
from dovetail_remote.address import read_token
from dovetail_remote.command import default_socket

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("remote")]


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_command(["device-server", *arguments], Path.cwd(), {**os.environ, **environment}, timeout=120)


def token(folder: Path, text: str = "0123456789abcdef") -> Path:
    path = folder / "token"
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_server_says_where_it_is_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "devices.sock"
    process = subprocess.Popen(
        [*DOVETAIL, "device-server", "--device", "numpy", "--socket", str(path), "--memory", "2GB"],
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert process.stdout is not None
    assert re.fullmatch(r"device 0: numpy \S+ on \S+, 2.0 GB\n", process.stdout.readline())
    assert process.stdout.readline() == f"listening on unix:{path}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    done = command("--status", "--json", "--socket", str(path))
    (device,) = json.loads(done.stdout)["devices"]
    assert (device["number"], device["device"], device["bytes"], device["clients"]) == (0, "numpy", 0, [])
    assert device["memory"] == device["quota"] == 2_000_000_000
    process.send_signal(signal.SIGTERM)
    assert process.wait(100) == 0
    process.stdout.close()
    assert not path.exists()
    until(lambda: not is_running(device["pid"]))


def test_an_interrupt_ends_a_server_as_it_ends_other_commands(tmp_path: Path) -> None:
    with serving(tmp_path, "numpy") as served:
        (worker,) = served.workers()
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(100) == 130
        until(lambda: not is_running(worker))
        assert not Path(served.socket).exists()


def test_the_socket_is_in_the_runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_socket() == f"{tmp_path}/dovetail/devices.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}/state")
    assert default_socket() == f"{tmp_path}/state/dovetail/devices.sock"


def test_status_shows_who_borrows(tmp_path: Path) -> None:
    with serving(tmp_path, "numpy", options=["--quota", "1MiB"]) as served:
        xp = dovetail_remote.namespace(served.address())
        x = xp.zeros(1000)
        xp.device.synchronize()
        (device,) = served.status()
        assert device["clients"] == [{"pid": os.getpid(), "job": "", "arrays": 1, "bytes": 8000}]
        shown = command("--status", "--socket", served.socket, COLUMNS="120").stdout
        assert f"pid {os.getpid()}" in shown
        with pytest.raises(MemoryError, match="of the 1048576 bytes of this client 8000 are in use"):
            float(xp.sum(xp.ones(1_000_000)))
        assert x.shape == (1000,)
        xp.device.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "abacus"], "device 'abacus' is not known"),
        (["--device", "cuda:99"], "cuda:99' is not there"),
        (["--device", "numpy", "--listen", "127.0.0.1:0"], "--token-file: is missing"),
        (["--device", "numpy", "--listen", "127.0.0.1"], "--token-file: is missing"),
        (["--device", "numpy", "--memory", "little"], "--memory: found 'little', expected bytes, or a size"),
        (["--device", "numpy", "--quota", "-3GB"], "--quota: found '-3GB', expected bytes, or a size"),
        (["--device", "numpy", "--memory", "3"], "--memory: found '3', expected at least 1048576 bytes"),
        (["--device", "numpy", "--token-file", "/dev/null"], "/dev/null: found a file that others may use"),
    ],
)
def test_wrong_use_is_one_sentence(tmp_path: Path, arguments: list[str], message: str) -> None:
    path = tmp_path / "devices.sock"
    done = command(*arguments, "--socket", str(path))
    assert done.returncode == 2
    assert done.stderr.startswith("dovetail: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout
    assert not path.exists()


def test_a_server_may_listen_on_the_network_alone(tmp_path: Path) -> None:
    network = ("--listen", "127.0.0.1:0", "--token-file", str(token(tmp_path)))
    process = subprocess.Popen(
        [*DOVETAIL, "device-server", "--device", "numpy", "--socket", "-", *network],
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("device 0: numpy")
    assert re.fullmatch(r"listening on tcp:127.0.0.1:\d+\n", process.stdout.readline())
    process.terminate()
    assert process.wait(100) == 0
    process.stdout.close()
    nowhere = command("--device", "numpy", "--socket", "-")
    assert nowhere.returncode == 2
    assert "--socket: found -, expected a path where there is no --listen" in nowhere.stderr


def test_without_a_gpu_something_has_to_be_named(tmp_path: Path) -> None:
    done = command("--socket", str(tmp_path / "devices.sock"), CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert "--device: found no CUDA device here, expected what to lend" in done.stderr


def test_one_server_at_a_socket_and_the_place_of_a_killed_one_is_taken(tmp_path: Path) -> None:
    served = start_server(tmp_path, "numpy")
    done = command("--device", "numpy", "--socket", served.socket)
    assert (done.returncode, done.stderr) == (
        2,
        f"dovetail: {served.socket}: another device server listens there\n",
    )
    served.process.kill()
    served.process.wait()
    assert Path(served.socket).exists()
    with serving(tmp_path, "numpy") as again:
        assert again.socket == served.socket
        assert float(dovetail_remote.namespace(again.address()).asarray(3)) == 3
    file = tmp_path / "file"
    file.write_text("something")
    done = command("--device", "numpy", "--socket", str(file))
    assert done.stderr == f"dovetail: {file}: found a file, expected a path for a socket\n"
    assert file.read_text() == "something"


def test_the_network_needs_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = token(tmp_path)
    options = ["--listen", "127.0.0.1:0", "--token-file", str(path)]
    with serving(tmp_path, "numpy", options=options) as served:
        address = served.addresses[1]
        assert address.startswith("tcp:127.0.0.1:")
        monkeypatch.delenv("DOVETAIL_TOKEN_FILE", raising=False)
        with pytest.raises(DeviceError, match="needs a token; set DOVETAIL_TOKEN_FILE"):
            dovetail_remote.namespace(address)
        for wrong in (b"0123456789abcdeX", b"0123456789abcdef0"):
            with pytest.raises(DeviceError, match="refuses: the token is not the one of this server"):
                dovetail_remote.Device(address, token=wrong)
        monkeypatch.setenv("DOVETAIL_TOKEN_FILE", str(path))
        xp = dovetail_remote.namespace(address)
        assert float(xp.sum(xp.ones(5))) == 5
        xp.device.migrate(served.address())
        xp.device.migrate(address)
        assert float(xp.sum(xp.ones(5))) == 5
        xp.device.close()
        assert json.loads(
            command("--status", "--json", "--listen", address[4:], "--token-file", str(path)).stdout
        )["devices"]


def test_a_client_does_not_give_itself_away_to_a_false_server(tmp_path: Path) -> None:
    """Somebody else at the address neither learns the token nor is believed."""
    from dovetail_remote.wire import HEAD_SIZE, MAGIC, Kind, frame_head, parse_head

    listener = socket.create_server(("127.0.0.1", 0))
    heard: list[bytes] = []

    def pretend() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(MAGIC + bytes(32))
            _, length, _ = parse_head(connection.recv(HEAD_SIZE), 4096)
            heard.append(connection.recv(length))
            text = json.dumps({"proof": "00" * 32}).encode()
            connection.sendall(frame_head(Kind.WELCOME, len(text)) + text)

    import threading

    thread = threading.Thread(target=pretend)
    thread.start()
    secret = b"0123456789abcdef"
    with pytest.raises(DeviceError, match="who answers there does not know the token"):
        dovetail_remote.Device(f"tcp:127.0.0.1:{listener.getsockname()[1]}", token=secret)
    thread.join()
    listener.close()
    assert secret not in heard[0]


@pytest.mark.parametrize(
    ("mode", "text", "message"),
    [
        (0o644, "0123456789abcdef", "found a file that others may use \\(mode 644\\)"),
        (0o600, "short", "found a token of 5 characters, expected at least 16"),
    ],
)
def test_tokens_are_secrets(tmp_path: Path, mode: int, text: str, message: str) -> None:
    path = token(tmp_path, text)
    path.chmod(mode)
    with pytest.raises(InputError, match=message):
        read_token(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_token(tmp_path / "nothing")


def test_a_device_whose_process_dies_is_started_again(tmp_path: Path) -> None:
    with serving(tmp_path, "numpy") as served:
        (before,) = served.workers()
        os.kill(before, signal.SIGKILL)
        until(lambda: "bytes" in served.status()[0] and served.workers() != [before])
        xp = dovetail_remote.namespace(served.address())
        assert float(xp.asarray(2)) == 2
        xp.device.close()


def test_clients_are_counted(tmp_path: Path) -> None:
    with serving(tmp_path, "numpy", options=["--clients", "2"]) as served:
        spaces = [dovetail_remote.namespace(served.address()) for _ in range(2)]
        with pytest.raises(DeviceError, match="2 clients use the device already"):
            dovetail_remote.namespace(served.address())
        spaces[0].device.close()
        until(lambda: len(served.status()[0]["clients"]) == 1)
        dovetail_remote.namespace(served.address()).device.close()
        spaces[1].device.close()


def test_a_library_that_is_missing_does_not_stop_the_others(tmp_path: Path) -> None:
    with serving(tmp_path, "torch:nowhere", "numpy") as served:
        xp = dovetail_remote.namespace(served.address(1))
        assert float(xp.ones(())) == 1
        with pytest.raises(DeviceError, match="torch"):
            dovetail_remote.namespace(served.address(0))
        assert [device["device"] for device in served.status()] == ["torch:nowhere", "numpy"]
