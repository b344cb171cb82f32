"""The page for people who come from Slurm has the tables of today."""

from __future__ import annotations

import gzip
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from dovetail.spec.sbatch import BY_NAME, BY_VARIABLE, INPUT_VARIABLES, SBATCH_VARIABLES

ROOT = Path(__file__).parents[1]


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("slurm_tables", ROOT / "tools" / "slurm_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_specification() -> None:
    page = (ROOT / "docs" / "how-to" / "coming-from-slurm.md").read_text()
    made = tool().with_tables(page)
    assert page == made, "python tools/slurm_tables.py writes them"
    assert page.count("| `SLURM_") > 50


MANUAL = Path("/usr/share/man/man1/sbatch.1.gz")
needs_manual = pytest.mark.skipif(not MANUAL.is_file(), reason="sbatch's manual page is not installed here")


def manual(section: str) -> str:
    """A section of sbatch(1)."""
    text = gzip.decompress(MANUAL.read_bytes()).decode().replace("\\\\-", "-").replace("\\-", "-")
    sections = re.split(r"^\.SH ", text, flags=re.MULTILINE)
    return next(one for one in sections if one.strip('"').startswith(section))


@needs_manual
def test_every_variable_of_the_manual_is_in_the_table() -> None:
    names = set(re.findall(r"\\fB(S[A-Z]+_[A-Z_]+[A-Z])\\fR", manual("OUTPUT ENVIRONMENT")))
    assert len(names) > 50
    assert names - {variable.name for variable in SBATCH_VARIABLES} == set()


@needs_manual
def test_every_option_of_the_manual_is_in_the_table() -> None:
    heads = [line for line in manual("OPTIONS").splitlines() if line.startswith("\\fB")]
    names = {name for line in heads for name in re.findall(r"--([a-z][a-z-]+)", line)}
    assert len(names) > 90
    assert names - BY_NAME.keys() == set()


@needs_manual
def test_every_input_variable_of_the_manual_is_in_the_table() -> None:
    names = set(re.findall(r"\\fB(S[A-Z]+_[A-Z0-9_]+)(?:=\S+)?\\fR", manual("INPUT ENVIRONMENT")))
    assert len(names) > 50
    assert names >= {"SLURM_CONF", "SLURM_UMASK", "SLURM_EXIT_ERROR"}
    assert names - BY_VARIABLE.keys() - {one.name for one in INPUT_VARIABLES} == set()
