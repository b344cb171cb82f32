"""Programs of six kinds at once on one machine, and a service that is killed in the middle, again and again.

    build/integrations/bin/python benchmarks/programs_at_once.py [SECONDS]

A GridSearchCV on joblib's backend, a Hydra sweep, a Snakemake workflow, an agent over MCP, batch scripts and
an executor run beside each other for so long (600 by default), each one over and over, and every 45 s the
service is killed and started again. Each piece of work notes its cores and when it ran, by the machine's
monotonic clock. At the end: no core was used by two jobs at one time, all that was submitted came to its
end, every future has its result. Prints a table; the exit status is 1 where something of that did not hold.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dovetail.client.folder import ServiceFolder

BETWEEN_KILLS = 45.0
PATIENCE = 1800.0
"""Seconds that one program may take on a machine that others work on."""
NOTE = '''"""Notes what it runs on; then works for so long: note.py NAME SECONDS."""
import fcntl, json, os, sys, time


def note(name, seconds):
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        sum(range(1000))
    line = json.dumps({"what": name, "job": os.environ.get("DOVETAIL_JOB", "?"), "pid": os.getpid(),
                       "cores": sorted(os.sched_getaffinity(0)), "began": began, "ended": time.monotonic()})
    with open(os.environ["NOTES"], "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(line + "\\n")


if __name__ == "__main__":
    note(sys.argv[1], float(sys.argv[2]))
'''
GRID = """import joblib, numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV
import dovetail_integrations.joblib
from note import note


class Model(ClassifierMixin, BaseEstimator):
    def __init__(self, rate=1.0):
        self.rate = rate

    def fit(self, data, target):
        note("grid", 0.1)
        self.classes_ = np.unique(target)
        return self

    def predict(self, data):
        return np.full(len(data), self.classes_[0])


data, target = np.zeros((60, 2)), np.arange(60) % 2
with joblib.parallel_config("dovetail", service=SERVICE):
    found = GridSearchCV(Model(), {"rate": [0.1, 0.2, 0.3, 0.4]}, cv=3, refit=False).fit(data, target)
assert len(found.cv_results_["params"]) == 4
"""
SWEEP = """import hydra
from note import note


@hydra.main(version_base="1.3", config_path=None)
def main(config):
    note("sweep", 0.2)
    return config.rate


if __name__ == "__main__":
    main()
"""
SNAKEFILE = """rule all:
    input: expand("{n}.done", n=range(3))

rule one:
    output: "{n}.done"
    retries: 3
    shell: "{PYTHON} {NOTE} snakemake 0.2 && touch {output}"
"""
EXECUTOR = """import dovetail
from note import note

with dovetail.Executor(2, service=SERVICE, name="calls") as executor:
    futures = [executor.submit(note, "executor", 0.05) for _ in range(20)]
    assert [future.result(300) for future in futures] == [None] * 20
