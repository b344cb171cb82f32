"""Figures 6 to 8 in small, for real: maps on the nodes of a cluster, beside the simulation of the same.

Nodes are unlike: some have more CPUs, some one GPU or two, one none. Tasks are programs and functions that
take the paper's times, and a real K-means of small size whose two kinds of worker compute alike in two ways.
All clocks are one host's, so that the first phase (until a task of each kind has ended, before which no rule
knows anything) is measured from the tasks themselves.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import DovetailWarning, InputError
from dovetail.mapping import api
from dovetail.mapping.function import Function, function
from dovetail.mapping.programs import FileItem, Program, Ran
from dovetail.model import CPU
from dovetail.plugins import load_named
from dovetail.report.intervals import Interval, mean_interval
from dovetail.splitting.rules import RULES
from dovetail_lab.shirahata.kmeans import sums_by_differences, sums_by_products
from dovetail_lab.shirahata.play import play_map
from dovetail_lab.shirahata.simulated import CPU_SECONDS, GPU_SECONDS

GPU = "gpu"
ENGINES = ("ray", "slurm")
RAY_NODES = ((3, 1), (4, 2), (2, 0))
"""CPUs and GPUs of the nodes of a Ray that is started for the study."""
TASKS, CHUNKS = 48, 24
SCALE = 0.01
"""Seconds here for one of the paper's."""
POLICIES: Mapping[str, tuple[int, str]] = {
    "hadoop": (0, "greedy"),
    "hadoop-gpu2": (2, "greedy"),
    "shares": (2, "shares"),
    "finish-time": (2, "finish-time"),
    "hadoop-gpu1": (1, "greedy"),
    "finish-time-gpu1": (1, "finish-time"),
}
"""GPU workers of a node at most, and the rule; `simulated.POLICIES` has the same names."""
EVERYWHERE = ("hadoop", "hadoop-gpu2", "shares", "finish-time")
STARTED = 60.0
"""Seconds within which all workers must have done something."""


@dataclass(frozen=True, slots=True)
class LiveMap:
    """One map, live, and simulated with these times of a task (`seconds_of`); seconds are of this machine."""

    tasks: str
    by: str
    policy: str
    nodes: int
    slots: Mapping[str, int]
    makespan: float
    split: Mapping[str, int]
    means: Mapping[str, float]
    first_phase: float
    simulated_makespan: float
    simulated_split: Mapping[str, int]
    simulated_first_phase: float


@dataclass(frozen=True)
class Live:
    """All maps of all rounds."""

    engine: str
    scale: float
    shapes: tuple[tuple[int, int], ...]
    rounds: tuple[tuple[LiveMap, ...], ...]

    @property
    def nodes(self) -> int:
        """Of the cluster."""
        return len(self.shapes)

    def each_round(self, value: Callable[[LiveMap], float], **of: Any) -> Interval | None:
        """A value of the one map of each round that has these fields."""
        return mean_interval(
            value(one)
            for maps in self.rounds
            for one in maps
            if all(getattr(one, name) == wanted for name, wanted in of.items())
        )

    def speedup(self, policy: str, nodes: int, by: str, *, simulated: bool = False) -> Interval | None:
        """How many times faster than hadoop, round by round."""
        field = "simulated_makespan" if simulated else "makespan"
        ratios = []
        for maps in self.rounds:
            chosen = {
                one.policy: float(getattr(one, field))
                for one in maps
                if (one.tasks, one.by, one.nodes) == (PAPER, by, nodes)
            }
            if policy in chosen:
                ratios.append(chosen["hadoop"] / chosen[policy])
        return mean_interval(ratios)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "engine": self.engine,
            "scale": self.scale,
            "nodes": [{"cpus": cpus, "gpus": gpus} for cpus, gpus in self.shapes],
            "rounds": [[asdict(one) for one in maps] for maps in self.rounds],
        }


PAPER, REAL = "the paper's times", "K-means"
BY = ("programs", "functions")


