"""Names of the files of a report, and what an option is read as."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.cli import options, output
from dovetail.errors import InputError
from dovetail.model import Cluster, Result
from dovetail.report.folder import write_folder
from dovetail.report.json_form import to_json


def made(policy, *, seed=None, **options):
    return Result(policy, "jobs.toml", Cluster.uniform(1, 1), [], options=options, seed=seed)


def test_what_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: cannot be made"):
        write_folder([made("fcfs")], Path(tmp_path / "file"))


def test_what_cannot_be_written_is_known_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("")
    output.check_targets(tmp_path / "file", None, gantt=tmp_path / "g.svg", folder=tmp_path / "a" / "b")
    assert not (tmp_path / "a").exists()
    for arguments, named, expected in (
        ([tmp_path], {}, "found a folder, expected a file"),
        ([tmp_path / "none" / "x.csv"], {}, r"x\.csv: cannot be written: its folder is not there"),
        ([], {"gantt": tmp_path / "x.doc"}, r"expected a name that ends in \.svg"),
        ([], {"folder": tmp_path / "file" / "inner"}, "inner: cannot be made: found the file"),
    ):
        with pytest.raises(InputError, match=expected):
            output.check_targets(*arguments, **named)


def test_tables_name_the_files_not_their_folders(tmp_path, capsys):
    (tmp_path / "two.toml").write_text('[[node]]\nname = "n[0-1]"\ncpus = 2\n')
    cluster = Cluster.parse(str(tmp_path / "two.toml"))
    output.show_comparison(
        [Result("fcfs", f"{tmp_path}/jobs.toml", cluster, [], options={}, seed=None)],
        as_json=False,
        folder=None,
    )
    assert capsys.readouterr().out.startswith("jobs.toml on two.toml\n")
    assert to_json(Result("fcfs", "jobs.toml", cluster, []))["cluster"] == str(tmp_path / "two.toml")


@pytest.mark.parametrize(
    ("text", "simulated", "expected"),
    [
        (None, True, "actual"),
        (None, False, None),
        ("actual", True, "actual"),
        ("60", True, 60.0),
        ("1e3", False, 1e3),
    ],
)
def test_default_walltime(text, simulated, expected):
    assert options.read_walltime(text, simulated=simulated) == expected


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "", "soon", "actual"])
def test_wrong_default_walltimes(text):
    with pytest.raises(InputError, match=r"^--default-walltime: found"):
        options.read_walltime(text, simulated=False)


def test_kinds():
    assert options.read_kinds(None) == []
    assert options.read_kinds("cpu, gpu") == ["cpu", "gpu"]
    with pytest.raises(InputError, match=r"^--on: found 'cpu,'"):
        options.read_kinds("cpu,")


def test_cut():
    assert options.read_trim(None, None) is None
    both = options.read_trim("10%", None)
    assert both is not None
    assert (both.warmup, both.cooldown, both.fraction) == (0.1, 0.1, True)
    late = options.read_trim(None, "60")
    assert late is not None
    assert (late.warmup, late.cooldown, late.fraction) == (0.0, 60.0, False)
    for wrong in ("x", "", "-1", "nan", "inf", "100%"):
        with pytest.raises(InputError):
            options.read_trim(wrong, None)
