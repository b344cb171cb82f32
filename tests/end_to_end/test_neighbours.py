"""Two Dovetails on one machine: no core is used by both at once, and each says what it waits for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from services import Serving, serving, submit, wait

from dovetail.service.client import connection

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

CORES = len(os.sched_getaffinity(0))
NOTE = "sh -c 'echo $DOVETAIL_CORES $(date +%s.%N) >> {log}; sleep {seconds}; echo - $(date +%s.%N) >> {log}'"


def spans(folder: Path) -> list[tuple[set[int], float, float]]:
    found = []
    for path in folder.glob("*.span"):
        (cores, began), (_, ended) = (line.split() for line in path.read_text().splitlines())
        found.append(({int(core) for core in cores.split(",")}, float(began), float(ended)))
    return found


def commands(folder: Path, name: str, count: int, seconds: float) -> str:
    return "\n".join(NOTE.format(log=folder / f"{name}{n}.span", seconds=seconds) for n in range(count))


def started(service: Serving, text: str, name: str) -> subprocess.Popen[str]:
    (service.root / name).write_text(text)
    words = [sys.executable, "-m", "dovetail", "run", name, "-q", "--json"]
    environment = {**service.environment, "XDG_STATE_HOME": str(service.root / "state")}
    return subprocess.Popen(
        words, cwd=service.root, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def check(found: list[tuple[set[int], float, float]]) -> None:
    for n, (cores, began, ended) in enumerate(found):
        for others, start, end in found[:n]:
            assert not cores & others or end <= began + 0.01 or ended <= start + 0.01


@pytest.fixture
def service(tmp_path: Path) -> object:
    folder = tmp_path / "claims"
    with serving(tmp_path, DOVETAIL_CLAIMS=str(folder)) as found:
        yield found


def test_a_run_beside_a_service_and_another_run(service: Serving, tmp_path: Path) -> None:
    with connection(service.folder.path) as client:
        jobs = [
            {"command": ["sh", "-c", line.split("'")[1]]}
            for line in commands(tmp_path, "service", 6, 0.3).splitlines()
        ]
        full = [{"command": ["sleep", "4"]} for _ in range(CORES)]
        ids = submit(client, *full, *jobs)
        runs = [started(service, commands(tmp_path, name, 6, 0.2), name) for name in ("one", "two")]
        seen = False
        while any(run.poll() is None for run in runs):
            shown = json.loads(service.dovetail("devices", "--json").stdout)["claims"]
            units = [unit for claim in shown for unit in claim["units"]]
            assert len(units) == len(set(units)) <= CORES
            seen = seen or bool(units)
            time.sleep(0.1)
        outputs = [run.communicate() for run in runs]
        assert [run.returncode for run in runs] == [0, 0], outputs
        assert set(wait(client, ids).values()) == {"COMPLETED"}
    assert seen
    found = spans(tmp_path)
    assert len(found) == 18
    check(found)
    said = [err for _, err in outputs if "jobs here take what is free, and wait for the rest" in err]
    assert said, outputs


def test_what_runs_without_its_service_keeps_its_core(service: Serving, tmp_path: Path) -> None:
    with connection(service.folder.path) as client:
        line = NOTE.format(log=tmp_path / "long.span", seconds=2)
        ids = submit(client, {"command": ["sh", "-c", line.split("'")[1]]})
        while not (tmp_path / "long.span").exists():
            time.sleep(0.02)
    service.kill()
    run = started(service, commands(tmp_path, "run", 2 * CORES, 0.2), "run")
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, (out, err)
    with service.start() as client:
        assert set(wait(client, ids).values()) == {"COMPLETED"}
    found = spans(tmp_path)
    assert len(found) == 2 * CORES + 1
    check(found)
