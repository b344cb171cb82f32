"""What wheels carry beside the package: man pages and completions of every command, a unit for systemd."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.cli.main import _Dovetail, _whole_command

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("share")
    subprocess.run([sys.executable, str(ROOT / "tools" / "share.py"), str(folder)], check=True, timeout=280)
    return folder


def test_every_command_has_a_page_with_its_options(share: Path) -> None:
    for name in _Dovetail.own:
        page = (share / "man" / "man1" / f"dovetail-{name}.1").read_text().replace("\\-", "-")
        assert page.startswith('.TH "DOVETAIL-')
        options = [
            max(p.opts, key=len) for p in _whole_command().commands[name].params if p.opts[0].startswith("-")
        ]
        assert [one for one in options if one not in page] == []
    everything = (share / "man" / "man1" / "dovetail.1").read_text().replace("\\-", "-")
    assert all(f".B {name}\n" in everything for name in _Dovetail.own)


def test_shells_complete(share: Path) -> None:
    script = share / "bash-completion" / "completions" / "dovetail"
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=280)
    assert "complete -o default -F _dovetail_completion dovetail" in script.read_text()
    assert (share / "zsh" / "site-functions" / "_dovetail").read_text().startswith("#compdef dovetail")
    assert "complete --command dovetail" in (share / "fish/vendor_completions.d/dovetail.fish").read_text()


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    unit = ROOT / "share" / "systemd" / "user" / "dovetail.service"
    command = ["systemd-analyze", "verify", "--user", "--man=no", str(unit)]
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
    assert (done.returncode, done.stderr) == (0, "")
