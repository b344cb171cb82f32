"""What a borrowed device costs here: the measurements behind ``dovetail bench-remote``.

Local and remote are measured by turns in one run, and medians are taken, so that what else the machine does
falls on both alike.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import DeviceError
from dovetail_remote.client import RemoteLink
from dovetail_remote.device import Device
from dovetail_remote.space import Namespace

CALLS = 4000
"""Small calls of a round."""
TRIPS = 400
"""Questions of a round."""
SMALL = 1 << 16
"""Bytes of a region that is small beside the bandwidth."""


@dataclass(slots=True)
class Measured:
    """Medians, in seconds and bytes per second, and the single rounds behind them.

    Attributes:
        local_call: of a small call to the library through the namespace, in this process.
        remote_call: of one that is sent ahead to the server.
        remote_call_cpu: CPU seconds of this process for one that is sent ahead.
        recorded_call: the same while calls are logged for replay.
        round_trip: of a question that waits for the server.
        raw_bandwidth: of the connection itself, with bytes that the server throws away.
        put, get: bandwidth of arrays to and from the server, of a size that was there before.
        put_first, get_first: the same of a size that was not, for which fresh memory has to be cleared.
        shares: of these four, how much of the connection itself they have in the same round.
        local_put: bandwidth of arrays into the library, in this process.
        pauses: of migrations from the server to this process, by bytes of arrays.
        returns: of migrations from this process to the server.
        prepared: to open a target before it.
        memory: resident bytes of the server's process with nothing in it, where it is on this machine.
    """

    local_call: float
    remote_call: float
    recorded_call: float
    round_trip: float
    raw_bandwidth: float
    put: float
    get: float
    local_put: float
    pauses: dict[int, float]
    returns: dict[int, float]
    prepared: float
    memory: int | None = None
    remote_call_cpu: float = 0.0
    put_first: float = 0.0
    get_first: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)
    rounds: dict[str, list[float]] = field(default_factory=dict)

    def rate_constants(self) -> dict[str, float]:
        """The constants of the rate model of borrowed GPUs that these measurements make, by name.

        A call to a remote device costs ``remote_latency + network_latency`` more than nothing, as in
        Equation 1, and one to a local device ``gpu_latency``, as in Equation 12. Nothing is replayed in a
        migration and there are no helper processes, so those constants are 0. The pause is a constant and a
        time for each byte, beside the transfer that Equation 6 counts apart.
        """
        # A call that is sent ahead may cost less than a round trip.
        network = min(self.round_trip / 2, self.remote_call)  # calls that are sent ahead may hide it
        # At least 1: a connection is never slower than what goes through it.
        overhead = max(1.0, self.raw_bandwidth / min(self.put, self.get))
        slope, pause = _fit_line(self.pauses)
        transfer = overhead / self.raw_bandwidth + 1 / self.local_put
        return {
            "remote_latency": self.remote_call - network,
            "remote_overhead": overhead,
            "network_latency": network,
            "network_bandwidth": self.raw_bandwidth,
            "gpu_latency": self.local_call,
            "gpu_bandwidth": self.local_put,
            "record_per_call": max(self.recorded_call - self.remote_call, 0.0),
            "record_constant": 0.0,
            "replay_per_call": 0.0,
            "replay_constant": max(pause, 0.0),
            "copy_bandwidth_per_byte": self.local_put / SMALL,
            "copy_bandwidth": self.local_put,
            "sync_per_byte": max(slope - transfer, 0.0),
            "sync_constant": 0.0,
            "helper_per_byte": 0.0,
            "helper_per_call": 0.0,
            "helper_constant": 0.0,
        }


def _fit_line(points: dict[int, float]) -> tuple[float, float]:
    """Slope and intercept of the line through the points, each weighed by its own size."""
    sizes, times = np.array(list(points)), np.array(list(points.values()))
    # Weighed, as otherwise the largest array would decide alone, and the constant would be noise.
    slope, intercept = np.polyfit(sizes, times, 1, w=1 / np.maximum(times, 1e-6))
    return float(slope), float(intercept)


def measure_server(
    server: str,
    local: str,
    *,
    rounds: int = 5,
    size: int = 100_000_000,
    token: bytes | None = None,
    report: Callable[[str], None] = lambda what: None,
) -> Measured:
    """Measure a server's device beside the same library in this process.

    Args:
        server: the address of the server's device.
        local: the address of the library here, ``local:…``.
        rounds: how often everything is measured.
        size: bytes of the large arrays.
        token: of a server on the network.
        report: called with what is being measured.

    Raises:
        DeviceError: the server is not there, or is lost.
        InputError: the library is not here.
    """
    found: dict[str, list[float]] = {}

    def note_value(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    remote, here = Device(server, token=token), Device(local)
    recorded = Device(server, token=token, replay=True)
    link = remote.link
    if not isinstance(link, RemoteLink):
        raise DeviceError(f"{server}: found a device in this process, expected a server")
    data = np.ones(size // 8).tobytes()  # a block of zeros would be read from one page
    for number in range(rounds + 1):
        report(f"calls and arrays, round {number} of {rounds}" if number else "warming up")
        turn: list[tuple[str, float]] = []
        for name, device in (("local_call", here), ("remote_call", remote), ("recorded_call", recorded)):
            turn.append((name, _call_seconds(device)))
        turn.append(("round_trip", _round_trip_seconds(remote)))
        turn.append(("raw", _raw_seconds(link, data)))
        turn += zip(("put", "get"), _array_seconds(remote, size), strict=True)
        # Another size in each round, as memory that was freed before would be handed out again.
        turn += zip(("put_first", "get_first"), _array_seconds(remote, size - 8 * (number + 1)), strict=True)
        turn.append(("remote_call_cpu", _enqueue_seconds(remote)))
        turn.append(("local_put", _array_seconds(here, size)[0]))
        if number:  # the first round only warms up
            for name, value in turn:
                note_value(name, value)
    for device in (remote, here, recorded):
        device.close()
    sizes = [0, size // 100, size // 10, size]
    for number in range(rounds):
        report(f"migrations, round {number + 1} of {rounds}")
        for amount in sizes:
            for name, value in _migration_seconds(server, local, amount, token):
                note_value(f"{name}/{amount}" if name != "prepared" else name, value)
    medians = {name: statistics.median(values) for name, values in found.items()}
    seconds = ("local_call", "remote_call", "remote_call_cpu", "recorded_call", "round_trip", "prepared")
    rates = {name: name for name in ("put", "get", "put_first", "get_first", "local_put")}
    rates["raw_bandwidth"] = "raw"
    values: dict[str, Any] = {name: medians[name] for name in seconds}
    values |= {name: size / medians[took] for name, took in rates.items()}
    return Measured(
        **values,
        shares={name: _connection_share(found, name) for name in ("put", "get", "put_first", "get_first")},
        pauses={amount: medians[f"pause/{amount}"] for amount in sizes},
        returns={amount: medians[f"return/{amount}"] for amount in sizes},
        rounds=found,
    )


def _call_seconds(device: Device) -> float:
    """Seconds of a small call, all of them carried out."""
    return _of_calls(device, time.perf_counter, waited=True)


def _enqueue_seconds(device: Device) -> float:
    """CPU seconds of this process for a small call, all of its threads together, until it is sent."""
    return _of_calls(device, time.process_time, waited=False)


def _of_calls(device: Device, clock: Callable[[], float], *, waited: bool) -> float:
    x = Namespace([device]).ones(8)
    # The first call prepares what all later ones use.
    x + x
    device.synchronize()
    begin = clock()
    for _ in range(CALLS):
        x + x
    if waited:
        device.synchronize()
    return (clock() - begin) / CALLS


def _connection_share(found: dict[str, list[float]], name: str) -> float:
    """The median of the connection's own time over the arrays' in the same round."""
    return statistics.median(raw / took for raw, took in zip(found["raw"], found[name], strict=True))


def _round_trip_seconds(device: Device) -> float:
    begin = time.perf_counter()
    for _ in range(TRIPS):
        device.synchronize()
    return (time.perf_counter() - begin) / TRIPS


def _raw_seconds(link: RemoteLink, data: bytes) -> float:
    begin = time.perf_counter()
    link.send_probe(data)
    return time.perf_counter() - begin


def _array_seconds(device: Device, size: int) -> tuple[float, float]:
    """Seconds to put an array of so many bytes there, and to get it back."""
    xp = Namespace([device])
    host = np.ones(size // 8)
    begin = time.perf_counter()
    array = xp.asarray(host)
    device.synchronize()
    middle = time.perf_counter()
    np.asarray(array)
    end = time.perf_counter()
    del array
    device.synchronize()  # giving it back takes time too, which would count as that of what comes next
    return middle - begin, end - middle


def _migration_seconds(
    server: str, local: str, size: int, token: bytes | None
) -> Sequence[tuple[str, float]]:
    """From the server to this process, and back."""
    device = Device(server, token=token)
    try:
        # No arrays at all for size 0, so that the constant part of a pause is measured bare.
        xp = Namespace([device])
        arrays = [xp.ones(max(size // 80, 1)) for _ in range(10)] if size else []
        home, back = device.migrate(local), device.migrate(server)
        assert home.arrays == back.arrays == len(arrays)
        return [("pause", home.pause), ("return", back.pause), ("prepared", home.prepared)]
    finally:
        device.close()


@contextmanager
def own_server(device: str) -> Iterator[tuple[str, int]]:
    """A device server of our own on this machine, for as long as the block runs: its address and its size.

    Raises `DeviceError` with the server's own message where it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:
        path = Path(folder) / "devices.sock"
        command = [sys.executable, "-m", "dovetail", "device-server", "--device", device, "--json"]
        process = subprocess.Popen(
            [*command, "--socket", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            # A server that starts prints one line of JSON; one that does not prints none, and its reason on
            # standard error.
            line = process.stdout.readline()
            if not line:
                raise DeviceError(process.stderr.read().strip().removeprefix("dovetail: "))
            (address,) = json.loads(line)["addresses"]
            yield address, _resident_of_children(process.pid)
        finally:
            process.terminate()
            process.communicate()


def _resident_of_children(pid: int) -> int:
    """Bytes in memory of the device's process, the server's only child; 0 where the kernel has no list."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        pages = [int(Path(f"/proc/{child}/statm").read_text().split()[1]) for child in children]
    except OSError:
        return 0
    return sum(pages) * resource.getpagesize()


def as_dict(found: Measured) -> dict[str, Any]:
    """JSON-ready values."""
    made = asdict(found)
    for name in ("pauses", "returns"):
        made[name] = {str(size): value for size, value in made[name].items()}
    return made
