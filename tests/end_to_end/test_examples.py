"""The examples' stored output is what they print now."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.testing.builders import full

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def test_what_if_prints_what_its_page_says() -> None:
    spec = importlib.util.spec_from_file_location("what_if_make", EXAMPLES / "what-if" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page() == (EXAMPLES / "what-if" / "README.md").read_text(encoding="utf-8")


@pytest.mark.live
@pytest.mark.xdist_group("live")
@pytest.mark.skipif(not full(1, 0), reason="runs for a minute: DOVETAIL_TEST_FULL=1")
def test_the_demo_comes_to_its_end(tmp_path: Path) -> None:
    """What `make demo` runs, with fewer rounds."""
    pytest.importorskip("pyopencl")
    command = [
        sys.executable,
        EXAMPLES / "demo" / "demo.py",
        "--full",
        "--rounds",
        "1",
        "--orders",
        "1",
        "--out",
        tmp_path,
    ]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    table = done.stdout.partition("3. What came out")[2]
    assert "makespan" in table
    assert "gpu-only" in table
    assert (tmp_path / "index.html").exists()


@pytest.mark.live
@pytest.mark.xdist_group("live")
@pytest.mark.timeout(300)
@pytest.mark.skipif(not full(1, 0), reason="runs for a minute: DOVETAIL_TEST_FULL=1")
def test_packs_of_real_programs_run_from_nothing(tmp_path: Path) -> None:
    """Measured, planned, run in four ways; with smaller inputs and one round."""
    command = [sys.executable, EXAMPLES / "packs" / "packs.py", "--shrink", "0.15", "--rounds", "1"]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    plan, _, table = done.stdout.partition("of one after another")
    assert plan.count("learning, ") == 2
    assert "plan: " in plan
    jobs = re.findall(r"(?:matmul|sobel)-\d \((?:one core|two cores), \d+\.\d s\)", plan)
    assert len(jobs) == 6
    seconds = dict(re.findall(r"(?m)^(one after another|easy|packs|list) +(\d+\.\d)", table))
    assert set(seconds) == {"one after another", "easy", "packs", "list"}
    assert all(float(s) > 0 for s in seconds.values())
