"""The page that holds Dovetail beside others: ours is never longer, its commands are typed, theirs too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typed_pages import typed

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "beside-others.md"
NONE = "–"
COLUMNS = ("Dovetail", "task-spooler", "GNU parallel", "pueue", "Slurm")


def table() -> dict[str, dict[str, list[str]]]:
    """For each task the commands of each tool, empty where it has none."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    heads, _, *rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert tuple(heads[1:]) == COLUMNS
    found = {}
    for task, *cells in rows:
        assert all(cell == NONE or re.fullmatch(r"`[^`]+`(; `[^`]+`)*", cell) for cell in cells), task
        commands = [re.findall(r"`([^`]+)`", cell) for cell in cells]
        found[task] = dict(zip(COLUMNS, commands, strict=True))
    return found


def test_there_are_twelve_tasks_and_ours_is_never_longer() -> None:
    tasks = table()
    assert len(tasks) == 12
    for task, by_tool in tasks.items():
        assert len(by_tool["Dovetail"]) == 1, task
        assert all(len(by_tool["Dovetail"]) <= len(other) for other in by_tool.values() if other), task


def test_every_command_of_ours_is_typed_on_the_page() -> None:
    """Below the table, where the test of typed pages types them."""
    ours = {command.text.partition("  #")[0] for command in typed(PAGE)}
    assert {by_tool["Dovetail"][0] for by_tool in table().values()} <= ours


def played(commands: list[str], folder: Path, programs: tuple[str, ...]) -> list[int]:
    """The exit status of each, in one shell; skipped where a program is not installed."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: apt-get install task-spooler parallel")
    script = "".join(f'{command}\necho "@@ $?"\n' for command in commands)
    environment = {
        **os.environ,
        "TS_SOCKET": str(folder / "socket"),
        "HOME": str(folder),
        "TMPDIR": str(folder),
    }
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        timeout=100,
        check=False,
    )
    return [int(status) for status in re.findall(r"^@@ (\d+)$", done.stdout, re.MULTILINE)]


@pytest.mark.live
def test_task_spoolers_commands_do_that(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("echo a\nfalse\necho c\n")
    of = {task: by_tool["task-spooler"] for task, by_tool in table().items()}
    first = [*of["queue a command"], *of["see the queue"], *of["wait for a job"], *of["read its output"]]
    behind = [*of["run after another has ended well"], "tsp sleep 60", "tsp true", "tsp -u 3"]
    # `tsp -k` ends only what runs, and job 2 begins when job 1 has ended.
    runs = 'until [ "$(tsp -s 2)" = running ]; do sleep 0.05; done'
    ends = [*of["end a job"], *of["run a list of commands, as many at once as there are cores"]]
    commands = [*first, *behind, runs, *ends, "tsp -K"]
    # `tsp -w` has the status of the last job of the list.
    assert played(commands, tmp_path, ("tsp",)) == [0] * len(commands)


@pytest.mark.live
def test_gnu_parallels_commands_do_that(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("echo a\nfalse\necho c\n")
    of = {task: by_tool["GNU parallel"] for task, by_tool in table().items()}
    commands = [
        *of["queue a command"],
        *of["wait for a job"],
        *of["run a list of commands, as many at once as there are cores"],
        *of["run again what failed of it"],
    ]
    assert played(commands, tmp_path, ("parallel", "sem")) == [0, 0, 1, 1]
