"""A Hydra sweep in Dovetail's queue: what its log predicts, and what of a shared service is never read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from services import Serving

pytest.importorskip("hydra", reason="it is in the environment of `make integrations`")

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]
APP = """
import time
import hydra
from omegaconf import DictConfig

class Own:
    pass

@hydra.main(version_base="1.3", config_path=None)
def main(config: DictConfig):
    if config.get("what") == "own":
        return Own()
    if config.get("what") == "fail":
        raise LookupError("on purpose")
    time.sleep(config.get("pause", 0))
    return config.rate * 2

if __name__ == "__main__":
    main()
"""


def swept(service: Serving, folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    (folder / "app.py").write_text(APP)
    words = [sys.executable, "app.py", "-m", "hydra/launcher=dovetail", *overrides]
    return subprocess.run(
        words, cwd=folder, env=service.environment, capture_output=True, text=True, timeout=280
    )


def test_the_log_predicts_when_a_sweep_ends(around: Serving, tmp_path: Path) -> None:
    first = swept(around, tmp_path, "+rate=1,2,3", "+pause=8")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "When the sweep ends is not known yet" in first.stdout
    again = swept(around, tmp_path, "+rate=1,2", "+pause=8")
    assert "The sweep is predicted to end at 20" in again.stdout, again.stdout
    assert "#1 : job" in again.stdout


def test_what_a_job_raises(around: Serving, tmp_path: Path) -> None:
    done = swept(around, tmp_path, "+rate=1", "+what=fail")
    assert done.returncode != 0
    assert "LookupError: on purpose" in done.stderr + done.stdout


def test_a_shared_services_pickles_are_not_read(around: Serving, tmp_path: Path) -> None:
    assert swept(around, tmp_path, "+rate=1", "+what=own").returncode == 0
    shared = Serving(tmp_path, "--listen", "127.0.0.1:0")
    shared.program = around.program
    shared.start().close()
    try:
        assert swept(shared, tmp_path, "+rate=1").returncode == 0, "what data can hold comes back"
        refused = swept(shared, tmp_path, "+rate=1", "+what=own")
        assert refused.returncode != 0
        assert "its result is a pickle" in refused.stderr + refused.stdout
    finally:
        shared.stop()
