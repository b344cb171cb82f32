"""What is an extra is said to be one, in one sentence, by everything that needs it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import dovetail
from dovetail import extras
from dovetail.cli.main import status_of
from dovetail.kernels import backfilling

PROJECT = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())["project"]
CALLED = {"array_api_compat": "array-api-compat"}
"""What a module is called on an index, where that is not its name."""


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=;~! ]", requirement)[0] for requirement in requirements}


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no extra were installed, as far as `extras` can tell."""
    monkeypatch.setattr(extras, "is_installed", lambda module: False)


def test_every_module_comes_by_the_extra_that_is_named() -> None:
    declared = {extra: _names(needs) for extra, needs in PROJECT["optional-dependencies"].items()}
    for module, extra in extras.EXTRAS.items():
        assert CALLED.get(module, module) in declared[extra], module
        assert CALLED.get(module, module) not in _names(PROJECT["dependencies"])
    everything = re.findall(r"[\w-]+", PROJECT["optional-dependencies"]["all"][0].partition("[")[2])
    assert set(everything) == set(declared) - {"all"}


def test_the_sentence_names_the_module_and_the_extra(bare: None) -> None:
    with pytest.raises(extras.MissingExtra, match=r"pip install 'dovetail-scheduler\[plots\]'"):
        extras.need_module("matplotlib", "a chart")
    with (
        pytest.raises(ImportError, match=r"^a loop needs scipy, .*\[statistics\]"),
        extras.needing_extra("a loop"),
    ):
        raise ModuleNotFoundError("no", name="scipy.stats")
    with pytest.raises(ModuleNotFoundError, match=r"^other$"), extras.needing_extra("a loop"):
        raise ModuleNotFoundError("other", name="other")


def test_what_cannot_be_drawn_is_said_before_anything_runs(
    bare: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dovetail.report.report.need_module", extras.need_module)
    monkeypatch.chdir(tmp_path)
    command = ["simulate", "synthetic:", "--cluster", "4x1cpu", "--gantt", "out.png"]
    assert status_of(command) == 2
    assert capsys.readouterr().err == (
        "dovetail: a chart as PNG or PDF needs matplotlib, which is not installed: "
        "pip install 'dovetail-scheduler[plots]'\n"
    )


def test_without_a_compiler_python_schedules_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def simulated(policy: str) -> list[object]:
        report = dovetail.simulate("synthetic:rigid?jobs=200&nodes=8", cluster="8x1cpu", policy=policy)
        return [(record.job.id, record.start, record.promised) for record in report.result.records]

    with_it = [simulated(policy) for policy in ("conservative", "lookahead?objective=wait")]
    for user in ("simulation.stand_in", "engine.state.profiles", "native.library"):
        monkeypatch.setattr(f"dovetail.{user}.load_library", lambda: None)
    for kernel in (backfilling.roll_outs, backfilling._expected, backfilling._futures):
        monkeypatch.setattr(kernel, "_compiled", None)
    assert [simulated(policy) for policy in ("conservative", "lookahead?objective=wait")] == with_it
