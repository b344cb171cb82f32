"""What helps to build: compiled modules are there, and what is written out for them says the same."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pickle
import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
TOOL = runpy.run_path(str(ROOT / "tools" / "compile_engine.py"))


def test_modules_that_are_compiled_ahead_of_time_are_there() -> None:
    modules = [*TOOL["MODULES"], *TOOL["SPELT_OUT"]]
    assert [module for module in modules if not (ROOT / "src" / module).is_file()] == []
    assert len(modules) == len(set(modules))


@pytest.mark.parametrize("path", TOOL["SPELT_OUT"])
def test_dataclasses_that_are_spelt_out_are_made_as_before(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ModuleType("spelt_out")
    monkeypatch.setitem(sys.modules, "spelt_out", made)
    exec(TOOL["spelt_out"]((ROOT / "src" / path).read_text()), made.__dict__)
    name = path.removesuffix(".py").replace("/", ".")
    kinds = [kind for kind in vars(importlib.import_module(name)).values() if dataclasses.is_dataclass(kind)]
    for kind in [kind for kind in kinds if isinstance(kind, type) and kind.__module__ == name]:
        spelt = getattr(made, kind.__name__)
        for one, other in zip(dataclasses.fields(kind), dataclasses.fields(spelt), strict=True):
            assert (one.name, repr(one.default)) == (other.name, repr(other.default))
        parameters = [inspect.signature(each).parameters.values() for each in (kind, spelt)]
        assert [(p.name, repr(p.default)) for p in parameters[0]] == [
            (p.name, repr(p.default)) for p in parameters[1]
        ]


def test_what_is_spelt_out_can_be_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ModuleType("spelt_out")
    monkeypatch.setitem(sys.modules, "spelt_out", made)
    exec(TOOL["spelt_out"]((ROOT / "src" / "dovetail/model/job.py").read_text()), made.__dict__)
    request = made.Request(3, 2)
    assert pickle.loads(pickle.dumps(request)) == request
    assert hash(pickle.loads(pickle.dumps(request))) == hash(request)
