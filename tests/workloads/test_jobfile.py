import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.model import HOST_CPUS, WHOLE_POOL, Job, Request, Workload
from dovetail.testing.builders import full
from dovetail.workloads.jobfile import load_jobfile

# The example of the contract, word for word.
CONTRACT = """\
[[app]]
name = "mm"

[[app.implementation]]
name = "cpu"                          # unique within the app
kind = "cpu"                          # cpu | gpu | cpu+gpu | opencl | any device kind of the cluster
command = ["./mm_cpu", "{n}"]         # argv with {input} placeholders, never through a shell
env = { OMP_SCHEDULE = "static" }     # optional
cpus = 8                              # per node; defaults below
gpus = 1                              # per node: devices of the kind; a fraction below 1 shares one device
memory = 4e9                          # per node; default 0: not counted
time = 4.475                          # optional: true seconds, for simulation
times = { 2 = 221.0, 4 = 123.0 }      # optional: true seconds by node count (moldable)

[[app.implementation]]
name = "gpu"
command = ["./mm_gpu", "{n}"]

[[app]]
name = "train"                        # one command for both: {device} becomes cpu, cuda, opencl …
command = ["python", "train.py", "--device", "{device}", "--rows", "{rows}"]
on = ["cpu", "gpu"]

[[job]]
id = "a"                              # default: APP-1, APP-2 … in file order; with count: ID-1, ID-2 …
app = "mm"
inputs = { n = 2048 }                 # numbers are features of the prediction, strings are categories
times = { cpu = 4.475, gpu = 0.041 }  # optional: true seconds of this job by implementation
sequential = 7.3                      # optional: seconds on one core (Ravi's SQ); default: its cpu time
submit = 0.0
count = 1
nodes = 4                             # optional: nodes asked for (moldable jobs), default 1
implementation = "gpu"                # optional: asked for
speedup = { cpu = 5.1, gpu = 8.2 }    # optional: over one core (Ravi's MP, GP)
walltime = 3600                       # optional: a limit, not an estimate
user = "u1"                           # optional
priority = 0                          # optional; higher first, before file order
"""

APP = '[[app]]\nname = "m"\n'
CPU = APP + '[[app.implementation]]\nname = "cpu"\n'
BOTH = CPU + '[[app.implementation]]\nname = "gpu"\n'
JOB = '[[job]]\napp = "m"\n'


def written(folder: Path, text: str) -> str:
    path = folder / "jobs.toml"
    path.write_text(text)
    return str(path)


def load(folder: Path, text: str) -> Workload:
    return load_jobfile(written(folder, text))


def times(workload: Workload, job: Job) -> dict[tuple[str, int], float | None]:
    """True seconds of a job by implementation and node count, for each of its choices."""
    return {
        (c.implementation.name, c.request.nodes): workload.truth.seconds(job, c.implementation, c.request)
        for c in job.choices
    }


def test_the_file_of_the_contract(tmp_path: Path) -> None:
    workload = load(tmp_path, CONTRACT)
    (job,) = workload.jobs
    assert (job.id, job.app.name, job.nodes, job.implementation) == ("a", "mm", 4, "gpu")
    assert (job.walltime, job.user, job.priority, job.sequential) == (3600, "u1", 0, 7.3)
    assert dict(job.speedup) == {"cpu": 5.1, "gpu": 8.2}
    assert dict(job.inputs) == {"n": 2048.0}
    cpu, gpu = job.app.implementations
    assert cpu.request == Request(1, 8, (), 4_000_000_000)
    assert gpu.request == Request(1, HOST_CPUS, (("gpu", 1.0),))
    assert cpu.command is not None
    assert (cpu.command.argv, cpu.command.env) == (("./mm_cpu", "{n}"), (("OMP_SCHEDULE", "static"),))
    # The job's own times win over the app's, and exist at the node count asked for only.
    assert times(workload, job) == {("cpu", 4): 4.475, ("gpu", 4): 0.041}
    assert workload.fully_timed


def test_default_requests(tmp_path: Path) -> None:
    text = APP + "".join(
        f'[[app.implementation]]\nname = "{kind}"\n' for kind in ("cpu", "gpu", "cpu+gpu", "opencl")
    )
    (job,) = load(tmp_path, text + JOB).jobs
    assert [c.request for c in job.choices] == [
        Request(1, WHOLE_POOL, ()),
        Request(1, HOST_CPUS, (("gpu", 1.0),)),
        Request(1, WHOLE_POOL, (("gpu", 1.0),)),
        Request(1, HOST_CPUS, (("opencl", 1.0),)),
    ]


