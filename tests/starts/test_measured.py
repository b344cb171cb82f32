"""How many intervals hold on a real Slurm and on a live service, beside what these answer themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import needs_slurm

FULL = os.environ.get("DOVETAIL_TEST_FULL") == "1"
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

pytestmark = [
    pytest.mark.live,
    pytest.mark.xdist_group("live"),
    pytest.mark.skipif(not FULL, reason="takes minutes; DOVETAIL_TEST_FULL=1 runs it"),
]


def measured(script: str, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@needs_slurm
def test_a_hundred_jobs_of_a_real_slurm_beside_its_own_answers() -> None:
    found = measured("slurm_starts.py", "100")
    assert found["forecasts"] >= 30
    # Of so few forecasts, of jobs of seconds on a machine that others use, a fifth may miss by chance.
    assert found["held"] >= 0.8
    of_both = found["of_these"]
    assert found["both_answer"] >= 20
    assert of_both["ours"] < 0.5 * of_both["squeue --start"], "limits are whole minutes, jobs are seconds"


def test_an_accelerated_day_of_a_live_service() -> None:
    found = measured("service_starts.py", "60", "5")
    (week,) = found["weeks"]
    assert week["forecasts"] >= 20
    assert week["coverage"] >= 0.8
    assert week["median_abs_error"]["ours"] < 15.0, "seconds, of jobs of 3 to 20 s that wait for several"
