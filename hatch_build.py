"""Compiles `src/dovetail/native/rigid.c` where a C compiler is; the package is complete without it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ["-std=c11", "-O2", "-ffp-contract=off", "-shared", "-fPIC"]
"""No contraction: every sum is rounded as Python rounds it."""


class NativeBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Makes ``_rigid.so`` beside its source, newly at every build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and have the wheel name its platform; do nothing where that cannot be done."""
        folder = Path(self.root) / "src" / "dovetail" / "native"
        made = folder / "_rigid.so"
        compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
        made.unlink(missing_ok=True)
        if compiler is None:
            self.app.display_warning("no C compiler: large simulations take the engine, which is slower")
            return
        command = [compiler, *FLAGS, "-o", str(made), str(folder / "rigid.c"), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.app.display_warning(f"{folder / 'rigid.c'} does not compile here: {done.stderr.strip()}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform()}"
        build_data["artifacts"].append("src/dovetail/native/_rigid.so")


def _platform() -> str:
    from packaging.tags import sys_tags

    return next(iter(sys_tags())).platform
