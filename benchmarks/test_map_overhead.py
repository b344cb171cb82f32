"""What giving out an item costs: maps here and on Ray beside those of others, in one run.

Peers are those of ``requirements/peers.txt`` that are installed (`map_peers`). Each runs in a process of its
own, Dovetail first and once more at the end, so that a machine that changed its pace meanwhile shows.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("map_peers.py")
NEEDS = {"joblib (loky)": "joblib", "dask": "distributed", "ray": "ray", "dovetail on ray": "ray"}
PEERS = (
    "dovetail", "multiprocessing imap", "multiprocessing imap, chunks of 1000", "concurrent.futures",
    "concurrent.futures, chunks of 1000", "joblib (loky)", "dask", "dovetail on ray", "ray",
)  # fmt: skip
OWN = ("dovetail", "dovetail on ray")


def once(name: str) -> dict[str, float]:
    """Seconds of an item, by what it is."""
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), name], capture_output=True, text=True, check=False, timeout=600
    )
    assert ran.returncode == 0, f"{name}: {ran.stderr}"
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.timeout(3000)
def test_overhead_of_an_item(benchmark: Any) -> None:
    there = [name for name in PEERS if name not in NEEDS or importlib.util.find_spec(NEEDS[name])]
    found = {name: once(name) for name in there}
    again = once("dovetail")
    benchmark.pedantic(lambda: None, rounds=1)
    print(f"\n  {'':36} {'nothing':>10} {'1 MB':>10} {'100 MB':>10}")
    for name, ours in [*found.items(), ("dovetail, at the end", again)]:
        large = [f"{ours[what] * 1e3:7.2f} ms" if what in ours else " " * 10 for what in ("1 MB", "100 MB")]
        print(f"  {name:36} {ours['nothing'] * 1e6:7.2f} us {' '.join(large)}")
    benchmark.extra_info |= found
    ours = statistics.mean((found["dovetail"]["nothing"], again["nothing"]))
    for name in there:
        if name not in OWN:  # whoever finds the best chunk by hand for items of one size does as well
            assert ours < found[name]["nothing"] * (1.5 if "chunks" in name else 1), name
    assert found["dovetail"]["1 MB"] < 0.002
    if "dovetail on ray" in found:
        assert found["dovetail on ray"]["1 MB"] < 0.005
