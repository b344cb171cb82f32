"""Inside a Slurm allocation whose nodes lend each other their devices (``--executor slurm?lend=DEVICE``).

Each node with devices runs a device server on the network, as the companion of its agent: started by it, and
ended with its client, so that none outlives the Dovetail that lends. What clients and servers have to know is
a token in ``agents/devices.token`` of the run folder (0600), which all nodes see; its path is passed on, it
itself never is. Who has what, and how it moves home, is for `dovetail_remote.lending.lending`.

Gangs, whose tasks srun starts on several nodes, keep to the devices of their nodes.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dovetail.errors import ExecutorError, InputError
from dovetail.interfaces import LastAttempts, RunFolder
from dovetail.model import Cluster, Node, Placed
from dovetail.process.channel import bracket_host
from dovetail.process.environment import is_gang
from dovetail.process.link import Link, line_of
from dovetail_remote.address import TOKEN_FILE
from dovetail_remote.lending.carried import CarrierLending, CarryingServers
from dovetail_remote.lending.carriers import Carrier, Endpoint, load_carrier
from dovetail_remote.lending.keeper import specify_keeper
from dovetail_remote.lending.lending import (
    DeviceServers,
    Lending,
    LendingExecutor,
    not_started,
    refuse_to_borrow,
    server_command,
)
from dovetail_remote.switchboard import Switchboard
from dovetail_slurm.agents import AgentFolder, Connection, SlurmAgents
from dovetail_slurm.allocation import Slurm, SlurmExecutor
from dovetail_slurm.commands import Allotment

OPENED = 130.0
"""Seconds within which a node's devices must be open; a server gives each of them 120."""


class _ServersThere(DeviceServers):
    """The device servers of an allocation's nodes, started by their agents."""

    def __init__(self, chosen: str, agents: SlurmAgents, files: AgentFolder) -> None:
        self._chosen, self._agents, self._files = chosen, agents, files
        self._token = ""
        self._asked: dict[int, str] = {}  # id of each node's last server
        self._listening: dict[int, str] = {}  # ADDRESS:PORT by node, of those that serve
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self.nodes: dict[int, Node] = {}  # that are reached through these:
        self.links: dict[int, Link] = {}
        self.hosts: dict[int, str] = {}  # what each node's agent calls us

    def begin_servers(
        self, nodes: Mapping[Node, tuple[int, Connection]]
    ) -> ExecutorError | InputError | None:
        """Before the run: all servers at once; what is wrong, if anything is."""
        lenders = {node: found for node, found in nodes.items() if node.devices}
        try:
            for node, (n, connection) in lenders.items():
                connection.socket.sendall(line_of(self._server_request(n, node)))
            for node, (n, connection) in lenders.items():
                reply = connection.next_answer("companion", OPENED)
                if reply["over"]:
                    return InputError(not_started(node, reply["said"]))
                self._note_opened(n, node, reply)
        except OSError as error:
            return ExecutorError(f"a node's agent was lost at once: {error.strerror or error}")
        except ExecutorError as error:
            return error
        return None

    def meet_agent(self, n: int, node: Node, link: Link, host: str) -> None:
        """A node has an agent."""
        self.nodes[n], self.links[n], self.hosts[n] = node, link, host

    def lost(self, n: int) -> None:
        """A node has no agent any more, and with it no server."""
        self.links.pop(n, None)
        self._listening.pop(n, None)
        waiting = self._waiting.pop(n, None)
        if waiting is not None and not waiting.done():
            waiting.set_exception(ExecutorError(f"node {self.nodes[n].name}, which was to lend, is lost"))

    def handle_notice(self, n: int, reply: Mapping[str, Any]) -> None:
        """Its agent reports that a node's server is ready, or that it has ended."""
        if reply["id"] != self._asked.get(n):
            return  # of the server before
        waiting = self._waiting.pop(n, None)
        if reply["over"]:
            self._listening.pop(n, None)
            if waiting is not None and not waiting.done():
                waiting.set_exception(ExecutorError(not_started(self.nodes[n], reply["said"])))
            return
        self._note_opened(n, self.nodes[n], reply)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # --- DeviceServers ----------------------------------------------------------------------------

    def open_switchboard(self) -> Switchboard:
        """On the one address by which the nodes know us, else on all; with the servers' token."""
        hosts = set(self.hosts.values())
        host = hosts.pop() if len(hosts) == 1 else "0.0.0.0"
        return Switchboard(f"tcp:{bracket_host(host)}:0", self._server_token().encode())

    def address(self, node: int) -> str:
        """Where the node's server listens."""
        return f"tcp:{self._listening[node]}"

    def node_variables(self, node: int) -> Mapping[str, str]:
        """Where the token is."""
        return {TOKEN_FILE: str(self._files.lent)}

    def host(self, node: int) -> str:
        """What the node calls the machine that we are on."""
        return self.hosts[node]

    async def see_to(self, nodes: Collection[int]) -> None:
        """Have the agents start those that do not serve, or no longer. Raises `ExecutorError`."""
        loop = asyncio.get_running_loop()
        for n in nodes:
            if n in self._listening or n in self._waiting:
                continue
            if n not in self.links:
                raise ExecutorError("a node that was to lend is lost")
            self._waiting[n] = loop.create_future()
            self._waiting[n].add_done_callback(asyncio.Future.exception)  # also where the waiter is gone
            self.links[n].send_line(self._server_request(n, self.nodes[n]))
        for n in nodes:
            if n in self._waiting:
                try:
                    await asyncio.wait_for(asyncio.shield(self._waiting[n]), OPENED)
                except TimeoutError:
                    self._waiting.pop(n, None)
                    name = self.nodes[n].name
                    raise ExecutorError(f"the device server of node {name} did not start in time") from None

    # --- requests ---------------------------------------------------------------------------------

    def _server_token(self) -> str:
        """The token of all of them; written down when it is first needed. Raises `ExecutorError`."""
        if not self._token:
            self._token = self._files.make_lending_token()
        return self._token

    def _server_request(self, n: int, node: Node) -> dict[str, Any]:
        """What a node's agent is to start. Raises `ExecutorError`."""
        self._server_token()
        self._asked[n] = secrets.token_hex(8)
        command = server_command(node, self._chosen, "-", "{host}", str(self._files.lent))
        return {
            "t": "companion",
            "id": self._asked[n],
            "argv": [sys.executable, *command],
            "env": {},
            "complaints": str(self._files.path / f"devices-{node.name}.err"),
            "secret": str(self._files.lent),
        }

    def _note_opened(self, n: int, node: Node, reply: Mapping[str, Any]) -> None:
        (address,) = json.loads(reply["said"])["addresses"]
        host = self._agents.hellos[node.name].address
        self._listening[n] = f"{bracket_host(host)}:{address.rpartition(':')[2]}"


