"""What is a batch script, and what its head holds."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dovetail.errors import InputError
from dovetail.files.moments import parse_begin
from dovetail.spec.sbatch import BY_LETTER, BY_NAME, SBATCH_OPTIONS, SBATCH_VARIABLES
from dovetail.workloads.batch.environment import exported_environment
from dovetail.workloads.batch.head import is_script
from dovetail.workloads.batch.options import head_options
from dovetail.workloads.batch.patterns import fill_pattern
from dovetail.workloads.batch.script import BatchScript, read_script
from dovetail.workloads.batch.submitting import script_part
from dovetail.workloads.batch.variables import Origin

ORIGIN = Origin("/home/ada", "login", "ada")


def read(*lines: str, environ: dict[str, str] | None = None, words: tuple[str, ...] = ()) -> BatchScript:
    text = "".join(f"{line}\n" for line in ("#!/bin/sh", *lines, "true"))
    return read_script(text, "job.sh", environ=environ or {}, words=words)


def fields(*options: str, **others: Any) -> dict[str, Any]:
    found = read(*(f"#SBATCH {one}" for one in options), **others)
    assert not found.refused, found.refused
    return found.fields


def refusal(*options: str) -> str:
    found = read(*(f"#SBATCH {one}" for one in options))
    assert found.refused
    with pytest.raises(InputError) as error:
        found.check()
    return str(error.value)


def variables(*options: str, **above: Any) -> dict[str, str]:
    found = script_part(read(*(f"#SBATCH {one}" for one in options)), (), above, ORIGIN)["variables"]
    assert isinstance(found, dict)
    return found


# -- what is a script ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\ntrue\n", "\n\n#!/bin/sh\ntrue\n", "\ufeff#!/bin/sh\n", "#SBATCH -n 2\ntrue\n",
        "true\n#SBATCH -n 2\n", "# a comment\n#DOVETAIL -c 2\ntrue\n", "\ufeff\n#SBATCH -n 2\n",
    ],
)  # fmt: skip
def test_a_script_is_never_a_list(text: str) -> None:
    assert is_script(text)


@pytest.mark.parametrize("text", ["", "true\n", "# SBATCH -n 2\ntrue\n", " #SBATCH -n 2\ntrue\n", "a #!\n"])
def test_a_list_is_no_script(text: str) -> None:
    assert not is_script(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("\n#!/bin/sh\n", "job.sh: line 1: found an empty line, expected #!"),
        ("#SBATCH -n 2\n", "job.sh: line 1: found '#SBATCH -n 2', expected #!"),
        ("#!/bin/sh\ntrue\r\n", r"job.sh: line 2: found DOS line ends (\r\n), expected UNIX"),
    ],
)
def test_what_sbatch_does_not_take_is_named(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        read_script(text, "job.sh", environ={})
    assert str(error.value).startswith(sentence)


def test_a_byte_order_mark_is_left_out() -> None:
    assert read_script("\ufeff#!/bin/sh\n#SBATCH -J a\n", "job.sh", environ={}).text.startswith("#!")


# -- the head ------------------------------------------------------------------------------------------


def test_the_head_goes_on_over_comments_and_blanks_to_the_first_command() -> None:
    found = read("", "  # more", "#SBATCH -J one", "cd /tmp", "#SBATCH -J two")
    assert found.fields == {"name": "one"}


def test_several_options_a_line_quotes_and_comments() -> None:
    assert fields("-J 'a b'c --mem=1M#x", "-t 5 # -t 9") == {
        "name": "a bc",
        "memory": 1 << 20,
        "walltime": 300.0,
    }


def test_a_value_may_stand_in_the_next_line() -> None:
    assert fields("--job-name", "late") == {"name": "late"}


def test_later_ones_win_the_environment_over_them_the_command_line_over_all() -> None:
    environ = {"SBATCH_TIMELIMIT": "3", "SBATCH_JOB_NAME": "e"}
    found = read("#SBATCH -t 1", "#SBATCH -t 2 -J s", environ=environ, words=("-J", "c"))
    assert found.fields == {"walltime": 180.0, "name": "c"}
    replaced = [note.effect for note in found.honoured if note.effect.startswith("replaced by")]
    assert sorted(replaced) == [
        "replaced by -J c (the command line)",
        "replaced by -t 2 (job.sh: line 3)",
        "replaced by SBATCH_JOB_NAME=e (the environment: SBATCH_JOB_NAME)",
        "replaced by SBATCH_TIMELIMIT=3 (the environment: SBATCH_TIMELIMIT)",
    ]


def test_our_own_lines_go_over_those_of_sbatch() -> None:
    part = script_part(read("#SBATCH -c 8 -t 5", "#DOVETAIL -c 2 --retries 3"), ("x",), {}, ORIGIN)
    assert (part["cpus"], part["retries"], part["walltime"], part["arguments"]) == (2, 3, 300.0, ["x"])
    assert part["variables"]["SLURM_CPUS_PER_TASK"] == "2"


def test_options_of_a_plugin_are_refused_one_by_one_and_may_be_left_to_slurm() -> None:
    found = read("#SBATCH --container-image ubuntu --comment=x", "#SBATCH --nosuch=1 -n 2 --container=/x")
    assert [note.line for note in found.refused] == [2, 3, 3]
    assert (found.fields["comment"], found.requested.tasks) == ("x", 2)
    with pytest.raises(InputError, match="which sbatch does not know"):
        found.check()
    found.leave_to_slurm()
    found.check()
    assert [one.as_word for one in head_options(found.text)][:2] == ["--comment=x", "--ntasks=2"]


def test_a_wrong_value_is_refused_beside_an_option_of_a_plugin() -> None:
    found = read("#SBATCH --container-image ubuntu -t soon")
    found.leave_to_slurm()
    assert [note.option for note in found.refused] == ["-t soon"]


def test_a_partition_without_a_name_is_none() -> None:
    found = read("#SBATCH --partition=")
    assert ("partition" in found.fields, found.refused) == (False, [])
    assert [note.sentence() for note in found.warned] == [
        "job.sh: line 2: --partition=: names no partition: the job may run in any"
    ]


def test_lines_of_other_batch_systems_are_warned_about() -> None:
    (note,) = read("#PBS -l nodes=2").warned
    assert note.sentence().startswith("job.sh: line 2: #PBS has no meaning here and is passed over")


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--cpus=3", "job.sh: line 2: found --cpus, which begins several options"),
        ("--nosuch", "job.sh: line 2: found --nosuch, which sbatch does not know without a plugin"),
        ("-J a b", "job.sh: line 2: b: found no option, expected one"),
        ("hetjob", "job.sh: line 2: found hetjob, a job of several components"),
        ("-t soon", "job.sh: line 2: -t soon: found 'soon', expected minutes"),
        ("--container=/x", "job.sh: line 2: --container=/x: the job would run outside its container"),
        ("--uid=0", "job.sh: line 2: --uid=0: jobs run as the service's account"),
        ("-d afterok:1?afterany:2,after:3", "job.sh: line 2: -d afterok:1?afterany:2,after:3: found"),
        ("--hint=cold", "job.sh: line 2: --hint=cold: found 'cold', expected some of compute_bound"),
        (
            "--distribution=nosuch",
            "job.sh: line 2: --distribution=nosuch: found 'nosuch', expected e.g. block",
        ),
        ("-B a", "job.sh: line 2: -B a: found 'a', expected SOCKETS[:CORES[:THREADS]]"),
        ("--switches=x", "job.sh: line 2: --switches=x: found 'x', expected a whole number"),
        ("--tmp=x", "job.sh: line 2: --tmp=x: found 'x', expected MiB"),
        ("--time-min=10 -t 5", "job.sh: line 2: --time-min=10: found more than the 300 s of --time"),
        ("--deadline=2020-01-01", "job.sh: line 2: --deadline=2020-01-01: found a moment that has passed"),
        ("--mail-type=", "job.sh: line 2: --mail-type=: found no type, expected some of NONE"),
        ("--nice=99999999999", "job.sh: line 2: --nice=99999999999: found '99999999999', expected a number"),
        ("-w n[1-3] -N 2", "job.sh: line 2: -N 2: found a list of 3 nodes, expected at most 2"),
        ("-w n[3-1]", "job.sh: line 2: -w n[3-1]: hostlist 'n[3-1]': found"),
        ("--mem-per-gpu=1G", "job.sh: line 2: --mem-per-gpu=1G: found --mem-per-gpu without GPUs"),
        ("--gpus-per-task=2", "job.sh: line 2: --gpus-per-task=2: found --gpus-per-task without tasks"),
        (
            "-n 2 -G 4 --gpus-per-task=1",
            "job.sh: line 2: -n 2: found 4 GPUs in all and 1 for each of 2 tasks",
        ),
        ("-G 1 --gpus-per-node=2", "job.sh: line 2: -G 1: found 1 GPUs in all and 2 a node"),
        (
            "-N 3 -G 4 --gpus-per-node=2",
            "job.sh: line 2: -N 3: found 4 GPUs in all and 2 a node, which are 2",
        ),
        ("--cpus-per-gpu=2 -c 2 -G 1", "job.sh: line 2: -c 2: found --cpus-per-gpu with --cpus-per-task"),
    ],
)
def test_what_is_refused_names_file_and_line(option: str, sentence: str) -> None:
    assert refusal(option).startswith(sentence)


def test_a_second_refusal_is_counted() -> None:
    assert refusal("-t soon", "-N none").endswith("(1 more: dovetail submit --explain-script FILE)")


# -- every option --------------------------------------------------------------------------------------


def test_names_and_letters_are_each_there_once() -> None:
    names = [name for option in SBATCH_OPTIONS for name in (option.name, *option.aliases)]
    assert len(names) == len(set(names)) == len(BY_NAME)
    assert len(BY_LETTER) == len([option for option in SBATCH_OPTIONS if option.short])
    assert [option.name for option in SBATCH_OPTIONS] == sorted(option.name for option in SBATCH_OPTIONS)
    assert len({variable.name for variable in SBATCH_VARIABLES}) == len(SBATCH_VARIABLES)


GOOD = {
    "array": "0-3", "begin": "now+1hour", "dependency": "afterok:1", "exclusive": "", "gres": "gpu:1",
    "kill-on-invalid-dep": "yes", "mail-type": "END", "mem": "1G", "mem-per-cpu": "1G", "mem-per-gpu": "1G",
    "open-mode": "append", "signal": "B:USR1@5", "tres-per-task": "cpu=2", "export": "ALL",
    "distribution": "block:cyclic", "gres-flags": "enforce-binding", "hint": "nomultithread",
    "mem-bind": "local", "profile": "task", "nodefile": "/etc/hostname", "export-file": "/dev/null",
}  # fmt: skip


@pytest.mark.parametrize("option", SBATCH_OPTIONS, ids=[option.name for option in SBATCH_OPTIONS])
def test_no_option_is_dropped_silently(option: Any) -> None:
    value = GOOD.get(option.name, "1" if option.value == "required" else "")
    found = read(f"#SBATCH --{option.name}" + (f"={value}" if value else ""))
    notes = [*found.honoured, *found.warned, *found.refused]
    assert any(f"--{option.name}" in note.option and note.line == 2 for note in notes)
    assert all(note.effect for note in notes)
    if option.treatment == "refused":
        assert found.refused
    if option.treatment == "warned":
        assert found.warned


# -- resources -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--mem-per-cpu=2G -c 3", {"cpus": 3, "memory": 6 << 30}),
        ("--mem-per-gpu=2G -G 2", {"cpus": 1, "gpus": 2, "on": ["gpu"], "memory": 4 << 30}),
        ("--gpus-per-task=2 -n 2", {"cpus": 2, "gpus": 4, "on": ["gpu"]}),
        ("-n 4 -N 2 -c 3", {"cpus": 6, "nodes": 2}),
        ("--ntasks-per-node=2 -n 6", {"cpus": 2, "nodes": 3}),
        ("--tasks-per-node=4", {"cpus": 4}),
        ("-G 3 -N 2", {"cpus": 1, "nodes": 2, "gpus": 2, "on": ["gpu"]}),
        ("--exclusive", {"cpus": "all"}),
        ("--exclusive --gres=gpu:1", {"cpus": "all", "gpus": 1, "on": ["gpu"], "exclusive": True}),
        ("--cpus-per-gpu=4 --gres=gpu:2", {"cpus": 8, "gpus": 2, "on": ["gpu"]}),
        ("--gres=gpu:a100:2,gpu:a100:1", {"cpus": 1, "gpus": 3, "on": ["gpu"], "models": ["a100"]}),
        ("--gres=nvme:100", {}),
        ("--gres=gpu:4 --gres=nvme:1", {}),
        ("--gres=gpu:0", {}),
        ("--gres=none", {}),
        ("--mincpus=4 -n 2", {"cpus": 4}),
        ("-O -n 8 -c 2", {"cpus": 2}),
        ("--tres-per-task=cpu=2,gres/gpu:v100=1,mem=1G -n 2",
         {"cpus": 4, "gpus": 2, "on": ["gpu"], "models": ["v100"], "memory": 2 << 30}),
        ("--tres-per-task=cpu:2,gres/gpu:v100:1,mem:1G -n 2",
         {"cpus": 4, "gpus": 2, "on": ["gpu"], "models": ["v100"], "memory": 2 << 30}),
    ],
)  # fmt: skip
def test_resources(options: str, expected: dict[str, Any]) -> None:
    assert fields(options) == expected


def test_a_kind_that_is_no_gpu_is_warned_about() -> None:
    (note,) = read("#SBATCH --gres=gpu:2,nvme:600").warned
    assert note.sentence().startswith("job.sh: line 2: --gres=gpu:2,nvme:600: nvme has no meaning here")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("-d 7", {"depends": ["afterany:7"]}),
        ("-d AfterOK:7:8_1,singleton", {"depends": ["afterok:7", "afterok:8_1"], "singleton": True}),
        ("-d afterok:7?afternotok:8", {"depends": ["?afterok:7", "?afternotok:8"]}),
        ("-d after:7+5,aftercorr:9", {"depends": ["after:7+5", "aftercorr:9"]}),
        ("-d afterburstbuffer:7", {"depends": ["afterany:7"]}),
        ("--signal=B:USR1@9 -t 1", {"signal": "B:USR1@9", "walltime": 60.0}),
        ("--signal=USR1", {}),
        ("--open-mode=a -o x -i y", {"append": True, "stdout": "x", "stdin": "y"}),
        ("--comment='a b' --wckey=w --account=c -q q",
         {"comment": "a b", "wckey": "w", "account": "c", "qos": "q"}),
        ("--no-requeue", {"restartable": False}),
        ("--nice", {"nice": 100}),
        ("-p a,b", {"partition": "a,b"}),
        ("--array=0-7:2%3,9", {"array": "0-7:2,9%3"}),
        ("--array=[1-3]%0", {"array": "1-3"}),
        ("--mail-type=NONE", {}),
    ],
)  # fmt: skip
def test_other_options(options: str, expected: dict[str, Any]) -> None:
    assert fields(options) == expected


# -- variables, environment, files ---------------------------------------------------------------------


def test_variables_of_a_job() -> None:
    found = variables("-n 6 -N 2 -c 2 --mem=2G -J name -p p -A acc")
    assert found["SLURM_NTASKS"] == found["SLURM_NPROCS"] == "6"
    assert found["SLURM_TASKS_PER_NODE"] == "3(x2)"
    assert (found["SLURM_CPUS_PER_TASK"], found["SLURM_MEM_PER_NODE"]) == ("2", "2048")
    assert (found["SLURM_SUBMIT_DIR"], found["SLURM_SUBMIT_HOST"], found["SLURM_JOB_USER"]) == (
        *("/home/ada", "login", "ada"),
    )
    assert (found["SLURM_JOB_NAME"], found["SLURM_JOB_ACCOUNT"]) == ("name", "acc")
    assert "SLURM_ARRAY_TASK_ID" not in found


def test_variables_of_an_array() -> None:
    found = variables("-a 2-8:3")
    names = ("COUNT", "MIN", "MAX", "STEP")
    assert [found[f"SLURM_ARRAY_TASK_{name}"] for name in names] == ["3", "2", "8", "3"]


def test_variables_follow_what_the_command_line_has() -> None:
    found = variables("-n 4 -c 1", cpus=8, nodes=2, name="other", array="1-2")
    assert (found["SLURM_CPUS_PER_TASK"], found["SLURM_NTASKS"], found["SLURM_JOB_NAME"]) == (
        "2",
        "8",
        "other",
    )
    assert found["SLURM_ARRAY_TASK_COUNT"] == "2"


def test_every_variable_of_the_page_is_set_or_has_a_reason() -> None:
    found = variables(
        "-a 1-2 -d afterok:1 -A a -q q --wckey=w --open-mode=append -O -m block --export=ALL",
        "--hint=multithread",
        "--cpus-per-gpu=1 -G 2 --gpus-per-node=2 --gpus-per-task=1 --gpus-per-socket=1 -n 2",
        "--sockets-per-node=1 --mem-per-gpu=1 --ntasks-per-node=2 --ntasks-per-core=1",
        "--ntasks-per-socket=1 --threads-per-core=1",
    )
    found |= variables("--ntasks-per-gpu=1 -G 2")  # sbatch refuses it beside --gpus-per-task
    found |= variables("--mem=1") | variables("--mem-per-cpu=1")
    known = {variable.name for variable in SBATCH_VARIABLES if variable.set_if != "never"}
    assert found.keys() == known


@pytest.mark.parametrize(
    ("pattern", "expected", "unknown"),
    [
        ("%x-%j", "a b-\0j", []),
        ("%4j.%A_%a", "\x004j.\0A_\0a", []),
        ("%3a%b", "\x003a\0b", []),
        ("%N.%n.%t.%2t.%s.%u.%%", "\0H.0.0.00.batch.ada.%", []),
        ("%q.%", "%q.%", ["%q", "%"]),
        (r"\%j", "%j", []),
    ],
)
def test_names_of_files(pattern: str, expected: str, unknown: list[str]) -> None:
    assert fill_pattern(pattern, "a b", "ada", is_array=True) == (expected, unknown)


def test_an_unknown_sign_is_warned_about() -> None:
    (note,) = read("#SBATCH -o run.%q.out").warned
    assert note.effect == "%q stands for nothing and is left as it is"


def test_exports() -> None:
    around = {"A": "1", "B": "2", "SLURM_X": "3"}
    assert exported_environment(around, "ALL") == around
    assert exported_environment(around, "NONE").keys() - {"HOME", "USER", "LOGNAME", "SHELL", "PATH"} == {
        "SLURM_X"
    }
    assert exported_environment(around, "A,C=5,D='x,y'")["D"] == "x,y"
    assert exported_environment(around, "A,C=5").keys() >= {"A", "C", "SLURM_X", "PATH"}
    assert "B" not in exported_environment(around, "A")
    assert exported_environment(around, "B=9,ALL")["B"] == "2"  # in order, as sbatch has it
    assert exported_environment(around, "ALL,B=9")["B"] == "9"


NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-03-04T12:00"), ("now+90", "2026-03-04T12:01:30"), ("now+2weeks", "2026-03-18T12:00"),
        ("13:30", "2026-03-04T13:30"), ("11:30", "2026-03-05T11:30"), ("1:30pm", "2026-03-04T13:30"),
        ("12:15 am", "2026-03-05T00:15"), ("noon", "2026-03-05T12:00"), ("fika", "2026-03-04T15:00"),
        ("tomorrow", "2026-03-05T00:00"), ("tomorrow 9:00", "2026-03-05T09:00"),
        ("12/24", "2026-12-24T00:00"),
        ("0101", "2027-01-01T00:00"), ("010230", "2030-01-02T00:00"), ("1/2/30-10:00", "2030-01-02T10:00"),
        ("2030-01-02T03:04:05", "2030-01-02T03:04:05"),
        ("uts1893553445", "2030-01-02T03:04:05"), ("16:00-12/24", "2026-12-24T16:00"),
        ("noon tomorrow", "2026-03-05T12:00"), ("tomorrowT16:00", "2026-03-05T16:00"),
        ("2030-01-2T", "2030-01-02T00:00"), ("0:30pm", "2026-03-04T12:30"),
        ("12:00:50", "2026-03-05T12:00:50"),
    ],
)  # fmt: skip
def test_moments(text: str, expected: str) -> None:
    assert parse_begin(text, NOW) == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        *("", "soon", "25:00", "2030-02-30", "now+1fortnight", "13:00pm", "4pm", "now-", "12/24/2030"),
        *("uts5", "noon 16:00", "tomorrow 12/24", "16:000"),
    ],
)
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(ValueError, match="a moment such as"):
        parse_begin(text, NOW)


@pytest.mark.parametrize(
    ("options", "nodes", "tasks"),
    [
        ("-w n[1-3]", 3, 3),
        ("-w n1,n1", 1, 1),
        ("-w n[1-3] -N 2-4", 3, 3),
        ("-w n[1-3] -n 6", 3, 6),
        ("-G 4 --gpus-per-node=1", 4, 4),
        ("-G 5 --gpus-per-node=2", 3, 3),
        ("-G 4 --gpus-per-node=2 -N 1-4", 2, 2),
        ("--gpus-per-node=2 --gpus-per-task=1 -N 2", 2, 2),
        ("-N 0", 1, 1),
    ],
)
def test_nodes_that_follow_from_a_list_or_from_gpus(options: str, nodes: int, tasks: int) -> None:
    shares = read(f"#SBATCH {options}").shares
    assert shares is not None
    assert (shares.nodes, shares.tasks) == (nodes, tasks)


def test_gpus_of_a_node_in_two_ways_add_up_as_in_sbatch() -> None:
    assert read("#SBATCH --gres=gpu:1 --gpus-per-node=2").fields["gpus"] == 3
    assert read("#SBATCH --gres=gpu:1", "#SBATCH --gres=gpu:2").fields["gpus"] == 2


@pytest.mark.parametrize(
    ("names", "nodes"),
    [("n1\nn1\nn2\n", 2), ("# c\nn1*2\nn2 # d\n\nn5,n6\n", 4), ("n[1-3] n7\n", 4), ("m[1-2],m9", 3)],
)
@pytest.mark.parametrize("option", ["-F", "-w"])
def test_nodes_of_a_file(tmp_path: Path, option: str, names: str, nodes: int) -> None:
    path = tmp_path / "nodes"
    path.write_text(names)
    found = read(f"#SBATCH {option} {path}")
    assert found.shares is not None
    assert (found.shares.nodes, len(found.warned)) == (nodes, 1)


@pytest.mark.parametrize(
    ("lines", "whole"),
    [
        (["--exclusive", "-s"], False),
        (["-s", "--exclusive"], True),
        (["-s --exclusive"], True),
        (["-s"], False),
    ],
)
def test_sharing_and_not_sharing_are_one_setting(lines: list[str], whole: bool) -> None:
    assert read(*(f"#SBATCH {line}" for line in lines)).requested.exclusive == whole


@pytest.mark.parametrize(
    ("lines", "events"),
    [
        (["BEGIN", "END", "FAIL"], "BEGIN,END,FAIL"),
        (["END", "NONE"], "END"),
        (["NONE", "END,FAIL"], "END,FAIL"),
        (["END", "END,BEGIN"], "END,BEGIN"),
    ],
)
def test_events_of_several_lines_add_up(lines: list[str], events: str) -> None:
    assert read(*(f"#SBATCH --mail-type={line}" for line in lines)).fields["mail_type"] == events


@pytest.mark.parametrize(
    ("text", "depends"),
    [
        ("after:5+3:6", ["after:5+3", "after:6+3"]),
        ("after:5:6+3:7+4:8", ["after:5", "after:6+3", "after:7+4", "after:8+4"]),
        ("afterok:5(unfulfilled):06", ["afterok:5", "afterok:6"]),
    ],
)
def test_minutes_and_states_of_dependencies(text: str, depends: list[str]) -> None:
    assert read(f"#SBATCH -d {text}").fields["depends"] == depends


@pytest.mark.parametrize("text", ["afterok:0", "after:5+0", "1?2", "1+5", "afterok:5x"])
def test_what_is_no_dependency(text: str) -> None:
    assert read(f"#SBATCH -d {text}").refused


def test_what_earlier_versions_take_for_an_abbreviation_is_one() -> None:
    assert "reservation" in read("#SBATCH --res=maintenance").places
    assert read("#SBATCH --re").refused


@pytest.mark.parametrize(("text", "array"), [("1-3%", "1-3"), ("%2", "0%2"), ("", None)])
def test_arrays_that_are_hardly_any(text: str, array: str | None) -> None:
    found = read(f"#SBATCH --array={text}")
    assert (found.fields.get("array"), found.refused) == (array, [])


def test_mail_is_kept_as_fields() -> None:
    found = read("#SBATCH --mail-type=end,,fail,end --mail-user=ada")
    assert (found.fields["mail_type"], found.fields["mail_user"]) == ("END,FAIL", "ada")
    assert "mail_type" not in read("#SBATCH --mail-type=END,NONE").fields


def test_an_older_word_for_sbatch() -> None:
    assert read("#SLURM -N 2").fields["nodes"] == 2
