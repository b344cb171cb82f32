"""Strangers: whatever they send is refused with 400, 401, 403, 408, 413 or 431, or harmless."""

from __future__ import annotations

import errno
import http.client
import json
import os
import re
import socket
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from services import Serving, serving, submit, wait

from dovetail.client.connection import Connection, open_connection
from dovetail.files.writing import replace_file
from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

REFUSED = {400, 401, 403, 408, 413, 431}


IMPATIENT = """
from dovetail.service import gate, http
from dovetail.start import main
http.HEAD_TIMEOUT = gate.PIECE_TIMEOUT = 2.0
main()
"""
FEW_FILES = """
import resource
from dovetail.start import main
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
main()
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    root = tmp_path_factory.mktemp("service")
    found = Serving(root, "--cluster", "1x2cpu", "--listen", "127.0.0.1:0")
    found.program = ("-c", IMPATIENT)
    found.start().close()
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def place(service: Serving) -> str:
    """HOST:PORT."""
    address = service.folder.address()
    assert address is not None
    (url,) = address.urls
    return urlsplit(url).netloc


@pytest.fixture(scope="module")
def token(service: Serving) -> str:
    return service.folder.secret_path.read_text().strip()


def ask(place: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    client = http.client.HTTPConnection(place, timeout=280)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        client.request(method, path, body, named)
        answer = client.getresponse()
        return answer.status, answer.read()
    finally:
        client.close()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    "path",
    ["/", "/openapi.json", "/metrics", "/api/v1/info", "/static/style.css", "/nothing", "/login/x", "/docs"],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "PATCH"])
def test_without_a_token_nothing_is_told(place: str, method: str, path: str) -> None:
    status, body = ask(place, method, path)
    assert status in REFUSED
    assert b"openapi" not in body


def test_wrong_tokens(place: str, token: str) -> None:
    for wrong in ("", "x", token[:-1], token + "x", token.upper(), "\x80\xff", "Basic"):
        assert ask(place, "GET", "/api/v1/info", Authorization=f"Bearer {wrong}")[0] in (400, 401)
    assert ask(place, "GET", "/api/v1/info", Authorization=f"Basic {token}")[0] == 401
    assert ask(place, "GET", "/api/v1/info", **bearer(token))[0] == 200


def test_tokens_and_keys_are_for_their_owner_alone(service: Serving, token: str) -> None:
    for path in (
        service.folder.tokens_path,
        service.folder.secret_path,
        service.folder.ledger_path,
        service.folder.path / "run.json",
    ):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token not in service.folder.tokens_path.read_text(), "only a digest is kept"


def test_a_page_of_another_origin_is_refused(place: str, token: str) -> None:
    good = bearer(token)
    assert ask(place, "GET", "/api/v1/info", **good, Host="evil.example")[0] == 403
    assert ask(place, "GET", "/api/v1/info", **good, Host=f"evil.example:{place.split(':')[1]}")[0] == 403
    assert ask(place, "POST", "/api/v1/cancel", "{}", **good, Origin="http://evil.example")[0] == 403
    assert ask(place, "POST", "/api/v1/cancel", "{}", **good, Origin="null")[0] == 403
    assert ask(place, "GET", "/api/v1/info", **good, Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(place, "GET", "/api/v1/info", **good, Origin=f"http://{place}")[0] == 200


def logged_in(place: str, secret: str) -> tuple[str, dict[str, str]]:
    """Where a browser with this token is at home, and its cookie."""
    client = http.client.HTTPConnection(place, timeout=280)
    client.request("POST", "/login", f"token={secret}")
    answer = client.getresponse()
    answer.read()
    client.close()
    assert answer.status == 200
    cookie = answer.getheader("set-cookie") or ""
    home = cookie.partition("Path=")[2].partition(";")[0]
    return home, {"Cookie": cookie.partition(";")[0]}


@contextmanager
def stream(place: str, path: str, **headers: str) -> Iterator[http.client.HTTPResponse]:
    """A stream of events that has begun."""
    with closing(http.client.HTTPConnection(place, timeout=60)) as client:
        client.request("GET", path, None, headers)
        answer = client.getresponse()
        assert answer.status == 200
        assert answer.readline().startswith(b"event: ")
        yield answer


@pytest.mark.parametrize("change", ["removed", "replaced", "downgraded"])
def test_rights_end_with_the_token_that_gave_them(service: Serving, place: str, change: str) -> None:
    """Sessions, streams, one-time addresses, and what waits for an answer."""
    name = f"guest-{change}"
    secret = service.dovetail("token", "add", name, "--admin").stdout.strip()
    home, cookie = logged_in(place, secret)
    assert ask(place, "POST", f"{home}api/v1/service/none", "{}", **cookie)[0] == 400, "an admin"
    status, body = ask(place, "POST", "/api/v1/dashboard", "{}", **bearer(secret))
    assert status == 200
    code = urlsplit(json.loads(body)["url"]).path
    with open_connection(service.folder.path) as local:
        (job,) = submit(local, {"command": ["sleep", "600"]})
    form = json.dumps({"jobs": job, "timeout": 30})
    with (
        ThreadPoolExecutor(1) as pool,
        stream(place, f"{home}api/v1/events", **cookie) as first,
        stream(place, "/api/v1/events", **bearer(secret)) as second,
    ):
        waits = pool.submit(ask, place, "POST", "/api/v1/wait", form, **bearer(secret))
        if change == "removed":
            service.dovetail("token", "remove", name)
        elif change == "replaced":
            service.dovetail("token", "add", name, "--admin")
        else:
            tokens = json.loads(service.folder.tokens_path.read_text())
            found = [{**one, "admin": one["admin"] and one["name"] != name} for one in tokens]
            replace_file(service.folder.tokens_path, json.dumps(found).encode())
        for one in (first, second):
            while one.readline():  # to its end, which comes within a second
                pass
        assert waits.result(20)[0] == 401
    with open_connection(service.folder.path) as local:
        local.post("/api/v1/cancel", {"jobs": job})
    submission = json.dumps({"jobs": [{"command": ["true"], "priority": 1}]})
    if change == "downgraded":
        assert ask(place, "GET", f"{home}api/v1/info", **cookie)[0] == 200
        assert ask(place, "POST", f"{home}api/v1/jobs", submission, **cookie)[0] == 403
        assert ask(place, "POST", f"{home}api/v1/service/none", "{}", **cookie)[0] in (400, 403)
        assert ask(place, "POST", f"{home}api/v1/dashboard", "{}", **cookie)[0] == 403
    else:
        assert ask(place, "GET", f"{home}api/v1/info", **cookie)[0] == 401
        assert ask(place, "POST", f"{home}api/v1/jobs", submission, **cookie)[0] == 401
        assert ask(place, "GET", "/api/v1/info", **bearer(secret))[0] == 401
        assert ask(place, "GET", code)[0] in (401, 403), "nor does a code let anybody in"


def test_the_one_time_address_becomes_a_strict_cookie(service: Serving, place: str) -> None:
    with open_connection(service.folder.path) as client:
        url = client.post("/api/v1/dashboard")["url"]
    path = urlsplit(url).path
    client_ = http.client.HTTPConnection(place, timeout=280)
    client_.request("GET", path)
    answer = client_.getresponse()
    answer.read()
    cookie = answer.getheader("set-cookie") or ""
    assert answer.status == 200
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    client_.close()
    assert ask(place, "GET", path)[0] in (401, 403), "it is used up"
    session = cookie.partition(";")[0]
    home = cookie.partition("Path=")[2].partition(";")[0]
    assert re.fullmatch(r"/d-[\w-]{16}/", home), "no other server of this host knows it, so none is sent it"
    assert ask(place, "GET", f"{home}api/v1/info", Cookie=session)[0] == 200
    assert ask(place, "GET", home, Cookie=session)[0] == 200
    assert ask(place, "GET", f"{home}static/main.js", Cookie=session)[0] == 200
    assert ask(place, "GET", "/api/v1/info", Cookie=session)[0] == 401, "a cookie is worth nothing elsewhere"
    assert ask(place, "GET", f"{home}api/v1/info")[0] == 401
    assert (
        ask(place, "POST", f"{home}api/v1/cancel", "{}", Cookie=session, Origin="http://evil.example")[0]
        == 403
    )
    assert ask(place, "GET", f"{home}api/v1/info", Cookie="dovetail=guess")[0] == 401
    assert ask(place, "GET", f"{home}api/v1/info", Cookie="dovetail=" + "x" * 4000 + '="\\')[0] == 401


def raw(place: str, data: bytes, *, pieces: int = 1, patience: float = 30.0) -> bytes:
    """What the service answers to these bytes, until it closes."""
    host, _, port = place.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=patience) as found:
        answer = b""
        try:
            for _ in range(pieces):
                found.sendall(data)
            while piece := found.recv(1 << 16):
                answer += piece
                if answer.endswith(b"}"):
                    break
        except (ConnectionResetError, BrokenPipeError):
            pass
        return answer


def status_of(answer: bytes) -> int | None:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None


def test_a_huge_body_and_a_million_headers(service: Serving, place: str, token: str) -> None:
    head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: {place}\r\nContent-Length: {1 << 30}\r\n"
    assert status_of(raw(place, (head + "\r\n").encode() + b"x" * 1000)) in (401, 413)
    good = (head + f"Authorization: Bearer {token}\r\n\r\n").encode()
    assert status_of(raw(place, good + b"x" * 100_000)) == 413
    chunked = (
        f"POST /api/v1/jobs HTTP/1.1\r\nHost: {place}\r\nAuthorization: Bearer {token}\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    ).encode()
    chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    assert status_of(raw(place, chunked + chunk * 40)) in (413, None)
    many = f"GET / HTTP/1.1\r\nHost: {place}\r\n".encode() + b"".join(
        b"a%d: b\r\n" % n for n in range(1_000_000)
    )
    assert status_of(raw(place, many)) in (400, 431, None)
    assert status_of(raw(place, b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n")) in (400, 431, None)
    assert status_of(raw(place, b"\x16\x03\x01\x02\x00\x01\x00" * 20 + b"\r\n\r\n")) in (400, None)
    with open_connection(service.folder.path) as client:
        assert client.get("/api/v1/info")["jobs"]["running"] == 0
    assert service.process is not None
    memory = Path(f"/proc/{service.process.pid}/status").read_text()
    assert int(memory.split("VmRSS:")[1].split()[0]) < 400_000


def test_slow_clients_are_not_waited_for(place: str) -> None:
    host, _, port = place.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=280) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(600):  # more than fit into the time that it waits
            try:
                slow.sendall(b"a: b\r\n")
            except OSError:
                break
            time.sleep(0.1)
        else:
            raise AssertionError("it is still waited for")


def test_many_connections_leave_the_socket_usable(service: Serving, place: str) -> None:
    host, _, port = place.rpartition(":")
    crowd = [socket.create_connection((host, int(port)), timeout=280) for _ in range(600)]
    try:
        with open_connection(service.folder.path) as client:
            assert client.get("/api/v1/info")
    finally:
        for one in crowd:
            one.close()


def test_a_service_with_few_descriptors_answers_beside_many_idle_connections(tmp_path: Path) -> None:
    # What an earlier test has left running on core 0 would have these jobs wait for as long as it runs.
    service = Serving(tmp_path, "--cluster", "1x1cpu", DOVETAIL_CLAIMS=str(tmp_path / "claims"))
    service.program = ("-c", FEW_FILES)
    service.start().close()
    crowd: list[socket.socket] = []
    try:
        for _ in range(120):
            crowd.append(socket.socket(socket.AF_UNIX))
            crowd[-1].connect(str(service.folder.default_socket))
        for _ in range(3):
            with open_connection(service.folder.path) as client:
                ids = submit(client, {"command": ["true"]})
                assert wait(client, ids) == {ids[0]: "COMPLETED"}
    finally:
        for one in crowd:
            one.close()
        service.stop()
    assert "Traceback" not in service.folder.log.read_text()


def test_users_see_all_and_change_their_own(service: Serving, place: str) -> None:
    bob, eve = (service.dovetail("token", "add", name).stdout.strip() for name in ("bob", "eve"))
    with Connection(f"http://{place}", bob) as client:
        (job,) = submit(client, {"command": ["sh", "-c", "echo secret"]})
        wait(client, [job])
        assert client.get(f"/api/v1/jobs/{job}")["user"] == "bob"
        assert client.ask("GET", f"/api/v1/jobs/{job}/log").body == b"secret\n"
        (held,) = submit(client, {"command": ["true"], "hold": True})
    as_eve = bearer(eve)
    assert ask(place, "GET", f"/api/v1/jobs/{job}", **as_eve)[0] == 200
    assert ask(place, "GET", f"/api/v1/jobs/{job}/log", **as_eve)[0] == 403
    for action in ("cancel", "release", "hold", "requeue"):
        assert ask(place, "POST", f"/api/v1/{action}", json.dumps({"jobs": held}), **as_eve)[0] == 403
    for path in ("service/stop", "service/drain", "nodes/n0/drain", "dashboard"):
        assert ask(place, "POST", f"/api/v1/{path}", "{}", **as_eve)[0] == 403
    high = json.dumps({"jobs": [{"command": ["true"], "priority": 5}]})
    assert ask(place, "POST", "/api/v1/jobs", high, **as_eve)[0] == 403
    service.dovetail("token", "remove", "eve")
    assert ask(place, "GET", "/api/v1/info", **as_eve)[0] == 401, "out at once"
    with Connection(f"http://{place}", bob) as client:
        client.post("/api/v1/cancel", {"jobs": "all"})


@pytest.mark.parametrize(
    "id", ["..", "%2e%2e", "..%2f..%2frun.json", "1%00", "%2fetc%2fpasswd", "1/../../tokens.json", "x" * 5000]
)
def test_log_names_lead_nowhere_else(service: Serving, place: str, token: str, id: str) -> None:
    status, body = ask(place, "GET", f"/api/v1/jobs/{id}/log", **bearer(token))
    assert status in (400, 404, 431)
    assert b"root:" not in body


def test_output_that_is_a_pipe_or_a_link_is_not_followed(
    service: Serving, place: str, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with open_connection(service.folder.path) as client:
        (job,) = submit(client, {"command": ["true"], "stdout": str(tmp_path / "pipe"), "hold": True})
        assert client.ask("GET", f"/api/v1/jobs/{job}/log").status == 403
        client.post("/api/v1/cancel", {"jobs": job})
        (own,) = submit(client, {"command": ["true"]})
        wait(client, [own])
        out = Path(client.get(f"/api/v1/jobs/{own}")["stdout"])
        out.unlink()
        out.symlink_to(service.folder.secret_path)
        assert client.ask("GET", f"/api/v1/jobs/{own}/log").status == 403


def test_markup_in_names_is_text(service: Serving) -> None:
    name = "<script>alert(1)</script>[bold]\x1b[31m"
    with open_connection(service.folder.path) as client:
        (job,) = submit(client, {"command": ["true"], "name": name})
        reply = client.ask("GET", f"/api/v1/jobs/{job}")
        assert reply.headers["content-type"] == "application/json"
        assert reply.read_json()["name"] == name
        assert reply.headers["x-content-type-options"] == "nosniff"
    shown = service.dovetail("queue", job).stdout
    assert "\x1b[31m" not in shown


def test_a_job_asks_as_its_user_and_never_as_the_account_it_runs_as(service: Serving, place: str) -> None:
    ben = service.dovetail("token", "add", "ben").stdout.strip()
    dovetail = f"{sys.executable} -m dovetail"
    with open_connection(service.folder.path) as own, Connection(f"http://{place}", ben) as client:
        (victim,) = submit(own, {"command": ["true"], "hold": True})
        script = f"{dovetail} cancel {victim}; {dovetail} submit --priority 5 -- true; "
        script += f"{dovetail} submit --hold -- true"
        environment = {"DOVETAIL_SERVICE": str(service.folder.path), "PATH": os.environ["PATH"]}
        for words in (["sh", "-c", script], ["sh", "-c", f"setsid sh -c '{script}' & wait"]):
            (job,) = submit(client, {"command": words}, environment=environment)
            wait(client, [job])
            said = own.ask("GET", f"/api/v1/jobs/{job}/log", query={"stream": "err"}).body.decode()
            assert f"job {victim} belongs to" in said
            assert "priority: only the service's own account" in said
            (late,) = client.post("/api/v1/cancel", {"jobs": "last"})["jobs"]
            assert client.get(f"/api/v1/jobs/{late}")["user"] == "ben"
        assert own.get(f"/api/v1/jobs/{victim}")["state"] == "PENDING"
        own.post("/api/v1/cancel", {"jobs": victim})


def test_root_runs_no_jobs_for_a_group(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("we are not root")
    done = Serving(tmp_path).dovetail("serve", "--folder", str(tmp_path / "s"), "--group", "root")
    assert done.returncode == 2
    assert done.stderr.startswith("dovetail: --group: found it for a service of root")


def test_slow_strangers_do_not_shut_others_out(place: str, token: str) -> None:
    host, _, port = place.rpartition(":")
    head = f"POST /login HTTP/1.1\r\nHost: {place}\r\nContent-Length: 100\r\n\r\ntoken="
    crowd = []
    try:
        for _ in range(600):
            one = socket.create_connection((host, int(port)), timeout=280)
            one.sendall(head.encode())
            crowd.append(one)
        for _ in range(5):
            assert ask(place, "GET", "/api/v1/info", **bearer(token))[0] == 200
    finally:
        for one in crowd:
            one.close()


def test_a_body_in_pieces_has_limits_too(place: str, token: str) -> None:
    head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: {place}\r\nAuthorization: Bearer {token}\r\n"
    head += "Transfer-Encoding: chunked\r\n\r\n"
    piece = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
    answer = raw(place, head.encode() + piece * 34)
    if answer:  # the rest of it may have reset the connection
        assert status_of(answer) == 413
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == "the request is too long"
    answer = raw(place, head.encode() + b"1\r\n \r\n")
    assert status_of(answer) == 408
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == "the request did not come in time"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_the_host(service: Serving) -> None:
    address = service.folder.address()
    assert address is not None
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        found = socket.socket(socket.AF_UNIX)
        os._exit(7 if found.connect_ex(address.socket) == errno.EACCES else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_beyond_this_machine_only_with_tls_or_on_purpose(tmp_path: Path) -> None:
    service = Serving(tmp_path)
    done = service.dovetail("serve", "--listen", "0.0.0.0:0")
    assert done.returncode == 2
    assert "expected --tls-cert, or --insecure" in done.stderr
    done = service.dovetail("serve", "--listen", "nonsense")
    assert done.returncode == 2
    assert "expected HOST:PORT" in done.stderr


def test_tls(tmp_path: Path) -> None:
    certificate = tmp_path / "cert.pem"
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-days",
        "2",
    ]
    words += [
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
    ]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    options = (
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        str(certificate),
        "--tls-key",
        str(tmp_path / "key.pem"),
    )
    with serving(tmp_path, "--cluster", "1x1cpu", *options) as service:
        address = service.folder.address()
        assert address is not None
        (url,) = address.urls
        assert url.startswith("https://")
        secret = service.folder.secret_path.read_text().strip()
        parts = urlsplit(url)
        context = ssl.create_default_context(cafile=str(certificate))
        client = http.client.HTTPSConnection(parts.netloc, context=context, timeout=280)
        client.request("GET", "/api/v1/info", headers=bearer(secret))
        assert client.getresponse().status == 200
        client.close()
        more = {"DOVETAIL_SERVICE": url, "DOVETAIL_TOKEN": secret, "DOVETAIL_CA": str(certificate)}
        done = service.dovetail("info", "--json", env={**service.environment, **more})
        assert json.loads(done.stdout)["nodes"] == 1


@pytest.mark.timeout(900)
def test_no_request_makes_the_service_fail(service: Serving, place: str, token: str) -> None:
    """schemathesis over the API: whatever fits the description, or just does not, gives no 5xx."""
    import schemathesis
    from schemathesis.checks import not_a_server_error

    with open_connection(service.folder.path) as client:
        described = client.get("/openapi.json")
    del described["paths"]["/api/v1/service/{action}"], described["paths"]["/api/v1/events"]
    schema = schemathesis.openapi.from_dict(described)
    schema.config.update(base_url=f"http://{place}")

    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(max_examples=full(100, 3), deadline=None, suppress_health_check=list(HealthCheck))
        def each(case: Any) -> None:
            if isinstance(case.body, dict) and "timeout" in case.body:
                case.body["timeout"] = 0
            case.call_and_validate(checks=[not_a_server_error], headers=bearer(token), timeout=100)

        given(case=operation.as_strategy())(each)()