class _CarriersThere(CarryingServers, _ServersThere):
    """A carrier's servers on an allocation's nodes, those of a node kept by one process of its agent.

    They know no secret, and listen at the address by which the other nodes know theirs.
    """

    def __init__(
        self, carrier: Carrier, agents: SlurmAgents, files: AgentFolder, environ: Mapping[str, str]
    ) -> None:
        _ServersThere.__init__(self, "", agents, files)
        self.carrier, self.environ = carrier, environ
        self._endpoints: dict[int, list[Endpoint]] = {}

    def endpoint(self, node: int, device: int) -> Endpoint:
        """Where the server of a GPU listens."""
        return self._endpoints[node][device]

    def _server_request(self, n: int, node: Node) -> dict[str, Any]:
        self._asked[n] = secrets.token_hex(8)
        return {
            "t": "companion",
            "id": self._asked[n],
            "argv": [sys.executable, "-m", "dovetail_remote.lending.keeper", "{host}"],
            "env": specify_keeper(self.carrier, [device.local for device in node.devices]),
            "complaints": str(self._files.path / f"carrier-{node.name}.err"),
            "secret": str(self._files.lent),
        }

    def _note_opened(self, n: int, node: Node, reply: Mapping[str, Any]) -> None:
        found = [address.rpartition(":") for address in json.loads(reply["said"])["addresses"]]
        host = self._agents.hellos[node.name].address
        self._endpoints[n] = [Endpoint(host, int(port)) for _, _, port in found]
        self._listening[n] = str(self._endpoints[n][0])


class LendingSlurmExecutor(LendingExecutor, SlurmExecutor):
    """Jobs on the nodes of an allocation that lend each other their devices."""

    def __init__(self, options: Slurm, folder: RunFolder, cluster: Cluster, found: Allotment) -> None:
        SlurmExecutor.__init__(self, options, folder, cluster, found)
        carrier = load_carrier(options.lend)
        self._servers: _ServersThere
        if carrier is None:
            self._servers = _ServersThere(options.lend, self._agents, self._files)
            self._lending = Lending(options.lend, self._servers, self.run_dir, self._report_event)
        else:
            carried = _CarriersThere(carrier, self._agents, self._files, self._environ)
            self._servers = carried
            self._lending = CarrierLending(carried, self.run_dir, self._report_event)

    def _prepare_agents(self, connections: Mapping[str, Connection]) -> ExecutorError | InputError | None:
        numbered = [(n, node) for n, node in enumerate(self.cluster.nodes) if node.name in connections]
        return self._servers.begin_servers({node: (n, connections[node.name]) for n, node in numbered})

    def take_up(self, features: Sequence[str]) -> LastAttempts:
        """The servers are gone with the Dovetail that had started them, and so is what was borrowed there."""
        left = super().take_up(features)
        self.end_borrowers()
        return left

    def _connect_agent(self, node: int, connection: Connection) -> Link:
        host = connection.socket.getsockname()[0]
        link = super()._connect_agent(node, connection)
        self._servers.meet_agent(node, self.cluster.nodes[node], link, host)
        return link

    def _forget_node(self, node: int) -> None:
        super()._forget_node(node)
        self._servers.lost(node)

    def _handle_notice(self, node: int, reply: Mapping[str, Any]) -> None:
        if reply["t"] == "companion":
            self._servers.handle_notice(node, reply)
        else:
            super()._handle_notice(node, reply)

    def _told_where(self, placed: Placed) -> bool:
        """Slurm gives gangs their devices. Raises `ExecutorError` for one that borrows."""
        if not is_gang(placed):
            return super()._told_where(placed)
        refuse_to_borrow(placed)
        return False

    def _cuda_on(self, node: int) -> str:
        """Where Slurm sets nothing, none were allotted."""
        hello = self._agents.hellos[self.cluster.nodes[node].name]
        return hello.visible.get("CUDA_VISIBLE_DEVICES", "")

    async def close(self) -> None:
        """Stop what runs, then the agents with their servers. May be called again."""
        if not self._closing:
            await super().close()
            await self._lending.close()
            self._files.lent.unlink(missing_ok=True)