# ------------------------------------------------------------------------------------------------- tasks


@function
def sleep_for(item: int, *, seconds: Mapping[str, float]) -> tuple[str, str, float, float, Any]:
    """Take the time of this kind: kind, worker, begin, end, nothing."""
    return _timed(CPU, lambda: time.sleep(seconds[CPU]))


@sleep_for.gpu
def _(item: int, *, seconds: Mapping[str, float]) -> tuple[str, str, float, float, Any]:
    return _timed(GPU, lambda: time.sleep(seconds[GPU]))


@function
def cluster_chunk(item: int, *, seconds: Mapping[str, float]) -> tuple[str, str, float, float, Any]:
    """A task of K-means on this kind of worker."""
    return _timed(CPU, lambda: sums_by_differences(item))


@cluster_chunk.gpu
def _(item: int, *, seconds: Mapping[str, float]) -> tuple[str, str, float, float, Any]:
    return _timed(GPU, lambda: sums_by_products(item))


def _timed(kind: str, work: Callable[[], Any]) -> tuple[str, str, float, float, Any]:
    began = time.time()
    value = work()
    return kind, os.environ.get("DOVETAIL_WORKER", ""), began, time.time(), value


def _of_kinds(given: Function, kinds: Sequence[str]) -> Function:
    """The function with the implementations for these kinds alone: hadoop has no other worker."""
    if set(kinds) == set(given.implementations):
        return given
    return Function(given.implementations[CPU])


def _program(kind: str, tasks: str, seconds: Mapping[str, float], parts: Path) -> Program:
    if tasks == REAL:
        words: tuple[str, ...] = (
            sys.executable,
            "-m",
            "dovetail_lab.shirahata.kmeans",
            kind,
            "{in}",
            "{out}",
        )
    else:
        script = f'sleep {seconds[kind]:.6f}; echo {kind} $(date +%s.%N) > "$0"'
        words = ("sh", "-c", script, "{out}")
    return Program(words, str(parts), os.getcwd())


def _programs(kinds: Sequence[str], tasks: str, seconds: Mapping[str, float], parts: Path) -> Function:
    made = Function(_program(CPU, tasks, seconds, parts), CPU, "")
    for kind in kinds:
        if kind != CPU:
            made.on(kind)(_program(kind, tasks, seconds, parts))
    return made


# --------------------------------------------------------------------------------------------------- maps


