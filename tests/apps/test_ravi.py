"""The thirteen apps of Ravi 2012: each beside a known answer, and its forms and devices beside each other."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail_lab.apps.devices import open_device
from dovetail_lab.apps.interfaces import Array, Device
from dovetail_lab.apps.ravi import (
    binomialoptions,
    blackscholes,
    em,
    fdtd,
    gridding,
    imageprocessing,
    kmeans,
    knn,
    moleculardynamics,
    montecarlo,
    pagerank,
    pca,
    pdesolver,
)
from dovetail_lab.apps.registry import RAVI, bind_iterations, load_implementation, run_app
from dovetail_lab.published.ravi_single import FIG_1

SMALL = {"moleculardynamics": 6, "kmeans": 3001, "pca": 3001, "em": 2001, "knn": 3001, "pagerank": 1001}
"""Sizes where 67 would be too few."""


def made(name: str, n: int | None = None, seed: int = 1) -> tuple[Array, ...]:
    size = SMALL.get(name, 67) if n is None else n
    return load_implementation(name).inputs(size, np.random.Generator(np.random.PCG64(seed)))


def close(got: Array, expected: Array, tolerance: float) -> None:
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * float(np.abs(expected).max()))


@pytest.fixture(scope="module")
def both(opencl: Device) -> Device:
    return open_device("cpu+opencl")


# ------------------------------------------------------------------------------------- forms and devices


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("name", RAVI)
def test_opencl_agrees_with_cpu(name: str, iterations: int, cpu: Device, opencl: Device) -> None:
    inputs = made(name)
    before = [array.copy() for array in inputs]
    app = bind_iterations(name, iterations)
    expected, _ = cpu.run(app, inputs)
    got, timing = opencl.run(app, inputs)
    close(got, expected, RAVI[name].tolerance)
    assert timing.kernel_seconds > 0
    assert timing.bytes_to_device > 0
    for array, copy in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("name", [n for n in RAVI if hasattr(load_implementation(n), "array_api")])
def test_the_array_api_source_keeps_to_the_standard(name: str, cpu: Device, strict: Device) -> None:
    inputs, app = made(name), bind_iterations(name, 2)
    close(strict.run(app, inputs)[0], cpu.run(app, inputs)[0], RAVI[name].tolerance)


@pytest.mark.parametrize("name", [n for n in RAVI if hasattr(load_implementation(n), "both")])
def test_core_and_device_at_once_make_the_same(name: str, cpu: Device, both: Any) -> None:
    inputs, app = made(name), bind_iterations(name, 3)
    close(both.run(app, inputs)[0], cpu.run(app, inputs)[0], RAVI[name].tolerance)
    assert "% of the data on the cpu" in both.device_name


class Ranks:
    """What a program asks of a communicator to find its part of the data."""

    size = 2

    def __init__(self, rank: int) -> None:
        self.rank = rank


@pytest.mark.parametrize("name", [n for n, spec in RAVI.items() if spec.nodes])
def test_the_parts_of_two_ranks_make_the_whole(name: str) -> None:
    """What MPI adds up; that it does is shown on a real Slurm (tests/end_to_end/test_ravi_gangs.py)."""
    sweeps, inputs = load_implementation(name).SWEEPS, made(name)  # type: ignore[attr-defined]
    state = sweeps.start(*inputs)
    parts = [sweeps.host(state, 0, sweeps._part(inputs, Ranks(rank))) for rank in range(2)]
    close(sweeps._together(parts), sweeps.host(state, 0, inputs[: sweeps.divided]), 1e-6)


# ----------------------------------------------------------------------------------------- known answers


def mode(n: int, p: int, q: int) -> tuple[Array, float, float]:
    """sin sin on the inner points of a square, and the two angles from one point to the next."""
    a, b = math.pi * p / (n + 1), math.pi * q / (n + 1)
    i = np.arange(1, n + 1)
    return np.outer(np.sin(a * i), np.sin(b * i)).astype(np.float32), a, b


def test_jacobi_shrinks_an_eigenfunction_by_its_eigenvalue() -> None:
    """From zero, u after k sweeps is -f / 4 (1 - c^k) / (1 - c)."""
    f, a, b = mode(40, 2, 3)
    c = (math.cos(a) + math.cos(b)) / 2
    got = pdesolver.cpu(np.zeros((42, 42), np.float32), f, 50)
    close(got, -f / 4 * (1 - c**50) / (1 - c), 1e-5)


def test_a_bright_pixel_becomes_the_binomial_coefficients() -> None:
    framed = np.zeros((25, 25), np.float32)
    framed[12, 12] = 1
    row = np.array([math.comb(8, k) for k in range(9)]) / 2**8
    close(imageprocessing.cpu(framed, 2)[6:15, 6:15], np.outer(row, row), 1e-6)


def test_a_standing_wave_has_the_frequency_of_the_scheme() -> None:
    """2 - 2 cos w = 4 S^2 (sin^2 a/2 + sin^2 b/2); the magnetic field starts half a step earlier."""
    e, a, b = mode(30, 1, 2)
    w = math.acos(1 - 2 * fdtd.COURANT**2 * (math.sin(a / 2) ** 2 + math.sin(b / 2) ** 2))
    for steps in (1, 37):
        close(fdtd.cpu(np.pad(e, 1), steps), e * math.cos((steps + 0.5) * w) / math.cos(w / 2), 2e-4)


def closed_form(s: Array, k: Array, t: Array, rate: float, volatility: float) -> Array:
    from scipy.special import ndtr

    d1 = (np.log(s / k) + (rate + volatility**2 / 2) * t) / (volatility * np.sqrt(t))
    return np.asarray(s * ndtr(d1) - k * np.exp(-rate * t) * ndtr(d1 - volatility * np.sqrt(t)))


def test_black_and_scholes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hull's example: a call of 4.76 and a put of 0.81."""
    inputs = made("blackscholes")
    got = blackscholes.cpu(*inputs)
    expected = closed_form(*(x.astype(float) for x in inputs), blackscholes.RATE, blackscholes.VOLATILITY)
    close(got[0], expected, 1e-6)
    monkeypatch.setattr(blackscholes, "RATE", 0.1)
    monkeypatch.setattr(blackscholes, "VOLATILITY", 0.2)
    one = [np.array([x], np.float32) for x in (42, 40, 0.5)]
    assert blackscholes.cpu(*one)[:, 0] == pytest.approx([4.76, 0.81], abs=0.005)


