"""Who follows a page word by word: in a folder of their own, with the programs that it names."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dovetail_command import DOVETAIL
from shown_commands import blocks

__all__ = ["Stranger"]

PROMPT = re.compile(r"^(?:login)?\$ ", re.MULTILINE)
"""What stands before a command that a person types: the host's name where the page has several."""


class Stranger:
    """What ``page`` shows before its first chapter is typed in ``folder``, block by block.

    The first block that begins with ``cat commands.txt`` is that file; its programs say on which node they
    run. ``dovetail`` is found in PATH.
    """

    def __init__(self, page: Path, folder: Path, environment: Mapping[str, str]) -> None:
        shown = blocks(page.read_text(encoding="utf-8").partition("\n## ")[0])
        (listed,) = (block for block in shown if PROMPT.sub("", block).startswith("cat commands.txt\n"))
        self._folder = folder
        self.blocks = [PROMPT.sub("", block) for block in shown if block != listed]
        (folder / "commands.txt").write_text(listed.partition("\n")[2])
        for name in ("train.py", "render.py"):
            (folder / name).write_text("import os; print(os.environ['DOVETAIL_NODES'])")
        command = folder / "bin" / "dovetail"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {shlex.join(DOVETAIL)} "$@"\n')
        command.chmod(0o755)
        self._environment = {**environment, "PATH": f"{command.parent}{os.pathsep}{environment['PATH']}"}

    def types(self, text: str) -> str:
        """What a shell says to these lines, all of which must work."""
        with (self._folder / "said").open("w+") as said:  # no pipe: what goes on behind it would hold it
            done = subprocess.run(
                ["bash", "-ec", text],
                cwd=self._folder,
                env=self._environment,
                stdout=said,
                stderr=said,
                timeout=250,
                check=False,
            )
            said.seek(0)
            text = said.read()
        assert done.returncode == 0, text
        return text
