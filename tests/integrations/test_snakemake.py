"""A Snakemake run in Dovetail's queue: resources, retries with more memory, a job that is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from services import Serving

from dovetail.client.connection import open_connection

pytest.importorskip("snakemake", reason="it is in the environment of `make integrations`")

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]
SNAKEFILE = """
rule all:
    input: expand("out/{n}.txt", n=range(4)), "big.txt"

rule one:
    output: "out/{n}.txt"
    threads: 1
    resources: mem_mb=200, runtime=10
    shell: "echo {wildcards.n} $DOVETAIL_JOB > {output}"

rule big:
    output: "big.txt"
    retries: 2
    resources: mem_mb=lambda wildcards, attempt: 100 * 10 ** (attempt - 1)
    shell: "{PYTHON} -c 'size = bytearray(600_000_000); print(len(size))' > {output}"
"""


def snakemake(service: Serving, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "snakemake", "--executor", "dovetail", "--jobs", "10", *options]
    return subprocess.run(
        words, cwd=folder, env=service.environment, capture_output=True, text=True, timeout=290
    )


def test_a_run_with_a_rule_that_needs_more_memory(around: Serving, tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(f"PYTHON = {sys.executable!r}\n{SNAKEFILE}")
    done = snakemake(around, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    texts = [(tmp_path / "out" / f"{n}.txt").read_text().split() for n in range(4)]
    assert [text[0] for text in texts] == ["0", "1", "2", "3"]
    ids = {text[1] for text in texts}
    assert len(ids) == 4
    assert (tmp_path / "big.txt").read_text() == "600000000\n"
    assert "ended OUT_OF_MEMORY" in done.stderr, "its first attempt had too little"
    with open_connection(around.folder.path) as service:
        row = service.get(f"/api/v1/jobs/{min(ids)}")
    assert row["app"] == "snakemake.one"
    assert row["walltime"] == 600


def test_no_service_is_one_sentence(tmp_path: Path, around: Serving) -> None:
    (tmp_path / "Snakefile").write_text("rule a:\n    output: 'a'\n    shell: 'touch a'\n")
    done = snakemake(around, tmp_path, "--dovetail-service", "http://127.0.0.1:1")
    assert done.returncode != 0
    assert "no service answers at http://127.0.0.1:1" in done.stderr


def test_a_hundred_mixed_jobs_take_less_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("snakemake_interface_scheduler_plugins")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    from snakemake_scheduler import compare

    for faster, fixed, ours in compare(range(2)):
        assert ours <= 0.85 * faster, "each rule on its faster device, by Snakemake's own scheduler"
        assert ours <= fixed, "the best of all fixed choices, which only who knows all times can make"


def test_a_rule_runs_on_either_device(tmp_path: Path) -> None:
    rule = 'rule one:\n    output: "{n}.txt"\n    resources: dovetail_on="cpu,gpu"\n'
    shell = '    shell: "echo {resources.gpu} > {output}"\n'
    (tmp_path / "Snakefile").write_text(f'rule all:\n    input: "a.txt", "b.txt"\n\n{rule}{shell}')
    words = [sys.executable, "-m", "snakemake", "--scheduler", "dovetail", "--cores", "2"]
    done = subprocess.run(
        [*words, "--resources", "gpu=1"], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "falling back" not in done.stderr.lower()
    assert sorted((tmp_path / name).read_text() for name in ("a.txt", "b.txt")) == ["0\n", "1\n"]
    wrong = subprocess.run(
        [*words, "--scheduler-dovetail-history", str(tmp_path / "none")],
        cwd=tmp_path, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert wrong.returncode != 0
    assert "none" in wrong.stderr
    assert "Traceback" not in wrong.stderr
