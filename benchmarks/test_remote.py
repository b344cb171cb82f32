"""What a borrowed device costs, beside the same calls in this process and beside what else passes calls on.

``make bench`` measures by turns in one run: NumPy itself, our namespace in this process, our namespace over a
device server (calls sent ahead, and each waited for), Ray actors, Pyro5 and rpyc (``requirements/peers.txt``;
left out where they are not installed). Medians and ratios are printed and kept in ``extra_info``. Values are
asserted, and of the times only our own aims, with a margin for busy machines.
"""

from __future__ import annotations

import importlib.util
import itertools
import operator
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_servers import serving

import dovetail_remote
from dovetail_lab.remote_costs import own_server
from dovetail_remote.address import parse_address
from dovetail_remote.connection import connect_to_server
from dovetail_remote.wire import set_options

CALLS = 3000
WAITED = 400
LOCAL_CALLS = 5000
LOCAL_ROUNDS = 15
ROUNDS = 5
SIZE = 100_000_000
MARGIN = 3.0
PIPELINED_AIM = 10e-6
LOCAL_AIM = 1e-6
CHAIN = 1000
CHAIN_AIM = 1.1
SOCKET_SHARE_AIM = 0.7

Rate = Callable[[], float]
"""Measures once: seconds for each call."""


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with own_server("numpy") as found:
        yield found


def timed(work: Callable[[], Any], count: int = 1) -> float:
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) / count


def ours(address: str, *, waited: bool) -> Rate:
    xp = dovetail_remote.namespace(address)
    x = xp.ones(8)

    def sent_ahead() -> None:
        y = x
        for _ in range(CALLS):
            y = x + x
        assert float(y[0]) == 2

    def each() -> None:
        for _ in range(WAITED):
            assert float(xp.sum(x)) == 8

    return lambda: timed(each, WAITED) if waited else timed(sent_ahead, CALLS)


def numpy_itself() -> float:
    x = np.ones(8)

    def work() -> None:
        for _ in range(CALLS):
            np.add(x, x)

    return timed(work, CALLS)


# -- peers ---------------------------------------------------------------------------------------------

PYRO = """
import sys, numpy as np, Pyro5.api
@Pyro5.api.expose
class Arrays:
    def __init__(self): self.x = np.ones(8)
    def add(self): self.y = self.x + self.x
    def first(self): return float(self.y[0])
    def put(self, data): return len(data)
daemon = Pyro5.api.Daemon(unixsocket=sys.argv[1])
print(daemon.register(Arrays, "arrays"), flush=True)
daemon.requestLoop()
"""
RPYC = """
import sys, numpy as np, rpyc
from rpyc.utils.server import ThreadedServer
class Arrays(rpyc.Service):
    def on_connect(self, conn): self.x = np.ones(8)
    def exposed_add(self): self.y = self.x + self.x
    def exposed_first(self): return float(self.y[0])
    def exposed_put(self, data): return len(data)
server = ThreadedServer(Arrays, socket_path=sys.argv[1])
print("ready", flush=True)
server.start()
"""


