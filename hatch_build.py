"""What a build adds to the package: compiled kernels, man pages, completions, a unit of systemd, the README.

`src/dovetail/native/*.c` is compiled where a C compiler is; the package is complete without it. Man pages
and completions are there when ``tools/share.py build/share`` has made them (``make dist``).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

FLAGS = ["-std=c11", "-O2", "-ffp-contract=off", "-shared", "-fPIC"]
"""No contraction: every sum is rounded as Python rounds it."""


class Readme(MetadataHookInterface):
    """README.md for an index, which has none of the files that it links to."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called before metadata are written."""
        source = metadata["urls"]["Source"]
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = re.sub(r"(!\[[^]]*\]\()(?!https?:)", rf"\1{source}/raw/main/", text)
        text = re.sub(r"(?<!!)(\[[^]]*\]\()(?!https?:)", rf"\1{source}/blob/main/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class Built(BuildHookInterface[Any]):
    """Makes ``_native.so`` beside its sources, puts ``share`` and ``build/share`` where systems look."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel or a source archive is built."""
        made = Path(self.root) / "build" / "share"
        shares = made.is_dir() and version != "editable"
        if self.target_name == "sdist":
            if shares:
                build_data["force_include"][str(made)] = "build/share"
            return
        if shares:
            build_data["shared_data"][str(made)] = "share"
        if self._compiled():
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{_platform()}"
            build_data["artifacts"].append("src/dovetail/native/_native.so")

    def _compiled(self) -> bool:
        folder = Path(self.root) / "src" / "dovetail" / "native"
        made = folder / "_native.so"
        made.unlink(missing_ok=True)
        compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            self.app.display_warning("no C compiler: large simulations and searches are slower")
            return False
        command = [compiler, *FLAGS, "-o", str(made), *map(str, sorted(folder.glob("*.c"))), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.app.display_warning(f"native/*.c does not compile here: {done.stderr.strip()}")
        return done.returncode == 0


def _platform() -> str:
    from packaging.tags import sys_tags

    return next(iter(sys_tags())).platform