def test_requests_that_are_given(tmp_path: Path) -> None:
    text = APP + '[[app.implementation]]\nname = "x"\nkind = "gpu"\ncpus = 2\ngpus = 0.25\nmemory = 1.5\n'
    (job,) = load(tmp_path, text + 'models = ["T4"]\n' + JOB).jobs
    assert job.choices[0].request == Request(1, 2, (("gpu", 0.25),), 2, ("T4",))


def test_one_command_for_several_kinds(tmp_path: Path) -> None:
    text = APP + 'command = "python t.py --device {device}"\non = ["cpu", "gpu", "opencl"]\n' + JOB
    (job,) = load(tmp_path, text).jobs
    assert [i.kind for i in job.app.implementations] == ["cpu", "gpu", "opencl"]
    commands = {i.command.argv for i in job.app.implementations if i.command}
    assert commands == {("python", "t.py", "--device", "{device}")}


def test_a_job_may_bring_its_own_command(tmp_path: Path) -> None:
    text = BOTH + JOB + 'command = ["./other", "{n}"]\ninputs = { n = 1 }\n' + JOB
    own, plain = load(tmp_path, text).jobs
    assert [i.command.argv for i in own.app.implementations if i.command] == [("./other", "{n}")] * 2
    assert [i.command for i in plain.app.implementations] == [None, None]
    assert own.app.name == plain.app.name


def test_ids_and_file_order(tmp_path: Path) -> None:
    text = (
        CPU + JOB + "submit = 5\n" + JOB + 'id = "b"\ncount = 2\n' + JOB + "count = 2\n" + JOB + 'id = "z"\n'
    )
    jobs = load(tmp_path, text).jobs
    assert [(j.id, j.index) for j in jobs] == [
        ("b-1", 1), ("b-2", 2), ("m-2", 3), ("m-3", 4), ("z", 5), ("m-1", 0),
    ]  # fmt: skip
    assert [j.submit_time for j in jobs] == [0, 0, 0, 0, 0, 5]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ("times = { cpu = 2 }", {("cpu", 1): 2.0, ("gpu", 1): None}),
        ("sequential = 8\nspeedup = { cpu = 4, gpu = 16 }", {("cpu", 1): 2.0, ("gpu", 1): 0.5}),
        ("speedup = { cpu = 4, gpu = 16 }", {("cpu", 1): None, ("gpu", 1): None}),
        ("times = { cpu = 1 }\nsequential = 8\nspeedup = { gpu = 2 }", {("cpu", 1): 1.0, ("gpu", 1): 4.0}),
        ("times = { cpu = 6 }\nspeedup = { gpu = 3 }", {("cpu", 1): 6.0, ("gpu", 1): 2.0}),
        ("times = { cpu = 6 }\nspeedup = { cpu = 2, gpu = 3 }", {("cpu", 1): 6.0, ("gpu", 1): 2.0}),
        ("times = { cpu = { 1 = 4, 2 = 3 }, gpu = 1 }", {("cpu", 1): 4.0, ("cpu", 2): 3.0, ("gpu", 1): 1.0}),
    ],
)  # fmt: skip
def test_true_times(tmp_path: Path, job: str, expected: dict[tuple[str, int], float | None]) -> None:
    workload = load(tmp_path, BOTH + JOB + job)
    assert times(workload, workload.jobs[0]) == expected


@pytest.mark.parametrize(
    ("job", "nodes", "expected"),
    [
        ("times = { cpu = { 4 = 3, 2 = 5 } }", 2, {("cpu", 2): 5.0, ("cpu", 4): 3.0, ("gpu", 2): None}),
        ("times = { cpu = { 4 = 3 }, gpu = { 2 = 1 } }", 2, {("cpu", 4): 3.0, ("gpu", 2): 1.0}),
        ("times = { cpu = { 2 = 5 }, gpu = { 1 = 1 } }", 1, {("cpu", 2): 5.0, ("gpu", 1): 1.0}),
        (
            "times = { cpu = { 2 = 5 }, gpu = 1 }\nimplementation = 'cpu'",
            2,
            {("cpu", 2): 5.0, ("gpu", 2): 1.0},
        ),
    ],
)
def test_without_nodes_the_fewest_that_exist_are_asked_for(
    tmp_path: Path, job: str, nodes: int, expected: dict[tuple[str, int], float | None]
) -> None:
    """One, where one exists. An implementation that has no time follows the others."""
    workload = load(tmp_path, BOTH + JOB + job)
    (found,) = workload.jobs
    assert found.nodes == nodes
    assert times(workload, found) == expected


def test_times_of_the_app_and_moldable_jobs(tmp_path: Path) -> None:
    text = CPU + "times = { 4 = 123.0, 2 = 221.0 }\n" + '[[app.implementation]]\nname = "gpu"\ntime = 7\n'
    workload = load(tmp_path, text + JOB + "nodes = 2\n")
    (job,) = workload.jobs
    assert times(workload, job) == {("cpu", 2): 221.0, ("cpu", 4): 123.0, ("gpu", 2): 7.0}
    assert job.moldable
    assert [c.request.nodes for c in job.asked] == [2, 2]


