"""The sharing penalty measured with two real processes; how large it is, is the machine's affair."""

from __future__ import annotations

import json
import os

import pytest

from dovetail.errors import InputError
from dovetail_lab.apps.bench.sharing import PAIRS, Sharing, measure_sharing, read_sharing
from dovetail_lab.commands import bench

needs_two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="two jobs share two cores at least"
)


def test_the_penalty_is_beside_over_alone() -> None:
    found = Sharing("a", "b", "opencl", True, (1.0, 2.0), (1.1, 2.4))
    assert found.mean_penalty == pytest.approx(3.5 / 3 - 1)
    assert found.penalty is not None
    assert found.penalty.mean == pytest.approx(0.15)


@pytest.mark.live
@needs_two_cores
def test_two_real_apps() -> None:
    """The neighbour runs on NumPy here: any machine has that."""
    before = os.sched_getaffinity(0)
    found = measure_sharing("reduction", "matmul", device="cpu", rounds=1, repeat=1, lead=0.5)
    assert [one.pinned for one in found] == [True, False]
    assert all(one.alone[0] > 0 and one.beside[0] > 0 and one.control[0] > 0 for one in found)
    assert all(one.on_cores and not one.shows_effect for one in found)
    assert os.sched_getaffinity(0) == before


def test_the_command_shows_and_prints_json(monkeypatch, capsys) -> None:
    rounds = [
        Sharing("matmul", "sobel", "opencl", pinned, (1.0, 1.0), (1.04, 1.06)) for pinned in (True, False)
    ]
    monkeypatch.setattr(bench, "measure_pairs", lambda *_, **__: rounds)
    bench.bench_sharing(quiet=True)
    shown = capsys.readouterr().out
    assert "+5.0%" in shown
    assert "EM beside GK +4.3%, EM beside PR +6.8%, PR beside GK +2.4%" in " ".join(shown.split())
    assert "sharing-penalty?pairs=matmul/sobel:0.050" in shown
    bench.bench_sharing(as_json=True)
    printed = capsys.readouterr().out
    assert json.loads(printed)[0]["penalty"] == pytest.approx(0.05)
    assert read_sharing(printed, "printed") == rounds


def test_a_machine_shows_the_figure_only_with_a_device_of_its_own_and_a_quiet_control() -> None:
    def found(control: tuple[float, ...], on_cores: bool = False) -> Sharing:
        return Sharing("em", "pagerank", "cuda", True, (1.0, 1.0, 1.0), (1.05, 1.06, 1.07), control, on_cores)

    assert found((0.99, 1.0, 1.01)).shows_effect
    assert not found((1.1, 1.1, 1.11)).shows_effect
    assert not found((0.99, 1.0, 1.01), on_cores=True).shows_effect
    assert found(()).shows_effect
    assert read_sharing(json.dumps([found((1.0, 1.0, 1.0)).as_dict()]), "x")[0].control == (1.0, 1.0, 1.0)


def test_the_three_pairs_are_those_of_the_paper(monkeypatch, capsys) -> None:
    asked = []

    def measured(pairs, **_):
        asked.extend(pairs)
        return [Sharing(*pair, "opencl", True, (1.0,), (1.1,)) for pair in pairs]

    monkeypatch.setattr(bench, "measure_pairs", measured)
    bench.bench_sharing(figure_8=True, quiet=True)
    assert asked == [(pair.cpu_app, pair.device_app) for pair in PAIRS]
    assert [pair.penalty for pair in PAIRS] == [0.043, 0.068, 0.024]
    shown = capsys.readouterr().out
    assert all(f"{pair.cpu_app}/{pair.device_app}:0.100" in shown for pair in PAIRS)


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"cpu_app": "a"}]', "3"])
def test_a_file_that_is_no_measurement_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"runs\.json: found"):
        read_sharing(text, "runs.json")


@needs_two_cores
def test_failures_are_one_sentence() -> None:
    with pytest.raises(InputError, match="found 'nosuch', expected one of"):
        measure_sharing("nosuch")
    with pytest.raises(InputError, match="app matmul failed"):
        measure_sharing("reduction", "matmul", device="nosuch", rounds=1, repeat=1, lead=2.0)
