"""Jobs on a real Ray cluster of several nodes on this host, with a token and a home of its own."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from borrowing import KILLED, PROGRAM, ROWS, Row, jobs
from carried_programs import SUPPORT as CARRIER
from carried_programs import build_library, carrying_environment
from dovetail_command import load, run_command
from queues import FINAL, Runs, processes_of
from strangers import Stranger
from waiting import until

from dovetail.testing.builders import full

pytestmark = [
    pytest.mark.live,
    pytest.mark.xdist_group("live"),
    # It is not imported for that: each worker of the tests would.
    pytest.mark.skipif(find_spec("ray") is None, reason="needs ray"),
]

NODES = full(4, 2)
SUPPORT = Path(__file__).parent.parent / "support"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "ray.md"
SCRIPT = """
import os, sys, time
out = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
where = os.environ["DOVETAIL_NODES"], os.environ.get("CUDA_VISIBLE_DEVICES", "-") or "none"
os.write(out, f"began {os.environ['DOVETAIL_JOB']} {where[0]} {where[1]}\\n".encode())
if sys.argv[3:] == ["child"]:
    os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "987")
time.sleep(float(sys.argv[2]))
os.write(out, f"ended {os.environ['DOVETAIL_JOB']} {where[0]} {where[1]}\\n".encode())
"""


def environment_of(home: Path) -> dict[str, str]:
    """With a home of its own, and a secret."""
    home.mkdir()
    own = {
        "HOME": str(home),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "t" * 40,
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    return {**os.environ, **own}


class RayCluster:
    """The process that holds the cluster."""

    def __init__(self, home: Path) -> None:
        self.environment = environment_of(home)
        self._start()

    def _start(self) -> None:
        """Begin anew where Ray gives up its own start, as it does on a busy machine."""
        for _ in range(3):
            self._start_process()
            self.address = self._line()
            if self.address:
                return
            self.stop()
        raise AssertionError("the cluster does not start")

    def _start_process(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SUPPORT / "ray_cluster.py"), str(NODES)],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def _line(self) -> str:
        """What it says next; empty where it has ended."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if ":" in line and not line.startswith("["):
                break
        return line.strip()

    def do(self, order: str) -> str:
        """Have a node killed, drained, or added; its id."""
        assert self.process.stdin is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        done, _, node = self._line().partition(":")
        assert done == "done"
        return node

    def renew(self) -> None:
        """Another one in its place, of which no node is missing."""
        self.stop()
        self._start()

    def stop(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    found = RayCluster(tmp_path_factory.mktemp("ray") / "home")
    yield found
    found.stop()


@pytest.fixture
def spent(cluster: RayCluster) -> Iterator[RayCluster]:
    """The cluster, for a test that takes nodes away."""
    yield cluster
    cluster.renew()


@pytest.fixture
def runs(tmp_path: Path, environment: dict[str, str], state: Path, cluster: RayCluster) -> Iterator[Runs]:
    own = {**cluster.environment, "XDG_STATE_HOME": str(state), "PATH": environment["PATH"]}
    made = Runs(tmp_path, own, state)
    (tmp_path / "job.py").write_text(SCRIPT)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()
    until(lambda: not processes_of(str(tmp_path / "job.py")), "nothing is left running", 20)


def write(runs: Runs, count: int, seconds: float, *words: str, **fields: Any) -> None:
    """So many jobs that may run on one CPU or one GPU."""
    argv = ["python3", "-I", "-S", str(runs.tmp_path / "job.py"), str(runs.said), str(seconds), *words]
    text = '[[app]]\nname = "both"\n'
    for kind in ("cpu", "gpu"):
        text += f'[[app.implementation]]\nname = "{kind}"\ncpus = 1\ncommand = {json.dumps(argv)}\n'
    text += f'[[job]]\nid = "j"\napp = "both"\ncount = {count}\n'
    text += "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items())
    (runs.tmp_path / "jobs.toml").write_text(text)
    runs.count = count


def executor(cluster: RayCluster, **options: Any) -> str:
    """The executor's name with its options."""
    return f"ray?address={cluster.address}" + "".join(f"&{k}={v}" for k, v in options.items())


def run(runs: Runs, *arguments: str) -> Any:
    """``dovetail run ARGUMENTS --json``, as it has ended."""
    return run_command(["run", *arguments, "--json", "--quiet"], runs.tmp_path, runs.environment)


def nodes_of(runs: Runs, cluster: RayCluster) -> Any:
    """What ``dovetail devices`` shows of the cluster."""
    command = ["devices", "--executor", executor(cluster), "--json"]
    return load(run_command(command, runs.tmp_path, runs.environment))["nodes"]


def exactly_once(runs: Runs, rows: Mapping[str, tuple[str, int, str]]) -> None:
    """Every job has ended, and none was executed more often than it was started."""
    assert len(rows) == runs.count
    assert {state for state, _, _ in rows.values()} <= FINAL
    lines = [line.split() for line in runs.said.read_text().splitlines()]
    began = Counter(job for what, job, _, _ in lines if what == "began")
    assert all(times <= rows[job][1] for job, times in began.items())
    ended = {job for what, job, _, _ in lines if what == "ended"}
    assert {job for job, (state, _, _) in rows.items() if state == "COMPLETED"} <= ended
    until(lambda: not processes_of(str(runs.tmp_path / "job.py")), "nothing is left running", 20)


def test_a_stranger_follows_the_page_word_by_word(
    cluster: RayCluster, tmp_path: Path, environment: dict[str, str], state: Path
) -> None:
    """Block by block as it would be copied, but for what is installed and the address of the cluster."""
    told = {**cluster.environment, "XDG_STATE_HOME": str(state), "PATH": environment["PATH"]}
    stranger = Stranger(PAGE, tmp_path, told)
    install, use = stranger.blocks
    assert install == "pip install 'dovetail-scheduler[ray]'"
    assert use.count("dovetail ") == 4
    said = stranger.types(use.replace("10.0.0.1:6379", cluster.address))
    assert f"Ray at {cluster.address}: {NODES} nodes, {2 * NODES} CPUs, {NODES} devices" in said
    assert "3 of 3 jobs done" in said
    assert "took" in said
    assert f"\n{said.splitlines()[-1]} " in said, "it ran on a node of the table"
    tables = [line for line in said.splitlines() if line[:4].strip() and str(state) not in line]
    assert max(map(len, tables)) <= 80


def test_jobs_run_on_all_nodes_and_see_what_ray_gave_them(runs: Runs, cluster: RayCluster) -> None:
    write(runs, 24, 0.4)
    done = run(runs, "jobs.toml", "--executor", executor(cluster), "--policy", "history")
    assert done.returncode == 0, done.stderr
    rows = {row["id"]: row for row in load(done)["jobs"]}
    lines = [line.split() for line in runs.said.read_text().splitlines()]
    assert len({node for _, _, node, _ in lines}) == NODES
    for _, job, node, visible in lines:
        assert node == rows[job]["nodes"]
        assert (visible == "none") == (rows[job]["implementation"] == "cpu")
        assert visible in ("none", "0", "1")
    exactly_once(runs, runs.rows())


def test_a_gang_holds_all_its_nodes_and_one_that_cannot_is_told(runs: Runs, cluster: RayCluster) -> None:
    (runs.tmp_path / "jobs.toml").write_text(
        """
[[app]]
name = "gang"
[[app.implementation]]
name = "cpu"
cpus = 1
tasks = 2
times = { 3 = 1.0 }
command = ["sh", "-c", "echo $DOVETAIL_RANK $DOVETAIL_RANKS; exit {code}"]
[[job]]
id = "works"
app = "gang"
nodes = 3
inputs = { code = 0 }
[[job]]
id = "fails"
app = "gang"
nodes = 3
inputs = { code = 3 }
""".replace("cpus = 1", "cpus = 2")
    )
    done = run(runs, "jobs.toml", "--executor", executor(cluster), "--policy", "fcfs", "--run-dir", "run")
    states = {row["id"]: (row["state"], row["exit_code"]) for row in load(done)["jobs"]}
    assert states["works"] == ("COMPLETED", 0), done.stderr
    assert states["fails"][0] == "FAILED"
    said = sorted((runs.tmp_path / "run" / "works.out").read_text().splitlines())
    assert said == [f"{rank} 6" for rank in range(6)]


def test_a_job_is_stopped_with_all_that_it_has_started(runs: Runs, cluster: RayCluster) -> None:
    write(runs, 1, 60.0, "child", walltime=2)
    done = run(runs, "jobs.toml", "--executor", executor(cluster), "--grace", "0.5")
    assert [row["state"] for row in load(done)["jobs"]] == ["TIMEOUT"]
    until(lambda: not processes_of("sleep\x00987"), "its child has ended", 10)


def test_a_job_that_holds_more_than_it_may_is_ended_and_tried_again_with_more(
    runs: Runs, cluster: RayCluster
) -> None:
    inner = "x = bytearray(150_000_000); import time; time.sleep(2)"  # in a process that the job has started
    outer = f"import subprocess, sys; subprocess.check_call([sys.executable, '-I', '-S', '-c', {inner!r}])"
    (runs.tmp_path / "jobs.txt").write_text(f"{shlex.join([sys.executable, '-I', '-S', '-c', outer])}\n")
    where = ("--executor", executor(cluster), "--run-dir", "run", "--history", "h.db")
    done = run(runs, "jobs.txt", *where, "--policy", "fcfs", "--memory", "60MB")
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(runs.tmp_path / "run" / "ledger.db") as db:
        before = db.execute("SELECT state FROM attempt").fetchall()
    assert before == [("OUT_OF_MEMORY",)]
    assert [job["state"] for job in load(done)["jobs"]] == ["COMPLETED"]
    with sqlite3.connect(runs.tmp_path / "h.db") as db:
        (peak,) = db.execute("SELECT max(peak_memory) FROM runs WHERE state = 0").fetchone()
    assert 150e6 < peak < 220e6, "of both processes together"


def test_killed_and_taken_up(runs: Runs, cluster: RayCluster) -> None:
    """Ray ends the tasks of a Dovetail that is gone, and the fence what these had started."""
    write(runs, 60, 0.6, retries=3)
    process = runs.go("jobs.toml", "--executor", executor(cluster), "--quiet", environment=runs.environment)
    runs.wait_for(12)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not processes_of(str(runs.tmp_path / "job.py")), "its jobs have ended", 20)
    process = runs.go("--resume", "--quiet", environment=runs.environment)
    assert process.wait(120) == 0, runs.complaints
    rows = runs.rows()
    exactly_once(runs, rows)
    assert {state for state, _, _ in rows.values()} == {"COMPLETED"}
    assert max(attempt for _, attempt, _ in rows.values()) == 2


def test_a_node_that_joins_is_used_and_one_that_dies_costs_its_jobs_an_attempt(
    runs: Runs, spent: RayCluster
) -> None:
    write(runs, 48, 4.0, retries=2)
    process = runs.go("jobs.toml", "--executor", executor(spent), "--quiet", environment=runs.environment)
    runs.wait_for(8)
    spent.do(f"kill {NODES - 1}")
    spent.do("add")
    assert process.wait(200) == 0, runs.complaints
    rows = runs.rows()
    exactly_once(runs, rows)
    assert {state for state, _, _ in rows.values()} == {"COMPLETED"}
    assert max(attempt for _, attempt, _ in rows.values()) == 2
    nodes = {line.split()[2] for line in runs.said.read_text().splitlines()}
    assert len(nodes) == NODES + 1


def test_devices_shows_the_nodes(runs: Runs, cluster: RayCluster) -> None:
    nodes = nodes_of(runs, cluster)
    assert len(nodes) == NODES
    assert all(node["cpus"] == 2 for node in nodes)


def test_a_node_that_is_drained_ends_what_it_has_and_starts_nothing_more(
    runs: Runs, spent: RayCluster
) -> None:
    write(runs, 40, 3.0, retries=2)
    process = runs.go("jobs.toml", "--executor", executor(spent), "--quiet", environment=runs.environment)
    runs.wait_for(8)
    id = spent.do("drain 1")
    time.sleep(3)  # it is seen within a second
    before = Counter(line.split()[2] for line in runs.said.read_text().splitlines() if line[0] == "b")
    assert process.wait(200) == 0, runs.complaints
    rows = runs.rows()
    exactly_once(runs, rows)
    assert {state for state, _, _ in rows.values()} == {"COMPLETED"}
    after = Counter(line.split()[2] for line in runs.said.read_text().splitlines() if line[0] == "b")
    (drained,) = [node for node in after if id.startswith(node.rpartition("-")[2])]
    assert after[drained] == before[drained] > 0
    ended = Counter(line.split()[2] for line in runs.said.read_text().splitlines() if line[0] == "e")
    assert ended[drained] == after[drained]  # nothing of it was cut short
    assert sum(after.values()) == len(rows)


def test_a_cluster_that_is_not_there_is_one_sentence(tmp_path: Path, state: Path) -> None:
    runs = Runs(tmp_path, {**environment_of(tmp_path / "home"), "XDG_STATE_HOME": str(state)}, state)
    write(runs, 1, 0.0)
    done = run(runs, "jobs.toml", "--executor", "ray?address=127.0.0.1:1")
    assert done.returncode == 2
    assert "executor ray: Ray cannot be reached at 127.0.0.1:1: " in done.stderr
    assert done.stderr.count("\n") == 1
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as dashboard:
        Thread(target=dashboard.serve_forever).start()
        done = run(runs, "jobs.toml", "--executor", f"ray?address=127.0.0.1:{dashboard.server_port}")
        dashboard.shutdown()
    assert done.returncode == 2
    assert "it is not Ray that answers there" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(not full(1, 0), reason="starts another Ray: DOVETAIL_TEST_FULL=1")
def test_without_an_address_ray_is_started_here_and_stopped(runs: Runs, tmp_path: Path) -> None:
    write(runs, 4, 0.1)
    home = tmp_path / "other-home"
    home.mkdir()
    runs.environment = {**runs.environment, "HOME": str(home)}
    done = run(runs, "jobs.toml", "--executor", "ray", "--policy", "fcfs")
    assert done.returncode == 0, done.stderr


def lending(runs: Runs, cluster: RayCluster, rows: tuple[Row, ...]) -> tuple[str, ...]:
    """The queue of `borrowing` on two nodes with GPUs, one of which has but one; what to run it with."""
    names = [node["name"] for node in nodes_of(runs, cluster) if node["devices"]][:2]
    text = "".join(f'[[node]]\nname = "{n}"\ncpus = 1\ngpus = {2 - i}\n' for i, n in enumerate(names))
    (runs.tmp_path / "cluster.toml").write_text(text)
    (runs.tmp_path / "program.py").write_text(PROGRAM)
    (runs.tmp_path / "jobs.toml").write_text(jobs(rows))
    where = ("--cluster", "cluster.toml", "--executor", executor(cluster, lend="numpy"))
    return ("jobs.toml", *where, "--policy")


def device_servers() -> list[int]:
    """Device servers of lenders that run on this machine."""
    return [pid for pid in processes_of("DOVETAIL_STARTED_BY") if pid in processes_of("device-server")]


def test_a_job_borrows_from_another_node_and_moves_home(runs: Runs, cluster: RayCluster) -> None:
    """It starts with a GPU of another node, comes home while it computes, and computes the same."""
    order = lending(runs, cluster, ROWS)
    done = run(runs, *order, "mrq")
    assert done.returncode == 0, done.stderr
    moved = json.loads((runs.tmp_path / "wide.json").read_text())
    by_id = {job["id"]: job for job in load(done)["jobs"]}
    wide = by_id["wide"]
    assert (wide["remote_gpus"], wide["migrations"]) == (1, 1)
    assert wide["start"] < by_id["long"]["end"] < wide["end"]
    assert moved["began"][0] == "local:numpy"
    assert moved["began"][1].startswith("tcp:")
    assert moved["ended"] == ["local:numpy", "local:numpy"]
    done = run(runs, *order, "fcfs")
    assert done.returncode == 0, done.stderr
    stayed = json.loads((runs.tmp_path / "wide.json").read_text())
    assert stayed["began"] == stayed["ended"] == ["local:numpy", "local:numpy"]
    assert stayed["values"] == moved["values"]  # bit by bit
    until(lambda: not device_servers(), "the servers end")


@pytest.mark.skipif(not full(1, 0), reason="takes its time: DOVETAIL_TEST_FULL=1")
def test_a_program_that_knows_cuda_only_borrows_through_a_carrier(
    runs: Runs, cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A site's own carrier: a server of each GPU, kept by the node's lender; what is carried stays."""
    order = lending(runs, cluster, ROWS)
    library = build_library(tmp_path_factory.mktemp("carrier"))
    runs.environment = {**runs.environment, **carrying_environment(runs.tmp_path, library)}
    (runs.tmp_path / "own.toml").write_text(
        f'server = ["{sys.executable}", "{CARRIER / "server.py"}", "{{host}}"]\n'
        'server_env = { LUPINE_PORT = "{port}", CUDA_VISIBLE_DEVICES = "{device}" }\n'
        'job_env = { LUPINE_SERVER = "{servers}", LUPINE_DISABLE_LOCAL = "{alone}" }\n'
        'libraries = "LUPINE_LIBDIR"\n'
    )
    done = run(runs, *[word.replace("lend=numpy", "lend=own.toml") for word in order], "mrq")
    assert done.returncode == 0, done.stderr
    wide = {job["id"]: job for job in load(done)["jobs"]}["wide"]
    assert (wide["remote_gpus"], wide["migrations"]) == (1, 0)
    found = json.loads((runs.tmp_path / "wide.json").read_text())
    # One GPU of its own node and the one that it was lent, and nothing else.
    (own,) = found["CUDA_VISIBLE_DEVICES"].split(",")
    assert [found["names"][0], found["names"][1][:5], len(found["names"])] == [f"own {own}", "lent ", 2]
    host, _, port = found["LUPINE_SERVER"].rpartition(":")
    assert host
    assert port.isdecimal()
    until(lambda: not processes_of(str(CARRIER / "server.py")), "the servers end")


@pytest.mark.parametrize("victim", ["server", "dovetail"])
def test_a_lender_that_is_killed_and_a_dovetail(runs: Runs, cluster: RayCluster, victim: str) -> None:
    """The server: who borrowed ends, the next finds a new one. Dovetail: no server is left, nor a token."""
    order = lending(runs, cluster, KILLED)
    process = runs.go(*order, "mrq", "--quiet")
    until((runs.tmp_path / "wide.json.began").exists)
    places = [Path(words_of(pid)["--token-file"]).parent for pid in device_servers()]
    assert len(places) == 2
    assert {stat.S_IMODE((place / "token").stat().st_mode) for place in places} == {0o600}
    if victim == "server":
        (lent,) = [pid for pid in device_servers() if words_of(pid)["devices"] == "1"]
        os.kill(lent, signal.SIGKILL)
        assert process.wait(120) == 1
        rows = runs.rows()
        assert {job: row[0] for job, row in rows.items()} == {
            **dict.fromkeys(("short", "long", "late"), "COMPLETED"),
            "wide": "FAILED",
        }
        assert "the device server is gone" in rows["wide"][2]
    else:
        process.kill()
        process.wait()
    until(lambda: not device_servers(), "the servers end")
    until(lambda: not any(place.exists() for place in places), "the tokens are removed")
    if victim == "dovetail":
        assert runs.go("--resume", "--quiet").wait(120) == 1
        states = {job: row[0] for job, row in runs.rows().items()}
        assert states["short"] == states["late"] == "COMPLETED"
        assert states["long"] == states["wide"] == "NODE_FAIL"  # Ray ends what a driver has left
        assert not list(Path(tempfile.gettempdir()).glob("dovetail-*/token"))


def words_of(pid: int) -> dict[str, str]:
    """The options of a device server, and how many devices it has."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    named = dict(pairwise(words))
    return {**named, "devices": str(words.count("--device"))}


def test_a_device_that_cannot_be_opened_is_one_sentence(runs: Runs, cluster: RayCluster) -> None:
    order = lending(runs, cluster, ROWS)
    done = run(runs, *[word.replace("lend=numpy", "lend=abacus") for word in order], "mrq")
    assert done.returncode == 2
    assert "did not start: device 'abacus' is not known" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(Path(tempfile.gettempdir()).glob("dovetail-*/token"))
    until(lambda: not device_servers(), "the servers end")


HOLDER = """
import sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
holder = ray.remote(num_gpus=2, num_cpus=0)(type("Holder", (), {"hold": lambda self: True})).remote()
print(ray.get(holder.hold.remote()), flush=True)
time.sleep(300)
"""


def test_gpus_that_others_use_are_not_waited_for_for_ever(runs: Runs, cluster: RayCluster) -> None:
    order = lending(runs, cluster, ROWS)
    command = [sys.executable, "-c", HOLDER, cluster.address]
    with subprocess.Popen(command, env=runs.environment, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        done = run(runs, *[word.replace("lend=", "patience=5&lend=") for word in order], "mrq")
        other.kill()
    assert done.returncode == 3
    assert "Ray did not give this run the GPUs of its nodes within 5 s" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    until(lambda: not device_servers(), "the servers end")
