"""Which jobs Snakemake starts: its own scheduler and Dovetail's, a hundred jobs on two unlike devices.

    build/integrations/bin/python benchmarks/snakemake_scheduler.py

The jobs are rules of Gregg 2011, Table 2 (sixteen programs, seconds on one GPU and one CPU, 0.46 s of each
run beside the kernel), drawn with a seed; a fifth of them need the output of another. The scheduler classes
are the real ones, called as Snakemake calls them; time is virtual. Snakemake has no rule that runs on either
device, so for its own schedulers each rule has one: the faster one, or the best of all fixed choices.
The plugin learns from a history of five runs of each rule, 10 % noise.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import random
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from snakemake.scheduling.greedy import Scheduler as Greedy
from snakemake.scheduling.greedy import SchedulerSettings as GreedySettings

from dovetail.history import SqliteHistory
from dovetail.model import CPU, DeviceClass, Run, Usage
from snakemake_scheduler_plugin_dovetail import Scheduler, SchedulerSettings

# (program, milliseconds on the GPU, milliseconds on the CPU), as printed.
TABLE_2 = (
    ("BinarySearch", 60, 4), ("BitonicSort", 933, 9122), ("FastWalshTrans", 77, 236), ("DCT", 49, 503),
    ("DwtHaar1D", 842, 924), ("EigenValue", 712, 1448), ("FFT", 1.6, 0.2), ("FloydWarshall", 45, 527),
    ("MatrixMult", 41, 4475), ("MatrixTranspose", 999, 3736), ("PrefixSum", 112, 3),
    ("QuasiRandSeq", 18, 441), ("Reduction", 26, 340), ("ScanLargeArrays", 17, 154),
    ("SimpleConv", 287, 481), ("SobelFilter", 8, 13),
)  # fmt: skip
BESIDE = 0.46
TIMES = {name: {"cpu": cpu / 1e3 + BESIDE, "gpu": gpu / 1e3 + BESIDE} for name, gpu, cpu in TABLE_2}
JOBS, CHAINED = 100, 0.2
CORES, GPUS = 2, 1
"""A job on the GPU has a core too, so that one of each can run."""


class Job:
    """A job as a scheduler sees it."""

    priority = 0
    input: Sequence[Any] = ()
    threads = 1
    wildcards_dict: Mapping[str, str] = {}

    def __init__(self, rule: str, resources: Mapping[str, Any]) -> None:
        self.rule = SimpleNamespace(name=rule)
        self.scheduler_resources = {"_cores": 1, "_job_count": 1, **resources}
        self.needs: list[Job] = []

    def is_group(self) -> bool:
        """It is one job."""
        return False

    def add_aux_resource(self, name: str, value: int) -> None:
        """What the scheduler has chosen."""
        self.scheduler_resources[name] = value


class Dag:
    """The workflow, and what has ended."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs, self.ended = jobs, set[Job]()

    def job_dependencies(self, job: Job) -> Iterable[Job]:
        """What a job waits for."""
        return job.needs

    def needrun_jobs(self) -> Iterable[Job]:
        """All that have not ended."""
        return (job for job in self.jobs if job not in self.ended)

    def finished(self, job: Job) -> bool:
        """Whether it has ended."""
        return job in self.ended


def make_jobs(seed: int, resources_of: Any) -> list[Job]:
    """A hundred jobs of the sixteen rules; some wait for an earlier one."""
    chance = random.Random(seed)
    jobs = [Job(name, resources_of(name)) for name in chance.choices(list(TIMES), k=JOBS)]
    for index, job in enumerate(jobs[1:], 1):
        if chance.random() < CHAINED:
            job.needs.append(jobs[chance.randrange(index)])
    return jobs


