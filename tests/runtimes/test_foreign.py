"""A runtime model of a user's own: from a file, by an entry point, and what it may not say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dovetail.cli.main import status_of
from dovetail.errors import InputError
from dovetail.history import MemoryHistory
from dovetail.interfaces import RuntimeModel
from dovetail.model import DeviceClass, Run
from dovetail.plugins import registered_entries
from dovetail.runtimes import MODELS, make_model
from dovetail.runtimes.base import Query
from dovetail.testing.conformance import RuntimeModelConformance

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "models.md"
CPU = DeviceClass("cpu", "x")
JOBS = (
    '[[app]]\nname = "a"\non = ["cpu"]\n'
    '[[job]]\napp = "a"\ninputs = { n = 3 }\ntimes = { cpu = 4 }\ncount = 2\n'
)


@pytest.fixture
def newest(tmp_path: Path) -> str:
    """The model of the docs, as a file."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    (tmp_path / "newest.py").write_text(code[1])
    return f"{tmp_path}/newest.py:Newest"


def history() -> MemoryHistory:
    return MemoryHistory(Run("a", "cpu", CPU, 1, -1, 0.0, {"n": 1.0}, float(s)) for s in (5, 7))


QUERY = Query("a", "cpu", CPU, (1, -1, 0.0), (("n", 9.0),))


def test_a_model_from_a_file_takes_options(newest: str) -> None:
    for spec, upper in ((newest, 14.0), (f"{newest}?margin=3", 21.0)):
        found = make_model(spec, history()).ask(QUERY)
        assert found is not None
        assert (found.expected, found.upper, found.basis) == (7.0, upper, "the newest run")


def test_built_in_models_are_entry_points_too() -> None:
    assert set(registered_entries("dovetail.runtimes")) == set(MODELS)


def test_commands_take_it(newest: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "j.toml").write_text(JOBS)
    (tmp_path / "in.jsonl").write_text('{"app":"a","device":"cpu","inputs":{"n":1},"seconds":7}\n')
    stored = ["--history", str(tmp_path / "h")]
    assert status_of(["history", "import", str(tmp_path / "in.jsonl"), *stored]) == 0
    capsys.readouterr()
    cluster = ["--cluster", "1x1cpu", "--model", newest, *stored]
    assert (
        status_of(["simulate", str(tmp_path / "j.toml"), *cluster, "--knowledge", "learned", "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert [job["predicted"] for job in found["jobs"]] == [7.0, 4.0]
    assert status_of(["explain", str(tmp_path / "j.toml"), *cluster, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["considered"][0]["predicted"] == 7.0
    assert status_of(["history", "predict", "a", "n=2", "--model", newest, *stored, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["expected"] == 7.0


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{folder}/none.py:Mine", "--model: found no file {folder}/none.py, expected FILE.py:ClassName"),
        ("{folder}/m.py:Other", "{folder}/m.py: found no class 'Other', expected one of Mine"),
        ("{folder}/m.py:Mine?x=1", "model {folder}/m.py:Mine: found option 'x', expected no options"),
        ("{folder}/m.py:Empty", "model {folder}/m.py:Empty: has no predict and no runs and no version"),
        ("{folder}/m.py:Picky", "model {folder}/m.py:Picky: cannot be made: "),
        ("{folder}/bad.py:Mine", "{folder}/bad.py: cannot be loaded: ZeroDivisionError"),
        ("guess", "--model: found 'guess', expected one of mean, least-squares"),
        ("mean?x=1", "model mean: found option 'x', expected no options"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path: Path, spec: str, message: str) -> None:
    (tmp_path / "bad.py").write_text("1 / 0\n")
    (tmp_path / "m.py").write_text(
        "class Mine:\n    def __init__(self, history): pass\n    predict = runs = version = None\n"
        "class Empty:\n    def __init__(self, history): pass\n"
        "class Picky:\n    pass\n"
    )
    with pytest.raises(InputError) as caught:
        make_model(spec.format(folder=tmp_path), MemoryHistory())
    assert str(caught.value).startswith(message.format(folder=tmp_path))


@pytest.mark.parametrize(
    "answer",
    ["Prediction(1e999 - 1e999, 1, 1, 'x')", "Prediction(0.0, 1.0, 1, 'x')", "Prediction(-1.0, 1.0, 1, 'x')",
     "Prediction(5.0, 1.0, 1, 'x')", "Prediction(5.0, 6.0, 1, 'x', 5.5)", "Prediction(1e999, 1.0, 1, 'x')",
     "3.0", "'soon'"],
)  # fmt: skip
def test_answers_that_no_policy_can_use_name_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    (tmp_path / "m.py").write_text(
        "from dovetail.model import Prediction\n"
        "class Mine:\n    version = 1\n    def __init__(self, history): pass\n"
        "    def runs(self, *a): return 1\n"
        f"    def predict(self, *a): return {answer}\n"
    )
    (tmp_path / "j.toml").write_text(JOBS)
    spec = f"{tmp_path}/m.py:Mine"
    status = status_of(
        [
            "simulate",
            str(tmp_path / "j.toml"),
            "--cluster",
            "1x1cpu",
            "--model",
            spec,
            "--knowledge",
            "learned",
        ]
    )
    told = capsys.readouterr().err
    assert (status, told.count("\n")) == (2, 1)
    assert told.startswith(f"dovetail: model {spec}: predicted ")


class Silent:
    """Knows what has run and never says how long anything takes."""

    def __init__(self, history: MemoryHistory) -> None:
        self._history = history

    @property
    def version(self) -> int:
        return self._history.version

    def runs(self, app: str, implementation: str, device: DeviceClass) -> int:
        return self._history.count(app, implementation, device)

    def predict(self, *asked: object) -> None:
        return None


def test_a_model_that_predicts_nothing_does_not_conform() -> None:
    class Suite(RuntimeModelConformance):
        def make(self, history: MemoryHistory) -> RuntimeModel:
            return Silent(history)

    with pytest.raises(AssertionError, match="nothing is ever predicted"):
        Suite().test_what_has_run_is_predicted()
