"""A mistake in a policy of one's own is a sentence with policy, job, file and line, and exit status 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.cli.main import status_of

POLICY = """\
from dataclasses import dataclass
from dovetail.model import Start

@dataclass(frozen=True)
class Mine:
    def decide(self, view):
{body}
"""
EACH = "        for job in view.queue:\n            "
FITS = "        job = next(iter(view.queue), None)\n        if job is None:\n            return"
TAKE = "\n        yield Start(job.id, 'cpu', view.free().fit(job.choices[0].request))"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (EACH + "job.nothing", "bad.py, line 8: policy Mine, job {job}: AttributeError: 'Job' object has no"),
        (EACH + "yield Start(job.id, 'cpu', job.nothing)", "bad.py, line 8: policy Mine, job {job}: Attrib"),
        (EACH + "yield 1 / 0", "bad.py, line 8: policy Mine, job {job}: ZeroDivisionError: division by zero"),
        ("        return [1]", "bad.py, line 6: policy Mine: decides 1, expected one of Dequeue, Enqueue,"),
        ("        return None", "bad.py, line 6: policy Mine: decide gives what cannot be used: TypeError"),
        (
            EACH + "yield Start(job.id, 'cpu', None)",
            "bad.py, line 6: policy Mine, job {job}: Start has allocation None, expected Allocation",
        ),
        (FITS + TAKE + TAKE, "bad.py, line 6: policy Mine, job {job}: is started while RUNNING"),
        (
            FITS + TAKE.replace("cpu", "quantum"),
            "bad.py, line 6: policy Mine, job {job}: cannot run as quantum, expected one of cpu",
        ),
        (
            FITS + TAKE.replace("job.id", "'lost'"),
            "bad.py, line 6: policy Mine, job lost: was never submitted",
        ),
        (EACH + "while True: yield None", "bad.py, line 6: policy Mine: decides without end: "),
        ("        raise SystemExit(0)", "bad.py, line 7: policy Mine: SystemExit: 0"),
        ("        raise ValueError('one\\ntwo')", "bad.py, line 7: policy Mine: ValueError: one two"),
    ],
)
@pytest.mark.parametrize("verb", ["simulate", "compare", "run"])
def test_a_policys_mistake_is_a_sentence(
    verb: str,
    body: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text(POLICY.format(body=body))
    (tmp_path / "commands.txt").write_text("true\ntrue\n")
    what = ["commands.txt", "-q"] if verb == "run" else ["synthetic:rigid?jobs=3&nodes=2"]
    policies = "fcfs,bad.py:Mine" if verb == "compare" else "bad.py:Mine"
    assert status_of([verb, *what, "--policy", policies]) == 2
    err = capsys.readouterr().err
    job = "true-1" if verb == "run" else "1"
    assert f"dovetail: {said.format(job=job)}" in err
    assert "Traceback" not in err


def test_jobs_that_a_policy_never_starts_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "idle.py").write_text(POLICY.format(body="        return []"))
    for verb in ("simulate", "compare"):
        assert status_of([verb, "synthetic:rigid?jobs=3&nodes=2", "--policy", "idle.py:Mine"]) == 0
        assert "3 of 3 jobs never started: the policy left them in the queue." in capsys.readouterr().out
    assert status_of(["compare", "synthetic:rigid?jobs=3&nodes=2", "--policy", "idle.py:Mine,fcfs"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    idle, fcfs = (next(row for row in rows if row[:1] == [name]) for name in ("Mine", "fcfs"))
    assert idle[1] == "-"  # not 0 s, the best of all
    assert "*" not in idle
    assert float(fcfs[1].replace(",", "")) > 0


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("bad.py", "policy: found the file bad.py, expected a class of it: bad.py:CLASS"),
        ("bad.py:Yours", "bad.py: found no class 'Yours', expected one of Mine"),
        ("nosuch.py:Mine", "policy: found no file nosuch.py, expected FILE.py:ClassName"),
    ],
)
def test_a_policy_that_is_not_there_is_a_sentence(
    policy: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text(POLICY.format(body="        return []"))
    assert status_of(["simulate", "synthetic:rigid?jobs=3&nodes=2", "--policy", policy]) == 2
    assert capsys.readouterr().err == f"dovetail: {said}\n"
