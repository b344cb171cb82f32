"""Figure 9 for real: what it takes to give out a task, here and on Ray.

The paper gives the time of a task, from its allocation to its end, and that of the program in it; the
difference is the overhead. The same is measured here: of programs that are started for each task, of
programs that stay (what Hadoop Pipes was for), and of functions, which need no program at all.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dovetail.mapping import api
from dovetail.mapping.function import Function
from dovetail.mapping.programs import FileItem, Program, Ran, Staying
from dovetail.mapping.summary import MapSummary

TASKS = 60
POINTS, CENTRES = 262_144, 128


@dataclass(frozen=True, slots=True)
class Overhead:
    """Seconds of a task and of what it is for, means over ``tasks`` tasks; the difference is the overhead."""

    what: str
    engine: str
    tasks: int
    task: float
    own: float

    @property
    def task_overhead(self) -> float:
        """Seconds that giving a task out takes."""
        return self.task - self.own


def cluster_points(seed: int) -> int:
    """The paper's task: points to the nearest of 128 centres; the size of the largest cluster."""
    rng = np.random.Generator(np.random.PCG64(seed))
    points, centres = rng.random((POINTS, 2), dtype=np.float32), rng.random((CENTRES, 2), dtype=np.float32)
    lengths = (centres**2).sum(axis=1)
    labels = [
        (lengths - 2 * (points[low : low + 4096] @ centres.T)).argmin(axis=1)
        for low in range(0, POINTS, 4096)
    ]
    return int(np.bincount(np.concatenate(labels)).max())


def measure_overheads(*, ray: bool, tasks: int = TASKS) -> list[Overhead]:
    """Measure on this machine, and (``ray``) on a Ray that is started for it. Raises `InputError`."""
    found: list[Overhead] = []
    for engine in ("local", *(["ray"] if ray else [])):
        with (
            tempfile.TemporaryDirectory(prefix="dovetail-") as folder,
            api.Workers("cpu:1", engine=engine) as workers,
        ):
            files = _write_files(Path(folder), tasks)
            parts = Path(folder) / "parts"
            parts.mkdir()
            command = Program(("cp", "{in}", "{out}"), str(parts), os.getcwd())
            staying = Staying(("cat",), str(parts), os.getcwd())
            found += [
                _of_programs("a program for each task", engine, command, files, workers),
                _of_programs("a program that stays", engine, staying, files, workers),
                _of_function("a function, one task at a time", engine, workers, tasks, 1),
                _of_function("a function, tiny items together", engine, workers, 1000 * tasks, None),
            ]
    return found


def _write_files(folder: Path, count: int) -> list[FileItem]:
    found = []
    for i in range(count):
        path = folder / f"{i}.txt"
        path.write_text(f"{i}\n")
        found.append(FileItem(str(path), path.name))
    return found


def _of_programs(
    what: str, engine: str, program: Program | Staying, items: Sequence[FileItem], workers: api.Workers
) -> Overhead:
    made = Function(program, "cpu", "")

    def run_map(some: Sequence[FileItem]) -> tuple[api.Map, list[Ran]]:
        results = api.map(
            made, some, workers=workers, batch=1, history=False, progress=False, duplicate=False
        )
        return results, list(results)

    run_map(items[:5])  # the first ones load what is loaded once
    results, ran = run_map(items)
    own = sum(one.seconds for one in ran) / len(ran)
    return Overhead(what, engine, len(items), results.summary.mean_seconds["cpu"], own)


def _of_function(what: str, engine: str, workers: api.Workers, tasks: int, batch: int | None) -> Overhead:
    function = cluster_points if batch == 1 else abs

    def run_map(count: int) -> MapSummary:
        results = api.map(function, range(count), workers=workers, batch=batch, history=False, progress=False)
        assert sum(1 for _ in results) == count
        return results.summary

    run_map(5)
    summary = run_map(tasks)
    assert summary.overhead_per_task is not None
    mean = summary.mean_seconds["cpu"]
    return Overhead(what, engine, summary.items, mean, mean - summary.overhead_per_task)
