"""Commands that make much search rarely for reference cycles, and not at all when their process ends."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import atexit, gc
atexit.register(lambda: print(gc.get_freeze_count() > 0))  # after what is registered later
from dovetail.cli.main import status_of
status_of(["simulate", "synthetic:rigid?jobs=3&nodes=4", "--cluster", "4x1cpu", "--csv", "{csv}"])
print(gc.get_threshold()[0], gc.get_freeze_count())
"""


def test_nothing_is_searched_when_the_command_is_done(tmp_path: object) -> None:
    code = CODE.format(csv=f"{tmp_path}/out.csv")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split()[-3:] == ["200000", "0", "True"]


MAKING = """
import gc
from dovetail.files.garbage import no_collections
with no_collections():
    off = gc.isenabled()
    made = [[] for _ in range(10_000)]
print(off, gc.isenabled(), gc.get_count()[0] < len(made))
"""


def test_what_is_made_without_searches_counts_as_old() -> None:
    """In a process of its own: tests that ran before may have frozen what they made."""
    found = subprocess.run([sys.executable, "-c", MAKING], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True", "True"]
