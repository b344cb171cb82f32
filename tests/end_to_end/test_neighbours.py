"""Two Dovetails on one machine: no core is used by both at once, and each says what it waits for."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest
from descendants import below
from dovetail_command import run_command
from services import Serving, serving, submit, wait
from waiting import until

from dovetail.client.connection import open_connection
from dovetail.local.claims import Claims, list_holders
from dovetail.testing.builders import full

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


def started(
    service: Serving, text: str, name: str, stderr: int | IO[str] = subprocess.PIPE
) -> subprocess.Popen[str]:
    (service.root / name).write_text(text)
    words = [sys.executable, "-m", "dovetail", "run", name, "-q", "--json"]
    environment = {**service.environment, "XDG_STATE_HOME": str(service.root / "state")}
    return subprocess.Popen(
        words, cwd=service.root, env=environment, text=True, stdout=subprocess.PIPE, stderr=stderr
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
    with open_connection(service.folder.path) as client:
        jobs = [
            {"command": ["sh", "-c", line.split("'")[1]]}
            for line in commands(tmp_path, "service", 6, 0.3).splitlines()
        ]
        go = tmp_path / "go"
        full = [{"command": ["sh", "-c", f"until test -e {go}; do sleep 0.05; done"]} for _ in range(CORES)]
        ids = submit(client, *full, *jobs)
        until(lambda: client.get("/api/v1/info")["jobs"]["running"] == CORES)
        said = [tmp_path / "one.err", tmp_path / "two.err"]
        with said[0].open("w") as one, said[1].open("w") as two:
            runs = [
                started(service, commands(tmp_path, name, 6, 0.2), name, stderr)
                for name, stderr in (("one", one), ("two", two))
            ]
        waits = "jobs here take what is free, and wait for the rest"
        until(lambda: all(waits in path.read_text() for path in said), "a run does not say that it waits")
        go.touch()
        seen = False
        while any(run.poll() is None for run in runs):
            shown = json.loads(service.dovetail("devices", "--json").stdout)["claims"]
            units = [unit for claim in shown for unit in claim["units"]]
            assert len(units) == len(set(units)) <= CORES
            seen = seen or bool(units)
            time.sleep(0.1)
        outputs = [run.communicate() for run in runs]
        assert [run.returncode for run in runs] == [0, 0], [outputs, *(path.read_text() for path in said)]
        assert set(wait(client, ids).values()) == {"COMPLETED"}
    assert seen
    found = spans(tmp_path)
    assert len(found) == 18
    check(found)


def test_what_runs_without_its_service_keeps_its_core(service: Serving, tmp_path: Path) -> None:
    with open_connection(service.folder.path) as client:
        line = NOTE.format(log=tmp_path / "long.span", seconds=2)
        ids = submit(client, {"command": ["sh", "-c", line.split("'")[1]]})
        until(lambda: (tmp_path / "long.span").exists())
    service.kill()
    run = started(service, commands(tmp_path, "run", 2 * CORES, 0.2), "run")
    out, err = run.communicate(timeout=280)
    assert run.returncode == 0, (out, err)
    with service.start() as client:
        assert set(wait(client, ids).values()) == {"COMPLETED"}
    found = spans(tmp_path)
    assert len(found) == 2 * CORES + 1
    check(found)


def test_others_may_use_the_cores_of_a_drained_node(service: Serving, tmp_path: Path) -> None:
    other = Claims("other", tmp_path / "claims")
    with open_connection(service.folder.path) as client:
        (node,) = (one["name"] for one in client.get("/api/v1/nodes")["nodes"])
        client.post(f"/api/v1/nodes/{node}/drain")
        assert not other.take(f"core:{core}" for core in os.sched_getaffinity(0))
        ids = submit(client, {"command": ["true"]})
        client.post("/api/v1/hold", {"jobs": ids[0]})
        client.post(f"/api/v1/nodes/{node}/resume")
        client.post("/api/v1/release", {"jobs": ids[0]})
        assert client.get(f"/api/v1/jobs/{ids[0]}")["state"] == "PENDING"
        other.close()
        assert wait(client, ids) == {ids[0]: "COMPLETED"}


def test_a_lock_that_was_kept_once_is_taken_again(tmp_path: Path) -> None:
    """Nothing starts meanwhile, `queue` and `info` say so; then claims are kept as before."""
    folder = tmp_path / "claims"
    with (
        serving(tmp_path, DOVETAIL_CLAIMS=str(folder)) as service,
        open_connection(service.folder.path) as client,
    ):
        wait(client, submit(client, {"command": ["true"]}))
        assert (folder / "lock").stat().st_mode & 0o777 == 0o600
        with open(folder / "lock") as stranger:
            fcntl.flock(stranger, fcntl.LOCK_EX)
            (job,) = submit(client, {"command": ["sleep", "60"]})
            until(lambda: client.get("/api/v1/info")["blocked"])
            assert client.get(f"/api/v1/jobs/{job}")["state"] == "PENDING"
            assert "nothing can be claimed" in service.dovetail("queue").stderr
            assert "nothing can be claimed" in service.dovetail("info").stdout
        until(lambda: client.get(f"/api/v1/jobs/{job}")["state"] == "RUNNING")
        assert client.get("/api/v1/info")["blocked"] is None
        assert sum(len(holder.units) for holder in list_holders(folder)) == 1
        other = Claims("other", folder)
        assert len(other.take([f"core:{core}" for core in os.sched_getaffinity(0)])) == 1
        other.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", (300, full(2000, 0)) if full(2000, 0) else (300,))
def test_a_run_gets_its_turn_beside_a_busy_service(service: Serving, tmp_path: Path, count: int) -> None:
    times: list[float] = []
    with open_connection(service.folder.path) as client:
        submit(client, *({"command": ["sleep", "0.3"]} for _ in range(count)))
        for n in range(full(20, 2)):
            path = tmp_path / f"begun{n}"
            run = started(service, f"sh -c 'date +%s.%N > {path}'", f"one{n}")
            asked = time.time()
            said = run.communicate(timeout=240)
            assert run.returncode == 0, said
            times.append(float(path.read_text()) - asked)
        assert client.get("/api/v1/info")["jobs"]["waiting"] > 0, "the service was busy to the end"
    print("seconds from the command to the start of its job:", [round(one, 2) for one in times])


# -- maps ----------------------------------------------------------------------------------------------

SPAN = """#!/bin/sh
log={folder}/$(basename "$1").span
echo $DOVETAIL_CORES $(date +%s.%N) > "$log.x"
sleep {seconds}
echo - $(date +%s.%N) >> "$log.x"
mv "$log.x" "$log"
cat "$1" > "$2"
"""


def mapping(
    root: Path, folder: Path, name: str, count: int, seconds: float | str, workers: str
) -> subprocess.Popen[str]:
    """A map of a program that notes when, and on which cores, it ran; the seconds may be words of a shell."""
    program = root / f"{name}.sh"
    program.write_text(SPAN.format(folder=folder, seconds=seconds))
    program.chmod(0o755)
    items = [root / f"{name}-{n}.txt" for n in range(count)]
    for item in items:
        item.write_text("x")
    words = ["map", "--cpu", f"{program} {{in}} {{out}}", "--out", str(root / f"{name}-out")]
    words += ["--workers", workers, "--json", *map(str, items)]
    environment = {**os.environ, "XDG_STATE_HOME": str(root / "state")}
    return subprocess.Popen(
        [sys.executable, "-m", "dovetail", *words],
        cwd=root, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture
def claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOVETAIL_CLAIMS", str(tmp_path / "claims"))
    return tmp_path / "claims"


def test_two_maps_beside_a_run_share_no_core(claims: Path, tmp_path: Path) -> None:
    (tmp_path / "run").write_text(commands(tmp_path, "run", 8, 0.3))
    words = [sys.executable, "-m", "dovetail", "run", "run", "-q", "--json"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    all_cores = f"cpu:{CORES}"
    running = [
        mapping(tmp_path, tmp_path, "one", 8, 0.3, "cpu:1"),
        mapping(tmp_path, tmp_path, "two", 8, 0.3, all_cores),
        subprocess.Popen(
            words, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ),
    ]
    maps = set()
    while any(one.poll() is None for one in running):
        now = list_holders(claims)
        units = [unit for holder in now for unit in holder.units]
        assert len(units) == len(set(units)) <= CORES
        maps |= {holder.label for holder in now if holder.label.startswith("map ")}
        time.sleep(0.02)
    outputs = [one.communicate() for one in running]
    assert [one.returncode for one in running] == [0, 0, 0], outputs
    assert len(maps) == 2
    found = spans(tmp_path)
    assert len(found) == 24
    check(found)
    said = [err for _, err in outputs if "in use by" in err]
    assert said, outputs
    until(lambda: list_holders(claims) == [], "something is claimed after the end")


def test_a_map_waits_says_for_whom_and_is_shown(claims: Path, tmp_path: Path) -> None:
    stranger = Claims("0123456789ab", claims)
    stranger.take(f"core:{core}" for core in os.sched_getaffinity(0))
    until_seen = f"0; timeout 60 sh -c 'until test -e {tmp_path}/seen; do sleep 0.1; done'"
    waits = mapping(tmp_path, tmp_path, "late", 4, until_seen, "cpu:1")
    assert waits.stderr is not None
    assert "in use by run 01234567 (process" in (line := waits.stderr.readline()), line
    assert not list(tmp_path.glob("late*.span*"))
    stranger.keep(())
    while not (held := [one for one in list_holders(claims) if one.label.startswith("map ")]):
        time.sleep(0.02)
    assert [len(one.units) for one in held] == [1]
    assert held[0].pid == waits.pid
    done = run_command(["devices"], tmp_path, os.environ)
    assert f"in use by {held[0].label}: {min(held[0].units)}" in done.stdout
    assert stranger.take(held[0].units).keys() == held[0].units
    (tmp_path / "seen").touch()
    out, err = waits.communicate(timeout=280)
    assert waits.returncode == 0, (out, err)
    until(lambda: stranger.take(held[0].units) == {}, "not given back at the end")
    stranger.close()


def open_files(pid: int) -> list[str]:
    """Of a process: one that ends gives back its files, and with them its locks, before it is a zombie."""
    try:
        return os.listdir(f"/proc/{pid}/fd")
    except (FileNotFoundError, ProcessLookupError):
        return []


def test_a_killed_map_holds_nothing_as_soon_as_its_workers_are_gone(claims: Path, tmp_path: Path) -> None:
    killed = mapping(tmp_path, tmp_path, "killed", 4, 30, "cpu:1")
    until(lambda: list(tmp_path.glob("killed*.span.x")))
    (worker,) = below(b"mapping.worker", killed.pid)
    (claim,) = list_holders(claims)
    killed.kill()
    killed.communicate()
    while list_holders(claims):
        time.sleep(0.001)
    assert not open_files(worker)
    after = Claims("after", claims)
    assert after.take(claim.units) == {}
    after.close()


def test_who_waits_for_another_run_is_shown_who_it_is_since_when_and_until_when(
    service: Serving, tmp_path: Path
) -> None:
    """And the start that is predicted does not slide."""
    other = Claims("b" * 32, tmp_path / "claims")
    nap = {"command": ["sleep", "0.1"], "app": "nap"}
    with open_connection(service.folder.path) as client:
        wait(client, submit(client, nap))
        other.until = end = time.time() + 300
        assert other.take(f"core:{core}" for core in os.sched_getaffinity(0)) == {}
        try:
            (job,) = submit(client, nap)
            until(lambda: client.get("/api/v1/info")["elsewhere"], "who holds the cores is not seen")
            rows = [client.get("/api/v1/jobs", patience=20)["jobs"][0] for _ in range(2)]
            (held,) = client.get("/api/v1/info")["elsewhere"]
        finally:
            other.close()
        wait(client, [job])
        until(lambda: client.get("/api/v1/info")["elsewhere"] == [], "nobody else holds anything")
    who = rf"run bbbbbbbb \(process {os.getpid()}\)"
    sentence = rf"{who} holds {CORES} cores? since \S+, until about \S+"
    assert re.fullmatch(sentence, rows[0]["reason"]), rows[0]["reason"]
    assert [row["predicted_start"] for row in rows] == [pytest.approx(end, abs=2)] * 2
    assert re.fullmatch(who, held["who"])
    assert held["units"] == sorted(f"core:{core}" for core in os.sched_getaffinity(0))
    assert (held["since"], held["until"]) == (pytest.approx(end - 300, abs=5), pytest.approx(end))


def test_a_run_writes_down_since_and_until_when_it_holds_cores(tmp_path: Path, service: Serving) -> None:
    """The end as far as it is predicted, here from an earlier run."""
    claims = tmp_path / "claims"
    go = tmp_path / "go"
    nap = "sh -c 'sleep 0.3; until test -e go; do sleep 0.05; done'\n"
    go.touch()
    first = started(service, nap, "nap.txt")
    first.communicate(timeout=100)
    go.unlink()
    run = started(service, nap, "nap.txt")
    try:
        until(lambda: any(h.began and h.until for h in list_holders(claims)), "it has written down both")
    finally:
        go.touch()
        run.communicate(timeout=100)
    assert (first.returncode, run.returncode) == (0, 0)
