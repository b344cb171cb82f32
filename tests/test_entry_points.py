"""Every entry point of every distribution loads, and what is not installed is named with its command."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from dovetail import extras, plugins
from dovetail.cli.lazy import registered_targets
from dovetail.cli.main import _whole_command, status_of

ROOT = Path(__file__).resolve().parents[1]
FILES = (ROOT / "pyproject.toml", *sorted(ROOT.glob("packages/*/pyproject.toml")))
DECLARED = [
    EntryPoint(name, value, group)
    for file in FILES
    for group, found in tomllib.loads(file.read_text())["project"].get("entry-points", {}).items()
    for name, value in found.items()
]


NAMED = {f"dovetail.{kind}" for kind in ("accounting", "commands", "crews", "executors", "policies", "rates")}
"""Groups whose names people write: what is not installed has to be told from what there is not."""


@pytest.mark.parametrize("entry", DECLARED, ids=lambda entry: f"{entry.group}-{entry.name}")
def test_every_entry_point_loads(entry: EntryPoint) -> None:
    if entry.group == "submitit":  # doors of another project, which loads them itself
        pytest.importorskip("submitit", reason="it is in the environment of `make integrations`")
    assert callable(entry.load())


def test_every_distribution_lists_what_it_registers() -> None:
    """The core's table of what its other distributions bring is what they declare."""
    for file in FILES[1:]:
        project = tomllib.loads(file.read_text())["project"]
        listed = extras.DISTRIBUTIONS.get(file.parent.name, {})
        assert NAMED & project["entry-points"].keys() <= listed.keys(), file
        for group, names in listed.items():
            declared = project["entry-points"][group]
            assert set(names) == set(declared), (file, group)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["simulate", "x.toml", "--policy", "rq"], "policy rq is in dovetail-remote, which is not installed"),
        (["run", "--executor", "slurm", "--", "true"], "executor slurm is in dovetail-slurm"),
        (["run", "--executor", "ray", "--", "true"], "executor ray is in dovetail-ray"),
        (["device-server"], "the command device-server is in dovetail-remote"),
        (["slurm-shims"], "the command slurm-shims is in dovetail-slurm"),
        (["mcp"], "the command mcp is in dovetail-integrations"),
    ],
)
def test_what_is_not_installed_is_named_with_its_command(
    words: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.toml").write_text(
        '[[app]]\nname="a"\n[[app.implementation]]\nname="cpu"\ntime=1\n[[job]]\napp="a"\n'
    )
    beside = {name for doors in extras.DISTRIBUTIONS.values() for names in doors.values() for name in names}
    known = plugins.registered_entries
    monkeypatch.setattr(
        plugins,
        "registered_entries",
        lambda group: {k: v for k, v in known(group).items() if k not in beside},
    )
    monkeypatch.setattr(
        "dovetail.cli.main.registered_targets",
        lambda group: {k: v for k, v in registered_targets(group).items() if k not in beside},
    )
    _whole_command.cache_clear()  # commands that were made before
    try:
        assert status_of(words) == 2
    finally:
        _whole_command.cache_clear()
    error = capsys.readouterr().err
    assert sentence in error
    assert "pip install 'dovetail-scheduler[" in error
