"""A history from Slurm's accounting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.cli.main import run_cli
from dovetail.errors import InputError
from dovetail.history import SqliteHistory
from dovetail.history.file import is_on_network
from dovetail.model import DeviceClass, Run
from dovetail.workloads.sacct_rows import DELIMITER
from dovetail.workloads.slurm_accounting import read_sacct
from dovetail.workloads.slurm_history import read_runs

TABLE = """\
JobID|JobName|User|Submit|End|ElapsedRaw|TimelimitRaw|State|NNodes|NCPUS|AllocTRES
11|train|ada|100|400|250|60|COMPLETED|1|8|billing=8,cpu=8,gres/gpu:a100=1,gres/gpu=1,mem=32G,node=1
11.batch|batch||100|400|250||COMPLETED|1|8|cpu=8,mem=32G,node=1
12|train|ada|100|2000|1900|60|COMPLETED|2|16|billing=16,cpu=16,mem=64G,node=2
13_1|train|ada|100|2000|1800|60|FAILED|1|8|billing=8,cpu=8,mem=32G,node=1
14|dovetail-abc|ada|100|2000|1800|60|COMPLETED|1|8|billing=8,cpu=8,mem=32G,node=1
15|prepare|ada|100|2026-05-04T12:30:00|30|UNLIMITED|COMPLETED|1|1|cpu=1,mem=1G,node=1
"""


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        run_cli(["history", "import-slurm", *arguments])
    return int(str(ended.value.code))


def test_completed_jobs_become_runs_and_are_known_the_second_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, history = tmp_path / "sacct.txt", tmp_path / "history.db"
    table.write_text(TABLE)
    assert call(str(table), "--history", str(history), "--json") == 0
    first = json.loads(capsys.readouterr().out)
    assert first == {"read": 3, "new": 3, "known": 0, "apps": 2, "peaks": 0, "rejected": 0}
    assert call(str(table), "--history", str(history), "--json") == 0
    assert json.loads(capsys.readouterr().out)["new"] == 0
    with SqliteHistory(history) as store:
        (on_gpu,) = store.runs("train", "gpu", DeviceClass("gpu", "a100"))
        assert (on_gpu.seconds, on_gpu.cpus, on_gpu.gpus, on_gpu.walltime) == (250.0, 8, 1.0, 3600.0)
        (on_cpus,) = store.runs("train", "cpu")
        assert (on_cpus.nodes, on_cpus.cpus, on_cpus.seconds, on_cpus.when) == (2, 8, 1900.0, 2000.0)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("NCPUS|", "CPUS|", "line 1: found the columns 'JobID"),
        ("|2|16|", "|two|16|", "line 4: NNodes: found 'two', expected a whole number"),
        ("|400|250|60|", "|soon|250|60|", "line 2: End: found 'soon'"),
        ("gres/gpu=1", "gres/gpu=many", "line 2: "),
    ],
)
def test_what_is_malformed_is_named_and_nothing_is_added(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, sentence: str
) -> None:
    table, history = tmp_path / "sacct.txt", tmp_path / "history.db"
    table.write_text(TABLE.replace(old, new, 1))
    assert call(str(table), "--history", str(history)) == 2
    assert sentence in capsys.readouterr().err
    assert not history.exists()


def test_a_network_file_system_is_known_by_its_longest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
        "2 1 0:5 / /home rw shared:1 - nfs4 server:/home rw\n"
        "3 2 8:2 / /home/local\\040disk rw - xfs /dev/sdb rw\n"
    )
    assert is_on_network(Path("/home/ada/history.db"), mounts)
    assert not is_on_network(Path("/homely/history.db"), mounts)
    assert not is_on_network(Path("/home/local disk/history.db"), mounts)
    assert not is_on_network(Path("/home/ada/history.db"), tmp_path / "nothing")


COLUMNS = "JobID|JobName|User|Submit|End|ElapsedRaw|TimelimitRaw|State|NNodes|NCPUS|AllocTRES|MaxRSS"
GOOD = "2|good|ada|100|400|300|60|COMPLETED|1|4|cpu=4,mem=8G,node=1|"


def read(*lines: str, lenient: bool = False) -> tuple[list[Run], list[tuple[str, str]]]:
    found = read_runs((COLUMNS, *lines, GOOD), "sacct.txt", lenient=lenient)
    assert found.runs[-1].app == "good"
    return found.runs[:-1], found.rejected


def test_a_bar_in_a_job_name_belongs_to_the_name() -> None:
    (run,), rejected = read("1|cut -d: a | sort|u|100|400|300|60|COMPLETED|1|4|cpu=4,mem=8G,node=1|")
    assert (run.app, run.seconds, rejected) == ("cut -d: a | sort", 300.0, [])


def test_counts_of_thousands_are_of_1024() -> None:
    (run,), _ = read("1|big|u|100|400|300|60|COMPLETED|2K|128K|cpu=128K,mem=8T,node=2048|")
    assert (run.nodes, run.cpus) == (2048, 64)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1||u|100|400|300|60|COMPLETED|1|4|cpu=4|", "the job has no name"),
        ("1|back|u|100|400|-300|60|COMPLETED|1|4|cpu=4|", "the job has a negative length (-300 s)"),
        ("1|two", "found 2 fields"),
    ],
)
def test_one_odd_job_costs_only_itself(line: str, reason: str) -> None:
    runs, ((place, why),) = read(line)
    assert (runs, place) == ([], "sacct.txt: line 2")
    assert why.startswith(reason)


def test_lenient_leaves_out_what_is_malformed() -> None:
    line = "1|odd|u|100|400|300|60|COMPLETED|1|4|cpu=4|lots"
    with pytest.raises(InputError, match="line 2: MaxRSS: found 'lots'"):
        read(line)
    assert read(line, lenient=True)[1][0][1].startswith("MaxRSS")


def test_a_byte_order_mark_and_a_last_bar_are_no_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, history = tmp_path / "sacct.txt", tmp_path / "history.db"
    table.write_text(f"\ufeff{COLUMNS}|\n{GOOD}|\n7||u|1|2|1|1|COMPLETED|1|1|cpu=1||\n")
    assert call(str(table), "--history", str(history), "--json") == 0
    out, err = capsys.readouterr()
    assert (json.loads(out)["new"], json.loads(out)["rejected"]) == (1, 1)
    assert "sacct.txt: line 3: left out: the job has no name" in err


@pytest.mark.parametrize("delimiter", [";", "\t", "^|^", "\x01", "~", " | "])
def test_any_delimiter_is_found_by_the_header(delimiter: str) -> None:
    """One within a name is put back there."""
    named = GOOD.replace("good", "a|b")
    found = read_runs([line.replace("|", delimiter) for line in (COLUMNS, GOOD, named)], "t.txt")
    assert [run.app for run in found.runs] == [f"a{delimiter}b"]
    assert (found.runs[0].seconds, found.rejected) == (300.0, [])


def test_commas_are_read_where_those_within_a_column_are_in_quotes() -> None:
    """As programs for tables write them; without quotes a column has no end."""
    header, plain = COLUMNS.replace("|", ","), GOOD.replace("|", ",")
    with pytest.raises(InputError, match=r"line 2: line: .* expected commas in AllocTRES within quotes"):
        read_runs([header, plain], "t.txt")
    cells = [f'"{cell}"' for cell in GOOD.split("|")]
    for head in (header, ",".join(f'"{name}"' for name in COLUMNS.split("|"))):
        (run,) = read_runs([head, ",".join(cells)], "t.txt").runs
        assert (run.app, run.seconds) == ("good", 300.0)
    (run,) = read_runs([f",{header}", ",".join(["0", *cells])], "t.txt").runs
    assert run.app == "good"


@pytest.mark.parametrize("column", ["SubmitLine", "Comment", "WorkDir"])
def test_a_bar_in_a_column_of_free_text_stays_there(column: str) -> None:
    text = "sbatch --wrap 'a | b | c'"
    lines = [f"{COLUMNS}|{column}", f"{GOOD}|{text}", f"{GOOD.replace('good', 'x|y')}|plain"]
    lines += [f"{column}|{COLUMNS}", f"{text}|{GOOD}"]
    for part in (lines[:2], lines[3:]):
        (run,) = read_runs(part, "t.txt").runs
        assert (run.app, run.seconds) == ("good", 300.0)
    assert [run.app for run in read_runs([lines[0], lines[2]], "t.txt").runs] == ["x|y"]


def test_the_delimiter_of_our_own_question_is_in_no_name() -> None:
    lines = [line.replace("|", DELIMITER) for line in (COLUMNS, GOOD)]
    lines.insert(1, GOOD.replace("|", DELIMITER).replace("good", "a|b;c,d\te"))
    assert [run.app for run in read_runs(lines, "sacct").runs] == ["good"]  # one id: the last line counts
    assert read_runs(lines[:2], "sacct").runs[0].app == "a|b;c,d\te"


def test_gpus_of_versions_before_21_08(tmp_path: Path) -> None:
    header = "JobID|State|Submit|Start|ElapsedRaw|NNodes|NCPUS|ReqGRES|AllocGRES"
    table = tmp_path / "old.txt"
    table.write_text(
        f"{header}\n"
        "1|COMPLETED|2019-03-01T10:00:00|2019-03-01T10:00:00|60|1|4|gpu:3|gpu:3(IDX:0-2)\n"
        "2|COMPLETED|2019-03-01T10:00:00|2019-03-01T10:00:00|60|2|4|gpu:v100:2|gpu:v100:4\n"
        "3|COMPLETED|2019-03-01T10:00:00|2019-03-01T10:00:00|60|2|4|gpu:1|\n"
        "4|COMPLETED|2019-03-01T10:00:00|2019-03-01T10:00:00|60|1|4|0|(null)\n"
        "5|COMPLETED|2019-03-01T10:00:00|2019-03-01T10:00:00|-60|1|4||\n"
    )
    found = read_sacct(table)
    requests = [job.choices[0].request for job in found.jobs]
    assert [(r.nodes, dict(r.devices).get("gpu", 0)) for r in requests] == [(1, 3), (2, 2), (2, 1), (1, 0)]
    assert [(r.id, r.reason) for r in found.rejected] == [("5", "negative run time (-60)")]
