"""When jobs of a real Slurm start: ``slurm_starts.py [JOBS [SCALE]]``; prints JSON.

A cluster of two virtual nodes with four CPUs each runs ``JOBS`` jobs of seconds (times ``SCALE``), that come
at random; a look every few seconds makes ``dovetail forecast --slurm`` and ``squeue --start`` answer. Of each
job that waits the first forecast counts. Run times come from Slurm's own record of what has ended.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from slurm_cluster import NodeShape, SlurmCluster

JOBS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
SCALE = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
HABITS = {"prepare": (4.0, 1), "train": (14.0, 4), "score": (7.0, 2)}
"""Jobs by name: median seconds and CPUs."""
SPREAD, GAP, LOOK = 0.35, 3.0, 5.0
COLUMNS = "JobID|JobName|User|Partition|Submit|Start|End|State|ElapsedRaw|TimelimitRaw|NNodes|NCPUS|AllocTRES"
WHEN = "%Y-%m-%dT%H:%M:%S"


def main() -> None:
    """Run them, look, compare."""
    chance = random.Random(5)
    with tempfile.TemporaryDirectory() as root, SlurmCluster((NodeShape(2, cpus=4, gpus=0),)) as cluster:
        sacct = Path(root) / "sacct"
        first: dict[str, dict[str, float]] = {}
        cost: list[float] = []
        submitted, due, looked = 0, time.time(), 0.0
        while submitted < JOBS or cluster.call("squeue", "-h", "-o", "%i").strip():
            now = time.time()
            while submitted < JOBS and due <= now:
                name = chance.choice(list(HABITS))
                median, cpus = HABITS[name]
                seconds = SCALE * median * chance.lognormvariate(0.0, SPREAD)
                limit = 1 + int(3 * SCALE * median / 60)
                words = ("-J", name, "-n1", f"-c{cpus}", "-t", str(limit), "-o", "/dev/null")
                cluster.call("sbatch", *words, "--wrap", f"sleep {seconds:.2f}")
                submitted += 1
                due += SCALE * chance.expovariate(1.0 / GAP)
            if now - looked >= LOOK * SCALE:
                looked = now
                sacct.write_text(accounting(cluster))
                for row in forecasts(cluster, Path(root), sacct, cost):
                    first.setdefault(row["id"], row)
            time.sleep(0.2)
        started = {id: start for id, (start, _) in records(cluster).items()}
    rows = [(row, started[id]) for id, row in first.items() if id in started]
    known = [(row, at) for row, at in rows if row["predicted_start"] is not None]
    held = [row["predicted_start_low"] - 1 <= at <= row["predicted_start_high"] + 1 for row, at in known]
    both = [(row, at) for row, at in known if row["slurm_start"] is not None]
    print(
        json.dumps(
            {
                "jobs": JOBS,
                "forecasts": len(known),
                "held": round(sum(held) / len(held), 3) if held else None,
                "median_abs_error": median_of(abs(row["predicted_start"] - at) for row, at in known),
                "both_answer": len(both),
                "of_these": {
                    "ours": median_of(abs(row["predicted_start"] - at) for row, at in both),
                    "squeue --start": median_of(abs(row["slurm_start"] - at) for row, at in both),
                },
                "median_wait": median_of(at - row["now"] for row, at in known),
                "cpu_seconds_of_a_look": round(statistics.median(cost), 2),
            },
            indent=1,
        )
    )


def median_of(values: object) -> float | None:
    """The median, seconds."""
    found = list(values)  # type: ignore[call-overload]
    return round(statistics.median(found), 1) if found else None


def records(cluster: SlurmCluster) -> dict[str, tuple[float, dict[str, str]]]:
    """Start and fields of the jobs that have ended, as Slurm's completion log has them."""
    found = {}
    for line in (cluster.folder / "jobcomp.txt").read_text().splitlines():
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        found[fields["JobId"]] = time.mktime(time.strptime(fields["StartTime"], WHEN)), fields
    return found


def accounting(cluster: SlurmCluster) -> str:
    """The same in the form of ``sacct --parsable2``."""
    lines = [COLUMNS]
    try:
        known = records(cluster)
    except FileNotFoundError:
        known = {}
    for id, (start, one) in known.items():
        ran = int(time.mktime(time.strptime(one["EndTime"], WHEN)) - start)
        user = one["UserId"].partition("(")[0]
        cells = (id, one["Name"], user, one["Partition"], one["SubmitTime"], one["StartTime"], one["EndTime"])
        size = f"cpu={one['ProcCnt']},node={one['NodeCnt']}"
        rest = (one["JobState"], ran, one["TimeLimit"], one["NodeCnt"], one["ProcCnt"], size)
        lines.append("|".join(map(str, (*cells, *rest))))
    return "\n".join(lines) + "\n"


def forecasts(cluster: SlurmCluster, state: Path, sacct: Path, cost: list[float]) -> list[dict[str, float]]:
    """What waits, by Dovetail, and by Slurm in the same look."""
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "dovetail", "forecast", "--slurm", "--sacct", str(sacct), "--json"],
        env={**os.environ, **cluster.environment, "XDG_STATE_HOME": str(state)},
        capture_output=True,
        text=True,
        check=True,
    )
    after = os.times()
    cost.append(after.children_user + after.children_system - before.children_user - before.children_system)
    answer = json.loads(done.stdout)
    planned = planned_starts(cluster)
    return [{**row, "now": answer["now"], "slurm_start": planned.get(row["id"])} for row in answer["jobs"]]


def planned_starts(cluster: SlurmCluster) -> dict[str, float]:
    """The answers of ``squeue --start``."""
    found = {}
    for line in cluster.call("squeue", "--start", "-h", "-o", "%i %S").splitlines():
        id, when = line.split()
        if when != "N/A":
            found[id] = time.mktime(time.strptime(when, WHEN))
    return found


if __name__ == "__main__":
    main()