def test_a_job_of_no_gpus_is_left_with_implementations_for_cpus(tmp_path: Path) -> None:
    """``gpus = 0`` says what leaving it out says of CPUs; a job's own takes its GPU implementations away."""
    text = CPU + "gpus = 0\ntime = 5\n" + BOTH.removeprefix(CPU) + "time = 2\n"
    own = "gpus = 0\ntimes = { cpu = 3, gpu = 1 }\n"
    plain, without = load_jobfile(written(tmp_path, text + JOB + JOB + own)).jobs
    assert [choice.implementation.name for choice in plain.asked] == ["cpu", "gpu"]
    assert [choice.implementation.name for choice in without.asked] == ["cpu"]
    assert not without.asked[0].request.devices


REFUSED = [
    ("", "empty file"),
    (CPU, "job: found nothing"),
    (JOB, "app: found nothing"),
    ("jobs = 1\n" + CPU + JOB, "unknown key 'jobs'"),
    (CPU + JOB + "tims = { cpu = 1 }", "job 1: found an unknown key 'tims'"),
    (CPU + JOB + "tims = { cpu = 1 }", "did you mean 'times'?"),
    (CPU + "cpuss = 1\n" + JOB, "app 1 'm', implementation 1 'cpu': found an unknown key 'cpuss'"),
    (CPU + "cpus = -3\n" + JOB, "cpus: found -3, expected a whole number of at least 0"),
    (CPU + "cpus = 0\n" + JOB, "cpus: found 0"),
    (CPU + "gpus = 1.5\n" + JOB, "gpus: found 1.5"),
    (BOTH + "gpus = 0\n" + JOB, "implementation 2 'gpu': gpus: found 0"),
    (BOTH.replace(CPU, APP) + JOB + "gpus = 0\n", "app 'm' has no implementation without devices"),
    (CPU + "memory = -1\n" + JOB, "memory: found -1"),
    (CPU + "time = nan\n" + JOB, "time: found nan"),
    (CPU + "time = true\n" + JOB, "time: found true"),
    (CPU + "time = 1e13\n" + JOB, "at most 1e+12"),
    (CPU + "times = {}\n" + JOB, "times: found an empty table"),
    (CPU + "times = { 0 = 1 }\n" + JOB, "times, 0: found '0', expected a number of nodes"),
    (CPU + "times = { x = 1 }\n" + JOB, "times, x: found 'x'"),
    (CPU + "times = { 2 = -1 }\n" + JOB, "times, 2: found -1"),
    (CPU + "kind = 'cpu+'\n" + JOB, "kind: found 'cpu+'"),
    (CPU + "kind = 'cpu+cpu'\n" + JOB, "kind: found 'cpu+cpu'"),
    (CPU + "env = { a = 1 }\n" + JOB, "env, a: found 1, expected text"),
    (CPU + "env = { 'a=b' = 'c' }\n" + JOB, "env: found 'a=b'"),
    (CPU + CPU + JOB, "app 2 'm': found the name 'm' twice"),
    (CPU + '[[app.implementation]]\nname = "cpu"\n' + JOB, "found the name 'cpu' twice"),
    (APP + JOB, "no implementation"),
    (APP + "on = ['cpu', 'cpu']\n" + JOB, "found the name 'cpu' twice"),
    (APP + "command = 'x'\n" + JOB, "a command without on"),
    (APP + "on = ['cpu']\n[[app.implementation]]\nname='cpu'\n" + JOB, "both on and [[app.implementation]]"),
    (CPU + "command = []\n" + JOB, "command: found an empty list"),
    (CPU + "command = ''\n" + JOB, "found no program"),
    (CPU + "command = \"x 'y\"\n" + JOB, "no closing quotation"),
    (CPU + "command = ['x', 3]\n" + JOB, "command 2: found 3, expected text"),
    (CPU + "command = ['x', '{']\n" + JOB, "a single '{'"),
    (CPU + 'command = ["x", "\\u0000"]\n' + JOB, "null character"),
    (CPU + "command = './x {k}'\n" + JOB, "app 'm', implementation 'cpu': found the unknown placeholder 'k'"),
    (CPU + JOB + "command = './x {k}'\ninputs = { n = 1 }", "'k', expected an input of the job (n)"),
    (CPU + JOB + "env = { A = '1' }", "env without command"),
    (CPU + "[[job]]\napp = 'n'", "job 1: app: found 'n'"),
    (CPU + "[[job]]\nid = 'x'\n", "job 1 'x', app: found nothing"),
    (CPU + JOB + "id = ''", "id: found ''"),
    (CPU + JOB + "id = ' x'", "id: found ' x'"),
    (CPU + JOB + "id = 'x'\n" + JOB + "id = 'x'", "job 2 'x': id: found 'x', which job 1 has already"),
    (CPU + JOB + JOB + "id = 'm-1'", "job 2 'm-1': id: found 'm-1'"),
    (CPU + JOB + "inputs = { a = true }", "inputs, a: found true"),
    (CPU + JOB + "inputs = { a = 1979-05-27 }", "inputs, a: found 1979-05-27"),
    (CPU + JOB + "inputs = { a = -1 }", "inputs, a: found -1"),
    (CPU + JOB + "inputs = { device = 1 }", "inputs: found 'device'"),
    (CPU + JOB + "times = { gpu = 1 }", "times: found 'gpu', expected an implementation of app 'm': cpu"),
    (CPU + JOB + "times = { cpu = { 2 = 1 } }\nnodes = 1", "nodes: found 1, expected a node count that"),
    (CPU + JOB + "times = { cpu = 'x' }", "times, cpu: found 'x', expected seconds"),
    (CPU + "times = { 2 = 1, 4 = 1 }\n" + JOB + "nodes = 3", "nodes: found 3, expected"),
    (BOTH + JOB + "nodes = 1\ntimes = { cpu = { 2 = 1 }, gpu = 1 }\nimplementation = 'cpu'", "nodes: found"),
    (CPU + JOB + "submit = -1", "submit: found -1"),
    (CPU + JOB + "submit = 'x'", "submit: found 'x', expected seconds"),
    (CPU + JOB + "count = 0", "count: found 0"),
    (CPU + JOB + "count = 1.0", "count: found 1.0"),
    (CPU + JOB + "nodes = true", "nodes: found true"),
    (CPU + JOB + "sequential = inf", "sequential: found inf"),
    (CPU + JOB + "speedup = { cpu = 0 }", "speedup, cpu: found 0"),
    (CPU + JOB + "speedup = { gpu = 1 }", "speedup: found 'gpu'"),
    (CPU + JOB + "sequential = 1e12\nspeedup = { cpu = 1e-9 }", "speedup, cpu: found 1e-09"),
    (CPU + JOB + "walltime = 0", "walltime: found 0"),
    (CPU + JOB + "priority = -1", "priority: found -1"),
    (CPU + JOB + "implementation = 'x'", "implementation: found 'x'"),
    (CPU + JOB + "user = 3", "user: found 3, expected a name"),
    (CPU + JOB + "app = 'm'", "a key or table a second time"),
    (CPU + JOB + "nodes = ", "line 7"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), REFUSED, ids=range(len(REFUSED)))
