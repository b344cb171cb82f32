import io
import os
import shlex
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.model import HOST_CPUS, WHOLE_POOL, Workload
from dovetail.model.templates import render_template
from dovetail.programs.identity import identify_command
from dovetail.workloads.commands import command_workload, load_commands
from dovetail.workloads.load import load_workload


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
        ("python3 -m pkg.mod 1024", "python:pkg.mod", {"arg1": 1024.0}),
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
    identity = identify_command(shlex.split(command), cwd=folder)
    assert identity.app == app
    assert dict(identity.inputs) == inputs


def test_a_file_that_a_program_writes_does_not_change_what_it_is_taken_for(folder: Path) -> None:
    argv = ["python", "train.py", "--out", "model.bin", "data.csv"]
    before = identify_command(argv, cwd=folder)
    (folder / "model.bin").write_text("weights")
    assert identify_command(argv, cwd=folder).inputs == before.inputs


def test_the_app_is_named_and_inputs_are_dropped_and_added(folder: Path) -> None:
    argv = ["python", "train.py", "--tag", "monday", "--rows", "5"]
    identity = identify_command(
        argv, cwd=folder, app="fit", drop=["tag", "gone"], add=["cols=7", "data=small"]
    )
    assert identity.app == "fit"
    assert dict(identity.inputs) == {"rows": 5.0, "cols": 7.0, "data": "small"}
    assert "app 'fit' (as named)" in identity.explanation
    assert "tag: dropped" in identity.explanation
    assert "rows = 5 (--rows)" in identity.explanation


@pytest.mark.parametrize("text", ["", "cols", "=7"])
def test_a_malformed_added_input_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="feature: found"):
        identify_command(["true"], add=[text])


def test_no_program_is_refused() -> None:
    for argv in ([], [""]):
        with pytest.raises(InputError, match="no program"):
            identify_command(argv)


def test_one_job_a_line_for_each_kind(folder: Path) -> None:
    path = folder / "c.txt"
    path.write_text("# a list\n\ntrue  # comment\nA=1 B='x y' sleep 2\ntrue\npython t.py '{x}' {device}\n")
    workload = load_commands(path, on=["cpu", "gpu"], cwd=folder)
    assert [job.id for job in workload.jobs] == ["true-1", "sleep-1", "true-2", "python-1"]
    assert [job.index for job in workload.jobs] == [0, 1, 2, 3]
    assert workload.jobs[0].app is workload.jobs[2].app
    _, sleep, _, python = workload.jobs
    assert [i.kind for i in sleep.app.implementations] == ["cpu", "gpu"]
    assert [c.request.cpus for c in sleep.choices] == [1, HOST_CPUS]
    command = python.app.implementations[0].command
    assert command is not None
    # Quotes make braces text; outside of them only known names stand between braces.
    assert [render_template(word, {"device": "cuda"}) for word in command.argv] == [
        "python",
        "t.py",
        "{x}",
        "cuda",
    ]
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
        ("a\0b", "binary data"),
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


@settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
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
    template = identify_command(argv, cwd="/").argv
    assert [render_template(word, {"device": "{device}"}) for word in template] == argv


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


def _argvs(workload: Workload) -> list[list[str]]:
    commands = [job.app.implementations[0].command for job in workload.jobs]
    return [
        [render_template(word, {}) for word in command.argv] for command in commands if command is not None
    ]


def _listed(folder: Path, text: str, **options: Any) -> Workload:
    (folder / "c.txt").write_text(text)
    return load_commands(folder / "c.txt", cwd=folder, **options)


def test_lines_are_repeated_for_each_combination(folder: Path) -> None:
    found = _listed(
        folder,
        "fit --lr {lr} --seed {seed} -o 'm-{lr}.pt'\ncount {seed}\nplain\n",
        each=["lr=0.10,1e-3", "seed=1..2"],
    )
    assert _argvs(found) == [
        ["fit", "--lr", "0.10", "--seed", "1", "-o", "m-0.10.pt"],
        ["fit", "--lr", "0.10", "--seed", "2", "-o", "m-0.10.pt"],
        ["fit", "--lr", "1e-3", "--seed", "1", "-o", "m-1e-3.pt"],
        ["fit", "--lr", "1e-3", "--seed", "2", "-o", "m-1e-3.pt"],
        ["count", "1"],
        ["count", "2"],
        ["plain"],
    ]
    assert dict(found.jobs[3].inputs) == {"lr": 0.001, "seed": 2.0}
    assert [job.id for job in found.jobs][:5] == ["fit-1", "fit-2", "fit-3", "fit-4", "count-1"]


