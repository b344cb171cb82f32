"""An mpi4py that is there and cannot load its library is not called missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dovetail.errors import InputError
from dovetail.extras import MissingExtra
from dovetail_lab.apps import registry


def _spec() -> registry.AppSpec:
    return next(spec for spec in registry.RAVI.values() if spec.nodes)


def test_a_library_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "mpi4py"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "MPI.py").write_text(
        "raise ImportError('libmpi.so.12: cannot open shared object file: No such file or directory')"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mpi4py", raising=False)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    monkeypatch.setenv("DOVETAIL_RANKS", "2")
    with pytest.raises(InputError, match=r"mpi4py is installed and cannot load .*: libmpi\.so\.12") as caught:
        registry._communicator_of_ranks(_spec())
    assert not isinstance(caught.value, MissingExtra)


def test_what_is_not_installed_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setenv("DOVETAIL_RANKS", "2")
    with pytest.raises(MissingExtra, match="pip install"):
        registry._communicator_of_ranks(_spec())
