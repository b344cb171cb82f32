"""README, tutorial and how-tos, typed word by word where nothing but the plain package is installed.

`make test` types some of them where modules of extras and dovetail-lab are hidden; `make test-all` types all
of them in an environment of its own with the plain wheel, without a network where that can be had.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shown_commands import blocks
from typed_pages import Typed, difference, typed

from dovetail.extras import DISTRIBUTIONS, EXTRAS
from dovetail.testing.builders import full

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorial").glob("*.md")),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
    ROOT / "docs" / "explanation" / "beside-others.md",
]
SAMPLE = ("README.md", "many-scripts.md", "coming-from-slurm.md", "beside-others.md")
# Not the tutorial: where its third run places jobs rests on measured times, which tests beside it stretch.
ABSENT = [*EXTRAS, *(f"dovetail_{name}" for name in DISTRIBUTIONS)]
HIDDEN = f"import sys\nsys.modules.update(dict.fromkeys({ABSENT!r}))\n"
STATUS = re.compile(r"# exit status (\d+)")
pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``dovetail`` and ``python`` of a plain installation."""
    folder = tmp_path_factory.mktemp("plain")
    if full(1, 0):
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(build, cwd=ROOT, capture_output=True, timeout=120, check=True)
        (wheel,) = folder.glob("*.whl")
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True, timeout=120)
        install = [str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet", str(wheel)]
        subprocess.run(install, check=True, timeout=500)
        return folder / "venv" / "bin"
    (folder / "sitecustomize.py").write_text(HIDDEN)
    (folder / "bin").mkdir()
    for name, words in (("python", ""), ("dovetail", " -m dovetail")):
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable}{words} "$@"\n')
        script.chmod(0o755)
    return folder / "bin"


def _without_network() -> list[str]:
    """What to put before a command so that it finds no network; nothing where that is not allowed."""
    alone = ["unshare", "--net", "--"]
    if not full(1, 0) or shutil.which("unshare") is None:
        return []
    return alone if not subprocess.run([*alone, "true"], capture_output=True, check=False).returncode else []


def played(commands: list[Typed], programs: Path, folder: Path) -> list[tuple[int, str]]:
    """All commands of a page in one shell, as somebody types them: status and screen of each."""
    home = folder / "home"
    home.mkdir()
    shutil.copytree(ROOT / "examples", folder / "examples")
    environment = {
        "PATH": f"{programs}{os.pathsep}/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin",
        "HOME": str(home), "COLUMNS": "80", "LANG": "C.UTF-8", "NO_COLOR": "1", "USER": "you",
        "DOVETAIL_CLAIMS": str(folder / "claims"), "XDG_RUNTIME_DIR": str(home),
    }  # fmt: skip
    mark = "@@typed@@"
    script = "exec 2>&1\n" + "".join(f'{one.text}\necho "{mark} $?"\n' for one in commands)
    (folder / "typed.sh").write_text(script)
    words = [*_without_network(), "bash", str(folder / "typed.sh")]
    try:
        done = subprocess.run(
            words, cwd=folder, env=environment, text=True, capture_output=True, timeout=280, check=False
        )
    finally:
        stop = [str(programs / "dovetail"), "serve", "--stop"]
        subprocess.run(stop, env=environment, cwd=folder, capture_output=True, timeout=60, check=False)
    parts = re.split(rf"^{mark} (\d+)\n", done.stdout, flags=re.MULTILINE)
    assert len(parts) == 2 * len(commands) + 1, done.stdout + done.stderr
    return [(int(status), screen) for screen, status in zip(parts[:-1:2], parts[1::2], strict=True)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_can_be_typed(page: Path, programs: Path, tmp_path: Path) -> None:
    if page.name not in full([page.name], SAMPLE):
        pytest.skip("types every page: make test-all")
    commands = list(typed(page))
    for one, (status, screen) in zip(commands, played(commands, programs, tmp_path), strict=True):
        seen = f"$ {one.text}\n{screen}"
        assert "Traceback" not in screen or one.needs, seen
        assert "internal error" not in screen, seen
        if one.needs:
            assert status != 0, seen
            assert f"dovetail-scheduler[{one.needs}]" in screen, seen
            continue
        expected = STATUS.search(one.text)
        assert status == (int(expected[1]) if expected else 0), seen
        assert difference(one.shown, screen) == "", seen


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_leaves_nothing_untyped(page: Path) -> None:
    """What a block shows of ours has a prompt: ``$`` here, ``login$`` and the like on another machine."""
    opening, *rest = blocks(page.read_text())
    bare = [line for block in rest for line in block.splitlines() if re.match(r"(nohup )?dovetail ", line)]
    assert bare == []
    assert "pip install dovetail-scheduler" not in opening


def test_shapes() -> None:
    shown = ["4 of 4 jobs done in 1.202 s, …", "…", "cpu  0.3  1.00x *", "here/cpu █a██ 65%"]
    came = "4 of 4 jobs done in 481.9 ms, 3 % faster\nRun 5e06f86e\ncpu   12.5 * 3.10x\nhere/cpu █b█ 99%\n"
    assert difference(shown, came) == ""
    assert difference(["policy  s  best  %  ms"], "policy   ms  best   %   s\n") == ""
    assert difference(["2 of 4 jobs done"], "none of 4 jobs done\n") == "2 of 4 jobs done"
    assert difference(["b", "a"], "a\nb\n") == "a"
