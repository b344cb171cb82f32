"""Programs that know nothing of servers: the apps' array-API sources, and k-means, unchanged."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from device_servers import ENVIRONMENT, Served

import dovetail_remote
from dovetail_lab.apps.arrays import ArrayDevice
from dovetail_lab.apps.devices import Device, open_device
from dovetail_lab.apps.registry import APPS, compute_once, load_implementation

KMEANS = Path(__file__).parent.parent.parent / "examples" / "remote" / "kmeans.py"


@pytest.fixture(scope="module")
def remote(numpy_server: Served) -> Iterator[Device]:
    device = open_device(f"remote:{numpy_server.address(0)}")
    assert isinstance(device, ArrayDevice)
    yield device
    device.xp.device.close()


@pytest.mark.parametrize("name", APPS)
def test_apps_run_unchanged(name: str, remote: Device) -> None:
    inputs = load_implementation(name).inputs(33, np.random.Generator(np.random.PCG64(3)))
    expected, _ = compute_once(name, open_device("cpu"), inputs)
    found, timing = compute_once(name, remote, inputs)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    scale = float(np.max(np.abs(expected), initial=0.0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=APPS[name].tolerance * scale)
    assert timing.bytes_to_device == sum(array.nbytes for array in inputs)


def test_apps_find_their_device_in_the_environment(
    numpy_server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVETAIL_DEVICE_ADDRESSES", numpy_server.address(1))
    device = open_device("remote")
    assert isinstance(device, ArrayDevice)
    assert device.device_name.endswith(f"at {numpy_server.address(1)}")
    device.xp.device.close()


def run_kmeans(*options: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, str(KMEANS), "--points", "20000", "--clusters", "16", "--rounds", "8", *options],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=ENVIRONMENT,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_kmeans_gives_the_same_bits_wherever_it_goes(numpy_server: Served) -> None:
    here = run_kmeans()
    first, second = numpy_server.address(0), numpy_server.address(1)
    there = run_kmeans("--device", first)
    moved = [run_kmeans("--device", a, "--then", b) for a, b in ((first, second), (second, "local:numpy"))]
    assert here["device"] == "local:numpy"
    assert there["device"] == first
    assert [run["device"] for run in moved] == [second, "local:numpy"]
    assert {(run["checksum"], run["moved"]) for run in (here, there, *moved)} == {
        (here["checksum"], here["moved"])
    }


def test_kmeans_is_right() -> None:
    sys.path.insert(0, str(KMEANS.parent))
    try:
        from kmeans import kmeans
    finally:
        sys.path.pop(0)
    xp = dovetail_remote.namespace()
    rng = np.random.default_rng(4)
    points, centroids = rng.random((300, 2)), rng.random((5, 2))
    nearest = np.argmin(((points[:, None] - centroids) ** 2).sum(axis=2), axis=1)
    expected = np.array([points[nearest == k].mean(axis=0) for k in range(5)])
    found, moved = kmeans(xp, xp.asarray(points), xp.asarray(centroids))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)
    assert float(moved) == pytest.approx(np.abs(expected - centroids).max())


@pytest.mark.parametrize(("library", "least"), [("scipy", 30), ("sklearn", 22)])
def test_programs_of_other_libraries_give_what_they_give_over_numpy(
    numpy_server: Served, library: str, least: int
) -> None:
    """Thirty of SciPy and twenty-two of scikit-learn, none of which fails over NumPy."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    script = Path(__file__).parents[1] / "support" / "scipy_programs.py"
    done = subprocess.run(
        [sys.executable, str(script), numpy_server.address(), library],
        capture_output=True,
        text=True,
        timeout=300,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["failed"] == []
    assert {name: how for name, how in told["programs"].items() if how} == {}
    assert len(told["programs"]) >= least
