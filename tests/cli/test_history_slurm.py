"""A history from Slurm's accounting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.cli.main import run_cli
from dovetail.history import SqliteHistory
from dovetail.history.file import is_on_network
from dovetail.model import DeviceClass

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
    assert json.loads(capsys.readouterr().out) == {"read": 3, "new": 3, "known": 0, "apps": 2, "peaks": 0}
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
        ("NCPUS|", "CPUS|", "line 1: found no column NCPUS"),
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
