"""How fast traces are read and synthetic workloads are made; each benchmark also asserts what came out."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.model import Cluster
from dovetail.workloads.swf import swf_workload
from dovetail.workloads.swf_arrays import SwfArrays, parse_swf, read_swf_arrays
from dovetail.workloads.swf_writer import workload_as_swf
from dovetail.workloads.synthetic import rigid_arrays, synthesize_workload

LINES = 100_000


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """100,000 lines of SWF: the fixed workload of 256 nodes."""
    path = tmp_path_factory.mktemp("swf") / "rigid.swf"
    path.write_text(workload_as_swf(synthesize_workload(f"rigid?jobs={LINES}&nodes=256")))
    return path


@pytest.fixture(scope="module")
def arrays(log) -> SwfArrays:
    return read_swf_arrays(log)


def test_swf_into_arrays(benchmark, log: Path):
    """The target of this project is half a second."""
    found = benchmark(read_swf_arrays, log)
    assert len(found) == LINES
    expected = rigid_arrays(LINES, 256, 0.85, 1)
    assert (found.submit == expected.submit).all()
    assert (found.run == expected.run).all()
    assert (found.processors == expected.processors).all()
    assert (found.walltime == expected.walltime).all()


def test_swf_with_decimals_into_arrays(benchmark, log: Path):
    data = log.read_bytes().replace(b" -1 -1 -1 -1 -1\n", b" -1 -1 -1 -1 -1.0\n")
    found = benchmark(parse_swf, data, "decimals.swf")
    assert len(found) == LINES


def test_swf_with_a_malformed_line(benchmark, log: Path):
    """Leniently, the slow way: line by line."""
    data = log.read_bytes() + b"1 2 3\n"
    found = benchmark.pedantic(parse_swf, args=(data, "broken.swf"), kwargs={"lenient": True}, rounds=3)
    assert (len(found), found.skipped) == (LINES, 1)


def test_arrays_into_jobs(benchmark, arrays: SwfArrays):
    workload = benchmark(swf_workload, arrays, Cluster.uniform(256, 1))
    assert len(workload.jobs) == LINES
    assert len({job.app for job in workload.jobs}) == 7  # one for each distinct request


def test_rigid_arrays(benchmark):
    found = benchmark(rigid_arrays, LINES, 256, 0.85, 1)
    span = found.submit[-1] - found.submit[0]
    assert abs(found.processors @ found.run / 256 / span - 0.85) < 1e-6


def test_lublin(benchmark):
    workload = benchmark(
        synthesize_workload, "lublin?jobs=10000&gpus=0.5&load=0.9", Cluster.uniform(64, 16, 4)
    )
    assert len(workload.jobs) == 10_000
