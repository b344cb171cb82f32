"""Job files: dependencies, retries, grids, communication, units, sizes of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.model import HOST_CPUS, Communication, Dependency, Job, Request
from dovetail.model.templates import render_template
from dovetail.workloads.dependencies import EntryJobs, resolve_dependencies
from dovetail.workloads.jobfile import load_jobfile

APP = '[[app]]\nname = "m"\n[[app.implementation]]\nname = "cpu"\n'


def jobs(folder: Path, text: str) -> dict[str, Job]:
    path = folder / "jobs.toml"
    path.write_text(text)
    return {job.id: job for job in load_jobfile(path).jobs}


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        jobs(folder, text)
    message = str(caught.value)
    assert message.startswith(f"{folder / 'jobs.toml'}: ")
    assert "expected" in message
    return message


# -- dependencies --------------------------------------------------------------------------------------


def test_jobs_wait_for_jobs(tmp_path: Path) -> None:
    found = jobs(
        tmp_path,
        APP
        + '[[job]]\nid = "z"\napp = "m"\ndepends = ["afterok:a", "afterany:b-2", "afterok:a"]\n'
        + '[[job]]\nid = "a"\napp = "m"\n[[job]]\nid = "b"\napp = "m"\ncount = 2\ndepends = ["afterok:m-1"]\n'
        + '[[job]]\napp = "m"\n[[job]]\nid = "all"\napp = "m"\ndepends = ["afterany:b"]\n',
    )
    assert found["z"].depends == (Dependency("afterok", "a"), Dependency("afterany", "b-2"))
    assert found["a"].depends == ()
    assert found["b-1"].depends == found["b-2"].depends == (Dependency("afterok", "m-1"),)
    assert found["all"].depends == (Dependency("afterany", "b-1"), Dependency("afterany", "b-2"))
    assert [found[id].index for id in ("z", "a", "b-1", "b-2", "m-1", "all")] == list(range(6))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('depends = ["afterok:aa"]', "found 'afterok:aa', a job that is not there, expected"),
        ('depends = ["afterok:b"]', "job 2 'b': depends: found a circle ('b' waits for 'b'), expected none"),
        ('depends = ["before:a"]', "found 'before:a', expected afterok:JOB, afternotok:JOB or afterany:JOB"),
        ('depends = ["afterok:"]', "found 'afterok:', expected afterok:JOB, afternotok:JOB or afterany:JOB"),
        ('depends = "afterok:a"', "depends: found 'afterok:a', expected a list"),
        ("retries = -1", "retries: found -1, expected a whole number of at least 0"),
        ("retries = 1001", "retries: found 1001, expected at most 1000"),
        ("retries = true", "retries: found true, expected a whole number"),
        ("slurm = [1]", "slurm 1: found 1, expected text"),
        ("restarts = true", "found an unknown key 'restarts'"),
        ("cpus = 2", "job 2 'b': found cpus beside app, expected it in the app's implementations"),
        ("grid = { n = [1, true] }", "grid, n 2: found true, expected a text or a number"),
        ("grid = { n = [] }", "grid, n: found an empty list, expected at least one entry"),
        ("grid = { n = 5 }", "grid, n: found 5, expected text"),
        ("grid = { n = '1..' }\ninputs = { n = 1 }", "grid: found 'n', which inputs has too"),
        ("grid = { device = [1] }", "grid: found 'device', expected another name"),
        ("grid = { n = '' }", "grid, n: found '', expected values with commas"),
        ("grid = { n = '1..9000' }\ncount = 9000", "grid: found 81000000 combinations, expected"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    start = APP + '[[job]]\nid = "a"\napp = "m"\n[[job]]\nid = "b"\napp = "m"\n'
    assert expected in refusal(tmp_path, f"{start}{text}\n")


def test_circles_are_named(tmp_path: Path) -> None:
    text = "".join(
        f'[[job]]\nid = "{id}"\napp = "m"\ndepends = ["afterok:{other}"]\n'
        for id, other in (("a", "b"), ("b", "c"), ("c", "d"), ("d", "b"))
    )
    assert "job 2 'b': depends: found a circle ('b' waits for 'c' waits for 'd' waits for 'b')" in refusal(
        tmp_path, APP + text
    )


def test_long_chains_are_no_circles(tmp_path: Path) -> None:
    text = '[[job]]\nid = "j0"\napp = "m"\n' + "".join(
        f'[[job]]\nid = "j{i}"\napp = "m"\ndepends = ["afterok:j{i - 1}"]\n' for i in range(1, 3000)
    )
    assert len(jobs(tmp_path, APP + text)) == 3000


@settings(derandomize=True, deadline=None)
@given(st.lists(st.lists(st.integers(0, 7), max_size=3), min_size=1, max_size=8))
def test_a_circle_is_refused_where_there_is_one(edges: list[list[int]]) -> None:
    edges = [[there for there in each if there < len(edges)] for each in edges]
    template = next(iter(_one_job()))
    entries = [
        EntryJobs(
            f"job {i}",
            f"j{i}",
            [Job(f"j{i}", template.app, template.choices, index=i)],
            [Dependency("afterok", f"j{there}") for there in each],
        )
        for i, each in enumerate(edges)
    ]
    waiting = {i: set(each) for i, each in enumerate(edges)}
    while free := [i for i, each in waiting.items() if not each]:
        for i in free:
            del waiting[i]
        for each in waiting.values():
            each.difference_update(free)
    if waiting:
        with pytest.raises(InputError, match="found a circle"):
            resolve_dependencies(entries)
    else:
        found = resolve_dependencies(entries)
        assert [[one.job for one in job.depends] for job in found] == [
            [f"j{there}" for there in dict.fromkeys(each)] for each in edges
        ]


def _one_job() -> list[Job]:
    from dovetail.workloads.commands import command_workload

    return list(command_workload(["true"]).jobs)


# -- fields --------------------------------------------------------------------------------------------


def test_retries_slurm_and_restartable_are_kept(tmp_path: Path) -> None:
    text = APP.replace('"m"\n', '"m"\nrestartable = true\n', 1)
    found = jobs(tmp_path, text + '[[job]]\napp = "m"\nretries = 2\nslurm = ["--account=x", "-p", "long"]\n')
    (job,) = found.values()
    assert (job.retries, job.batch_options, job.app.restartable) == (2, ("--account=x", "-p", "long"), True)
    assert not next(iter(jobs(tmp_path, APP + '[[job]]\napp = "m"\n').values())).app.restartable


def test_jobs_with_communication_need_no_app(tmp_path: Path) -> None:
    found = jobs(
        tmp_path,
        '[[job]]\nid = "J1"\nsubmit = 0\nnodes = 2\ncpus = 2\ngpus = 2\nmemory = 8e9\n'
        "[job.communication]\nother = 100.0\ngpu_calls = 1e6\ngpu_bytes = 1e9\n"
        "net_calls = 0\nnet_bytes = 0\n"
        '[[job]]\n[job.communication]\nother = "1h"\ngpu_bytes = "2GiB"\n',
    )
    first, second = found["J1"], found["communication-1"]
    assert first.communication == Communication(100.0, 1e6, 1e9, 0.0, 0.0)
    assert [(c.implementation.name, c.request) for c in first.choices] == [
        ("gpu", Request(2, 2, (("gpu", 2.0),), 8_000_000_000))
    ]
    assert second.communication == Communication(3600.0, 0.0, 2.0 * 2**30)
    assert second.choices[0].request == Request(1, HOST_CPUS, (("gpu", 1.0),))


def test_a_job_of_an_app_may_communicate_too(tmp_path: Path) -> None:
    (job,) = jobs(tmp_path, APP + '[[job]]\napp = "m"\n[job.communication]\nother = 1\n').values()
    assert (job.app.name, job.communication) == ("m", Communication(1.0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[job]]\nnodes = 1\n", "job 1, app: found nothing"),
        ("[[job]]\n[job.communication]\ngpu_calls = 1\n", "job 1, communication, other: found nothing"),
        ("[[job]]\n[job.communication]\nother = 1\ngpu_calls = '1e6'\n", "gpu_calls: found '1e6', expected"),
        ("[[job]]\n[job.communication]\nother = 1\ngpu_bytes = '1X'\n", "found '1X', expected bytes"),
        ("[[job]]\n[job.communication]\nother = -1\n", "other: found -1, expected seconds"),
        ("[[job]]\napp = 'm'\n[job.communication]\nother = 1\n", "app: found nothing, expected [[app]]"),
        ("[[job]]\ngpus = 0\n[job.communication]\nother = 1\n", "gpus: found 0"),
        ("[[job]]\nimplementation = 'cpu'\n[job.communication]\nother = 1\n", "found 'cpu'"),
    ],
)  # fmt: skip
def test_communication_that_cannot_be_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in refusal(tmp_path, text)


# -- grids ---------------------------------------------------------------------------------------------


def test_a_grid_is_a_job_for_each_combination(tmp_path: Path) -> None:
    found = jobs(
        tmp_path,
        '[[app]]\nname = "fit"\non = ["cpu"]\ncommand = ["fit", "{lr}", "{seed}", "{rows}"]\n'
        '[[job]]\nid = "g"\napp = "fit"\ninputs = { rows = 9 }\ntimes = { cpu = 3 }\n'
        'grid = { lr = [0.1, 0.01], seed = "1..3" }\n'
        '[[job]]\napp = "fit"\ncount = 2\ngrid = { lr = "0.5,1", seed = [7], rows = ["few"] }\n',
    )
    assert [id for id in found if id.startswith("g")] == [f"g-{i}" for i in range(1, 7)]
    assert dict(found["g-2"].inputs) == {"rows": 9.0, "lr": 0.1, "seed": 2.0}
    assert dict(found["g-4"].inputs) == {"rows": 9.0, "lr": 0.01, "seed": 1.0}
    assert [dict(found[f"fit-{i}"].inputs)["lr"] for i in (1, 2, 3, 4)] == [0.5, 0.5, 1.0, 1.0]
    assert found["fit-1"].inputs["rows"] == "few"
    assert len({id(job.app) for job in found.values()}) == 1


def test_one_combination_keeps_its_id(tmp_path: Path) -> None:
    assert list(jobs(tmp_path, APP + '[[job]]\nid = "g"\napp = "m"\ngrid = { n = [1] }\n')) == ["g"]


# -- units ---------------------------------------------------------------------------------------------


def test_durations_and_sizes_are_written_as_people_write_them(tmp_path: Path) -> None:
    found = jobs(
        tmp_path,
        '[[app]]\nname = "m"\n'
        '[[app.implementation]]\nname = "cpu"\ncpus = 1\nmemory = "8GB"\ntime = "1m30s"\n'
        '[[app.implementation]]\nname = "gpu"\nmemory = "512MiB"\ntimes = { 1 = "00:10:00" }\n'
        '[[job]]\napp = "m"\nwalltime = "1d"\nsubmit = "1h30m"\nsequential = "2min"\n',
    )
    job = found["m-1"]
    assert (job.walltime, job.submit_time, job.sequential) == (86400.0, 5400.0, 120.0)
    assert [c.request.memory for c in job.choices] == [8_000_000_000, 512 * 2**20]
    truth = load_jobfile(tmp_path / "jobs.toml").truth
    assert [truth.seconds(job, c.implementation, c.request) for c in job.choices] == [90.0, 600.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("walltime = '0'", "walltime: found '0', expected seconds, a finite number above 0"),
        ("walltime = '1x'", "found '1x', expected seconds, or a duration such as 1h30m, 2d or 00:10:00"),
        ("walltime = ''", "walltime: found '', expected seconds, or a duration"),
        ("submit = '-1'", "submit: found '-1', expected seconds, or a duration"),
        ("submit = '9999999w'", "submit: found '9999999w', expected seconds, at most 1e+12"),
    ],
)  # fmt: skip
def test_other_units_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in refusal(tmp_path, APP + f'[[job]]\napp = "m"\n{text}\n')


# -- sizes of files ------------------------------------------------------------------------------------


def _argv(job: Job) -> list[str]:
    command = job.app.implementations[0].command
    assert command is not None
    inputs = {**job.inputs, "device": "cpu"}
    return [render_template(word, inputs) for word in command.argv]


def test_inputs_that_name_files_count_by_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "{a}.csv").write_text("x" * 5)
    (tmp_path / "b.csv").write_text("x" * 7)
    found = jobs(
        tmp_path,
        '[[app]]\nname = "z"\non = ["cpu"]\ncommand = ["z", "--in={file}", "{mode}", "{device}"]\n'
        '[[job]]\napp = "z"\ninputs = { mode = "fast" }\n'
        'grid = { file = ["{a}.csv", "b.csv", "none.csv"] }\n',
    )
    assert [dict(job.inputs) for job in found.values()] == [
        {"mode": "fast", "file_bytes": 5.0},
        {"mode": "fast", "file_bytes": 7.0},
        {"mode": "fast", "file": "none.csv"},
    ]
    assert [_argv(job)[1:3] for job in found.values()] == [
        ["--in={a}.csv", "fast"],
        ["--in=b.csv", "fast"],
        ["--in=none.csv", "fast"],
    ]
    assert {job.app.name for job in found.values()} == {"z"}


def test_a_command_of_a_jobs_own_is_known_by_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.csv").write_text("x" * 7)
    found = jobs(
        tmp_path,
        APP
        + '[[job]]\napp = "m"\ncommand = ["zip", "-k", "b.csv", "--on", "{device}", "--level", "3"]\n'
        + '[[job]]\napp = "m"\ncommand = ["zip", "{n}"]\ninputs = { n = 1 }\n',
    )
    assert dict(found["m-1"].inputs) == {"k_bytes": 7.0, "level": 3.0}
    assert _argv(found["m-1"])[-3:] == ["cpu", "--level", "3"]
    assert dict(found["m-2"].inputs) == {"n": 1.0}


def test_a_job_of_an_app_has_its_own_devices_and_models(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(
        '[[app]]\nname = "fit"\n'
        '[[app.implementation]]\nname = "g"\nkind = "gpu"\ncommand = ["true"]\n'
        '[[app.implementation]]\nname = "c"\nkind = "cpu"\ncommand = ["true"]\ncpus = 3\n'
        '[[job]]\napp = "fit"\n[[job]]\napp = "fit"\ngpus = 2\n[[job]]\napp = "fit"\ngpus = "auto"\n'
        '[[job]]\napp = "fit"\nmodels = ["T4"]\n[[job]]\napp = "fit"\nmodels = ["A100"]\n'
    )
    jobs = load_jobfile(path).jobs
    asked = [{c.implementation.name: c.request for c in job.choices} for job in jobs]
    assert [one["g"].devices for one in asked] == [(("gpu", n),) for n in (1.0, 2.0, 1.0, 1.0, 1.0)]
    assert [one["g"].sharing for one in asked] == [False, False, True, False, False]
    assert [one["g"].models for one in asked] == [(), (), (), ("T4",), ("A100",)]
    assert all(one["c"].cpus == 3 for one in asked)
