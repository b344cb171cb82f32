"""From tasks, CPUs for a task, GPUs for whatever to what Dovetail counts: CPUs, GPUs and memory a node.

sbatch leaves it to its controller how many nodes a number of tasks needs; here a job without ``--nodes`` and
``--ntasks-per-node`` runs on one node. Numbers that nodes cannot share evenly are rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Literal

from dovetail.records import dataclass


# Kept as given until all is read: what follows from what depends on which of them are there.
@dataclass(slots=True)
class Requested:
    """What a script requests of machines, as sbatch has it; ``None``: not given.

    ``nodes`` is the least number of nodes, ``named_nodes`` how many a list of nodes names. Memory is in
    bytes. ``gpus`` counts those of the job, ``gpus_per_node`` and the others those of each node,
    task, socket; ``models`` are types of GPUs.
    """

    nodes: int | None = None
    most_nodes: int | None = None
    named_nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    tasks_per_gpu: int | None = None
    cpus_per_task: int | None = None
    cpus_per_gpu: int | None = None
    least_cpus: int = 0
    overcommit: bool = False
    exclusive: bool = False
    gpus: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    gpus_per_socket: int | None = None
    sockets: int | None = None
    models: list[str] = field(default_factory=list)
    memory: int | None = None
    memory_per_cpu: int | None = None
    memory_per_gpu: int | None = None
    memory_per_task: int | None = None


@dataclass(frozen=True, slots=True)
class Shares:
    """What each node of a job gives, and how the tasks lie on them.

    ``cpus`` is ``None`` where the script gives none and the default holds. ``remarks`` are sentences about
    what differs from sbatch.
    """

    nodes: int
    tasks: int
    tasks_on_node: int
    cpus_per_task: int
    cpus: int | Literal["all"] | None
    gpus: int
    memory: int | None
    remarks: Sequence[str]

    def tasks_per_node(self) -> str:
        """As ``SLURM_TASKS_PER_NODE`` has it: ``2(x3),1``."""
        # Tasks are dealt out as evenly as they can be: the first nodes have one more.
        least, more = divmod(self.tasks, self.nodes)
        groups = [(least + 1, more), (least, self.nodes - more)]
        return ",".join(f"{tasks}(x{nodes})" if nodes > 1 else f"{tasks}" for tasks, nodes in groups if nodes)


def share_out(requested: Requested) -> Shares:
    """The shares of a script's requests. Raises `ValueError` for what contradicts itself."""
    remarks: list[str] = []
    nodes = _count_nodes(requested)
    tasks = _count_tasks(requested, nodes)
    _check_devices(requested, tasks)
    # The order of these rules is sbatch's: nodes first, then tasks, then devices; each may rest on those
    # before.
    if nodes is None:
        nodes = -(-tasks // requested.tasks_per_node) if tasks and requested.tasks_per_node else 1
    if tasks is None:
        tasks = nodes * (requested.tasks_per_node or 1)
    elif tasks < nodes:
        remarks.append(f"{tasks} tasks for {nodes} nodes: the job gets {tasks}, as in sbatch")
        nodes = tasks
    # Every node gives what the fullest one needs: shares are the same on all nodes here.
    on_node = -(-tasks // nodes)
    gpus = _gpus_per_node(requested, nodes, tasks, on_node, remarks)
    if requested.cpus_per_gpu is not None and requested.cpus_per_task is not None:
        raise ValueError("found --cpus-per-gpu with --cpus-per-task, expected one of them")
    cpus_per_task = requested.cpus_per_task or 1
    cpus = on_node * cpus_per_task if not requested.overcommit else cpus_per_task
    if requested.cpus_per_gpu is not None and gpus:
        # At least one CPU for each task, as Slurm has it.
        cpus = max(requested.cpus_per_gpu * gpus, on_node)
        cpus_per_task = max(1, cpus // on_node)
    counted = max(cpus, requested.least_cpus)
    memory = _memory_per_node(requested, counted, gpus, on_node, remarks)
    # One CPU that nothing in the script requests is left to Dovetail's default.
    given: int | Literal["all"] | None = counted if counted > 1 or _says_cpus(requested) or gpus else None
    if requested.exclusive:
        given = "all"
    return Shares(nodes, tasks, on_node, cpus_per_task, given, gpus, memory, remarks)


def _count_nodes(requested: Requested) -> int | None:
    """Nodes that are given, or follow from a list of nodes, or from GPUs in all and a node."""
    nodes = requested.nodes
    if requested.named_nodes is not None and requested.named_nodes > (nodes or 0):
        if requested.most_nodes is not None and requested.named_nodes > requested.most_nodes:
            raise ValueError(
                f"found a list of {requested.named_nodes} nodes, expected at most {requested.most_nodes}"
            )
        nodes = requested.named_nodes
    # GPUs in all and GPUs a node fix the number of nodes, against which a given one is checked.
    if requested.gpus and requested.gpus_per_node:
        if requested.gpus < requested.gpus_per_node:
            found = f"{requested.gpus} GPUs in all and {requested.gpus_per_node} a node"
            raise ValueError(f"found {found}, expected at least as many in all")
        needed = -(-requested.gpus // requested.gpus_per_node)
        if needed < (nodes or 1) or needed > (requested.most_nodes or needed):
            found = f"{requested.gpus} GPUs in all and {requested.gpus_per_node} a node"
            raise ValueError(f"found {found}, which are {needed} nodes, expected as many as are given")
        return needed
    return nodes


def _check_devices(requested: Requested, tasks: int | None) -> None:
    """Refuse what sbatch refuses. Raises `ValueError`."""
    # What sbatch refuses when it is typed, not what the controller would refuse later.
    if requested.gpus_per_task and requested.tasks_per_gpu:
        raise ValueError("found --gpus-per-task and --ntasks-per-gpu, expected one of them")
    if requested.tasks_per_gpu and requested.tasks_per_node:
        raise ValueError("found --ntasks-per-gpu and --ntasks-per-node, expected one of them")
    if requested.gpus_per_task and not any(
        (requested.tasks, requested.tasks_per_node, requested.gpus, requested.gpus_per_node)
    ):
        raise ValueError(
            "found --gpus-per-task without tasks, expected --ntasks, --ntasks-per-node or --gpus"
        )
    if (
        requested.gpus_per_task
        and requested.gpus
        and tasks is not None
        and requested.gpus != tasks * requested.gpus_per_task
    ):
        each = f"{requested.gpus_per_task} for each of {tasks} tasks"
        raise ValueError(f"found {requested.gpus} GPUs in all and {each}, expected as many in all")
    ways = (
        requested.gpus,
        requested.gpus_per_node,
        requested.gpus_per_task,
        requested.gpus_per_socket,
        requested.tasks_per_gpu,
    )
    if requested.memory_per_gpu is not None and all(way is None for way in ways):
        raise ValueError("found --mem-per-gpu without GPUs, expected both")


def _says_cpus(requested: Requested) -> bool:
    """Whether the script gives anything of which CPUs follow."""
    ways = (
        requested.tasks,
        requested.tasks_per_node,
        requested.cpus_per_task,
        requested.cpus_per_gpu,
        requested.tasks_per_gpu,
    )
    return any(way is not None for way in ways) or requested.least_cpus > 0


def _count_tasks(requested: Requested, nodes: int | None) -> int | None:
    """How many tasks the job has, where anything shows it."""
    if requested.tasks is not None:
        return requested.tasks
    if requested.tasks_per_gpu is not None:
        total = (
            requested.gpus if requested.gpus is not None else (requested.gpus_per_node or 0) * (nodes or 1)
        )
        if total:
            return total * requested.tasks_per_gpu
    if requested.gpus_per_task and requested.gpus is not None and requested.gpus >= requested.gpus_per_task:
        return requested.gpus // requested.gpus_per_task
    return None


def _gpus_per_node(requested: Requested, nodes: int, tasks: int, on_node: int, remarks: list[str]) -> int:
    """GPUs of each node."""
    # The largest of what the options need: each is a lower bound, and one node's share has to meet all.
    found = [0]
    if requested.gpus_per_node is not None:
        found.append(requested.gpus_per_node)
    if requested.gpus is not None:
        found.append(-(-requested.gpus // nodes))
        if requested.gpus % nodes:
            remarks.append(f"{requested.gpus} GPUs on {nodes} nodes: each node gives {found[-1]}")
    if requested.gpus_per_task is not None:
        found.append(requested.gpus_per_task * on_node)
    if requested.gpus_per_socket:
        if requested.sockets is None:
            raise ValueError("found --gpus-per-socket without --sockets-per-node, expected both")
        found.append(requested.gpus_per_socket * requested.sockets)
    if requested.tasks_per_gpu is not None and len(found) == 1:
        found.append(-(-tasks // requested.tasks_per_gpu // nodes))
    return max(found)


def _memory_per_node(
    requested: Requested, cpus: int, gpus: int, on_node: int, remarks: list[str]
) -> int | None:
    """Bytes of each node."""
    ways = (requested.memory, requested.memory_per_cpu, requested.memory_per_gpu, requested.memory_per_task)
    # Two of them contradict each other only within one origin: `RIVALS` has removed the others before.
    if sum(way is not None for way in ways) > 1:
        raise ValueError("found two of --mem, --mem-per-cpu and --mem-per-gpu, expected one of them")
    if requested.memory is not None:
        return requested.memory
    if requested.memory_per_cpu is not None:
        if requested.exclusive:
            remarks.append(f"memory is reserved for {cpus} CPUs, not for all of the node")
        return requested.memory_per_cpu * cpus
    if requested.memory_per_gpu is not None:
        return requested.memory_per_gpu * gpus
    if requested.memory_per_task is not None:
        return requested.memory_per_task * on_node
    return None