def test_an_american_put_on_a_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hull's example, five steps: 4.49; never below what exercising at once gives."""
    monkeypatch.setattr(binomialoptions, "STEPS", 5)
    one = [np.array([x], np.float32) for x in (50, 50, 5 / 12)]
    assert binomialoptions.cpu(*one)[0] == pytest.approx(4.49, abs=0.005)
    spot, strike, years = made("binomialoptions")
    assert (binomialoptions.cpu(spot, strike, years, 4) >= strike - spot - 1e-4).all()


def test_means_over_paths_come_near_the_closed_form() -> None:
    inputs = made("montecarlo", 200)
    options = [x.astype(float) for x in inputs[:3]]
    expected = closed_form(*options, montecarlo.RATE, montecarlo.VOLATILITY)
    got = montecarlo.cpu(*inputs, 64)
    assert np.abs(got - expected).max() < 0.02 * expected.max()
    assert np.abs(got - expected).max() < 0.5 * np.abs(montecarlo.cpu(*inputs, 1) - expected).max()


def test_lloyd_finds_the_places_that_points_were_made_around() -> None:
    from scipy.spatial import cKDTree

    points, guess = made("kmeans", 8000)
    places = kmeans.cpu(points, guess, iterations=10)
    nearest = cKDTree(places).query(points)[1]
    means = np.array(
        [points[nearest == c].mean(axis=0) if (nearest == c).any() else places[c] for c in range(16)]
    )
    close(places, means, 5e-3)


def test_nearest_neighbours_are_those_of_a_tree() -> None:
    from scipy.spatial import cKDTree

    (points,) = made("knn")
    expected = cKDTree(points).query(knn.query_points(5), k=knn.NEIGHBOURS)[0]
    close(knn.cpu(points, 5), expected, 1e-5)
    assert knn.cpu(points[:4], 2).shape == (2, 4)


def test_main_directions_are_eigenvectors_of_the_covariance() -> None:
    data, guess = made("pca")
    values, vectors = np.linalg.eigh(np.cov(data.astype(float).T, bias=True))
    found = pca.cpu(data, guess, iterations=60)
    np.testing.assert_allclose(found[-1], values[::-1][:4], rtol=1e-3)
    np.testing.assert_allclose(np.abs(np.sum(found[:-1] * vectors[:, ::-1][:, :4], axis=0)), 1, atol=1e-3)


