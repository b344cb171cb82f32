"""Maps on Ray: a real cluster of several nodes on this machine, and a Ray of our own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.live,
    pytest.mark.xdist_group("live"),
    # It is not imported for that: each worker of the tests would.
    pytest.mark.skipif(find_spec("ray") is None, reason="needs ray"),
]

SUPPORT = Path(__file__).parent.parent / "support"
NODES = 4 if os.environ.get("DOVETAIL_TEST_FULL") else 3


def environment(home: Path) -> dict[str, str]:
    """A token and a home of its own, so that no other cluster is meant."""
    home.mkdir(exist_ok=True)
    return {**os.environ, "HOME": str(home), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "t" * 40,
            "PYTHONPATH": str(SUPPORT), "RAY_USAGE_STATS_ENABLED": "0",
            "XDG_STATE_HOME": str(home / "state")}  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the scenarios say."""
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "ray_scenarios.py"), str(NODES)],
        env=environment(tmp_path_factory.mktemp("ray")), capture_output=True, text=True, timeout=380,
        check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def test_all_nodes_take_part_and_order_is_kept(found: dict[str, Any]) -> None:
    assert found["all_nodes"] == {"nodes": NODES, "devices": ["cpu"], "ordered": True}


def test_results_are_reduced(found: dict[str, Any]) -> None:
    assert found["reduce"] is True


def test_bad_items_are_named_and_the_others_unharmed(found: dict[str, Any]) -> None:
    assert found["failures"]["good"] == [0, 2, 4, 6, 8, 10]
    for said, message in zip(
        found["failures"]["bad"],
        (
            "item 1 ('raise'): ValueError: this one is bad",
            "item 3 ('exit'): SystemExit: the function called exit (3)",
            "item 5 ('leave'): its worker was lost: its worker process has died",
            "item 7 ('lock'): TypeError: the result cannot be sent back: cannot pickle '_thread.lock' object",
            "item 9 ('hang'): TimeoutError: still running after 2 s",
        ),
        strict=True,
    ):
        assert said.startswith(message)


def test_items_are_worked_on_where_their_data_lies(found: dict[str, Any]) -> None:
    """Forty objects, an equal part on each node; near the end nodes help each other."""
    assert found["locality"]["values"] is True
    assert found["locality"]["at_home"] >= 28


def test_a_node_that_dies_loses_no_result(found: dict[str, Any]) -> None:
    assert found["killed_node"]["once_each"] is True


def test_a_node_that_joins_is_used(found: dict[str, Any]) -> None:
    assert found["joining_node"] == {"before": NODES - 1, "used": True}


def test_gpu_workers_are_where_gpus_are(found: dict[str, Any]) -> None:
    assert found["kinds"] == ["cpu", "gpu"]


def test_what_a_node_has_no_room_for_is_said_and_what_none_has_is_refused(found: dict[str, Any]) -> None:
    (said,) = found["said"]
    assert "has room for 0 of gpu:1 beside the others (counts are for each node)" in said
    assert found["refused"] == (
        "workers: found no node of the Ray cluster with room for opencl:1 beside the others, expected one "
        "(counts are for each node)"
    )


OWN = """
import sys, time, dovetail
def f(x):
    time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0)
    return x + 1
results = dovetail.map(f, range(100), engine="ray", workers="cpu:2", ordered=True, common={})
print(next(results), flush=True)
print(sum(results), flush=True)
"""


def rays(home: Path) -> list[int]:
    """Processes of Ray that have this home."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={home}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue
    return found


def test_without_an_address_ray_is_started_here_and_stopped(tmp_path: Path) -> None:
    home = tmp_path / "home"
    script = tmp_path / "own.py"
    script.write_text(OWN.replace("float(sys.argv[1]) if len(sys.argv) > 1 else 0", "0"))
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == ["1", str(sum(range(2, 101)))], done.stderr
    deadline = time.monotonic() + 100
    while (left := rays(home)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


def test_killed_it_leaves_no_ray_behind(tmp_path: Path) -> None:
    home = tmp_path / "home"
    script = tmp_path / "own.py"
    script.write_text(OWN.replace("float(sys.argv[1]) if len(sys.argv) > 1 else 0", "0.5"))
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    assert rays(home)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=280)
    deadline = time.monotonic() + 100
    while (left := rays(home)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


def test_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for i in range(8):
        (tmp_path / "data" / f"{i}.txt").write_text(str(i))
    command = "from dovetail.cli.main import run_cli; run_cli()"
    done = subprocess.run(
        [
            *(sys.executable, "-c", command, "map", "--engine", "ray", "--workers", "cpu:1,gpu:1"),
            *("--cpu", "cp {in} {out}", "--gpu", "sh -c 'echo $DOVETAIL_DEVICE > {out}'"),
            *("--out", "results", "--json"),
            *(f"data/{i}.txt" for i in range(8)),
        ],
        cwd=tmp_path, env=environment(tmp_path / "home"), capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["items"] == 8
    texts = {(tmp_path / "results" / f"{i}.txt").read_text().strip() for i in range(8)}
    assert texts <= {"gpu:0", *map(str, range(8))}


def test_a_cluster_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    code = (
        "import dovetail\ntry: list(dovetail.map(len, ['a'], engine='ray', address='127.0.0.1:1'))\n"
        "except dovetail.InputError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path / "home"), capture_output=True, text=True,
        timeout=200, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("address 127.0.0.1:1: Ray cannot be reached: "), done.stderr
    assert done.stdout.count("\n") == 1