@contextmanager
def peer(script: str, path: str) -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def until_there(connect: Callable[[], Any]) -> Any:
    """What ``connect`` gives, once somebody listens."""
    for _ in range(100):
        try:
            return connect()
        except ConnectionRefusedError:
            time.sleep(0.05)
    return connect()


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Rate, Rate]]]:
    """By name: seconds of a small call, and of passing 100 MB to the other process."""
    folder = tmp_path_factory.mktemp("peers")
    found: dict[str, tuple[Rate, Rate]] = {}
    data = np.ones(SIZE // 8)
    raw = data.tobytes()
    if importlib.util.find_spec("ray"):
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)

        @ray.remote(num_cpus=0)
        class Arrays:
            def __init__(self) -> None:
                self.x = np.ones(8)

            def add(self) -> None:
                self.y = self.x + self.x

            def first(self) -> float:
                return float(self.y[0])

            def put(self, array: Any) -> int:
                return int(array.nbytes)

        actor = Arrays.remote()

        def sent() -> None:
            for _ in range(CALLS):
                actor.add.remote()
            assert ray.get(actor.first.remote()) == 2

        def put() -> None:
            assert ray.get(actor.put.remote(data)) == SIZE

        found["Ray actor, sent ahead"] = (lambda: timed(sent, CALLS), lambda: timed(put))
    with ExitStack() as stack:
        if importlib.util.find_spec("Pyro5"):
            import Pyro5.api

            uri = stack.enter_context(peer(PYRO, str(folder / "pyro")))
            proxy = Pyro5.api.Proxy(uri)
            found["Pyro5, waited for"] = (
                lambda: timed(lambda: [proxy.add() for _ in range(WAITED)], WAITED),
                lambda: timed(lambda: proxy.put(raw)),
            )
        if importlib.util.find_spec("rpyc"):
            import rpyc

            stack.enter_context(peer(RPYC, str(folder / "rpyc")))
            connection = until_there(lambda: rpyc.utils.factory.unix_connect(str(folder / "rpyc")))
            root = connection.root
            found["rpyc, waited for"] = (
                lambda: timed(lambda: [root.add() for _ in range(WAITED)], WAITED),
                lambda: timed(lambda: root.put(raw)),
            )
        yield found
    if importlib.util.find_spec("ray"):
        ray.shutdown()


def rounds_of(rates: dict[str, Rate], rounds: int) -> dict[str, list[float]]:
    """Each of them in each round, in which all take their turn; the first round only warms up."""
    found: dict[str, list[float]] = {name: [] for name in rates}
    for number in range(rounds + 1):
        for name, rate in rates.items():
            value = rate()
            if number:
                found[name].append(value)
    return found


def by_turns(rates: dict[str, Rate]) -> dict[str, float]:
    """The median of each over rounds."""
    return {name: statistics.median(values) for name, values in rounds_of(rates, ROUNDS).items()}


def test_small_calls(benchmark, server: tuple[str, int], peers: dict[str, tuple[Rate, Rate]]) -> None:
    rates = {
        "NumPy itself": numpy_itself,
        "namespace, in this process": ours("local:numpy", waited=False),
        "namespace, sent ahead": ours(server[0], waited=False),
        "namespace, waited for": ours(server[0], waited=True),
        **{name: call for name, (call, _) in peers.items()},
    }
    medians: dict[str, float] = {}
    benchmark.pedantic(lambda: medians.update(by_turns(rates)), rounds=1)
    ahead = medians["namespace, sent ahead"]
    for name, value in medians.items():
        benchmark.extra_info[name] = {"microseconds": round(value * 1e6, 2), "ratio": round(value / ahead, 2)}
        print(f"{name:28s} {value * 1e6:8.2f} us  {value / ahead:7.2f} of a call sent ahead")
    assert ahead < PIPELINED_AIM * MARGIN


def test_local_calls_cost_at_most_a_microsecond_more(benchmark) -> None:
    """In CPU time, so that what else the machine does counts less."""
    xp = dovetail_remote.namespace("local:numpy")
    x, host = xp.ones(8), np.ones(8)
    cases: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "add": (lambda: xp.add(x, x), lambda: np.add(host, host)),
        "x + x": (lambda: x + x, lambda: host + host),
        "x + 1": (lambda: x + 1, lambda: host + 1),
        "sin": (lambda: xp.sin(x), lambda: np.sin(host)),
        "where": (lambda: xp.where(x, x, x), lambda: np.where(host, host, host)),
        "sum": (lambda: xp.sum(x), lambda: np.sum(host)),
        "sum along an axis": (lambda: xp.sum(x, axis=0), lambda: np.sum(host, axis=0)),
        "max along an axis": (lambda: xp.max(x, axis=0), lambda: np.max(host, axis=0)),
        "matmul": (lambda: xp.matmul(x, x), lambda: np.matmul(host, host)),
        "reshape": (lambda: xp.reshape(x, (2, 4)), lambda: np.reshape(host, (2, 4))),
        "x[2:4]": (lambda: x[2:4], lambda: host[2:4]),
        "zeros": (lambda: xp.zeros(8), lambda: np.zeros(8)),
        "astype": (lambda: xp.astype(x, xp.float32), lambda: host.astype(np.float32)),
        "concat": (lambda: xp.concat([x, x]), lambda: np.concat([host, host])),
    }

    def once(work: Callable[[], Any]) -> float:
        begin = time.process_time()
        for _ in range(LOCAL_CALLS):
            work()
        return (time.process_time() - begin) / LOCAL_CALLS

    more: dict[str, float] = {}

    def measured() -> None:
        for name, (ours, theirs) in cases.items():
            found = rounds_of(
                {"ours": lambda ours=ours: once(ours), "theirs": lambda theirs=theirs: once(theirs)},
                LOCAL_ROUNDS,
            )
            more[name] = statistics.median(map(operator.sub, found["ours"], found["theirs"]))

    benchmark.pedantic(measured, rounds=1)
    for name, value in more.items():
        benchmark.extra_info[name] = round(value * 1e6, 3)
        print(f"{name:20s} {value * 1e6:6.3f} us more than NumPy's own")
    assert max(more.values()) < LOCAL_AIM * MARGIN


