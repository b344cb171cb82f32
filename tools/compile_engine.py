"""Compile the engine's hottest modules ahead of time, into a copy of the packages beside the source tree.

    make compiled
    PYTHONPATH=build/compiled .venv/bin/dovetail simulate LOG.swf --policy easy

What is compiled is the source as it stands, by mypyc, which comes with mypy; it needs a C compiler and
setuptools. Policies and the model stay Python. Nothing needs the copy: see docs/decisions/053.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parents[1]
TARGET = HERE / "build" / "compiled"
MODULES = [
    *(
        f"dovetail/engine/{name}.py"
        for name in (
            "admission", "books", "capacity", "changes", "core", "cores", "deciding", "driver", "ended",
            "gangs", "horizon", "lately", "like_jobs", "occupancy", "predictions", "profiles", "progress",
            "promises", "queue", "shadow", "simulate", "view",
        )
    ),
    "dovetail/model/ways.py",
    "dovetail/model/workload.py",
    "dovetail/runtimes/perfect.py",
]  # fmt: skip
SPELT_OUT = [
    *(f"dovetail/model/{name}.py" for name in ("decision", "event", "job", "record")),
    "dovetail/policies/easy.py",
    "dovetail/policies/fcfs.py",
]
"""Modules of dataclasses that mypyc takes once they are `spelt_out`."""
# A class of which Python makes objects, or subclasses: without these mypyc (2.4) would call no __init__ then.
NATIVE = "@mypyc_attr(serializable=True, allow_interpreted_subclasses=True)"
HEAD = """from __future__ import annotations
from dataclasses import _dataclass_getstate, _dataclass_setstate  # type: ignore[attr-defined]
from mypy_extensions import mypyc_attr
"""
TAIL = """
setattr({name}, "__annotations__", {annotations})
setattr({name}, "__getstate__", _dataclass_getstate)
setattr({name}, "__setstate__", _dataclass_setstate)
"""
SETUP = """
from mypyc.build import mypycify
from setuptools import setup

modules = mypycify(["--config-file", "mypy.ini", *{modules!r}], opt_level="2", debug_level="0")
setup(name="dovetail-compiled", ext_modules=modules)
"""
CONFIG = """
[mypy]
strict = true
follow_imports = silent
ignore_missing_imports = true
"""


def spelt_out(source: str) -> str:
    """The module with what its dataclasses do at run time written out, which else would stay Python.

    Each gets an ``__init__``, but those with fields that say more than a default. Class variables, in which
    mypyc sees fields, are set afterwards; so are annotations, which it shortens, and what pickle calls.
    """
    lines, tail = source.splitlines(), ""
    for found in reversed(ast.parse(source).body):
        if not isinstance(found, ast.ClassDef) or not found.decorator_list:
            continue
        fields = [line for line in found.body if isinstance(line, ast.AnnAssign)]
        for line in [line for line in fields if "ClassVar" in ast.unparse(line.annotation)]:
            assert line.value is not None
            tail += f"setattr({found.name}, {ast.unparse(line.target)!r}, {ast.unparse(line.value)})\n"
            lines[line.lineno - 1] = ""
            fields.remove(line)
        annotations = {ast.unparse(line.target): ast.unparse(line.annotation) for line in fields}
        tail += TAIL.format(name=found.name, annotations=annotations)
        if fields and not any(isinstance(line.value, ast.Call) for line in fields):
            frozen = "frozen=True" in ast.unparse(found.decorator_list[-1])
            lines[fields[-1].end_lineno : fields[-1].end_lineno] = [
                f"    def __init__(self, {', '.join(map(ast.unparse, fields))}) -> None:",
                *(f"        self.{name} = {name}{'  # type: ignore[misc]' * frozen}" for name in annotations),
            ]
        lines.insert(found.decorator_list[0].lineno - 1, NATIVE)
    return "\n".join(lines).replace("from __future__ import annotations\n", HEAD, 1) + "\n" + tail


def main() -> int:
    """Make the copy anew, and compile in it."""
    shutil.rmtree(TARGET, ignore_errors=True)
    for package in ("dovetail", "dovetail_lab"):
        shutil.copytree(
            HERE / "src" / package, TARGET / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for module in SPELT_OUT:
        (TARGET / module).write_text(spelt_out((TARGET / module).read_text()))
    (TARGET / "setup.py").write_text(SETUP.format(modules=[*MODULES, *SPELT_OUT]))
    (TARGET / "mypy.ini").write_text(CONFIG)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    return subprocess.run(command, cwd=TARGET, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