def run_workflow(scheduler: Any, dag: Dag, clock: list[float]) -> float:
    """The makespan in seconds: at each end the scheduler chooses among what is ready, as in Snakemake."""
    free = {"_cores": CORES, "gpu": GPUS, "_job_count": sys.maxsize}
    running: list[tuple[float, int, Job]] = []
    started: set[Job] = set()
    count = itertools.count()
    while len(dag.ended) < len(dag.jobs):
        ready = [job for job in dag.jobs if job not in started and dag.ended.issuperset(job.needs)]
        remaining = [job for job in dag.jobs if job not in started]
        chosen = scheduler.select_jobs(ready, remaining, free, {}) if ready and free["_cores"] else []
        for job in chosen:
            started.add(job)
            for name in ("_cores", "gpu"):
                free[name] -= job.scheduler_resources.get(name, 0)
                assert free[name] >= 0, f"{name}: more than there is"
            kind = "gpu" if job.scheduler_resources.get("gpu") else "cpu"
            heapq.heappush(running, (clock[0] + TIMES[job.rule.name][kind], next(count), job))
        assert running, "nothing runs, and nothing is started"
        clock[0], _, job = heapq.heappop(running)
        dag.ended.add(job)
        for name in ("_cores", "gpu"):
            free[name] += job.scheduler_resources.get(name, 0)
    return clock[0]


def own_makespan(seed: int, kinds: Mapping[str, str]) -> float:
    """Snakemake's greedy scheduler, its default where no solver is there, with a fixed kind for each rule."""
    dag = Dag(make_jobs(seed, lambda name: {"gpu": int(kinds[name] == "gpu")}))
    scheduler = Greedy(dag, GreedySettings(omit_prioritize_by_temp_and_input=True), logging.getLogger())
    return run_workflow(scheduler, dag, [0.0])


def plugin_makespan(seed: int, history: str) -> float:
    """Dovetail's plugin."""
    dag = Dag(make_jobs(seed, lambda name: {"dovetail_on": "cpu,gpu"}))
    scheduler = Scheduler(dag, SchedulerSettings(history=history), logging.getLogger())
    clock = [0.0]
    scheduler.clock = lambda: clock[0]
    return run_workflow(scheduler, dag, clock)


def best_fixed(seed: int) -> dict[str, str]:
    """The fixed kinds by which the larger of the two devices' sums of times is least, over all choices."""
    counts = dict.fromkeys(TIMES, 0)
    for job in make_jobs(seed, lambda name: {}):
        counts[job.rule.name] += 1
    best: tuple[float, tuple[str, ...]] | None = None
    for kinds in itertools.product(("cpu", "gpu"), repeat=len(TIMES)):
        sums = {"cpu": 0.0, "gpu": 0.0}
        for name, kind in zip(TIMES, kinds, strict=True):
            sums[kind] += counts[name] * TIMES[name][kind]
        if best is None or max(sums.values()) < best[0]:
            best = max(sums.values()), kinds
    assert best is not None
    return dict(zip(TIMES, best[1], strict=True))


def teach(path: str) -> None:
    """Five runs of each rule on each kind, 10 % noise."""
    chance = random.Random(0)
    with SqliteHistory(Path(path)) as history:
        for (name, kinds), number in itertools.product(TIMES.items(), range(5)):
            for kind, seconds in kinds.items():
                taken = seconds * chance.uniform(0.9, 1.1)
                device = DeviceClass(CPU) if kind == "cpu" else DeviceClass("gpu", "model")
                inputs = {"input_bytes": 0.0, "threads": 1.0}
                history.record(
                    Run(
                        app=f"snakemake.{name}", implementation=kind, device_class=device, nodes=1, cpus=1,
                        gpus=float(kind == "gpu"), seconds=taken, usage=Usage(None, None), inputs=inputs,
                        when=float(number), uid=f"{name}/{kind}/{number}",
                    )
                )  # fmt: skip


def compare(seeds: Sequence[int]) -> list[tuple[float, float, float]]:
    """For each seed the makespans: faster device and best fixed device by its own scheduler, and ours."""
    faster = {name: min(times, key=times.__getitem__) for name, times in TIMES.items()}
    with tempfile.TemporaryDirectory() as folder:
        history = f"{folder}/history.sqlite"
        teach(history)
        return [
            (own_makespan(seed, faster), own_makespan(seed, best_fixed(seed)), plugin_makespan(seed, history))
            for seed in seeds
        ]


def main() -> None:
    """Print a line for each seed."""
    for seed, (faster, fixed, ours) in enumerate(compare(range(5))):
        print(
            f"seed {seed}: Snakemake's own, faster device of each rule {faster:.1f} s, best fixed devices "
            f"{fixed:.1f} s; plugin {ours:.1f} s: {1 - ours / faster:.1%} and {1 - ours / fixed:.1%} shorter"
        )


if __name__ == "__main__":
    main()
