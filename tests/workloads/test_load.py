from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from dovetail import plugins
from dovetail.errors import InputError
from dovetail.model import Cluster, Workload
from dovetail.workloads import load
from dovetail.workloads.load import load_workload, trace_formats

JOBS = "[[app]]\nname = 'm'\non = ['cpu']\n[[job]]\napp = 'm'\ncount = 20\n[[job]]\napp = 'm'\nsubmit = 9\n"
SWF = "; header\n" + "\n".join(f"{i} {10 * i} -1 60 2 -1 -1 2 120 -1 1 7 8 1 1 1 -1 -1" for i in range(1, 4))


def test_the_suffix_names_the_form(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(JOBS)
    (tmp_path / "a.swf").write_text(SWF)
    (tmp_path / "a.txt").write_text("true\n")
    (tmp_path / "list").write_text("true\n")
    assert len(load_workload(tmp_path / "a.toml").jobs) == 21
    assert len(load_workload(str(tmp_path / "a.swf"), "4x1cpu").jobs) == 3
    assert len(load_workload(tmp_path / "a.txt", on=["cpu", "gpu"]).jobs[0].choices) == 2
    assert len(load_workload(tmp_path / "list").jobs) == 1
    assert len(load_workload("published:gregg-table2").jobs) == 16


def test_a_format_can_be_named_and_options_go_to_its_reader(tmp_path: Path) -> None:
    (tmp_path / "trace.log").write_text(SWF)
    spec = f"swf:{tmp_path}/trace.log"
    assert load_workload(spec).jobs[0].nodes == 2
    assert load_workload(spec, cpus_per_node=2).jobs[0].nodes == 1
    assert load_workload(spec, cpus_per_node=None).jobs[0].nodes == 2
    with pytest.raises(InputError, match="option 'foo', which the format swf does not take"):
        load_workload(spec, foo=1)


def test_malformed_lines_are_skipped_on_request(tmp_path: Path) -> None:
    path = tmp_path / "a.swf"
    path.write_text(SWF + "\n1 2 3\n")
    with pytest.raises(InputError, match="5"):
        load_workload(path)
    assert load_workload(path, lenient=True).skipped == 1


def test_a_workload_passes_through() -> None:
    workload = load_workload("published:gregg-table2")
    assert load_workload(workload, Cluster.parse("1x1cpu+1gpu")) is workload


def test_a_seed_shuffles_jobs_that_are_submitted_together(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(JOBS)
    plain, first = load_workload(path), load_workload(path, seed=1)
    assert [j.index for j in first.jobs] == list(range(21))
    assert first.jobs[-1].id == plain.jobs[-1].id
    assert {j.id for j in first.jobs} == {j.id for j in plain.jobs}
    assert [j.id for j in first.jobs] != [j.id for j in plain.jobs]
    assert [j.id for j in first.jobs] == [j.id for j in load_workload(path, seed=1).jobs]
    assert [j.id for j in first.jobs] != [j.id for j in load_workload(path, seed=2).jobs]


def test_a_seed_draws_what_is_drawn_at_random() -> None:
    spec = "published:ravi-single?mix=cpu75"
    drawn = [j.id for j in load_workload(spec, seed=4).jobs]
    assert drawn == [j.id for j in load_workload(f"{spec}&seed=4").jobs]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("jobs.dat", "ends in '.dat'"),
        ("swff:x", "unknown format 'swff', expected one of published"),
        ("swff:x", "did you mean 'swf'?"),
        ("nowhere.txt", "no such file"),
        ("nowhere.toml", "no such file"),
        ("nowhere", "no such file"),
        ("", "no name of a file"),
        ("a\nb.xyz", "ends in '.xyz'"),
    ],
)
def test_what_cannot_be_loaded_is_answered_by_one_sentence(spec: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        load_workload(spec)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_of_readers_are_refused_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(JOBS)
    (tmp_path / "a.txt").write_text("true")
    for spec in (tmp_path / "a.toml", tmp_path / "a.txt", "published:gregg-table2"):
        with pytest.raises(InputError, match="option 'cpus_per_node'"):
            load_workload(spec, cpus_per_node=2)


def test_a_reader_of_a_plugin_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sixteen = load_workload("published:gregg-table2")

    def read_nothing(path: str, cluster: Cluster | None, *, lenient: bool = False) -> Workload:
        return sixteen

    entry = EntryPoint("mine", "mine:read_nothing", "dovetail.workloads")
    monkeypatch.setattr(EntryPoint, "load", lambda self: read_nothing)
    for module in (plugins, load):
        monkeypatch.setattr(module, "registered_entries", lambda group: {"mine": entry})
    assert "mine" in trace_formats()
    assert len(load_workload(tmp_path / "x.mine").jobs) == 16
    assert len(load_workload(f"mine:{tmp_path}/y").jobs) == 16


def test_a_format_without_a_path_is_one_sentence():
    with pytest.raises(InputError, match="found no name of a file, expected SWF text"):
        load_workload("swf:")
