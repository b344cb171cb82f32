"""A kernel is compiled anew when one of another file that it calls has changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail_lab import stale as package

CALLEE = """
from numba import njit

@njit(cache=True)
def number():
    return {}
"""
CALLER = """
from numba import njit
from callee import number

@njit(cache=True)
def twice():
    return 2 * number()
"""
SAY = "from pathlib import Path; forget_stale(Path({!r})); import caller; print(caller.twice())"


def said(folder: Path, **environment: str) -> str:
    source = Path(package.__file__).read_text()
    done = subprocess.run(
        [sys.executable, "-c", f"{source}\n{SAY.format(str(folder))}"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_was_compiled_into_another_file_is_not_kept(elsewhere: bool, tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")} if elsewhere else {}
    (folder / "caller.py").write_text(CALLER)
    (folder / "callee.py").write_text(CALLEE.format(1))
    assert said(folder, **environment) == "2"
    (index,) = (tmp_path / ("cache" if elsewhere else "kernels")).glob("*/caller*.nbi")
    before = index.stat().st_mtime_ns
    assert said(folder, **environment) == "2"
    assert index.stat().st_mtime_ns == before  # kept as long as nothing changes
    (folder / "callee.py").write_text(CALLEE.format(21))
    assert said(folder, **environment) == "42"


def test_a_cache_elsewhere_is_kept_by_a_folder_that_cannot_be_written_and_by_another_copy(
    tmp_path: Path,
) -> None:
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for name, number in (("kernels", 1), ("copy/kernels", 21)):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "__pycache__").write_text("no folder")
        (folder / "caller.py").write_text(CALLER)
        (folder / "callee.py").write_text(CALLEE.format(number))
    for _ in range(2):
        assert said(tmp_path / "kernels", **environment) == "2"
        assert said(tmp_path / "copy" / "kernels", **environment) == "42"
        made = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").glob("*/*.nbi")}
    assert len(made) == 4
    assert said(tmp_path / "kernels", **environment) == "2"
    assert made == {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").glob("*/*.nbi")}


def test_a_folder_that_cannot_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "__pycache__").write_text("no folder")
    assert package.forget_stale(tmp_path)
    assert (tmp_path / "__pycache__").read_text() == "no folder"


@pytest.mark.parametrize("module", ["packing", "markthub.borrowing"])
def test_folders_of_kernels_that_call_each_other_are_looked_at(module: str, tmp_path: Path) -> None:
    folder = Path(package.__file__).parent / module.partition(".")[0]
    code = (
        f"import dovetail_lab.{module}; from dovetail_lab.stale import _cache_of; from pathlib import Path; "
    )
    code += f"print((_cache_of(Path({str(folder)!r})) / 'sources').exists())"
    environ = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
