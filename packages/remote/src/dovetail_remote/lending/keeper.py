"""Keeps a carrier's servers on a node of a cluster: ``python -m dovetail_remote.lending.keeper HOST``.

Started by the node's agent, in the place of a device server. It starts a server for each GPU that is lent, at
an address by which the other nodes know this one, and writes one line of JSON once all of them accept
connections. One that ends is started again where it was; the keeper ends with its agent, and all servers with
it.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NoReturn

from dovetail.errors import ExecutorError, InputError
from dovetail.process.channel import end_with
from dovetail.process.environment import visible_name
from dovetail_remote.lending.carried import (
    BEGUN,
    OPENED,
    accepts_connections,
    end_server,
    refuse_exposed,
    signal_server,
)
from dovetail_remote.lending.carriers import Carrier, Endpoint, find_program, free_port

_log = logging.getLogger(__name__)
SPECIFIED = "DOVETAIL_CARRIER"
"""The variable with the carrier and the numbers of the GPUs, as JSON."""
FALSE_STARTS = 3
"""A server that was started so many times within `SOON` is given up, and the node lends nothing."""
SOON = 15.0
"""Seconds."""
LOOK = 0.1


def specify_keeper(carrier: Carrier, devices: Sequence[int]) -> dict[str, str]:
    """The variables of a keeper of these GPUs."""
    fields = asdict(carrier)
    fields["server_env"], fields["job_env"] = dict(carrier.server_env), dict(carrier.job_env)
    return {SPECIFIED: json.dumps({"carrier": fields, "devices": list(devices)})}


def main() -> NoReturn:
    """Keep the servers until SIGTERM."""
    end_with(int(os.environ.pop("DOVETAIL_STARTED_BY")), signal.SIGTERM)
    given = json.loads(os.environ.pop(SPECIFIED))
    carrier = Carrier(**{**given["carrier"], "server": tuple(given["carrier"]["server"])})
    keeper = _Keeper(carrier, sys.argv[1].strip("[]"), given["devices"])
    # Only a flag: a handler that ended servers itself could interrupt the code that holds their locks.
    signal.signal(signal.SIGTERM, lambda *_: keeper.ending.append(True))
    try:
        keeper.begin()
        print(json.dumps({"addresses": [str(at) for at in keeper.places]}), flush=True)
        keeper.watch()
    except (ExecutorError, InputError) as error:
        print(error, file=sys.stderr, flush=True)
        keeper.leave(1)
    keeper.leave(0)


class _Keeper:
    """The servers of a node."""

    def __init__(self, carrier: Carrier, host: str, devices: Sequence[int]) -> None:
        self._carrier, self._devices = carrier, devices
        self.places = [Endpoint(host, free_port(host)) for _ in devices]
        self._servers: dict[int, subprocess.Popen[bytes]] = {}
        self._started: dict[int, list[float]] = {k: [] for k in range(len(devices))}
        self.ending: list[bool] = []
        """Not empty once the keeper is to leave."""

    def begin(self) -> None:
        """All at once. Raises `ExecutorError` and `InputError` where one cannot be."""
        program = self._carrier.server[0]
        if not find_program(program, os.environ):
            raise ExecutorError(f"found no program {program!r} in PATH")
        for k in range(len(self._devices)):
            self._start(k)
        for k in range(len(self._devices)):
            if not self._opens(k):
                raise ExecutorError(f"the server of GPU {self._devices[k]} did not start")

    def watch(self) -> None:
        """Until SIGTERM start those again that end. Raises `ExecutorError` where one does not stay."""
        while not self.ending:
            time.sleep(LOOK)
            for k, server in list(self._servers.items()):
                if server.poll() is None:
                    continue
                end_server(server)  # and what it has left
                recent = [at for at in self._started[k] if time.monotonic() - at < SOON]
                if len(recent) >= FALSE_STARTS:
                    raise ExecutorError(f"the server of GPU {self._devices[k]} does not stay")
                _log.warning("the server of GPU %d ended; starting it again", self._devices[k])
                self._start(k)
                self._opens(k)  # where not, the next look counts it among those that did not stay

    def leave(self, status: int) -> NoReturn:
        """End all servers, and this process."""
        for server in self._servers.values():
            signal_server(server, signal.SIGTERM)
        for server in self._servers.values():
            end_server(server, 1.0)
        os._exit(status)

    def _start(self, k: int) -> None:
        at, number = self.places[k], self._devices[k]
        visible = visible_name("CUDA_VISIBLE_DEVICES", number, os.environ)
        command = self._carrier.server_command(at, visible)
        environ: Mapping[str, Any] = {**os.environ, **self._carrier.server_environment(at, visible)}
        self._servers[k] = subprocess.Popen(
            [sys.executable, "-c", BEGUN, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            env=environ,
            start_new_session=True,
        )
        self._started[k].append(time.monotonic())

    def _opens(self, k: int) -> bool:
        """Wait until a server listens; false where it ends before.

        Raises `ExecutorError` for one that others may reach.
        """
        server, at, until = self._servers[k], self.places[k], time.monotonic() + OPENED
        while not self.ending and not accepts_connections(at):
            if time.monotonic() > until:
                end_server(server)
            if server.poll() is not None:
                return False
            time.sleep(LOOK / 5)
        refuse_exposed(f"the server of GPU {self._devices[k]}", at)
        return True


if __name__ == "__main__":
    main()
