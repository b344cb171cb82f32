"""The array API standard's own suite, over libraries behind a server and the same libraries here.

What fails behind a server has to fail with the library in this process too, but for what `EXCUSED` lists. The
suite (data-apis/array-api-tests, pinned) is looked for beside the repository and unpacked in a temporary
folder. ``make test`` runs a sample, ``make test-all`` all of it.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from device_servers import ENVIRONMENT, serving

import dovetail_remote

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("remote")]

FULL = bool(os.environ.get("DOVETAIL_TEST_FULL"))
EXAMPLES = 25 if FULL else 2
SUPPORT = Path(__file__).parents[1] / "support"
SUITES = Path(__file__).parents[3] / "shared" / "array-api-tests"

#: What fails behind a server alone, by the name of the test, and why.
EXCUSED = {
    "test_dlpack.py::test_dunder_dlpack": "copy=False: the memory of another process cannot be exported",
}

#: What fails with each library here too, but perhaps not for the arrays that the suite draws: the function,
#: and an element for which it fails. `test_what_is_drawn_fails_here_too` holds each.
DRAWN = {
    "test_special_cases.py::test_unary[expm1((real(x_i) is +0 or real(x_i) == -0) and imag(x_i) is +0) "
    "-> 0 + 0j]": ("expm1", complex(-0.0, 0.0), "(-0+0j)"),
    "test_special_cases.py::test_unary[tanh(real(x_i) is +infinity and isfinite(imag(x_i)) "
    "and imag(x_i) > 0) -> 1 + 0j]": ("tanh", complex(math.inf, 3.0), "(1-0j)"),
}

#: What `make test` runs: where programs touch the wire most.
SAMPLE = (
    "test_array_object.py",
    "test_indexing_functions.py",
    "test_utility_functions.py",
    "test_linalg.py::test_cholesky",
    "test_linalg.py::test_solve",
    "test_manipulation_functions.py::test_reshape",
)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suite, unpacked."""
    found = sorted(SUITES.glob("array-api-tests-*.tar.gz"))
    if not found:
        pytest.skip("the array API standard's own suite is not beside the repository")
    folder = tmp_path_factory.mktemp("suite")
    with tarfile.open(found[-1]) as archive:
        archive.extractall(folder, filter="data")
    return folder / "array-api-tests"


def failures(
    suite: Path, module: str, chosen: Sequence[str], *, address: str = "", examples: int = EXAMPLES
) -> list[str]:
    """The tests that fail over a module."""
    report = suite / "failed.txt"
    report.unlink(missing_ok=True)
    environment = {
        **ENVIRONMENT,
        "ARRAY_API_TESTS_FAILED": str(report),
        "ARRAY_API_TESTS_MODULE": module,
        "DOVETAIL_DEVICE_ADDRESSES": address,
        "PYTHONPATH": os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")]),
    }
    options = ["-p", "array_api_plugin", "-p", "no:cacheprovider", "-p", "no:xdist", "--derandomize"]
    options += ["--max-examples", str(examples), "--hypothesis-disable-deadline", "-q", "--timeout", "300"]
    where = [f"array_api_tests/{name}" for name in chosen] or ["array_api_tests"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *where],
        cwd=suite,
        env=environment,
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode in (0, 1), done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout or " failed" in done.stdout
    return [line.removeprefix("array_api_tests/") for line in report.read_text().splitlines()]


def beyond(suite: Path, found: Sequence[str], here: str, address: str = "") -> list[str]:
    """Those of the failures that the library in this process does not have.

    Which arrays a few examples draw depends on the library: it has a failure if any of many examples fail.
    """
    left = list(found)
    for examples in (EXAMPLES, 200, 2000):
        if left:
            chosen = sorted({name.partition("[")[0] for name in left})
            theirs = failures(suite, here, chosen, address=address, examples=examples)
            left = [name for name in left if name not in theirs]
    return left


LIBRARIES = pytest.mark.parametrize("library", ["numpy", "torch", "opencl"])


def skip_without(library: str) -> None:
    needed = {"opencl": "pyopencl"}.get(library, library)
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")


@pytest.mark.timeout(3600)
@LIBRARIES
def test_a_server_adds_no_failure(suite: Path, tmp_path: Path, library: str) -> None:
    skip_without(library)
    if library != "numpy" and not FULL:
        pytest.skip("make test-all runs it")
    chosen = () if FULL else SAMPLE
    with serving(tmp_path, library) as served:
        found = failures(suite, "dovetail_remote.xp", chosen, address=served.address())
    found = [name for name in found if name not in EXCUSED and name not in DRAWN]
    local = (
        ("dovetail_remote.xp", "local:opencl") if library == "opencl" else (f"array_api_compat.{library}", "")
    )
    assert beyond(suite, found, *local) == []


@LIBRARIES
def test_what_is_drawn_fails_here_too(tmp_path: Path, library: str) -> None:
    skip_without(library)
    here = (
        dovetail_remote.namespace("local:opencl")
        if library == "opencl"
        else importlib.import_module(f"array_api_compat.{library}")
    )
    with serving(tmp_path, library) as served:
        there = dovetail_remote.namespace(served.address())
        for name, element, expected in DRAWN.values():
            found = [complex(getattr(xp, name)(xp.asarray(element))) for xp in (here, there)]
            assert [str(value) for value in found] == [expected, expected]
        there.device.close()


@pytest.mark.skipif(not FULL, reason="make test-all runs it")
def test_what_is_excused_still_fails(suite: Path, tmp_path: Path) -> None:
    with serving(tmp_path, "numpy") as served:
        names = list(EXCUSED)
        assert (
            sorted(failures(suite, "dovetail_remote.xp", names, address=served.address(), examples=10))
            == names
        )
