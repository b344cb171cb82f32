"""What a service tells those who look after it: a log with levels, signs of life, figures."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from services import Serving, submit, wait
from waiting import until

from dovetail.client.connection import open_connection
from dovetail.service import daemon

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


def test_a_systemd_that_does_not_read_holds_no_loop_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its queue takes ten or so; what the service says of its end is waited for, and lost with a warning."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        notifier = daemon.SystemdNotifier()
        signs = threading.Thread(
            target=lambda: [notifier.send_lines("WATCHDOG=1", patience=0.0) for _ in range(1000)], daemon=True
        )
        signs.start()
        signs.join(60)
        assert not signs.is_alive()
        assert not caplog.records
        notifier.send_lines("STOPPING=1", patience=0.05)
        assert "systemd did not take STOPPING=1: timed out" in caplog.text
        assert systemd.recv(100) == b"WATCHDOG=1"
        notifier.send_lines("STOPPING=1")
        unread = [systemd.recv(100) for _ in iter(lambda: can_be_read(systemd), False)]
        assert unread[-1] == b"STOPPING=1"


def can_be_read(found: socket.socket) -> bool:
    return bool(select.select([found], [], [], 0)[0])


def test_systemd_is_told_and_the_log_is_json_and_opened_anew(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        service = Serving(
            tmp_path,
            *("--cluster", "1x1cpu", "--log-format", "json", "--log-level", "debug"),
            NOTIFY_SOCKET=str(tmp_path / "notify"),
            WATCHDOG_USEC="200000",
        )
        service.start().close()
        said: list[str] = []

        def read() -> None:
            while "STOPPING=1" not in said:
                said.append(systemd.recv(4096).decode())

        reading = threading.Thread(target=read)
        reading.start()
        until(lambda: said.count("WATCHDOG=1") >= 2 and any(one.startswith("READY=1") for one in said))
        assert any(one.startswith("READY=1\nSTATUS=listening at ") for one in said)
        with open_connection(service.folder.path) as client:
            (job,) = submit(client, {"command": ["sh", "-c", 'test -z "$NOTIFY_SOCKET$WATCHDOG_USEC"']})
            assert wait(client, [job]) == {job: "COMPLETED"}
            old = service.folder.log
            old.rename(tmp_path / "old.log")
            assert service.process is not None
            os.kill(service.process.pid, signal.SIGHUP)
            until(lambda: old.exists())
            client.post("/api/v1/nodes/n0/drain")
            figures = client.ask("GET", "/metrics").body.decode()
        os.kill(service.process.pid, signal.SIGTERM)
        assert service.process.wait(100) == 0
        reading.join(60)
        assert not reading.is_alive()
    before = [json.loads(line) for line in (tmp_path / "old.log").read_text().splitlines() if line[0] == "{"]
    after = [json.loads(line) for line in old.read_text().splitlines()]
    assert {"time", "level", "logger", "message"} <= set(before[0])
    (start,) = [line for line in before if line["message"].startswith("service started")]
    assert (start["level"], start["logger"]) == ("INFO", "dovetail.service.serve")
    life = [line["message"] for line in before if line.get("job") == job]
    assert life[0].startswith(f"job {job} submitted by ")
    assert life[1].startswith(f"job {job} starts as cpu on n0 (attempt 1)")
    assert life[2].startswith(f"job {job} ended: COMPLETED after ")
    assert len(life) == 3
    assert [line["message"] for line in after] == ["node n0 is drained", "service ends; what runs goes on"]
    assert 'dovetail_run_seconds_bucket{le="+Inf"} 1' in figures
    assert "dovetail_wait_seconds_count 1" in figures
    assert "# TYPE dovetail_prediction_ratio histogram" in figures


def test_a_node_stays_drained_until_somebody_resumes_it(tmp_path: Path) -> None:
    service = Serving(tmp_path, "--cluster", "1x1cpu")

    def state() -> str:
        (node,) = client.get("/api/v1/nodes")["nodes"]
        return str(node["state"])

    with service.start() as client:
        client.post("/api/v1/nodes/n0/drain")
        (job,) = submit(client, {"command": ["true"]})
    service.kill()
    with service.start() as client:
        assert state() == "drained"
        assert client.get(f"/api/v1/jobs/{job}")["state"] == "PENDING"
        client.post("/api/v1/nodes/n0/resume")
        assert wait(client, [job]) == {job: "COMPLETED"}
    service.kill()
    with service.start() as client:
        assert state() == "up"
    service.stop()
    service.folder.drained.write_text('{"n0": true}')
    said = service.dovetail("serve", "--folder", str(service.folder.path))
    assert said.returncode == 2
    assert said.stderr.endswith(
        "drained.json: is damaged: expected a list of names of nodes; without the file none is drained\n"
    )


def test_a_client_outlives_the_connection_that_it_had(tmp_path: Path) -> None:
    """The service closes one that was idle for long, as it does when it ends; a POST is not sent twice."""
    service = Serving(tmp_path)
    with service.start() as client:
        submit(client, {"command": ["true"]})
        service.kill()
        service.start().close()
        assert submit(client, {"command": ["true"]}) == ["2"]
    service.stop()


def test_a_service_that_comes_back_says_what_it_took_up(tmp_path: Path) -> None:
    service = Serving(tmp_path, "--cluster", "1x1cpu")
    with service.start() as client:
        (job,) = submit(client, {"command": ["sleep", "60"]})
        until(lambda: client.get(f"/api/v1/jobs/{job}")["state"] == "RUNNING")
    service.kill()
    service.start().close()
    service.stop()
    log = service.folder.log.read_text()
    assert f"INFO dovetail.serve: taken up: 1 jobs that run ({job}), 0 that wait" in log


SLOW = """
import os, time
from dovetail.service import serve
from dovetail.start import main
quick = serve._open_journal
def slow(*of):
    while not os.path.exists("quick"):
        time.sleep(0.02)
    return quick(*of)
serve._open_journal = slow
main()
"""


def test_a_service_that_starts_says_so_and_clients_wait_for_it(tmp_path: Path) -> None:
    service = Serving(tmp_path, "--cluster", "1x1cpu")
    service.start().close()
    service.stop()
    service.program = ("-c", SLOW)
    path = service.folder.default_socket
    path.unlink()
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(service.start)
        until(lambda: path.exists())
        with socket.socket(socket.AF_UNIX) as raw:
            while raw.connect_ex(str(path)):
                time.sleep(0.005)
            raw.sendall(b"GET /api/v1/info HTTP/1.1\r\nHost: x\r\n\r\n")
            said = raw.makefile("rb").read()
        assert said.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in said
        assert b"is starting" in said
        (tmp_path / "quick").touch()
        with open_connection(path) as client:
            assert client.get("/api/v1/info")["pid"]
        started.result().close()
    service.stop()