def run_live(
    engine: str,
    *,
    rounds: int = 1,
    scale: float = SCALE,
    tasks: int = TASKS,
    chunks: int = CHUNKS,
    counts: Sequence[int] | None = None,
    by: Sequence[str] = BY,
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> Live:
    """Run all maps on ``engine``: in the Slurm allocation that we are in, or on a Ray that is started for it.

    ``counts`` are how many of the nodes take part (by default each number of them). ``progress`` gets how
    many of how many maps are done. Raises `InputError` where the engine or a GPU is missing.
    """
    if engine not in ENGINES:
        raise InputError(f"found {engine!r}, expected one of {', '.join(ENGINES)}", where="--engine")
    found: list[list[LiveMap]] = [[] for _ in range(rounds)]
    with _nodes_of(engine) as nodes, tempfile.TemporaryDirectory(dir=os.getcwd(), prefix=".live-") as folder:
        world = _World(engine, nodes.shapes, Path(folder), scale, tasks, chunks)
        numbers = sorted(counts or range(1, len(nodes.shapes) + 1))
        largest = numbers[-1]
        plan = {
            n: [(PAPER, way, p) for p in (POLICIES if n == largest else EVERYWHERE) for way in by]
            + [(REAL, way, p) for p in ("hadoop", "hadoop-gpu2", "finish-time") for way in by if n == largest]
            for n in numbers
        }
        total, done = rounds * sum(map(len, plan.values())), 0
        for n in numbers:
            address = nodes.first(n)
            for gpus in dict.fromkeys(most for most, _ in POLICIES.values()):
                chosen = [one for one in plan[n] if POLICIES[one[2]][0] == gpus]
                if not chosen:
                    continue
                with api.Workers(world.request(n, gpus), engine=engine, address=address) as workers:
                    with warnings.catch_warnings():
                        # That unlike nodes have no room for the same workers is what they are for.
                        warnings.simplefilter("ignore", DovetailWarning)
                        world.start_workers(workers, n, gpus)
                    for maps in found:
                        for kind_of_task, way, policy in chosen:
                            maps.append(world.run_map(workers, kind_of_task, way, policy, n))
                            done += 1
                            progress(done, total)
    return Live(engine, scale, nodes.shapes, tuple(map(tuple, found)))


@dataclass
class _Nodes:
    """The cluster's nodes, in the order in which they take part."""

    shapes: tuple[tuple[int, int], ...]
    first: Callable[[int], str]


@contextmanager
def _nodes_of(engine: str) -> Iterator[_Nodes]:
    """CPUs and GPUs of the nodes, and the address of the first so many. Raises `InputError`."""
    if engine == "slurm":
        cluster = load_named("dovetail.executors", "slurm", "executor")().discover()
        shapes = tuple(
            (len(node.cores), sum(device.kind == GPU for device in node.devices)) for node in cluster.nodes
        )
        _check_shapes(shapes)
        yield _Nodes(shapes, lambda n: ",".join(node.name for node in cluster.nodes[:n]))
        return
    load_named("dovetail.crews", "ray", "map engine")
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    started = 0

    def first_nodes(n: int) -> str:
        nonlocal started
        for cpus, gpus in RAY_NODES[started:n]:
            more = {} if started else {"include_dashboard": False}
            cluster.add_node(num_cpus=cpus, num_gpus=gpus, object_store_memory=80_000_000, **more)
            started += 1
        return str(cluster.address)

    try:
        yield _Nodes(RAY_NODES, first_nodes)
    finally:
        cluster.shutdown()


def _check_shapes(shapes: Sequence[tuple[int, int]]) -> None:
    if not any(gpus for _, gpus in shapes) or any(cpus <= min(gpus, 2) for cpus, gpus in shapes):
        found = ", ".join(f"{cpus} CPUs and {gpus} GPUs" for cpus, gpus in shapes)
        raise InputError(
            f"found nodes of {found}; expected a GPU on one of them, and on each a CPU beside its GPUs' own",
            where="--engine slurm",
        )


@dataclass
class _World:
    """What all maps of a study have in common."""

    engine: str
    shapes: tuple[tuple[int, int], ...]
    folder: Path
    scale: float
    tasks: int
    chunks: int

    @property
    def seconds(self) -> dict[str, float]:
        """A task's, by kind."""
        return {CPU: CPU_SECONDS * self.scale, GPU: GPU_SECONDS * self.scale}

    def slots(self, nodes: int, most: int) -> dict[str, int]:
        """Workers by kind on the first nodes, with so many GPU workers on each at most; 0: all CPUs."""
        shapes = self.shapes[:nodes]
        if not most:
            return {CPU: sum(cpus for cpus, _ in shapes)}
        return {CPU: self._cpus_each * nodes, GPU: sum(min(gpus, most) for _, gpus in shapes)}

    @property
    def _cpus_each(self) -> int:
        """CPU workers of each node beside GPU workers: the same number on all, as requests are."""
        return min(cpus - min(gpus, 2) for cpus, gpus in self.shapes)

    def request(self, nodes: int, most: int) -> str | None:
        """The workers of each node; ``None`` are all CPUs."""
        return f"cpu:{self._cpus_each},gpu:{most}" if most else None

    def start_workers(self, workers: api.Workers, nodes: int, most: int) -> None:
        """Have every worker do something: what starts them is not to be measured. Raises `InputError`."""
        slots = self.slots(nodes, most)
        until, seen = time.monotonic() + STARTED, set[tuple[str, str]]()
        while len(seen) < sum(slots.values()):
            if time.monotonic() > until:
                raise InputError(
                    f"found {len(seen)} workers, expected {sum(slots.values())} within {STARTED:g} s",
                    where=f"--engine {self.engine}",
                )
            items = range(4 * sum(slots.values()))
            results = api.map(
                _of_kinds(sleep_for, list(slots)),
                items,
                workers=workers,
                rule="greedy",
                batch=1,
                duplicate=False,
                common={"seconds": dict.fromkeys(slots, 0.05)},
                history=False,
                progress=False,
            )
            seen |= {(kind, worker) for kind, worker, *_ in results}

    def run_map(self, workers: api.Workers, tasks: str, by: str, policy: str, nodes: int) -> LiveMap:
        """One map, and the simulation of it."""
        most, rule = POLICIES[policy]
        slots = self.slots(nodes, most)
        count = self.tasks if tasks == PAPER else self.chunks
        rows = (self._by_programs if by == "programs" else self._by_functions)(
            workers, tasks, list(slots), rule, count
        )
        if tasks == REAL:
            _check_sums([row[3] for row in rows], count)
        began = min(row[1] for row in rows)
        ends = {kind: [row[2] for row in rows if row[0] == kind] for kind in slots}
        split = {kind: len(own) for kind, own in ends.items()}
        means = {
            kind: sum(row[2] - row[1] for row in rows if row[0] == kind) / split[kind]
            for kind in slots
            if split[kind]
        }
        # The paper's times where tasks take them; else there are none but those measured.
        given = self.seconds if tasks == PAPER else means
        given = {kind: given.get(kind, means[CPU]) for kind in slots}
        played = play_map(count, slots, given, RULES[rule])
        return LiveMap(
            tasks,
            by,
            policy,
            nodes,
            slots,
            max(row[2] for row in rows) - began,
            split,
            means,
            max(min(own) for own in ends.values() if own) - began,
            played.makespan,
            played.tasks,
            max(given.values()),
        )

    def _by_functions(
        self, workers: api.Workers, tasks: str, kinds: Sequence[str], rule: str, count: int
    ) -> list[tuple[str, float, float, Any]]:
        chosen = _of_kinds(sleep_for if tasks == PAPER else cluster_chunk, kinds)
        results = api.map(
            chosen,
            range(count),
            workers=workers,
            rule=rule,
            batch=1,
            duplicate=False,
            common={"seconds": self.seconds},
            history=False,
            progress=False,
        )
        return [(kind, began, ended, value) for kind, _, began, ended, value in results]

    def _by_programs(
        self, workers: api.Workers, tasks: str, kinds: Sequence[str], rule: str, count: int
    ) -> list[tuple[str, float, float, Any]]:
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            parts = Path(folder) / "parts"
            parts.mkdir()
            items = []
            for k in range(count):
                path = Path(folder) / str(k)
                path.write_text(f"{k}\n", encoding="ascii")
                items.append(FileItem(str(path), path.name))
            results = api.map(
                _programs(kinds, tasks, self.seconds, parts),
                items,
                workers=workers,
                rule=rule,
                batch=1,
                duplicate=False,
                history=False,
                progress=False,
            )
            return [_row_of(ran) for ran in results]


def _row_of(ran: Ran) -> tuple[str, float, float, Any]:
    """Kind, begin, end and value, from what a program has written."""
    kind, ended, *numbers = Path(ran.part).read_text(encoding="ascii").split()
    return kind, float(ended) - ran.seconds, float(ended), np.array(list(map(float, numbers)))


def _check_sums(found: Sequence[Any], count: int) -> None:
    """The K-means is right, wherever its parts were computed. Raises `InputError`."""
    expected = sum(sums_by_products(k) for k in range(count))
    total = sum(np.asarray(one).reshape(np.shape(expected)) for one in found)
    if not np.allclose(total, expected):
        raise InputError("found other sums than one process alone has, expected the same", where="K-means")
