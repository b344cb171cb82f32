"""Each distribution installs beside the core alone and works there; the core works without any."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FULL = bool(os.environ.get("DOVETAIL_TEST_FULL"))
WORKS = {
    "slurm": ["devices", "--executor", "slurm-queue"],  # one sentence where there is no Slurm
    "ray": ["devices", "--executor", "ray?address=127.0.0.1:1"],
    "remote": ["device-server", "--device", "numpy", "--status", "--socket", "nothing.sock"],
    "integrations": ["mcp", "--service", "nothing"],  # one sentence without the SDK, or without a service
}
"""What of each distribution can be tried without its cluster: it answers in a sentence of its own."""


def _installed(folder: Path, *packages: str) -> Path:
    """A virtual environment with the core, these distributions, and what they depend on."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    here = Path(sysconfig.get_path("purelib"))
    hidden = {"dovetail_slurm", "dovetail_ray", "dovetail_remote", "dovetail_lab", "dovetail_integrations"}
    for one in here.iterdir():  # all that is installed here, but for our own
        ours = one.name.lower().startswith(("dovetail", "_editable", "__editable", "zz"))
        if not ours and one.name not in hidden:
            (site / one.name).symlink_to(one)
    for extra in here.glob("*.pth"):  # a folder of further packages, named by a path file
        for line in extra.read_text().splitlines():
            if os.path.isdir(line) and not line.startswith(str(ROOT)):
                for one in Path(line).iterdir():
                    ours = one.name.lower().startswith(("dovetail", "_editable", "__editable", "zz"))
                    if not ours and not (site / one.name).exists():
                        (site / one.name).symlink_to(one)
    for package in (ROOT, *(ROOT / "packages" / name for name in packages)):
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "wheels"],
            cwd=package,
            check=True,
            capture_output=True,
        )
    for wheel in (folder / "wheels").iterdir():
        subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, site], check=True)
    return folder / "bin" / "python"


def _run(python: Path, words: list[str], where: Path) -> subprocess.CompletedProcess[str]:
    environ = {"HOME": str(where), "PATH": "/usr/bin:/bin"}
    code = "import sys; from dovetail.start import main; sys.argv = ['dovetail', *sys.argv[1:]]; main()"
    return subprocess.run(
        [python, "-c", code, *words], cwd=where, env=environ, capture_output=True, text=True, timeout=280
    )


@pytest.mark.skipif(not FULL, reason="wheels of all distributions are built: make test-all")
@pytest.mark.parametrize("name", ["", *WORKS])
def test_each_distribution_works_beside_the_core_alone(name: str, tmp_path: Path) -> None:
    python = _installed(tmp_path / "venv", *([name] if name else []))
    done = _run(python, ["run", "-q", "--", "true"], tmp_path)
    assert done.returncode == 0, done.stderr
    for other, words in WORKS.items():
        done = _run(python, words, tmp_path)
        assert "internal error" not in done.stderr, done.stderr
        assert ("is not installed: pip install" in done.stderr) == (other != name), (other, done.stderr)