"""
SCRIPT = """#!/bin/bash
#DOVETAIL --name batch
{python} {note} batch 0.2
"""


class Place:
    """One machine's service, in a folder of its own, and what has been counted."""

    def __init__(self, root: Path, seconds: float) -> None:
        self.root, self.until = root, time.monotonic() + seconds
        self.service, self.notes = root / "service", root / "notes"
        self.log = open(root / "log", "ab")  # noqa: SIM115 - closed with the process
        self.environment = {
            **os.environ,
            "DOVETAIL_SERVICE": str(self.service),
            "DOVETAIL_CLAIMS": str(root / "claims"),
            "XDG_STATE_HOME": str(root / "state"),
            "NOTES": str(self.notes),
            "PYTHONPATH": os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        (root / "claims").mkdir(mode=0o700)
        (root / "note.py").write_text(NOTE)
        self.process: subprocess.Popen[bytes] | None = None
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.kills = 0

    def start_service(self) -> None:
        """Start it, and wait for its answer."""
        words = [sys.executable, "-m", "dovetail", "serve", "--folder", str(self.service)]
        self.process = subprocess.Popen(
            words, env=self.environment, cwd=self.root, stdout=self.log, stderr=self.log
        )
        while subprocess.run(
            [sys.executable, "-m", "dovetail", "info", "--json"],
            env=self.environment, capture_output=True, check=False,
        ).returncode:  # fmt: skip
            time.sleep(0.2)

    def stop_running(self, how: signal.Signals) -> None:
        """Signal the service that runs: ours, or one that a program has started while ours was away."""
        assert self.process is not None
        process = ServiceFolder(self.service).holder_process()
        if process:
            os.kill(process, how)
            self.kills += how == signal.SIGKILL
        if process == self.process.pid:
            self.process.wait()

    def run(self, folder: str, *words: str, count: str = "") -> bool:
        """Run a program to its end in a folder of this place; what it printed is kept where it fails."""
        place = self.root / folder
        place.mkdir(exist_ok=True)
        done = subprocess.run(
            words,
            cwd=place,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        if count:
            (self.failed if done.returncode else self.done)[count] += 1
        if done.returncode:
            with open(self.root / f"{folder}.failed", "a") as file:
                file.write(f"{words}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}\n")
        return not done.returncode


def loop_grid(place: Place, turn: int) -> None:
    """One search of twelve fits."""
    del turn
    (place.root / "grid.py").write_text(f"SERVICE = {str(place.service)!r}\n{GRID}")
    place.run("grid", sys.executable, str(place.root / "grid.py"), count="GridSearchCV of 12 fits")


def loop_executor(place: Place, turn: int) -> None:
    """One executor with twenty calls."""
    del turn
    (place.root / "calls.py").write_text(f"SERVICE = {str(place.service)!r}\n{EXECUTOR}")
    place.run("calls", sys.executable, str(place.root / "calls.py"), count="Executor with 20 calls")


def loop_sweep(place: Place, turn: int) -> None:
    """One sweep of three."""
    del turn
    (place.root / "sweep.py").write_text(SWEEP)
    words = (str(place.root / "sweep.py"), "-m", "hydra/launcher=dovetail", "+rate=1,2,3")
    place.run("sweep", sys.executable, *words, count="Hydra sweep of 3")


def loop_snakemake(place: Place, turn: int) -> None:
    """One workflow of three jobs."""
    folder = place.root / f"flow{turn}"
    folder.mkdir()
    head = f"PYTHON, NOTE = {sys.executable!r}, {str(place.root / 'note.py')!r}\n"
    (folder / "Snakefile").write_text(head + SNAKEFILE)
    words = ("-m", "snakemake", "--executor", "dovetail", "--jobs", "4", "--scheduler", "dovetail")
    if place.run(folder.name, sys.executable, *words, count="Snakemake workflow of 3 jobs"):
        assert len(list(folder.glob("*.done"))) == 3


def loop_batch(place: Place, turn: int) -> None:
    """Two scripts, waited for."""
    del turn
    script = place.root / "batch.sh"
    script.write_text(SCRIPT.format(python=sys.executable, note=place.root / "note.py"))
    words = (sys.executable, "-m", "dovetail", "submit", "--wait", str(script))
    for _ in range(2):
        place.run("batch", *words, count="batch script")


def loop_agent(place: Place, turn: int) -> None:
    """An agent submits two jobs, waits for them, reads a log and looks at the devices."""
    del turn
    import mcp

    async def play() -> None:
        words = ["-m", "dovetail", "mcp", "--service", str(place.service)]
        start = mcp.StdioServerParameters(
            command=sys.executable, args=words, env=place.environment, cwd=str(place.root)
        )
        async with mcp.Client(mcp.stdio_client(start)) as client:

            async def call(tool: str, **arguments: Any) -> dict[str, Any]:
                """What a tool answers; while the service is away the agent sees an error, and repeats."""
                while True:
                    result = await client.call_tool(tool, arguments)
                    if not result.is_error:
                        return dict(result.structured_content or {})
                    if "no service" not in result.content[0].text:
                        raise RuntimeError(result.content[0].text)
                    await asyncio.sleep(1)

            command = [sys.executable, str(place.root / "note.py"), "agent", "0.2"]
            ids = [(await call("submit", command=command))["ids"][0] for _ in range(2)]
            await call("devices")
            while (found := await call("wait", jobs=ids))["left"]:
                await asyncio.sleep(0.1)
            states = {row["state"] for row in found["jobs"]}
            assert states == {"COMPLETED"}, states
            await call("logs", job=ids[0])

    try:
        asyncio.run(asyncio.wait_for(play(), PATIENCE))
    except Exception as error:  # noqa: BLE001 - counted, and kept
        place.failed["agent with 2 jobs"] += 1
        with open(place.root / "agent.failed", "a") as file:
            file.write(f"{error!r} {getattr(error, 'exceptions', '')}\n")
    else:
        place.done["agent with 2 jobs"] += 1


def kill_service(place: Place) -> None:
    """Kill it every so often; a new one takes up what runs."""
    while time.monotonic() + BETWEEN_KILLS / 3 < place.until:
        time.sleep(min(BETWEEN_KILLS, max(1.0, (place.until - time.monotonic()) / 2)))
        place.stop_running(signal.SIGKILL)
        place.start_service()


def repeat(place: Place, once: Callable[[Place, int], None]) -> None:
    """One program over and over, until the time is up; then it comes to its end."""
    turn = 0
    while time.monotonic() < place.until:
        once(place, turn)
        turn += 1


def shared_cores(notes: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    """Pairs of notes of unlike jobs that had a core at one time. Each job is bound to its cores."""
    found = []
    ordered = sorted(notes, key=lambda note: float(note["began"]))
    for index, note in enumerate(ordered):
        for later in ordered[index + 1 :]:
            if later["began"] >= note["ended"]:
                break
            if later["job"] != note["job"] and set(later["cores"]) & set(note["cores"]):
                found.append((note, later))
    return found


def check_jobs(place: Place) -> dict[str, int]:
    """How many of the service's jobs ended in which state, or have not ended."""
    queue = [sys.executable, "-m", "dovetail", "queue", "--limit", "100000", "--json"]
    deadline = time.monotonic() + 60
    while True:
        states: Counter[str] = Counter()
        for more in ([], ["--ended"]):
            done = subprocess.run(
                [*queue, *more], env=place.environment, capture_output=True, text=True, check=True
            )
            states.update(str(row["state"]) for row in json.loads(done.stdout))
        # Workers without calls end by themselves, a little later.
        if not (states["PENDING"] or states["RUNNING"]) or time.monotonic() > deadline:
            return dict(states)
        time.sleep(1)


def main() -> int:
    """Print the table. The exit status."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    loops = (loop_grid, loop_sweep, loop_snakemake, loop_agent, loop_batch, loop_executor)
    root = Path(tempfile.mkdtemp(prefix="at-once-"))
    place = Place(root, seconds)
    place.start_service()
    try:
        threads = [threading.Thread(target=repeat, args=(place, once)) for once in loops]
        threads.append(threading.Thread(target=kill_service, args=(place,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        states = check_jobs(place)
    finally:
        if place.process is not None:
            place.stop_running(signal.SIGTERM)
    notes = [json.loads(line) for line in place.notes.read_text().splitlines()]
    shared = shared_cores(notes)
    pieces = Counter(str(note["what"]) for note in notes)
    print(f"{seconds:g} s, the service was killed {place.kills} times; load {os.getloadavg()[0]:.1f}")
    print("| program | to its end | failed |\n| --- | ---: | ---: |")
    for name in sorted({*place.done, *place.failed}):
        print(f"| {name} | {place.done[name]} | {place.failed[name]} |")
    print("pieces of work:", ", ".join(f"{name} {count}" for name, count in sorted(pieces.items())))
    print("states of the service's jobs:", ", ".join(f"{name} {n}" for name, n in sorted(states.items())))
    print(f"pairs of jobs that had one core at one time: {len(shared)}")
    for one in shared[:5]:
        print(" ", json.dumps(one))
    lost = states.get("PENDING", 0) + states.get("RUNNING", 0)
    good = not (shared or place.failed or lost) and place.kills and len(place.done) == len(loops)
    print(f"{'all held' if good else f'something did not hold: see {root}'}")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
