"""Real device servers for tests, each in a process of its own, and NumPy as the oracle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import array_api_compat.numpy as np_compat
import numpy as np
from dovetail_command import DOVETAIL
from ready_command import ONE_THREAD, Program, Started, can_serve

from dovetail.testing.builders import full
from dovetail_remote.address import parse_address
from dovetail_remote.array import Array
from dovetail_remote.backends.numpy import NumpyBackend, expand_dims
from dovetail_remote.connection import connect_to_server

ENVIRONMENT = {**os.environ, **ONE_THREAD}


@dataclass
class Served:
    """A device server that runs."""

    process: subprocess.Popen[str] | Started
    addresses: list[str]
    socket: str

    def status(self) -> list[dict[str, Any]]:
        """What it says of its devices."""
        channel, said = connect_to_server(parse_address(f"unix:{self.socket}"), wants={"status": True})
        channel.close()
        devices: list[dict[str, Any]] = said["devices"]
        return devices

    def address(self, device: int = 0) -> str:
        """Of a device, on the unix socket."""
        return f"unix:{self.socket}#{device}"

    def workers(self) -> list[int]:
        """Process ids of the devices."""
        return [device["pid"] for device in self.status()]


def start_server(folder: Path, *devices: str, name: str = "devices", options: Sequence[str] = ()) -> Served:
    """Start a server and wait until its devices are open."""
    socket = str(folder / f"{name}.sock")
    chosen = [part for device in devices for part in ("--device", device)]
    arguments = ["device-server", *chosen, "--socket", socket, "--json", *options]
    reading, writing = os.pipe()
    process: subprocess.Popen[str] | Started
    if not full(1, 0) and can_serve(ENVIRONMENT):
        process = Started(arguments, Path.cwd(), ENVIRONMENT, writing, 2)
    else:
        process = subprocess.Popen([*DOVETAIL, *arguments], stdout=writing, text=True, env=ENVIRONMENT)
    os.close(writing)
    with open(reading, encoding="utf-8") as said:
        line = said.readline()
    assert line, f"the device server ended with status {process.wait()}"
    return Served(process, json.loads(line)["addresses"], socket)


def start_program(text: str, *arguments: str, **environment: str) -> subprocess.Popen[str] | Program:
    """``python -c TEXT ARGUMENTS`` in the environment of servers and this, its output in pipes."""
    around = {**ENVIRONMENT, **environment}
    if not full(1, 0) and can_serve(around):
        return Program(text, arguments, around)
    return subprocess.Popen(
        [sys.executable, "-c", text, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=around,
    )


@contextmanager
def serving(
    folder: Path, *devices: str, name: str = "devices", options: Sequence[str] = ()
) -> Iterator[Served]:
    """A server while the block runs; stopped by SIGTERM, unless the block has killed it."""
    served = start_server(folder, *devices, name=name, options=options)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.process.send_signal(signal.SIGTERM)
        served.process.wait(30)


@contextmanager
def quiet() -> Iterator[None]:
    """Without NumPy's warnings of overflows and of what is no number."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


_ARRAYS = NumpyBackend()


def numpy_result(name: str, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
    """What NumPy computes, by array-api-compat: an array, or a list of arrays."""
    computed = expand_dims if name == "expand_dims" else function(np_compat, name)
    with quiet():
        return _ARRAYS.settle(computed(*arguments, **named))


def function(xp: Any, name: str) -> Any:
    """A function of a namespace by its dotted name."""
    for part in name.split("."):
        xp = getattr(xp, part)
    return xp


def on_device(xp: Any, value: Any) -> Any:
    """NumPy arrays in an argument as arrays of the namespace."""
    if isinstance(value, np.ndarray):
        return xp.asarray(value)
    if isinstance(value, list | tuple):
        return type(value)([on_device(xp, item) for item in value])
    return value


def device_result(xp: Any, name: str, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
    """What the device computes: an array of NumPy, or a list of them."""
    given = [on_device(xp, argument) for argument in arguments]
    with quiet():
        made = function(xp, name)(*given, **{key: on_device(xp, value) for key, value in named.items()})
    if isinstance(made, tuple):
        return [np.asarray(part) for part in made]
    assert type(made) is Array
    shape, dtype = made.shape, made.dtype
    found = np.asarray(made)
    assert (found.shape, found.dtype) == (shape, dtype)
    return found


def assert_identical(found: Any, expected: Any) -> None:
    """Bit by bit, with type and shape."""
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_identical(one, other)
        return
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes(), (found, expected)
