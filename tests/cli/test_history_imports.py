"""Other people's history: traces of Nextflow, benchmark files of Snakemake, Slurm's accounting with peaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.main import status_of
from dovetail.history import SqliteHistory

NEXTFLOW = (
    "task_id\tname\tstatus\tsubmit\tduration\trealtime\tpeak_rss\trchar\tcpus\n"
    "1\talign (a)\tCOMPLETED\t2024-01-31 12:00:00.000\t70s\t1m\t2 GB\t10 MB\t4\n"
    "2\talign (b)\tFAILED\t2024-01-31 12:00:00.000\t70s\t1m\t2 GB\t10 MB\t4\n"
)
SNAKEMAKE = (
    "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time\n"
    "12.5\t0:00:12\t512.00\t600.00\t500.00\t505.00\t1.00\t2.00\t80.00\t10.20\n"
    "13.5\t0:00:13\tNA\tNA\tNA\tNA\tNA\tNA\tNA\tNA\n"
)
SACCT = (
    "JobID|JobName|User|Submit|End|ElapsedRaw|TimelimitRaw|State|NNodes|NCPUS|AllocTRES|MaxRSS\n"
    "11|train|ada|100|400|250|60|COMPLETED|1|8|cpu=8,mem=32G,node=1|\n"
    "11.batch|batch||100|400|250||COMPLETED|1|8|cpu=8,mem=32G,node=1|1024K\n"
    "11.0|python||100|400|250||COMPLETED|1|8|cpu=8,mem=32G,node=1|2.5M\n"
    "12|plot|ada|100|400|250|60|COMPLETED|1|1|cpu=1,mem=1G,node=1|\n"
)


def imported(folder: Path, capsys: pytest.CaptureFixture[str], command: str, *arguments: str) -> Any:
    assert status_of(["history", command, *arguments, "--history", str(folder / "h.db"), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def peaks(folder: Path, app: str) -> list[tuple[float, int | None]]:
    with SqliteHistory(folder / "h.db") as store:
        return [(run.seconds, run.usage.peak_memory if run.usage else None) for run in store.runs(app)]


def test_nextflow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(NEXTFLOW)
    said = imported(tmp_path, capsys, "import-nextflow", str(path))
    assert said == {"read": 1, "new": 1, "known": 0, "apps": 1, "peaks": 1}
    assert imported(tmp_path, capsys, "import-nextflow", str(path))["new"] == 0
    assert peaks(tmp_path, "align") == [(60.0, 2 << 30)]
    said = imported(tmp_path, capsys, "predict", "align", "read_bytes=1e7", "--memory")
    assert said["model"] == "memory"
    assert said["expected"] == pytest.approx(2 << 30)
    assert said["reserve"] > said["expected"]
    said = imported(tmp_path, capsys, "list")
    assert said[0]["largest_peak"] == 2 << 30


def test_snakemake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "benchmarks" / "sort"
    folder.mkdir(parents=True)
    (folder / "a.tsv").write_text(SNAKEMAKE)
    said = imported(tmp_path, capsys, "import-snakemake", str(tmp_path / "benchmarks"))
    assert said == {"read": 2, "new": 2, "known": 0, "apps": 1, "peaks": 1}
    assert imported(tmp_path, capsys, "import-snakemake", str(folder / "a.tsv"))["known"] == 2
    assert peaks(tmp_path, "sort") == [(12.5, 512 << 20), (13.5, None)]


def test_slurm_with_the_peaks_of_its_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT)
    said = imported(tmp_path, capsys, "import-slurm", str(path))
    assert said == {"read": 2, "new": 2, "known": 0, "apps": 2, "peaks": 1, "rejected": 0}
    assert peaks(tmp_path, "train") == [(250.0, round(2.5 * 2**20))]
    assert peaks(tmp_path, "plot") == [(250.0, None)]


@pytest.mark.parametrize(
    ("command", "text", "said"),
    [
        ("import-nextflow", NEXTFLOW.replace("2 GB", "two"), "line 2: peak_rss: found 'two'"),
        ("import-snakemake", SNAKEMAKE.replace("512.00", "-3"), "line 2: max_rss: found '-3'"),
        ("import-snakemake", "a\tb\n1\t2\n", "expected also s, max_rss"),
        ("import-slurm", SACCT.replace("1024K", "some"), "line 3: MaxRSS: found 'some'"),
    ],
)
def test_what_is_malformed_is_named_and_nothing_is_added(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, text: str, said: str
) -> None:
    path = tmp_path / "table.txt"
    path.write_text(text)
    assert status_of(["history", command, str(path), "--history", str(tmp_path / "h.db")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "h.db").exists()


def test_nextflow_without_peaks_and_moments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("hash\tname\tstatus\trealtime\trss\nab/1\talign (s1)\tCOMPLETED\t5m\t-\n"
                    "ab/2\tsort (s1)\tCOMPLETED\t2m\t1 GB\n")  # fmt: skip
    said = imported(tmp_path, capsys, "import-nextflow", str(path))
    assert (said["new"], said["apps"], said["peaks"]) == (2, 2, 1)


def test_json_lines_of_snakemake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bench.jsonl"
    path.write_text(
        '{"s": 7.25, "max_rss": 10.0, "cpu_time": 3.5, "rule_name": "map", "params": {}, "threads": 4}\n'
        '\n{"s": 1.0, "max_rss": null, "rule_name": "call"}\n{"s": "NA", "rule_name": "call"}\n'
    )
    said = imported(tmp_path, capsys, "import-snakemake", str(tmp_path))
    assert (said["new"], said["apps"], said["peaks"]) == (2, 2, 1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"s": 1}\n{"s": \n', "line 2: found broken JSON"),
        ('{"s": 1}\n[1]\n', "line 2: found JSON that is no object"),
        ('{"max_rss": 1}\n', "line 1: found no s"),
        ('{"s": -1}\n', "line 1: s: found '-1', expected a number of at least 0"),
    ],
)
def test_malformed_json_lines_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, sentence: str
) -> None:
    path = tmp_path / "bench.jsonl"
    path.write_text(text)
    assert status_of(["history", "import-snakemake", str(path), "--history", str(tmp_path / "h.db")]) == 2
    assert sentence in capsys.readouterr().err
