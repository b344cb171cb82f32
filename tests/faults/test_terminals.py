"""Terminals close, readers leave, standard error fills: what runs goes on, or stops as it should."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from dovetail_command import DOVETAIL, load
from waiting import until

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

Call = Callable[..., subprocess.CompletedProcess[str]]


def prepared(tmp_path: Path, line: str, count: int) -> list[str]:
    (tmp_path / "jobs.txt").write_text(f"{line}\n" * count)
    (tmp_path / "here.toml").write_text(
        f'[[node]]\nname = "here"\ncores = [{min(os.sched_getaffinity(0))}]\n'
    )
    return ["run", "jobs.txt", "--cluster", "here.toml", "--history", "h.sqlite", "--json"]


def hung_up(tmp_path: Path, environment: dict[str, str], *, ignored: bool) -> tuple[int, list[str], str]:
    """SIGHUP while the first of two jobs runs: status, states, what was noted."""
    (tmp_path / "job.sh").write_text("test -e quick || exec sleep 600\nsleep 0.5\n")
    if ignored:
        (tmp_path / "quick").touch()
    arguments = prepared(tmp_path, "sh job.sh", 2)
    process = subprocess.Popen(
        [*DOVETAIL, *arguments], cwd=tmp_path, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL),
    )  # fmt: skip
    assert process.stderr is not None
    assert "starts" in process.stderr.readline()
    process.send_signal(signal.SIGHUP)
    out, noted = process.communicate(timeout=200)
    return process.returncode, [job["state"] for job in json.loads(out)["jobs"]], noted


def test_a_closed_terminal_stops_the_run_which_can_be_resumed(
    dovetail: Call, tmp_path: Path, environment: dict[str, str]
) -> None:
    status, states, noted = hung_up(tmp_path, environment, ignored=False)
    assert (status, states) == (130, ["CANCELLED", "CANCELLED"])
    assert "1 job never started; 'dovetail run --resume" in noted
    (tmp_path / "quick").touch()
    resumed = load(dovetail("run", "--resume", "--json"))
    assert "COMPLETED" in [job["state"] for job in resumed["jobs"]]


def test_a_second_interrupt_ends_the_grace(tmp_path: Path, environment: dict[str, str]) -> None:
    """The job ignores SIGTERM and would have ten minutes."""
    (tmp_path / "stubborn.sh").write_text(
        "trap 'touch asked' TERM\ntouch deaf\nwhile true; do sleep 0.05; done\n"
    )
    arguments = [*prepared(tmp_path, "sh stubborn.sh", 2), "--grace", "600"]
    process = subprocess.Popen(
        [*DOVETAIL, *arguments], cwd=tmp_path, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    until(lambda: (tmp_path / "deaf").exists() or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    # The first is taken in, so that the next, a second later, is another one.
    until(lambda: (tmp_path / "asked").exists() or process.poll() is not None)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 130
    assert [job["state"] for job in json.loads(out)["jobs"]] == ["CANCELLED", "CANCELLED"]


def test_under_nohup_the_run_goes_on(tmp_path: Path, environment: dict[str, str]) -> None:
    status, states, _ = hung_up(tmp_path, environment, ignored=True)
    assert (status, states) == (0, ["COMPLETED", "COMPLETED"])


@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&1 >out.json | true"])
def test_a_line_that_cannot_be_printed_ends_no_run(
    redirected: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    arguments = prepared(tmp_path, "sleep 0.1", 3)
    script = f'"$@" {redirected}' if "|" in redirected else f'"$@" >out.json {redirected}'
    subprocess.run(
        ["sh", "-c", script, "sh", *DOVETAIL, *arguments],
        cwd=tmp_path,
        env=environment,
        check=True,
        timeout=200,
    )
    found = json.loads((tmp_path / "out.json").read_text())
    assert [job["state"] for job in found["jobs"]] == ["COMPLETED"] * 3
