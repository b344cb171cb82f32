"""``dovetail workload pack-nodes``: placements side by side."""

from __future__ import annotations

import json
from pathlib import Path

from dovetail.cli.main import status_of

PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
    "scheduled_time\n"
    "a,1000,0,1,500,,LS,Running,0,10,0\n"
    "b,1000,0,1,500,,LS,Running,1,10,1\n"
    "c,1000,0,2,1000,,LS,Running,2,10,2\n"
)


def test_placements_side_by_side(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the file's name is printed as it was given
    path = Path("pods.csv")
    path.write_text(PODS)
    arguments = ["workload", "pack-nodes", str(path), "--cluster", "2x8cpu+2gpu"]
    assert status_of([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [packing["placement"] for packing in found] == ["pack", "spread", "first"]
    assert [packing["placed"] for packing in found] == [3, 2, 3]
    assert [packing["waste"]["free"] for packing in found] == [1.0, 3.0, 1.0]
    assert {"gpus", "jobs", "asked", "held", "first_refused", "marks"} <= set(found[0])
    assert status_of([*arguments, "--placement", "spread"]) == 0
    out = capsys.readouterr().out
    assert "3 jobs request 3 of 4 GPUs" in out
    assert "spread            2       1.0       3.0       25.0%" in out
    assert "\npack " not in out
    assert max(map(len, out.splitlines())) <= 100


def test_demand(tmp_path, capsys):
    path = tmp_path / "pods.csv"
    path.write_text(PODS)
    arguments = ["workload", "pack-nodes", str(path), "--cluster", "4x8cpu+2gpu", "--demand", "1.0", "--json"]
    assert status_of(arguments) == 0
    assert all(packing["asked"] >= 8.0 for packing in json.loads(capsys.readouterr().out))
