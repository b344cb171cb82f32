"""Writes README.md: runs its commands and puts what they print behind them; a test keeps it current."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
COMMANDS = (
    ("What would each policy have done on one node with 8 CPUs and a GPU?",
     "dovetail compare jobs.toml --cluster 1x8cpu+1gpu --policy history,best-device,cpu-only,optimal"),
    ("What would a second GPU buy?",
     "dovetail compare jobs.toml --cluster 1x8cpu+2gpu --policy history,optimal"),
    ("And two such nodes?",
     "dovetail compare jobs.toml --cluster 2x8cpu+1gpu --policy history,optimal"),
)  # fmt: skip


def page() -> str:
    """The page, with fresh output."""
    text = "# What if\n\n`jobs.toml` is a queue with known times. (`make.py` wrote this page.)\n"
    for question, command in COMMANDS:
        program = [sys.executable, "-c", "from dovetail.cli.main import run_cli; run_cli()"]
        done = subprocess.run(
            [*program, *command.split()[1:]], cwd=HERE, text=True, capture_output=True, check=True
        )
        lines = "\n".join(f"    {line}".rstrip() for line in done.stdout.splitlines())
        text += f"\n{question}\n\n    $ {command}\n{lines}\n"
    return text


if __name__ == "__main__":
    (HERE / "README.md").write_text(page(), encoding="utf-8")
