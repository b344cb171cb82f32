"""Inside a Slurm allocation: Dovetail decides node and device of every job, and starts it in milliseconds.

Anyone who can run ``salloc`` or ``sbatch`` can use it. One ``srun --overlap`` starts an agent on every
node (`dovetail.process.agent`), which starts jobs there as the supervisor does on one machine. Gangs,
and jobs of several tasks a node, are steps of their own (``srun --exact``), started by the agent of their
first node, so that MPI works as its users know it.

When the allocation ends is known, and reported; a node whose agent is gone is lost, with what ran there, and
joins again when Slurm lets an agent be started there anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from dovetail.errors import ExecutorError, InputError
from dovetail.interfaces import LastAttempts, RunFolder, RunningAttempt
from dovetail.model import (
    Cluster,
    ClusterEnds,
    Ended,
    Event,
    Job,
    JobId,
    NodeJoined,
    NodeLost,
    Placed,
    Seconds,
    State,
    Usage,
)
from dovetail.model.batch_options import constraint_of, fold_options, of_script, options_for, value_of
from dovetail.process.agent import of_step
from dovetail.process.environment import cores_of, is_gang, visible_on
from dovetail.process.link import Link
from dovetail.process.spawn_log import SpawnLog, end_event, uid_of
from dovetail.process.supervised import SupervisedExecutor
from dovetail.records import dataclass
from dovetail_slurm.agents import AgentFolder, Connection, SlurmAgents
from dovetail_slurm.commands import (
    Allotment,
    NodeTable,
    SlurmError,
    cluster_of,
    current_job,
    find_allotment,
    node_facts,
    read_configuration,
)
from dovetail_slurm.steps import (
    DESCRIBED,
    end_steps,
    gang_environment,
    gang_step,
    install_srun,
    slurm_environment,
    step_name,
    unbind_settings,
)

_log = logging.getLogger(__name__)
AGAIN = (2.0, 5.0, 10.0, 30.0)
"""Seconds before each further attempt to start an agent on a node that is lost; the last one repeats."""
FULFILLED = {
    "--account": "Account",
    "--partition": "Partition",
    "--qos": "QOS",
    "--reservation": "Reservation",
    "--wckey": "WCKey",
}
"""Options that hold for all that runs in an allocation, and what Slurm calls them of it."""
SHORT = {"--account": "-A", "--partition": "-p", "--qos": "-q", "--reservation": "---", "--wckey": "---"}
HOPELESS = 300.0
"""Seconds without an agent after which nothing waits for a node any more; should it come back, it joins."""


@dataclass(slots=True)
class _LostNode:
    """A node without an agent: why, since when, and when to try again (in the clock's seconds)."""

    why: str
    since: Seconds = field(default_factory=time.monotonic)
    attempts: int = 0
    due: Seconds = 0.0
    given_up: bool = False

    def put_off(self) -> bool:
        """An attempt has failed; whether it is now that hope is given up."""
        now = time.monotonic()
        self.due = now + AGAIN[min(self.attempts, len(AGAIN) - 1)]
        self.attempts += 1
        now_hopeless = not self.given_up and now - self.since > HOPELESS
        self.given_up = self.given_up or now_hopeless
        return now_hopeless


@dataclass(frozen=True, slots=True)
class Slurm:
    """The allocation that we are in.

    ``features`` are names of node features that distinguish CPUs, with commas (``rome,skylake``). ``poll`` is
    the seconds between looks at the allocation (0: 1 on a cluster of one's own, else 15 to 30). ``mpi`` is
    srun's ``--mpi`` for gangs (empty: the cluster's default), ``srun`` further options for them.
    ``lend`` is what each device is where nodes lend them to each other, as `dovetail device-server --device`
    takes it, e.g. ``cuda`` (the N-th is ``cuda:N``) or ``numpy``; empty: they do not.
    """

    features: str = ""
    poll: float = 0.0
    mpi: str = ""
    srun: str = ""
    lend: str = ""

    def discover(self) -> Cluster:
        """The allocation's nodes, with what was allotted of each."""
        found = _living_allotment(current_job(os.environ))
        return cluster_of(node_facts(list(found.shares)), found, self._wanted_features())

    def _wanted_features(self) -> Sequence[str]:
        return [word for word in self.features.split(",") if word]

    def gang_options(self) -> list[str]:
        """Further options of srun."""
        return [*([f"--mpi={self.mpi}"] if self.mpi else []), *self.srun.split()]

    def open(self, folder: RunFolder, cluster: Cluster) -> SlurmExecutor:
        """A new run. Raises `InputError` where the cluster is not what was allotted, `ExecutorError`."""
        found = _living_allotment(current_job(os.environ))
        _check_cluster(cluster, found)
        executor = self._make_executor(folder, cluster, found)
        executor.begin_agents()
        return executor

    def resume(self, folder: RunFolder, cluster: Cluster) -> tuple[SlurmExecutor, LastAttempts]:
        """Take up a run, in its allocation or another one: nodes that are gone are lost, others join.

        Raises `ExecutorError` while the run's Dovetail lives, or its jobs run on in another allocation.
        """
        found = _living_allotment(current_job(os.environ))
        executor = self._make_executor(folder, cluster, found)
        return executor, executor.take_up(self._wanted_features())

    def _make_executor(self, folder: RunFolder, cluster: Cluster, found: Allotment) -> SlurmExecutor:
        if not self.lend:
            return SlurmExecutor(self, folder, cluster, found)
        from dovetail_slurm.lending import LendingSlurmExecutor

        return LendingSlurmExecutor(self, folder, cluster, found)


def _living_allotment(job: str) -> Allotment:
    found = find_allotment(job)
    if not found.is_alive:
        raise InputError(
            f"found allocation {job} in state {found.state}, expected one that runs: begin another one with "
            "salloc or sbatch",
            where="executor slurm",
        )
    return found


def _check_cluster(cluster: Cluster, found: Allotment) -> None:
    """Refuse a cluster of nodes, CPUs or devices that were not allotted."""
    for node in cluster.nodes:
        share, where = found.shares.get(node.name), f"cluster: node {node.name}"
        if share is None:
            names = ", ".join(found.shares)
            raise InputError(
                f"found no node of that name in the allocation, expected of {names}", where=where
            )
        if max(node.cores, default=-1) >= share.cpus:
            what = f"found core {max(node.cores)}, expected 0 to {share.cpus - 1}: {share.cpus} CPUs are ours"
            raise InputError(what, where=where)
        for kind in {device.kind for device in node.devices}:
            held = sum(device.kind == kind for device in node.devices)
            given = sum(count for k, _, count in share.gres if k == kind)
            if held > given:
                what = f"found {held} devices of kind {kind}, expected at most the {given} that are ours"
                raise InputError(what, where=where)
        if share.memory is not None and node.memory is not None and node.memory > share.memory:
            what = f"found {node.memory} bytes of memory, expected at most the {share.memory} that are ours"
            raise InputError(what, where=where)


def poll_seconds(wanted: float, settings: Mapping[str, str]) -> tuple[Seconds, Seconds]:
    """The shortest and the longest time between two looks at Slurm: 1 s on a cluster of one's own."""
    if wanted > 0:
        return wanted, wanted
    own = settings.get("SlurmUser", "").partition("(")[0] == getpass.getuser()
    return (1.0, 1.0) if own else (15.0, 30.0)


class SlurmExecutor(SupervisedExecutor):
    """Jobs on the nodes of an allocation, each under its node's agent."""

    def __init__(self, options: Slurm, folder: RunFolder, cluster: Cluster, found: Allotment) -> None:
        super().__init__(folder, cluster)
        # Variables of the step that we run in would make srun take its nodes for all there is.
        self._environ = {name: value for name, value in self._environ.items() if not of_step(name)}
        self._options = options
        self._allotment = found
        self._files = AgentFolder(self.run_dir)
        self._commands = self._files.path / "bin"
        self._settings = read_configuration(("KillWait", "SlurmUser", "TaskPlugin"))
        # Shared by all parts that need facts of nodes, so that Slurm gets one query a look, not one a node.
        self._table = NodeTable(poll_seconds(options.poll, self._settings)[0])
        self._agents = SlurmAgents(
            found.job, found.shares, self._files, self.run_uid, self._settings, self._environ, self._table
        )
        # What a job has between TERM and KILL when Slurm takes its node: less than Slurm gives us.
        self._term_grace = min(self._grace, 0.5 * float(self._settings.get("KillWait", "30").split()[0]))
        self._links: dict[int, Link] = {}
        self._over = False
        self._lost: dict[int, _LostNode] = {}
        self._lost_more = asyncio.Event()
        self._restores = False
        self._departed: set[int] = set()  # those of them that belong to the allocation no more
        self._doubted: set[int] = set()  # nodes that are going, perhaps with all others
        self._withheld: list[Event] = []
        self._silent_since: float | None = None  # when Slurm's controller last did not answer, first of all
        self._steps: list[str] = []  # of gangs whose agent is gone
        self._first: list[Event] = []  # to be reported once there is a listener

    def begin_agents(self) -> None:
        """Start all agents; those that do not come in time join later.

        Raises `ExecutorError` where none can be started, `InputError` for a node that lacks what it needs.
        """
        self._agents.begin_run()
        # Before the agents, whose jobs find it on their PATH.
        install_srun(self._files.path)
        connections = self._agents.start(self.cluster.nodes, self._term_grace)
        missing = [node for node in self.cluster.nodes if node.name not in connections]
        fault: ExecutorError | InputError | None = None
        # A node that lacks what the run needs ends it at once: joining later would not change that.
        if self._agents.unfit:
            fault = InputError(self._agents.unfit)
        elif not connections:
            names = ", ".join(node.name for node in missing)
            fault = ExecutorError(f"no agent can be started on {names}: {self._agents.complaint}")
        else:
            fault = self._prepare_agents(connections)
        for node in missing if connections else ():  # they join when an agent can be started there
            index = self.cluster.index_of[node.name]
            self._lost[index] = _LostNode(self._agents.why_not(node.name))
            self._first.append(NodeLost(index))
        if missing and connections:
            named = ", ".join(node.name for node in missing[:3])
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            why = self._agents.why_not(missing[0].name)
            _log.warning("begun without %s%s, which join when they can: %s", named, more, why)
        for name, connection in connections.items():
            self._connect_agent(self.cluster.index_of[name], connection)
        if fault is not None:
            # Also of the agents that have started: nothing of ours stays in an allocation that is refused.
            asyncio.run(self.close())
            raise fault

    def _prepare_agents(self, connections: Mapping[str, Connection]) -> ExecutorError | InputError | None:
        """All agents are there: get from them what a run needs; what is wrong, if anything is."""
        return None

    def _connect_agent(self, node: int, connection: Connection) -> Link:
        link = Link(
            self._handle_end, lambda: self._agent_left(node, link), partial(self._handle_notice, node)
        )
        link.connect_socket(connection.socket, connection.unread)
        link.copy = self._files.copy_of(self._agents.hellos[self.cluster.nodes[node].name])
        self._links[node] = link
        return link

    def check(self, jobs: Iterable[Job]) -> None:
        """Raises `InputError` for an option for Slurm that this allocation does not fulfil as it is.

        Within it Dovetail places jobs, not Slurm, so that most could only be passed over in silence.
        """
        # One job of each set of options and app: a sweep has thousands with the same.
        representatives = {
            (job.batch_options, job.app): job
            for job in jobs
            if job.batch_options and of_script(job.batch_options) is None
        }
        for job in representatives.values():
            for choice in job.choices:
                for option in fold_options(options_for(job.batch_options, choice.implementation)):
                    if not self._fulfils_option(option):
                        raise InputError(
                            f"found {option}, expected an option that allocation {self._allotment.job} "
                            f"fulfils as it is ({', '.join(FULFILLED)}, --constraint): within it Dovetail "
                            "decides, not Slurm",
                            where=f"job {job.id}: slurm",
                        )

    def _fulfils_option(self, option: str) -> bool:
        name = next((name for name in FULFILLED if value_of([option], name, SHORT[name])), "")
        if name:
            return value_of([option], name, SHORT[name]) == self._allotment.about.get(FULFILLED[name])
        feature = constraint_of([option])
        if not feature:
            return False
        facts = self._table.node_facts([node.name for node in self.cluster.nodes]).values()
        return all(feature in fact.features for fact in facts)

    # ------------------------------------------------------------------- taking up

    def take_up(self, features: Sequence[str]) -> LastAttempts:
        """Reach the agents that are left, read what became of the jobs, start agents where none is."""
        left = self._sort_out(self._agents.reach_agents())
        install_srun(self._files.path)
        self._meet_nodes(features)
        return left

    def _sort_out(self, connections: Mapping[str, Connection]) -> LastAttempts:
        """Each job's last attempt, from the agents or their logs."""
        logs: dict[str, SpawnLog] = {}
        for name, connection in connections.items():
            logs[name] = connection.log()
            link = self._connect_agent(self.cluster.index_of[name], connection)
            # Numbers of setups go on where the log ends, or an agent would take a new one for an old one.
            link.first_setup = logs[name].next_number
        for name in self._files.nodes():
            if name not in logs:
                logs[name] = self._files.read_log(name)
        last: dict[JobId, tuple[int, str, str]] = {}  # attempt, node, uid
        # The last attempt over all nodes: a job may have been started again elsewhere.
        for name, log in logs.items():
            self._outputs.take_up_names(log)
            for uid, intent in log.intents.items():
                found = (intent["attempt"], name, uid)
                if found > last.get(intent["job"], (0, "", "")):
                    last[intent["job"]] = found
        running: list[RunningAttempt] = []
        over: list[Ended] = []
        unknown: list[Ended] = []
        for job, (attempt, name, uid) in last.items():
            log = logs[name]
            intent, end, start = log.intents[uid], log.ends.get(uid), log.starts.get(uid)
            if end is not None:
                over.append(end_event(intent, end))
            # Its agent lives, so the job does, or its end comes over the link.
            elif name in connections:
                watching = self._links[self.cluster.index_of[name]]
                watching.requests[uid] = intent
                self._running[job] = watching, uid
                running.append(RunningAttempt(job, attempt, time.time() if start is None else start["at"]))
            else:
                why = f"node {name} was taken away, or its agent was killed, while it ran"
                unknown.append(Ended(job, State.NODE_FAIL, None, why, Usage(), attempt=attempt))
                # The agent is gone, and a gang's step may still run on the other nodes.
                self._steps += [intent["step"]] if "step" in intent else []
        over.sort(key=lambda end: end.ended_at or 0.0)
        return LastAttempts(running, over, unknown)

    def _meet_nodes(self, features: Sequence[str]) -> None:
        """Agents on the nodes that there are now; nodes of the run that are gone are lost, others join."""
        now = cluster_of(node_facts(list(self._allotment.shares)), self._allotment, features)
        same = self._files.read()[0] == self._allotment.job
        here: dict[str, int] = {}
        for node in now.nodes:
            index = next((n for n, known in enumerate(self.cluster.nodes) if known == node), None)
            # The same node with other facts: a cluster file may describe a part of it.
            if index is None and same:  # a cluster file has given us less of it than was allotted
                index = self.cluster.index_of.get(node.name)
            if index is None:
                index = len(self.cluster)
                self.cluster = Cluster((*self.cluster.nodes, node), self.cluster.label)
                self._first.append(NodeJoined(index, node))
            here[node.name] = index
        new = [node for node in now.nodes if here[node.name] not in self._links]
        for name, connection in self._agents.start(new, self._term_grace, len(self._links)).items():
            self._connect_agent(here[name], connection)
        missing = [n for n in range(len(self.cluster)) if n not in self._links]
        self._lost = {n: _LostNode(self._agents.why_not(self.cluster.nodes[n].name)) for n in missing}
        self._departed = {n for n in self._lost if n not in here.values()}
        self._first += [NodeLost(n, for_good=n in self._departed) for n in sorted(self._lost)]

    # ------------------------------------------------------------------- watching

    def _attach_to_loop(self) -> None:
        for link in self._links.values():
            if link.is_connected and not link.is_attached:
                link.attach_to_loop()
        if not self._tasks and not self._closing:
            for event in self._first:
                self._report_event(event)
            self._first.clear()
            # Only once there is a listener: events before that would be lost.
            self._restore_soon()
            self._tell_end()
            self._begin_task(self._watch_allocation)

    def _tell_end(self) -> None:
        end = self._allotment.end
        self._report_event(ClusterEnds(None if end is None else max(0.0, end - time.time())))

    async def _watch_allocation(self) -> None:
        """Look at the allocation now and then: whether it goes on, until when, and on which nodes."""
        least, most = poll_seconds(self._options.poll, self._settings)
        pause = least
        while not self._over:
            await asyncio.sleep(pause)
            try:
                found = await asyncio.to_thread(find_allotment, self._allotment.job)
                facts = (
                    await asyncio.to_thread(self._table.node_facts, found.shares) if found.is_alive else {}
                )
            # Our agents need no controller, so jobs go on; only the look is slower.
            except SlurmError:  # the controller is away: our agents go on without it
                self._silent_since = self._silent_since or time.monotonic()
                pause = min(most, 1.5 * pause + 1.0)
                continue
            self._silent_since = None
            moved = found.end != self._allotment.end
            pause = least if moved else min(most, 1.2 * pause)
            self._take_in(found)
            if not found.is_alive:
                self._settle_doubts(over=True)
            elif moved:
                self._tell_end()
            # Down for Slurm, but its agent may live on behind a broken network: its jobs are ended there.
            for name, fact in facts.items():
                node = self.cluster.index_of.get(name)
                if fact.is_down and node in self._links:
                    self._give_up(node)

    def _take_in(self, found: Allotment) -> None:
        """Slurm's present state of the allocation. Nodes that it names no more have left for good."""
        before = self._allotment
        shares = found.shares if found.is_alive else before.shares
        self._allotment = replace(before, state=found.state, end=found.end, shares=shares)
        # Shrunk with scontrol: these nodes may belong to others already.
        for name in before.shares.keys() - shares.keys():
            node = self.cluster.index_of.get(name)
            if node is not None:
                self._departed.add(node)
                if node in self._links:
                    self._give_up(node)
                self._report_event(NodeLost(node, for_good=True))

    async def is_taken_away(self) -> bool:
        """Whether our allocation has ended: then its agents end their jobs, and we report it."""
        try:
            over = not (await asyncio.to_thread(find_allotment, self._allotment.job)).is_alive
        except SlurmError:
            return False
        if over:
            self._settle_doubts(over=True)
        return over

    def trouble(self) -> str:
        """Which nodes are lost and why, and whether Slurm answers."""
        sentences: list[str] = []
        if self._silent_since is not None:
            silence = time.monotonic() - self._silent_since
            sentences.append(f"Slurm's controller has not answered for {silence:.0f} s")
        for node in sorted(self._lost):
            name = self.cluster.nodes[node].name
            left = f"node {name} was taken out of allocation {self._allotment.job}"
            lost = f"node {name} is lost: {self._lost[node].why}"
            sentences.append(left if node in self._departed else lost)
        return "; ".join(sentences)

    # ------------------------------------------------------------------- nodes that are lost, and come back

    def _handle_notice(self, node: int, message: Mapping[str, Any]) -> None:
        """Slurm takes the node from its agent: perhaps the whole allocation ends."""
        if message["t"] == "evicted":
            self._doubt_node(node)

    def _agent_left(self, node: int, link: Link) -> None:
        """A node's agent is gone; its jobs end with the node, by the driver."""
        if self._links.get(node) is link:
            self._forget_node(node)
            if not self._closing:
                self._doubt_node(node)

    def _forget_node(self, node: int) -> None:
        """Drop a node's agent, and its jobs."""
        link = self._links.pop(node, None)
        if link is not None:
            self._steps += [request["step"] for request in link.requests.values() if "step" in request]
            for request in link.requests.values():
                del self._running[request["job"]]
            link.requests.clear()
            link.detach()

    def _doubt_node(self, node: int) -> None:
        """Report nothing until Slurm has answered whether this node is going, or all of them.

        Else jobs would start again, in vain, on nodes that go a moment later.
        """
        if node in self._lost:
            return
        self._doubted.add(node)
        if len(self._doubted) == 1:
            self._begin_task(self._ask_slurm)

    def _report_event(self, event: Event) -> None:
        if self._doubted:
            self._withheld.append(event)
        else:
            super()._report_event(event)

    async def _ask_slurm(self) -> None:
        try:
            found = await asyncio.to_thread(find_allotment, self._allotment.job)
        except SlurmError:  # the controller is away: `_watch_allocation` will notice when it is back
            self._settle_doubts(over=False)
        else:
            self._take_in(found)
            self._settle_doubts(over=not found.is_alive)

    def _settle_doubts(self, *, over: bool) -> None:
        """What went was some nodes, or the whole allocation; then what Slurm does not end, we do."""
        events, self._withheld = self._withheld, []
        gone, self._doubted = sorted(self._doubted), set()
        if over and not self._over:
            self._over = True
            events.insert(0, ClusterEnds(0.0))
            self._begin_task(self._clear_up)
        for event in events:
            self._report_event(event)
        for node in gone:
            self._lose_node(node)

    def _lose_node(self, node: int) -> None:
        self._forget_node(node)
        self._lost[node] = _LostNode("")
        self._report_event(NodeLost(node))
        self._restore_soon()

    def _give_up(self, node: int) -> None:
        """Slurm's table has the node as gone, though its agent still lives: it is to end its jobs."""
        self._links[node].send_line({"t": "close", "grace": 0.0, "reason": State.NODE_FAIL.value})
        self._lose_node(node)

    async def _clear_up(self) -> None:
        """After the allocation's end: end what is still left."""
        deadline = time.monotonic() + self._term_grace + 2.0
        while self._links and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        for node in list(self._links):
            self._give_up(node)

    def _restore_soon(self) -> None:
        """Have agents started on lost nodes again."""
        self._lost_more.set()
        if not (self._restores or self._over or self._lost.keys() <= self._departed):
            self._restores = True
            self._begin_task(self._restore_nodes)

    async def _restore_nodes(self) -> None:
        """Start agents on lost nodes, those that are due together, as soon as Slurm lets us.

        A new agent ends what the last one there has left.
        """
        while not (self._closing or self._over):
            waiting = {node: lost for node, lost in self._lost.items() if node not in self._departed}
            if not waiting:
                break
            pause = min(lost.due for lost in waiting.values()) - time.monotonic()
            if pause > 0:
                self._lost_more.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._lost_more.wait(), pause)
                continue
            due = [node for node, lost in waiting.items() if lost.due <= time.monotonic()]
            started = await self._start_again(due)
            for node in due:
                lost = waiting[node]
                if node in started:
                    self._connect_agent(node, started[node]).attach_to_loop()
                    self._lost.pop(node, None)
                    self._report_event(NodeJoined(node))
                elif lost.put_off():
                    self._report_event(NodeLost(node, for_good=True))
        self._restores = False

    async def _start_again(self, nodes: Sequence[int]) -> dict[int, Connection]:
        """The agents that come on these nodes; why not is noted of the others."""
        known = [self.cluster.nodes[node] for node in nodes]
        started: dict[str, Connection] = {}
        try:
            await self._end_left_steps()
            facts = await asyncio.to_thread(self._table.node_facts, [node.name for node in known])
            up = [node for node in known if node.name in facts and not facts[node.name].is_down]
            started = await asyncio.to_thread(self._agents.start, up, self._term_grace, len(self._links))
        except (ExecutorError, InputError) as error:  # the controller, or the nodes, are away
            whys = dict.fromkeys(nodes, str(error))
        else:
            down = {node.name: f"Slurm calls it {facts[node.name].state}" for node in known if node not in up}
            whys = {
                n: down.get(self.cluster.nodes[n].name) or self._agents.why_not(self.cluster.nodes[n].name)
                for n in nodes
            }
        for node, why in whys.items():
            if node in self._lost:
                self._lost[node].why = why
        return {self.cluster.index_of[name]: connection for name, connection in started.items()}

    async def _end_left_steps(self) -> None:
        """Kill what is left of gangs whose srun is gone. Raises `SlurmError`."""
        if self._steps:
            await asyncio.to_thread(end_steps, self._allotment.job, list(self._steps))
            self._steps.clear()

    # ------------------------------------------------------------------- jobs

    def _link_of(self, placed: Placed) -> Link | None:
        return self._links.get(placed.allocation.first_node)

    def _launch_request(self, link: Link, placed: Placed, words: list[str]) -> dict[str, Any]:
        shares, job = self._agents.shares, self._agents.job
        step = step_name(uid_of(self.run_uid, placed.job.id, placed.attempt))
        if not is_gang(placed):
            begins_steps = {"step": step} if of_script(placed.job.batch_options) is not None else {}
            return {"setup": self._setup_alone(link, placed), "argv": words, **begins_steps}
        options = [*unbind_settings(self._settings), *self._options.gang_options()]
        argv = gang_step(placed, self.cluster, shares, job, step, options, words)
        environ = gang_environment(placed, self.cluster, shares)
        return {"setup": self._setup_number(link, placed, [], **environ), "argv": argv, "step": step}

    def _setup_alone(self, link: Link, placed: Placed) -> int:
        """The setup of a job that is one process, on its first node, with ``srun`` for all that it has."""
        shares, allocation = self._agents.shares, placed.allocation
        _, outer = self._job_surroundings(placed.job)
        path = dict(self._environ if outer is None else outer).get("PATH", os.defpath)
        own = {
            **slurm_environment(placed, self.cluster, shares, self._agents.job, os.environ),
            **gang_environment(placed, self.cluster, shares),
            "PATH": f"{self._commands}:{path}",
            "SLURM_OVERLAP": "1",
            "SLURM_TASK_PROLOG": str(self._commands / "task"),
        }
        if unbind_settings(self._settings):
            own["SLURM_CPU_BIND"] = "none"
        if self._options.mpi:
            own["SLURM_MPI_TYPE"] = self._options.mpi
        if allocation.request.nodes == 1:
            return self._setup_number(link, placed, cores_of(placed, self.cluster), **own)
        first = self.cluster.nodes[allocation.first_node]
        part = allocation.part_on(allocation.first_node)
        assert part is not None
        own |= visible_on(first, part.devices, {**self._environ, **self._seen_by(placed)})
        return self._setup_number(
            link, placed, sorted(allocation.cores_on(allocation.first_node, first)), **own
        )

    def _of_this_job(self, placed: Placed) -> dict[str, Any]:
        """Without what would have Slurm's commands go by our numbers, or describe more than the job has."""
        own = super()._of_this_job(placed)
        found: dict[str, str] = own.get("vars", {})
        for name in DESCRIBED & found.keys():
            del found[name]
        if "SLURM_ARRAY_JOB_ID" in found:
            found["SLURM_ARRAY_JOB_ID"] = self._agents.job
        return own

    def _seen_by(self, placed: Placed) -> Mapping[str, str]:
        return self._agents.hellos[self.cluster.nodes[placed.allocation.first_node].name].visible

    def _handle_end(self, request: dict[str, Any], end: Mapping[str, Any]) -> None:
        super()._handle_end(request, end)
        if "step" in request and end.get("forced"):  # its srun was killed: the tasks may run on
            self._steps.append(request["step"])
            self._begin_task(self._end_killed_step)

    async def _end_killed_step(self) -> None:
        with contextlib.suppress(SlurmError):
            await self._end_left_steps()

    async def _dismiss_supervisors(self) -> None:
        links = list(self._links.values())
        for link in links:
            if not link.is_attached:
                link.attach_to_loop()
            link.send_line({"t": "close", "grace": self._grace})
        with contextlib.suppress(TimeoutError):
            gone = asyncio.gather(*(link.gone.wait() for link in links))
            await asyncio.wait_for(gone, self._grace + 10.0)
        for link in links:
            link.detach()
        await self._end_tasks()
        await self._end_killed_step()
        await asyncio.to_thread(self._agents.reap_steps)

    def settle(self) -> bool:
        """After `close`: whether everything that ran has ended and was reported."""
        return self._closed and not self._running