def test_forces_are_the_slope_of_the_potential_and_momentum_stays() -> None:
    place, speed, neighbours, side = made("moleculardynamics")

    def energy(at: Array) -> float:
        away = at[:, neighbours] - at[:, None, :]
        away -= side * np.round(away / side)
        squares = (away**2).sum(axis=0)
        return float((4 * (squares**-6 - squares**-3)).sum() / 2)

    exact = place.astype(float)
    got = moleculardynamics.atom_forces(np, exact, neighbours, side)
    for axis, atom in ((0, 0), (2, 100)):
        moved = [exact.copy(), exact.copy()]
        moved[0][axis, atom] -= 1e-5
        moved[1][axis, atom] += 1e-5
        assert got[axis, atom] == pytest.approx((energy(moved[0]) - energy(moved[1])) / 2e-5, rel=1e-4)
    after = moleculardynamics.cpu(place, speed, neighbours, side, 20)
    np.testing.assert_allclose(after[1].sum(axis=1), speed.sum(axis=1), atol=1e-2)
    before = energy(exact) + float((speed.astype(float) ** 2).sum()) / 2
    assert energy(after[0].astype(float)) + float((after[1] ** 2).sum()) / 2 == pytest.approx(
        before, rel=2e-3
    )
    with pytest.raises(InputError, match="expected at least 5"):
        run_app("moleculardynamics", n=4)


def test_a_visibility_on_a_cell_is_spread_as_the_table_says() -> None:
    places, values = np.array([[10, -20.5]], np.float32), np.array([[2, -1]], np.float32)
    grid = gridding.cpu(places, values)
    x, y = 256 + 10, 256 - 21
    weights = gridding.convolution_table()
    patch = np.outer(weights[4], weights[0])
    close(grid[:, y - 3 : y + 4, x - 3 : x + 4], np.stack([2 * patch, -patch]), 1e-6)
    assert grid[0].sum() == pytest.approx(2, rel=1e-5)


def test_em_finds_the_mixture_and_never_loses_likelihood() -> None:
    from scipy.optimize import linear_sum_assignment

    points, guess = made("em", 6000)
    states = [em.cpu(points, guess, iterations=k) for k in range(1, 8)]
    likelihoods = [state[-1, 0] for state in states]
    assert all(b >= a - 1e-6 for a, b in itertools.pairwise(likelihoods))
    found = em.cpu(points, guess, iterations=60)[:-1]
    assert found[:, 0].sum() == pytest.approx(1, rel=1e-6)
    rng = np.random.Generator(np.random.PCG64(1))
    true = rng.random((8, 4)) * 10 - 5
    apart = np.linalg.norm(found[:, None, 1:5] - true, axis=2)
    rows, columns = linear_sum_assignment(apart)
    assert np.median(apart[rows, columns]) < 0.1


def test_ranks_are_the_eigenvector_of_the_web() -> None:
    (links,) = made("pagerank", 60)
    web = np.zeros((60, 60))
    for page, sources in enumerate(links):
        np.add.at(web[page], sources, 1)
    leaving = web.sum(axis=0)
    web = np.where(leaving > 0, web / np.maximum(leaving, 1), 1 / 60)
    values, vectors = np.linalg.eig(0.85 * web + 0.15 / 60)
    expected = np.real(vectors[:, np.argmax(np.real(values))])
    close(pagerank.cpu(links, iterations=100)[0], expected / expected.sum(), 1e-5)


# ---------------------------------------------------------------------------------------------- the table


def test_times_of_the_paper_are_those_of_figure_1() -> None:
    for spec, row in zip(RAVI.values(), FIG_1, strict=False):
        assert spec.paper_name == row.app
        assert spec.paper_gpu_milliseconds == pytest.approx(1000 * row.sequential / row.gpu, abs=1)
        assert spec.paper_cpu_milliseconds == pytest.approx(1000 * row.sequential / row.cpu, abs=1)
    assert [name for name, spec in RAVI.items() if spec.nodes] == ["gridding", "em", "pagerank"]


def test_iterations_are_an_option_of_these_apps_alone() -> None:
    assert run_app("pdesolver", n=16, iterations=2).as_dict()["iterations"] == 2
    assert run_app("pdesolver", n=16).iterations == 8
    assert "iterations" not in run_app("reduction", n=16).as_dict()
    with pytest.raises(InputError, match="reduction takes none"):
        run_app("reduction", n=16, iterations=2)
    with pytest.raises(InputError, match="expected one or more"):
        run_app("fdtd", n=16, iterations=0)
    with pytest.raises(InputError, match="no array-API source"):
        run_app("kmeans", "numpy", n=16)


def test_one_node_apps_refuse_ranks(monkeypatch: pytest.MonkeyPatch, opencl: Device) -> None:
    with pytest.raises(InputError, match="for the apps that run on several nodes"):
        run_app("fdtd", "cpu+opencl", n=16)
    monkeypatch.setenv("DOVETAIL_RANKS", "2")
    with pytest.raises(InputError, match="fdtd runs on one node"):
        run_app("fdtd", n=16)
