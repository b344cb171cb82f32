"""A folder of results: names that files can have, one folder a load."""

from __future__ import annotations

import json

from dovetail.model import Cluster, Result
from dovetail.report.folder import file_names, write_folder


def made(policy, *, seed=None, **options):
    return Result(policy, "jobs.toml", Cluster.uniform(1, 1), [], options=options, seed=seed)


def test_file_names_tell_policies_options_and_seeds_apart():
    results = [
        made("fms"),
        made("fms", score="area"),
        made("fms", score="area", seed=2),
        made("easy", seed=1),
    ]
    assert file_names(results) == ["fms", "fms_score_area", "fms_score_area-2", "easy-1"]


def test_file_names_are_safe_and_never_the_same():
    results = [made("a/b"), made("a?b"), made("a_b"), made("index"), made("../../etc/passwd"), made("é x")]
    names = file_names(results)
    assert names == ["a_b", "a_b_2", "a_b_3", "index_2", ".._.._etc_passwd", "__x"]
    assert len(set(names)) == len(names)
    assert not any("/" in name for name in names)


def test_file_names_tell_clusters_apart():
    results = [made("easy"), made("easy")]
    results[1] = Result("easy", "jobs.toml", Cluster.uniform(2, 4, 1), [])
    assert file_names(results) == ["easy-1x1cpu", "easy-2x4cpu_1gpu"]


def test_results_of_several_loads_have_a_folder_each(tmp_path, make_record, make_result):
    cases = [(policy, load) for load in (0.5, 1.0) for policy in ("a", "b")]
    results = [make_result([make_record("a")], policy=policy, load=load) for policy, load in cases]
    write_folder(results, tmp_path / "out")
    names = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*")}
    assert {"loads.svg", "results.json", "load-0.5/index.html", "load-1/a.csv", "load-1/b.svg"} <= names
    assert len(json.loads((tmp_path / "out" / "results.json").read_text())) == 4
    assert len(json.loads((tmp_path / "out" / "load-1" / "results.json").read_text())) == 2