def test_what_is_filled_in_is_not_expanded(folder: Path) -> None:
    assert _argvs(_listed(folder, "show {x}", each=["x=$HOME,~"])) == [["show", "$HOME"], ["show", "~"]]


@pytest.mark.parametrize(
    ("text", "each", "message"),
    [
        ("true\nfit --lr {lr}", [], "c.txt: line 2: found the unknown placeholder '{lr}', expected a name"),
        ("fit {lr} {sede}", ["lr=1"], "line 1: found the unknown placeholder '{sede}', expected a name"),
        ("fit", ["lr=1"], "--each: found the name 'lr', expected {lr} in a command"),
        ("fit '{{lr}}'", ["lr=1"], "--each: found the name 'lr', expected {lr} in a command"),
    ],
)
def test_unknown_placeholders_are_refused(folder: Path, text: str, each: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        _listed(folder, text, each=each)
    assert message in str(caught.value)


def test_a_single_command_knows_its_placeholders() -> None:
    with pytest.raises(InputError, match=r"unknown placeholder '\{lr\}'"):
        command_workload(["fit", "--lr", "{lr}"])
    assert _argvs(command_workload(["fit", "{{lr}}", "{a b}", "{}", "${x}"])) == [
        ["fit", "{lr}", "{a b}", "{}", "${x}"]
    ]


@pytest.mark.parametrize("text", ["awk '{print}' x", "echo {} {a,b} {1..3} ${HOME}", 'p "{x}"', "p {{x}} {}"])
def test_other_braces_stand_for_themselves(folder: Path, text: str) -> None:
    assert len(_listed(folder, text).jobs) == 1


def test_homes_variables_and_patterns_are_expanded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    found = _listed(folder, "A=$HOME/b cat ~/a '$HOME' *.csv tra*.py --all=*.none")
    assert _argvs(found) == [["cat", "/home/x/a", "$HOME", "data.csv", "train.py", "--all=*.none"]]
    command = found.jobs[0].app.implementations[0].command
    assert command is not None
    assert command.env == (("A", "/home/x/b"),)
    assert _argvs(command_workload(["cat", "$HOME", "*.csv"])) == [["cat", "$HOME", "*.csv"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat *.none", "line 1: found '*.none', expected files of that pattern"),
        ("\ncat $NO_SUCH_VARIABLE", "line 2: found $NO_SUCH_VARIABLE, expected a variable that is set"),
    ],
)
def test_what_cannot_be_expanded_is_refused(folder: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        _listed(folder, text)
    assert message in str(caught.value)


def test_commands_ask_for_the_cpus_that_are_wanted(folder: Path) -> None:
    kinds = ["cpu", "cpu+gpu", "gpu"]
    for cpus, asked in ((None, 1), (3, 3), ("all", WHOLE_POOL)):
        (job,) = command_workload(["true"], on=kinds, cpus=cpus).jobs  # type: ignore[arg-type]
        assert [c.request.cpus for c in job.choices] == [asked, asked, HOST_CPUS]
    with pytest.raises(InputError, match="--cpus: found 0, expected"):
        command_workload(["true"], cpus=0)


class _Stdin:
    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def test_standard_input_is_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", _Stdin(b"true\nsleep 1\n"))
    found = load_workload("-", on=["cpu"])
    assert found.name == "standard input"
    assert [job.id for job in found.jobs] == ["true-1", "sleep-1"]
    for data, message in (
        (b"", "found nothing, expected commands"),
        (b"a\n\xff", "line 2: found a byte 0xff"),
    ):
        monkeypatch.setattr("sys.stdin", _Stdin(data))
        with pytest.raises(InputError, match=message):
            load_workload("-")


def test_a_pipe_is_a_list(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)

    def write(text: str) -> threading.Thread:
        thread = threading.Thread(target=lambda: path.write_text(text))
        thread.start()
        return thread

    thread = write("true\n")
    assert [job.id for job in load_workload(path).jobs] == ["true-1"]
    thread.join()
    thread = write("JobID|Submit|State|Elapsed\n1|2024-01-01T00:00:00|COMPLETED|1\n")
    with pytest.raises(InputError, match="found the output of sacct"):
        load_workload(path)
    thread.join()


def test_options_of_lists_are_refused_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "j.toml").write_text("[[app]]\nname = 'a'\non = ['cpu']\n[[job]]\napp = 'a'\n")
    for options in ({"each": ["a=1"]}, {"cpus": 2}):
        with pytest.raises(InputError, match="which a job file does not take"):
            load_workload(tmp_path / "j.toml", **options)  # type: ignore[arg-type]


TABLES = {
    "sacct, as it prints by default": """\
JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
1234              sleep      debug       root          1  COMPLETED      0:0
1234.batch        batch                  root          1  COMPLETED      0:0
""",
    "sacct -n": "1234   sleep   debug   root   1   COMPLETED   0:0 \n1234.0 true root 1 FAILED 1:0\n",
    "sacct -n, an array": "1234_5   sleep   debug   root   1   COMPLETED   0:0 \n",
    "sacct -n, a heterogeneous job": "1234+0   sleep   debug   root   1   COMPLETED   0:0 \n",
    "sacct -n, a waiting array": "1234_[4-6]   sleep   debug   root   1   PENDING   0:0 \n",
    "sacct -n --format JobName": "     sleep      debug  COMPLETED \n      true      debug     FAILED \n",
    "sacct with names first": "  JobName     JobID \n--------- --------- \n    sleep      1234 \n",
    "sacct -n -P": "1234|sleep|debug|root|1|COMPLETED|0:0\n",
    "sacct -n -P, names first": "sleep|1234|debug|root|COMPLETED\nbash -c x|1235|debug|root|FAILED\n",
    "sacct -P without the columns needed": "JobID|JobName\n1|sleep\n",
    "squeue": "   JOBID PARTITION  NAME  USER ST\n      12     debug sleep  root  R\n",
    "SWF": "; Version: 2.2\n1 0 -1 10 4 -1 -1 4 -1 -1 1 1 1 -1 1 -1 -1 -1\n",
    "SWF without a header": "    1 0 -1 10 4 -1 -1 4 -1 -1 1 1 1 -1 1 -1 -1 -1\n",
    "CSV": "job_id,user,gpus\n1,a,2\n",
    "JSON": '{"jobs": []}\n',
    "JSON lines": '{"app": "a"}\n{"app": "b"}\n',
    "a job file": "[[app]]\nname = 'a'\n",
    "a job file with comments": "# jobs\n\n[[job]]\napp = 'a'\n",
    "a table of TOML": "[job.communication]\nother = 1\n",
    "HTML": "<!doctype html>\n<p>\n",
    "moments first": "2024-01-01T00:00:00 sleep COMPLETED\n",
    "a script": "cd /tmp\ntrue\n",
    "a loop": "for i in 1 2\ndo\ntrue\ndone\n",
}


@pytest.mark.parametrize("on", [[], ["cpu"]])
@pytest.mark.parametrize("text", TABLES.values(), ids=TABLES.keys())
def test_what_is_no_list_is_never_read_as_one(tmp_path: Path, text: str, on: list[str]) -> None:
    for name in ("jobs.txt", "jobs", "jobs.sh"):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError) as caught:
            load_workload(tmp_path / name, on=on)
        assert "line " in str(caught.value)
    with pytest.raises(InputError):
        load_commands(tmp_path / "jobs.txt")


@pytest.mark.parametrize(
    "text",
    [
        "sacct --state COMPLETED\n",
        "./requeue -s FAILED 12\ntrue\n",
        "7z a x.7z y\n",
        "./2.sh\n",
        "echo COMPLETED\ntrue\n",
    ],
)
def test_commands_that_look_a_little_like_tables_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.txt").write_text(text)
    assert load_commands(tmp_path / "c.txt").jobs
