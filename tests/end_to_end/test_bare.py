"""What a plain `pip install` brings: every command, and every page's first one, works or names its extra."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
FULL = bool(os.environ.get("DOVETAIL_TEST_FULL"))
NEVER = (
    "serve",
    "top",
    "dashboard",
    "device-server",
    "mcp",
    "submit",
    "wait",
    "bench-remote",
    "pack",
    "bench",
    "reproduce",
)
"""Commands that stay, are of a service, which the walk of the installed wheel has, or are dovetail-lab's."""

PROBE = """
import contextlib, io, json, sys
for module in json.loads(sys.argv[1]):
    sys.modules[module] = None  # as if it were not installed
from dovetail.cli.main import status_of
for words in json.loads(sys.argv[2]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = status_of(words)
        except SystemExit as left:
            status = left.code
    print(json.dumps([words, status, err.getvalue()]))
"""

GANG = "synthetic:rigid?jobs=60&nodes=8"
COMMANDS = [
    "run commands.txt",
    "explain",
    "runs",
    "history list",
    "history predict sleep",
    "model show sleep",
    "compare last --cluster 1x2cpu --cluster 1x4cpu",
    "run commands.txt --report out",
    "run commands.txt --gantt out.svg",
    "run commands.txt --gantt out.png",
    f"simulate '{GANG}' --cluster 8x1cpu --policy easy",
    f"simulate '{GANG}' --cluster 8x1cpu --policy conservative",
    f"simulate '{GANG}' --cluster 8x1cpu --policy lookahead",
    f"simulate '{GANG}' --cluster 8x1cpu --policy fms",
    f"compare '{GANG}' --cluster 8x1cpu --policy fcfs,easy --replicates 3",
    "simulate synthetic:lublin --cluster 8x1cpu",
    "simulate jobs.toml --cluster 1x2cpu+1gpu --policy optimal",
    "simulate jobs.toml --cluster 1x2cpu+1gpu --policy history",
    "compare jobs.toml --cluster 1x2cpu+1gpu --policy history,optimal",
    "compare commands.txt --policy history,optimal --live",
    "run commands.txt --executor ray",
    "map --cpu 'cp {in} {out}' commands.txt --out mapped",
    "map --cpu 'cp {in} {out}' commands.txt --out mapped2 --executor ray",
    f"workload describe '{GANG}'",
    "policies",
    "devices --json",
    "schema --out schemas",
    "recover",
    "split --tasks 9 --cpu-slots 2 --gpu-slots 1 --cpu-time 3 --gpu-time 1",
]
NEEDS = {".png": "plots", "lublin": "statistics", "optimal": "exact", "ray": "ray"}
JOBS = """
[[app]]
name = "mm"
[[app.implementation]]
name = "cpu"
time = 4.0
[[app.implementation]]
name = "gpu"
time = 1.0
[[job]]
app = "mm"
count = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("STATE", "CONFIG", "CACHE", "RUNTIME"):
        folder = tmp_path / name.lower()
        folder.mkdir(mode=0o700)
        monkeypatch.setenv(f"XDG_{name}_{'DIR' if name == 'RUNTIME' else 'HOME'}", str(folder))
    (tmp_path / "commands.txt").write_text("sleep 0.01\ntrue\n")
    (tmp_path / "jobs.toml").write_text(JOBS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def walked(commands: list[list[str]]) -> list[tuple[list[str], int, str]]:
    probe = [sys.executable, "-c", PROBE, json.dumps(list(EXTRAS)), json.dumps(commands)]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def test_every_command_works_or_names_its_extra(here: Path) -> None:
    for words, status, said in walked([shlex.split(command) for command in COMMANDS]):
        needs = [extra for word, extra in NEEDS.items() if any(word in one for one in words[1:])]
        if needs:
            assert status == 2, (words, said)
            assert f"pip install 'dovetail-scheduler[{needs[0]}]'" in said, (words, said)
            assert "ended after" not in said  # at once: nothing has run yet
            assert "comparing" not in said
            assert "running under" not in said
        else:
            assert status == 0, (words, said)


def firsts() -> list[list[str]]:
    """The first command of each page."""
    found = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        lines = re.findall(r"^ {4}(?:\$ )?dovetail ([^#|<>…\\\n]+)", page.read_text(), flags=re.MULTILINE)
        words = shlex.split(lines[0], comments=True) if lines else []
        if words and words[0] not in NEVER and "slurm" not in lines[0]:
            found.append(words)
    return found


@pytest.mark.skipif(not FULL, reason="takes long; DOVETAIL_TEST_FULL=1 runs it")
def test_the_first_command_of_every_page_is_no_internal_error(here: Path) -> None:
    pages = firsts()
    assert len(pages) > 15
    for words, status, said in walked(pages):
        assert status in (0, 1, 2), (words, said)
        assert "internal error" not in said
        assert "No module named" not in said


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, capture_output=True, timeout=120, check=True)
    (found,) = folder.glob("*.whl")
    return found


def installed(python: str, wheel: str) -> str:
    """A new environment with the wheel, and what of its extras is named behind it; the command there."""
    run(python, "-m", "venv", "bare")
    run("bare/bin/python", "-m", "pip", "install", "--quiet", wheel)
    return os.path.abspath("bare/bin/dovetail")


def keeps_a_queue(dovetail: str) -> None:
    assert "done in" in run(dovetail, "run", "commands.txt").stdout
    try:
        for command in ("submit -J one -- true", "wait one", "queue one", "info", "nodes", "whatif"):
            assert "internal error" not in run(dovetail, *command.split()).stderr
    finally:
        run(dovetail, "serve", "--stop")


@pytest.mark.skipif(not FULL, reason="installs a wheel; DOVETAIL_TEST_FULL=1 runs it")
def test_the_installed_wheel_runs_a_job_and_keeps_a_queue(here: Path, wheel: Path) -> None:
    keeps_a_queue(installed(sys.executable, str(wheel)))
    packages = here / "bare/lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    left_out = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
    size = sum(
        path.stat().st_size
        for path in packages.rglob("*")
        if path.is_file()
        and path.suffix != ".pyc"
        and not path.relative_to(packages).parts[0].startswith(left_out)
    )
    assert size < 130e6


PYTHONS = [
    found
    for minor in range(11, 15)
    if minor != sys.version_info.minor
    for found in [
        shutil.which(f"python3.{minor}"),
        *sorted(map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3"))),
    ][-1:]
    if found is not None
]
"""One interpreter of each other version that is here."""


@pytest.mark.skipif(not FULL, reason="installs wheels; DOVETAIL_TEST_FULL=1 runs it")
@pytest.mark.parametrize("python", PYTHONS)
def test_other_versions_of_python(here: Path, wheel: Path, python: str) -> None:
    dovetail = installed(python, str(wheel))
    keeps_a_queue(dovetail)
    assert json.loads(run(dovetail, "simulate", "jobs.toml", "--cluster", "1x2cpu+1gpu", "--json").stdout)


OF_EXTRAS = {
    "exact": "simulate jobs.toml --cluster 1x2cpu+1gpu --policy optimal",
    "opencl": "devices",
    "mpi": "policies",
    "pandas": "policies",
    "plots": "run commands.txt --gantt out.png",
    "ray": "map --cpu 'cp {in} {out}' commands.txt --out mapped --executor ray",
    "remote": "devices",
    "statistics": "simulate synthetic:lublin --cluster 8x1cpu --policy easy",
}
"""A command that each extra makes possible, or that it leaves as it is."""


@pytest.mark.skipif(not FULL, reason="installs wheels; DOVETAIL_TEST_FULL=1 runs it")
@pytest.mark.parametrize("extra", [*OF_EXTRAS, "all"])
def test_each_extra_alone_and_all_together(here: Path, wheel: Path, extra: str) -> None:
    dovetail = installed(sys.executable, f"{wheel}[{extra}]")
    for command in OF_EXTRAS.values() if extra == "all" else [OF_EXTRAS[extra]]:
        run(dovetail, *shlex.split(command))
