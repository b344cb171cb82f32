"""Ravi 2012 for real: its applications under its policies, beside the simulation of the times measured.

    python benchmarks/ravi_live.py single runs.csv history.sqlite [--rounds 3] [--jobs 24] [--seed 1]
    python benchmarks/ravi_live.py multi FOLDER [--rounds 3] [--jobs 12]

``single``: jobs drawn from what ``dovetail bench --suite ravi --csv runs.csv --history history.sqlite``
measured, on this machine's first two cores (NumPy, PoCL). Each run starts from a copy of that history, so
that all policies know the same. ``multi``: the three apps for several nodes on a Slurm cluster of two nodes
on this host, started here (tests/support/slurm_cluster.py), each form first measured on one and two nodes
(``--measure``; ``--rounds 0`` does no more). Prints tables in Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median, stdev

import dovetail
from dovetail.workloads.jobfile_writer import dump_jobfile
from dovetail_lab.apps.bench.drawn import draw_workload
from dovetail_lab.apps.bench.measured import read_measurements
from dovetail_lab.apps.bench.suite import two_devices
from dovetail_lab.apps.registry import RAVI
from dovetail_lab.live import check_completed, slowdown_factor

SINGLE = ("brr", "rsa", "rsc", "asjf", "lookahead")
MULTI = ("torque", "mct", "fms", "lookahead")
OPTIMUM = "optimal?time_limit=60"
EXECUTOR = "slurm?poll=0.2&mpi=pmi2"
FORMS = {"cpu": "cpu", "gpu": "opencl", "cpu+gpu": "cpu+opencl"}
SIZES = {"gridding": (60_000, 200_000), "em": (400_000, 1_200_000), "pagerank": (400_000, 1_600_000)}
"""Two data sets each, as in Fig. 2."""
ITERATIONS = {"gridding": 16, "em": 24, "pagerank": 32}


def single(options: argparse.Namespace) -> None:
    """24 jobs of the ten under each policy, round by round, and what the simulation makes of their times."""
    cluster = two_devices()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(prefix="ravi-live-") as folder:
        measured = read_measurements(options.runs.read_text(), str(options.runs))
        workload = draw_workload(measured, options.jobs, options.seed)
        jobs = Path(folder) / "jobs.toml"
        jobs.write_text(dump_jobfile(workload))
        simulated = simulations(jobs, cluster, SINGLE, options.history)
        optimum = dovetail.simulate(str(jobs), cluster=cluster, policy=OPTIMUM).makespan
        for number in range(1, options.rounds + 1):
            for policy in SINGLE:
                history = Path(folder) / f"{policy}-{number}.sqlite"
                shutil.copy(options.history, history)
                report = dovetail.run(str(jobs), cluster=cluster, history=history, policy=policy)
                records = report.result.records
                records = report.result.records
                check_completed(records, policy)
                keep(options.log, policy, report.makespan, slowdown_factor(records, workload.truth.table))
    show(options.log, SINGLE, simulated, optimum)


def simulations(
    jobs: Path, cluster: dovetail.Cluster | str, policies: Iterable[str], history: Path
) -> dict[str, tuple[float, float]]:
    """Makespans with all times known, and with what the history knows when a live run begins."""
    return {
        policy: (
            dovetail.simulate(str(jobs), cluster=cluster, policy=policy).makespan,
            dovetail.simulate(
                str(jobs), cluster=cluster, policy=policy, history=history, knowledge="learned"
            ).makespan,
        )
        for policy in policies
    }


def keep(log: Path, policy: str, makespan: float, slowdown: float, forms: str = "") -> None:
    """One live run, as a line of the log: so that rounds can be added later."""
    line = json.dumps({"policy": policy, "makespan": makespan, "slowdown": slowdown, "forms": forms})
    with log.open("a") as file:
        file.write(line + "\n")
    print(line, file=sys.stderr, flush=True)


def show(
    log: Path, policies: Iterable[str], simulated: Mapping[str, tuple[float, float]], optimum: float | None
) -> None:
    """A row for each policy; *slower* is by how much its jobs took longer than when they were measured."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    print("| policy | runs | live s | jobs slower by | live s over that | simulated, as learned |", end="")
    print(" simulated, times known |" + (f" that over the optimum, {optimum:.1f} s |" if optimum else ""))
    print("| --- " * (8 if optimum else 7) + "|")
    for policy in policies:
        own = [line for line in lines if line["policy"] == policy]
        live, slower = [x["makespan"] for x in own], [x["slowdown"] for x in own]
        fair = [a / b for a, b in zip(live, slower, strict=True)]
        row = f"| `{policy}` | {len(own)} | {spread(live)} | {fmean(slower):.2f} | {spread(fair)} |"
        known, learned = simulated[policy]
        print(row + f" {learned:.1f} | {known:.1f} |" + (f" {known / optimum:.2f} |" if optimum else ""))


def spread(values: list[float]) -> str:
    """Mean and standard deviation."""
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


# ----------------------------------------------------------------------------------------- several nodes


def job_file(jobs: Iterable[tuple[str, int, int, str | None]], times: Mapping[str, float]) -> str:
    """Jobs as (app, size, nodes, form asked for or none); times by ``app-size-form-nodes``."""
    text = ""
    for name in SIZES:
        text += f'[[app]]\nname = "{name}"\n'
        for kind, device in FORMS.items():
            words = [sys.executable, "-m", "dovetail.apps", name, "--device", device]
            words += ["--n", "{n}", "--iterations", str(ITERATIONS[name])]
            text += f'[[app.implementation]]\nname = "{kind}"\ncommand = {json.dumps(words)}\n'
    for index, (name, n, nodes, form) in enumerate(jobs):
        text += f'[[job]]\nid = "{index + 1}-{name}-{n}"\napp = "{name}"\n'
        text += f"inputs = {{ n = {n} }}\nnodes = {nodes}\n"
        text += f'implementation = "{form}"\n' if form else ""
        text += "[job.times]\n"
        for kind in FORMS:
            known = {m: times.get(f"{name}-{n}-{kind}-{m}", 1.0) for m in ((1, 2) if nodes == 2 else (1,))}
            text += f'"{kind}" = {{ {", ".join(f"{m} = {t:.3f}" for m, t in known.items())} }}\n'
    return text