def test_errors_where_they_happen_cost_little_where_nothing_can_fail(
    benchmark, server: tuple[str, int]
) -> None:
    """CPU time of this process for a chain of element-wise calls, beside one that waits for none of them."""

    def chain(errors: str) -> Rate:
        xp = dovetail_remote.namespace(server[0], errors=errors)
        x = xp.ones(8)

        def once() -> float:
            y = x
            begin = time.process_time()
            for _ in range(CHAIN // 2):
                y = y * 0.5 + x
            xp.device.synchronize()
            return time.process_time() - begin

        return once

    rates = {errors: chain(errors) for errors in ("immediate", "deferred")}
    found: dict[str, list[float]] = {}
    benchmark.pedantic(lambda: found.update(rounds_of(rates, LOCAL_ROUNDS)), rounds=1)
    ratio = statistics.median(map(operator.truediv, found["immediate"], found["deferred"]))
    benchmark.extra_info["ratio"] = round(ratio, 3)
    print(f"a chain of {CHAIN} calls: {ratio:.3f} of the CPU time that it takes with errors deferred")
    assert ratio < CHAIN_AIM


READER = """
import socket, sys
connection = socket.socket(fileno=int(sys.argv[1]))
size = int(sys.argv[2])
buffer = memoryview(bytearray(size))
while True:
    done = 0
    while done < size:
        got = connection.recv_into(buffer[done:])
        if not got:
            sys.exit()
        done += got
    connection.sendall(b"x")
"""


def both_ends(kind: str) -> tuple[socket.socket, socket.socket]:
    """Of a connection within this machine, set as those of device servers are."""
    if kind == "unix":
        ours, theirs = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ours = socket.create_connection(listener.getsockname())
            theirs, _ = listener.accept()
    set_options(ours)
    set_options(theirs)
    return ours, theirs


@contextmanager
def raw_socket(kind: str) -> Iterator[Rate]:
    """Seconds for 100 MB from memory of this process into memory of another, which both have already."""
    ours, theirs = both_ends(kind)
    command = [sys.executable, "-c", READER, str(theirs.fileno()), str(SIZE)]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    theirs.close()
    data = memoryview(np.ones(SIZE // 8).tobytes())  # zeros would be read from one page

    def once() -> float:
        begin = time.perf_counter()
        ours.sendall(data)
        ours.recv(1)
        return time.perf_counter() - begin

    yield once
    ours.close()
    process.wait()


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_large_arrays(
    benchmark, kind: str, peers: dict[str, tuple[Rate, Rate]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the socket itself, round by round; arrays put again and again, and the first time."""
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o600)
    monkeypatch.setenv("DOVETAIL_TOKEN_FILE", str(token))
    host = np.ones(SIZE // 8)
    counts = itertools.count(1)

    with ExitStack() as stack:
        network = ["--listen", "127.0.0.1:0", "--token-file", str(token)]
        served = stack.enter_context(serving(tmp_path, "numpy", options=network))
        xp = dovetail_remote.namespace(next(a for a in served.addresses if a.startswith(kind)))
        stack.callback(xp.device.close)
        alone = stack.enter_context(raw_socket(kind))

        def put(elements: Any) -> float:
            begin = time.perf_counter()
            array = xp.asarray(elements)
            xp.device.synchronize()
            done = time.perf_counter() - begin
            assert array.size == elements.size
            del array
            xp.device.synchronize()  # giving 100 MB back takes time too, of whatever comes next
            return done

        def get(array: Any) -> float:
            begin = time.perf_counter()
            found = np.asarray(array)
            done = time.perf_counter() - begin
            assert found[-1] == 1
            return done

        there = xp.asarray(host)
        rates: dict[str, Rate] = {
            "socket alone": alone,
            "to the device": lambda: put(host),
            "from the device": lambda: get(there),
            # of another size each time, so that no memory can be used again
            "to the device, first time": lambda: put(host[next(counts) :]),
            "from the device, first time": lambda: get(there[next(counts) :]),
        }
        found: dict[str, list[float]] = {}
        benchmark.pedantic(lambda: found.update(rounds_of(rates, 4 * ROUNDS)), rounds=1)
    large = {name.partition(",")[0]: [once() for _ in range(ROUNDS)] for name, (_, once) in peers.items()}
    shares = {
        name: statistics.median(
            limit / value for limit, value in zip(found["socket alone"], values, strict=True)
        )
        for name, values in found.items()
    }
    for name, values in (found | large).items():
        rate = SIZE / statistics.median(values) / 1e9
        benchmark.extra_info[name] = {"gigabytes_per_second": round(rate, 2)}
        beside = ""
        if name in shares:
            benchmark.extra_info[name]["share"] = round(shares[name], 2)
            beside = f"{shares[name]:5.2f} of the socket alone"
        print(f"{kind} {name:28s} {rate:6.2f} GB/s  {beside}")
    assert min(shares["to the device"], shares["from the device"]) >= SOCKET_SHARE_AIM


@pytest.mark.parametrize("size", [0, 1_000_000, 10_000_000, SIZE])
def test_migration(benchmark, server: tuple[str, int], size: int) -> None:
    """The program's pause, server to this process, back, and to another device of the server."""
    with own_server("numpy") as (other, _):
        xp = dovetail_remote.namespace(server[0])
        x = xp.ones(size // 8)
        pauses: dict[str, list[float]] = {"home": [], "back": [], "on": []}

        def turn() -> None:
            for name, target in (
                ("home", "local:numpy"),
                ("back", server[0]),
                ("on", other),
                ("", server[0]),
            ):
                moved = xp.device.migrate(target)
                assert moved.size == size
                if name:
                    pauses[name].append(moved.pause)

        benchmark.pedantic(turn, rounds=ROUNDS, warmup_rounds=1)
        assert float(xp.sum(x)) == size // 8
        for name, found in pauses.items():
            benchmark.extra_info[name] = statistics.median(found)
            print(f"{size / 1e6:6.0f} MB {name:5s} {statistics.median(found) * 1e3:8.2f} ms")
        xp.device.close()


def test_memory_held(benchmark) -> None:
    """Bytes of a server's process with nothing in it, and for each of 10,000 small arrays."""

    def resident(pid: int) -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()

    with own_server("numpy") as (address, empty):
        channel, said = connect_to_server(parse_address(address), wants={"status": True})
        channel.close()
        pid = said["devices"][0]["pid"]
        xp = dovetail_remote.namespace(address)

        def hold() -> list[Any]:
            made = [xp.ones(8) for _ in range(10_000)]
            xp.device.synchronize()
            return made

        before = resident(pid)
        made = benchmark.pedantic(hold, rounds=1)
        each = (resident(pid) - before) / len(made)
        xp.device.close()
    benchmark.extra_info["empty"] = empty
    benchmark.extra_info["bytes_for_each_array_beside_its_elements"] = round(each - 64)
    print(f"an empty server's device: {empty / 1e6:.0f} MB; {each:.0f} bytes for an array of 64 bytes")
