"""Maps on the nodes of a real Slurm allocation: unlike nodes, each worker a step of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from queues import processes_of
from slurm_cluster import NodeShape, SlurmCluster, needs_slurm
from waiting import until

from dovetail.testing.builders import full

pytestmark = [
    needs_slurm,
    pytest.mark.live,
    pytest.mark.xdist_group("live"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(not full(1, 0), reason="takes its time: DOVETAIL_TEST_FULL=1"),
]

SHAPES = (NodeShape(1, cpus=3, gpus=1), NodeShape(1, cpus=2, gpus=0, partition="p2"))
SCENARIOS = """
import json, os, signal, sys, time, warnings
import dovetail
from dovetail.errors import InputError

@dovetail.function
def where(x):
    time.sleep(0.02)
    print("printed by an item", flush=True)
    names = ("DOVETAIL_DEVICE", "CUDA_VISIBLE_DEVICES", "SLURMD_NODENAME", "DOVETAIL_CORES")
    return [x, *(os.environ.get(name) for name in names)]

@where.gpu
def _(x):
    return where.implementations["cpu"](x)

def bad(x):
    if x == 1: raise ValueError("this one is bad")
    if x == 3: os._exit(3)
    if x == 5: return __import__("threading").Lock()
    if x == 7: time.sleep(60)
    return x

found = {}
options = dict(engine="slurm", history=False, progress=False)
with warnings.catch_warnings(record=True) as noted:
    warnings.simplefilter("always")
    found["where"] = list(dovetail.map(where, range(60), workers="cpu:2,gpu:1", batch=1, **options))
    found["warned"] = [str(one.message) for one in noted if "room" in str(one.message)]
with dovetail.Workers("cpu:1", engine="slurm", address=sys.argv[1]) as workers:
    found["one"] = list(dovetail.map(where, range(4), workers=workers, history=False, ordered=True))
    found["sum"] = dovetail.map(abs, range(-50, 0), workers=workers, history=False).reduce(lambda a, b: a + b)
    rest = dict(history=False, ordered=True, errors="return", timeout=3)
    results = dovetail.map(bad, range(8), workers=workers, **rest)
    found["bad"] = [one if isinstance(one, int) else str(one).splitlines()[0] for one in results]
for words in ({"workers": "cpu:1,gpu:1", "address": "n1"}, {"address": "elsewhere"}):
    try:
        list(dovetail.map(where, [1], **options, **words))
    except InputError as error:
        found.setdefault("refused", []).append(str(error))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster(SHAPES) as cluster:
        cluster.call("scontrol", "create", "PartitionName=both", "Nodes=n0,n1", "State=UP")
        yield cluster


@pytest.fixture
def inside(slurm: SlurmCluster, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment of a shell in an allocation of both nodes; no worker is left in there at the end."""
    with slurm.allocation("-N2", "-p", "both", "--exclusive", "-t", "30") as allocated:
        yield {**environment, **allocated}
        until(lambda: not processes_of("dovetail_slurm.map_worker"), "the workers end", 20)


def test_functions_run_on_all_nodes_and_what_fails_is_named(tmp_path: Path, inside: dict[str, str]) -> None:
    (tmp_path / "scenarios.py").write_text(SCENARIOS)
    done = subprocess.run(
        [sys.executable, "scenarios.py", "n1"],
        cwd=tmp_path, env=inside, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)  # alone: what items print goes elsewhere
    assert "printed by an item" in done.stderr
    assert sorted(row[0] for row in found["where"]) == list(range(60))
    seen = {(node, device.partition(":")[0]) for _, device, _, node, _ in found["where"]}
    assert seen == {("n0", "cpu"), ("n0", "gpu"), ("n1", "cpu")}
    visible = {device.partition(":")[0]: cuda for _, device, cuda, _, _ in found["where"]}
    assert visible == {"cpu": "", "gpu": "0"}
    # Three workers of n0 hold a core each, whatever their kind.
    assert len({cores for _, _, _, node, cores in found["where"] if node == "n0"}) == 3
    (warned,) = found["warned"]
    assert "has room for 0 of gpu:1 beside the others (counts are for each node)" in warned
    assert {row[3] for row in found["one"]} == {"n1"}
    assert found["sum"] == 1275
    assert [one for one in found["bad"] if isinstance(one, int)] == [0, 2, 4, 6]
    for one, words in zip(
        [one for one in found["bad"] if not isinstance(one, int)],
        (
            "this one is bad",
            "its worker was lost",
            "the result cannot be sent back",
            "still running after 3 s",
        ),
        strict=True,
    ):
        assert words in one
    assert "room for a gpu worker" in found["refused"][0]
    assert "found node 'elsewhere', expected nodes of the allocation: n0, n1" in found["refused"][1]


def test_programs_run_there_too_and_end_with_a_dovetail_that_is_killed(
    tmp_path: Path, inside: dict[str, str]
) -> None:
    for k in range(6):
        (tmp_path / f"{k}.txt").write_text(f"{k}\n")
    command = [
        sys.executable,
        "-m",
        "dovetail",
        "map",
        "--engine",
        "slurm",
        "--workers",
        "cpu:1",
        "--out",
        "out",
    ]
    names = [f"{k}.txt" for k in range(6)]
    done = subprocess.run(
        [*command, "--cpu", "cp {in} {out}", "--json", *names],
        cwd=tmp_path, env=inside, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["tasks"] == {"cpu": 6}
    assert sorted(path.read_text() for path in (tmp_path / "out").glob("*.txt")) == [
        f"{k}\n" for k in range(6)
    ]

    (tmp_path / "again").mkdir()
    slow = [
        *command[:-1],
        "again",
        "--cpu",
        f"sh -c 'touch {tmp_path}/began; exec tail -f {tmp_path}/0.txt'",
        *names,
    ]
    with subprocess.Popen(slow, cwd=tmp_path, env=inside, stderr=subprocess.DEVNULL) as process:
        until(lambda: (tmp_path / "began").exists(), "an item begins", 60)
        process.kill()
    until(lambda: not processes_of(f"-f\0{tmp_path}"), "programs end with their workers", 30)
    assert os.path.exists(tmp_path / "began")