def test_each_malformed_field_is_answered_by_one_sentence(tmp_path: Path, text: str, expected: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_jobfile(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert expected in message
    assert "found" in message
    assert "expected" in message
    assert "\n" not in message


def test_further_faults_are_counted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"submit: found -1.* \(and 1 more\)$"):
        load(tmp_path, CPU + JOB + "submit = -1\nnodes = 0\n")


ODD = [
    *("-1", "nan", "-inf", "true", '""', "[]", "{}", "1e400", "1979-05-27", "'x'", "0.5", "[[0]]", "7", "]"),
    *("{ cpu = {} }", "{ cpu = { 1 = 2 } }", '["{", "}"]', '"{x}"', "'\"'", "0x" + "f" * 300, '"cpu+gpu"'),
]


@settings(
    deadline=None,
    derandomize=True,
    max_examples=full(300, 75),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_any_damage_ends_in_a_workload_or_a_sentence(tmp_path: Path, data: st.DataObject) -> None:
    lines = [line.partition(" #")[0].rstrip() for line in CONTRACT.splitlines()]
    for _ in range(data.draw(st.integers(1, 3))):
        i = data.draw(st.integers(0, len(lines) - 1))
        key, _, value = lines[i].partition(" = ")
        odd = data.draw(st.sampled_from([*ODD, value]))
        lines[i] = data.draw(st.sampled_from([f"{key} = {odd}", f"{key}x = {odd}", "", f"{lines[i]}\n" * 2]))
    message = ""
    try:
        workload = load(tmp_path, "\n".join(lines))
    except InputError as error:
        message = str(error)
    else:
        for job in workload.jobs:
            assert all(t is None or math.isfinite(t) for t in times(workload, job).values())
    assert "\n" not in message


@settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.binary(max_size=60))
def test_any_bytes_end_in_a_sentence(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "b.toml"
    path.write_bytes(data)
    with pytest.raises(InputError):
        load_jobfile(path)
