import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.model import HOST_CPUS, WHOLE_POOL, Workload
from dovetail.model.templates import render
from dovetail.workloads.commands import command_workload, identify, load_commands


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print()")
    (tmp_path / "data.csv").write_text("x" * 123)
    (tmp_path / "run.sh").write_text("true")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "app", "inputs"),
    [
        ("/bin/true", "true", {}),
        ("sleep 0.5", "sleep", {"arg1": 0.5}),
        (
            "python train.py --device {device} --rows 1e6 data.csv",
            "python:train.py",
            {"rows": 1e6, "arg1_bytes": 123.0},
        ),
        ("python train.py --rows=1e6", "python:train.py", {"rows": 1e6}),
        ("python -u train.py 7", "python:train.py", {"arg1": 7.0}),
        ("python3 -m pkg.mod 1024", "python3:pkg.mod", {"arg1": 1024.0}),
        ("python gone.py 3", "python", {"arg1": "gone.py", "arg2": 3.0}),
        ("python -c 'print(1)' 3", "python", {"c": "print(1)", "arg1": 3.0}),
        ("./run.sh -n5 --mode fast", "run.sh", {"n": 5.0, "mode": "fast"}),
        ("sh run.sh --verbose", "sh:run.sh", {"verbose": "yes"}),
        ("dd if=data.csv bs=1M skip=2Ki", "dd", {"if_bytes": 123.0, "bs": 1e6, "skip": 2048.0}),
        ("xz -9 --keep data.csv", "xz", {"9": "yes", "keep_bytes": 123.0}),
        ("prog --shift -3 --x=nan --big 1e999", "prog", {"shift": "-3", "x": "nan", "big": "1e999"}),
        ("prog --n 1 --n 2", "prog", {"n": 1.0, "n_2": 2.0}),
        ("prog -o out.bin --output=y --log-file z of=q 3", "prog", {"arg2": 3.0}),
        ("prog matmul - -- {device}", "prog", {"arg1": "matmul"}),
    ],
)  # fmt: skip
def test_apps_and_inputs(folder: Path, command: str, app: str, inputs: dict[str, float | str]) -> None:
    identity = identify(shlex.split(command), cwd=folder)
    assert identity.app == app
    assert dict(identity.inputs) == inputs


def test_a_file_that_a_program_writes_does_not_change_what_it_is_taken_for(folder: Path) -> None:
    argv = ["python", "train.py", "--out", "model.bin", "data.csv"]
    before = identify(argv, cwd=folder)
    (folder / "model.bin").write_text("weights")
    assert identify(argv, cwd=folder).inputs == before.inputs


def test_the_app_is_named_and_inputs_are_dropped_and_added(folder: Path) -> None:
    argv = ["python", "train.py", "--tag", "monday", "--rows", "5"]
    identity = identify(argv, cwd=folder, app="fit", drop=["tag", "gone"], add=["cols=7", "data=small"])
    assert identity.app == "fit"
    assert dict(identity.inputs) == {"rows": 5.0, "cols": 7.0, "data": "small"}
    assert "app 'fit' (as named)" in identity.explanation
    assert "tag: dropped" in identity.explanation
    assert "rows = 5 (--rows)" in identity.explanation


@pytest.mark.parametrize("text", ["", "cols", "=7"])
def test_a_malformed_added_input_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="feature: found"):
        identify(["true"], add=[text])


def test_no_program_is_refused() -> None:
    for argv in ([], [""]):
        with pytest.raises(InputError, match="no program"):
            identify(argv)