def run(folder: Path, inside: Mapping[str, str], *words: str) -> list[dict[str, object]]:
    """``dovetail run WORDS --json`` inside the allocation; its jobs."""
    command = [sys.executable, "-m", "dovetail", "run", *words, "--executor", EXECUTOR, "--json", "--quiet"]
    done = subprocess.run(command, cwd=folder, env=dict(inside), text=True, capture_output=True, timeout=290)
    if done.returncode:
        raise SystemExit(done.stderr)
    return sorted(json.loads(done.stdout)["jobs"], key=lambda job: int(job["id"].partition("-")[0]))


def multi(options: argparse.Namespace) -> None:
    """Every form on one and two nodes alone, then twelve jobs under each policy."""
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    kept, history, file = folder / "times.json", folder / "alone.sqlite", folder / "jobs.toml"
    pool = [(name, n, nodes) for nodes in (2, 1) for name, sizes in SIZES.items() for n in sizes]
    jobs = [(*pool[i % len(pool)], None) for i in range(options.jobs)]
    with two_nodes(folder) as inside:
        if options.measure or not kept.exists():
            kept.write_text(json.dumps(measure(folder, inside, history, options.measure or 1)))
        times = json.loads(kept.read_text())
        file.write_text(job_file(jobs, times))
        for number in range(1, options.rounds + 1):
            for policy in MULTI:
                known = folder / f"{policy}-{number}.sqlite"
                shutil.copy(history, known)
                found = run(folder, inside, "jobs.toml", "--policy", policy, "--history", str(known))
                told, took, forms = 0.0, 0.0, dict.fromkeys(FORMS, 0)
                for one, (name, n, _, _) in zip(found, jobs, strict=True):
                    nodes = 1 if one["nodes"] in ("n0", "n1") else 2
                    told += times[f"{name}-{n}-{one['implementation']}-{nodes}"]
                    took += float(str(one["end"])) - float(str(one["start"]))
                    forms[str(one["implementation"])] += 1
                makespan = max(float(str(one["end"])) for one in found)
                keep(options.log, policy, makespan, took / told, json.dumps(forms))
    if options.log.exists():
        show(options.log, MULTI, simulations(file, "2x1cpu+1gpu", MULTI, history), None)


@contextmanager
def two_nodes(folder: Path) -> Iterator[dict[str, str]]:
    """The environment inside an allocation of two nodes, each of a CPU and a GPU that is only counted."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
    from mpich import mpi_environment
    from slurm_cluster import NodeShape, SlurmCluster

    mpi = {} if (folder / "mpi").exists() else mpi_environment(folder / "mpi")
    mpi["LD_LIBRARY_PATH"] = str(folder / "mpi")
    one_thread = {"POCL_MAX_PTHREAD_COUNT": "1", "OMP_NUM_THREADS": "1"}
    with (
        SlurmCluster((NodeShape(2, cpus=1, gpus=1),)) as slurm,
        slurm.allocation("-N2", "--exclusive", "--gres=gpu:1", "-t", "60") as job,
    ):
        yield {**os.environ, **job, **mpi, **one_thread, "XDG_STATE_HOME": str(folder / "state")}


def measure(folder: Path, inside: Mapping[str, str], history: Path, repeat: int) -> dict[str, float]:
    """Median seconds of each app, size, form and node count, one job at a time."""
    wanted = [
        (n, s, nodes, form) for n, sizes in SIZES.items() for s in sizes for nodes in (1, 2) for form in FORMS
    ]
    text = job_file(wanted, {})
    found: dict[str, list[float]] = {}
    (folder / "alone.toml").write_text(text)
    for _ in range(repeat):
        # `torque` obeys the form and the nodes.
        jobs = run(folder, inside, "alone.toml", "--policy", "torque", "--history", str(history), "-j", "1")
        for (name, n, nodes, form), one in zip(wanted, jobs, strict=True):
            seconds = float(str(one["end"])) - float(str(one["start"]))
            found.setdefault(f"{name}-{n}-{form}-{nodes}", []).append(seconds)
    times = {key: median(runs) for key, runs in found.items()}
    for key, seconds in times.items():
        print(f"{key} {seconds:.2f}", file=sys.stderr)
    return times


def main() -> None:
    """Parse, run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = parser.add_subparsers(required=True)
    one = which.add_parser("single")
    one.add_argument("runs", type=Path)
    one.add_argument("history", type=Path)
    one.add_argument("--seed", type=int, default=1)
    several = which.add_parser("multi")
    several.add_argument("folder", type=Path)
    several.add_argument("--measure", type=int, default=0, help="measure each form so many times anew")
    for part, jobs, do in ((one, 24, single), (several, 12, multi)):
        part.add_argument("--jobs", type=int, default=jobs)
        part.add_argument("--rounds", type=int, default=3)
        part.add_argument(
            "--log", type=Path, default=Path(f"ravi-live-{do.__name__}.jsonl"), help="runs so far"
        )
        part.set_defaults(do=do)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    assert set(SIZES) == {name for name, spec in RAVI.items() if spec.nodes}
    main()