def test_one_job_a_line_for_each_kind(folder: Path) -> None:
    path = folder / "c.txt"
    path.write_text("# a list\n\ntrue  # comment\nA=1 B='x y' sleep 2\ntrue\npython t.py '{x}' {device}\n")
    workload = load_commands(path, on=["cpu", "gpu"], cwd=folder)
    assert [job.id for job in workload.jobs] == ["true-1", "sleep-1", "true-2", "python-1"]
    assert [job.index for job in workload.jobs] == [0, 1, 2, 3]
    assert workload.jobs[0].app is workload.jobs[2].app
    _, sleep, _, python = workload.jobs
    assert [i.kind for i in sleep.app.implementations] == ["cpu", "gpu"]
    assert [c.request.cpus for c in sleep.choices] == [WHOLE_POOL, HOST_CPUS]
    command = python.app.implementations[0].command
    assert command is not None
    assert [render(word, {"device": "cuda"}) for word in command.argv] == ["python", "t.py", "{x}", "cuda"]
    assert sleep.app.implementations[1].command is not None
    assert sleep.app.implementations[1].command.env == (("A", "1"), ("B", "x y"))
    assert not workload.fully_timed


def test_lines_run_on_the_cpu_unless_told_otherwise(folder: Path) -> None:
    (folder / "c.txt").write_text("true\n")
    (job,) = load_commands(folder / "c.txt").jobs
    assert [i.kind for i in job.app.implementations] == ["cpu"]


def test_a_single_command() -> None:
    (job,) = command_workload(["sleep", "1"], on=["opencl"]).jobs
    assert (job.id, job.app.name, dict(job.inputs)) == ("sleep-1", "sleep", {"arg1": 1.0})
    with pytest.raises(InputError, match="null character"):
        command_workload(["a", "\0"])
    with pytest.raises(InputError, match="no program"):
        command_workload([])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a | b", "line 1: found '|'"),
        ("\n\na > b", "line 3: found '>'"),
        ("a 2>&1", "found '2>&1'"),
        ("a >>log", "found '>>log'"),
        ("a <in", "found '<in'"),
        ("a && b", "found '&&'"),
        ("a &", "found '&'"),
        ("a ; b", "found ';'"),
        ("x 'y", "no closing quotation"),
        ("A=1", "no program"),
        ("a\0b", "null character"),
        ("# only this", "only comments"),
        ("", "empty file"),
    ],
)
def test_what_only_a_shell_understands_is_refused_with_its_line(
    tmp_path: Path, line: str, expected: str
) -> None:
    path = tmp_path / "c.txt"
    path.write_text(line)
    with pytest.raises(InputError) as caught:
        load_commands(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert expected in message
    assert "expected" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "line", ["a '|' b", "a \\> b", "sh -c 'a | b > c'", "a >=3", "a # | x", 'a ";"', "a=b c"]
)
def test_what_is_quoted_is_an_argument(tmp_path: Path, line: str) -> None:
    path = tmp_path / "c.txt"
    path.write_text(line)
    assert len(load_commands(path).jobs) == 1


@pytest.mark.parametrize("on", [["cpu", "cpu"], [""], ["cpu+"], ["cpu+cpu"], ["a+b"], ["x\n"]])
def test_malformed_kinds_are_refused(on: list[str]) -> None:
    with pytest.raises(InputError, match="--on: found"):
        command_workload(["true"], on=on)


@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=80) | st.text("ab '\"\\|>&;#={}-19.\n", max_size=40).map(str.encode))
def test_any_list_is_read_or_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "c.txt"
    path.write_bytes(data)
    workload: Workload | None = None
    message = ""
    try:
        workload = load_commands(path, cwd=tmp_path)
    except InputError as error:
        message = str(error)
    assert "\n" not in message
    assert workload is None or workload.jobs


@settings(deadline=None, derandomize=True)
@given(st.lists(st.text("ab{}device-=./19", min_size=1, max_size=12), min_size=1, max_size=5))
def test_the_template_gives_back_the_words(argv: list[str]) -> None:
    template = identify(argv, cwd="/").argv
    assert [render(word, {"device": "{device}"}) for word in template] == argv


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drop": ["nope"]}, "--drop: found 'nope', expected a feature of a command: arg1, rows"),
        ({"drop": ["rows", "rwos"]}, "--drop: found 'rwos', expected a feature of a command: arg1, rows"),
        ({"app": " "}, "--app: found an empty name, expected the app's name"),
    ],
)
def test_options_that_fit_no_command_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        command_workload(["count", "--rows", "3", "7"], **options)
    assert str(error.value) == message
