import json
import tempfile
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from option_values import value_of

from dovetail.errors import InputError
from dovetail.model import (
    WHOLE_POOL,
    App,
    Choice,
    Command,
    Communication,
    Dependency,
    Implementation,
    Job,
    Request,
    TableTruth,
    Workload,
    request_for,
)
from dovetail.spec.jobs import KEPT, job_option
from dovetail.testing.builders import full
from dovetail.workloads.jobfile import load_jobfile
from dovetail.workloads.jobfile_schema import AppEntry, ImplementationEntry, JobEntry
from dovetail.workloads.jobfile_writer import dump_jobfile
from dovetail.workloads.load import load_workload

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.sampled_from(["a", "b-1", "x y", 'q"uote', "back\\slash", "ü"])
SECONDS = st.floats(0, 1e6)


def essence(workload: Workload) -> list[object]:
    """All that two workloads have in common if one is a copy of the other."""
    return [
        (
            *(job.id, job.index, job.submit_time, job.nodes, job.walltime, job.user, job.group, job.queue),
            *(job.priority, job.implementation, job.sequential, dict(job.speedup), dict(job.inputs)),
            *(job.depends, job.retries, job.batch_options, job.name, job.options),
            *(job.communication, job.app.restartable),
            [
                (
                    *(c.implementation.name, c.implementation.kind, c.implementation.command, c.request),
                    workload.truth.seconds(job, c.implementation, c.request),
                )
                for c in job.choices
            ],
        )
        for job in workload.jobs
    ]


def copied(workload: Workload, folder: Path) -> Workload:
    path = folder / "copy.toml"
    path.write_text(dump_jobfile(workload))
    return load_jobfile(path)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    apps: list[App] = []
    for number in range(draw(st.integers(1, 3))):
        kinds = draw(st.lists(st.sampled_from(["cpu", "gpu", "cpu+gpu", "npu"]), min_size=1, unique=True))
        word = draw(TEXTS).replace("\0", "").replace("{", "{{").replace("}", "}}")
        command = Command(("prog", word, "{device}"), draw(st.sampled_from([(), (("A", word),)])))
        forms = []
        for kind in kinds:
            cpus = draw(st.sampled_from([None, 1, 3]))
            gpus = None if kind == "cpu" else draw(st.sampled_from([None, 0.25, 2.0]))
            request = request_for(kind, cpus=cpus, gpus=gpus, memory=draw(st.integers(0, 9)))
            forms.append(Implementation(f"{kind} {number}", kind, request, command))
        apps.append(App(f"app {number}", tuple(forms), draw(st.booleans())))
    jobs: list[Job] = []
    table: dict[tuple[str, str, int], float] = {}
    for index in range(draw(st.integers(1, 5))):
        app = draw(st.sampled_from(apps))
        nodes = draw(st.integers(1, 4))
        choices: list[Choice] = []
        for i in app.implementations:
            counts = draw(st.sampled_from([(nodes,), (nodes, nodes + 2)]))
            choices += [Choice(i, i.request.on(n)) for n in counts]
            if len(counts) > 1 or draw(st.booleans()):
                table.update({(f"j{index}", i.name, n): draw(SECONDS) for n in counts})
        inputs = draw(
            st.dictionaries(NAMES, st.one_of(st.floats(0, 1e300, exclude_max=True), TEXTS), max_size=2)
        )
        jobs.append(
            Job(
                f"j{index}",
                app,
                tuple(choices),
                index=index,
                submit_time=draw(SECONDS),
                inputs=inputs,
                nodes=nodes,
                walltime=draw(st.one_of(st.none(), st.floats(0.001, 1e9))),
                user=draw(st.one_of(st.none(), NAMES)),
                group=draw(st.one_of(st.none(), NAMES)),
                queue=draw(st.one_of(st.none(), NAMES)),
                priority=float(draw(st.integers(0, 3))),
                implementation=draw(st.one_of(st.none(), st.just(app.implementations[0].name))),
                depends=tuple(Dependency("afterok", f"j{n}") for n in range(index) if draw(st.booleans())),
                retries=draw(st.integers(0, 2)),
                batch_options=draw(st.sampled_from([(), ("--account=x", "-p debug")])),
                communication=draw(
                    st.sampled_from([None, Communication(1.5), Communication(0.0, 1e6, 2.0, 3.0)])
                ),
            )
        )
    return Workload("any", sorted(jobs, key=lambda j: (j.submit_time, j.index)), TableTruth(table))


@settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(workloads())
def test_a_written_workload_reads_as_itself(tmp_path: Path, workload: Workload) -> None:
    assert essence(copied(workload, tmp_path)) == essence(workload)


@pytest.mark.parametrize(
    "spec",
    [
        "published:gregg-table2",
        "published:ravi-single?mix=gpu75&pool=G&seed=3",
        "published:ravi-single-table",
        "published:ravi-multi?seed=2",
        "published:ravi-multi-table",
    ],
)
def test_published_workloads_are_exported(tmp_path: Path, spec: str) -> None:
    workload = load_workload(spec)
    assert essence(copied(workload, tmp_path)) == essence(workload)


def test_commands_are_exported_and_lines_of_one_app_keep_their_own(tmp_path: Path) -> None:
    path = tmp_path / "c.txt"
    path.write_text("sleep 1\nsleep 2\nA=1 awk '{print}' x\n")
    workload = load_workload(path, on=["cpu", "gpu"])
    text = dump_jobfile(workload)
    assert [app["name"] for app in tomllib.loads(text)["app"]] == ["sleep", "awk"]
    assert essence(copied(workload, tmp_path)) == essence(workload)


def test_apps_of_one_name_with_unlike_requests_are_numbered(tmp_path: Path) -> None:
    jobs = []
    for index, cpus in enumerate((1, 2, 1)):
        form = Implementation("cpu", "cpu", Request(1, cpus))
        jobs.append(Job(str(index), App("swf", (form,)), (Choice(form, form.request),), index=index))
    copy = copied(Workload("x", jobs, TableTruth()), tmp_path)
    assert [job.app.name for job in copy.jobs] == ["swf", "swf-2", "swf"]
    assert [job.choices[0].request.cpus for job in copy.jobs] == [1, 2, 1]


def test_jobs_that_need_no_app_are_written_without_one(tmp_path: Path) -> None:
    path = tmp_path / "j.toml"
    path.write_text(
        "[[job]]\nnodes = 2\ncpus = 3\ngpus = 2\nmemory = '1GiB'\n[job.communication]\nother = '1h'\n"
        "[[job]]\n[job.communication]\nother = 0\ngpu_bytes = '2GB'\n"
    )
    workload = load_jobfile(path)
    assert "app" not in tomllib.loads(dump_jobfile(workload))
    assert essence(copied(workload, tmp_path)) == essence(workload)


def test_commands_that_name_files_are_exported(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text("x" * 9)
    forms = "".join(
        f'[[app.implementation]]\nname = "{kind}"\ncommand = ["{kind}-zip", "{{file}}"]\n'
        for kind in ("cpu", "gpu")
    )
    path = tmp_path / "j.toml"
    path.write_text(
        f'[[app]]\nname = "zip"\n{forms}'
        f"[[job]]\napp = 'zip'\ninputs = {{ file = '{file}' }}\n"
        f"[[job]]\napp = 'zip'\ninputs = {{ file = 'none' }}\n"
    )
    workload = load_jobfile(path)
    assert [dict(job.inputs) for job in workload.jobs] == [{"file_bytes": 9.0}, {"file": "none"}]
    copy = copied(workload, tmp_path)
    assert [job.app.name for job in copy.jobs] == ["zip", "zip-2"]
    commands = [[i.command for i in job.app.implementations] for job in copy.jobs]
    assert commands == [[i.command for i in job.app.implementations] for job in workload.jobs]


def job_with(request: Request, kind: str = "gpu", **fields: object) -> Workload:
    form = Implementation("x", kind, request)
    job = Job("j", App("a", (form,)), (Choice(form, request), Choice(form, request.on(2))), **fields)  # type: ignore[arg-type]
    return Workload("w", [job], TableTruth({("j", "x", 1): 1.0, ("j", "x", 2): 1.0}))


GPU = (("gpu", 1.0),)


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (Workload("w", [], TableTruth()), "found no jobs"),
        (job_with(Request(1, 1, (*GPU, ("npu", 1.0)))), "found devices gpu, npu"),
        (job_with(Request(1, 1)), "found devices none"),
        (job_with(Request(1, WHOLE_POOL, GPU)), "a request for CPUs that a job file cannot express"),
        (job_with(Request(1, 1, GPU), priority=-1.0), "found -1.0"),
        (job_with(Request(1, 1, GPU), inputs={"n": -1.0}), "found -1.0"),
        (job_with(Request(1, 1, GPU), user=" x"), "found ' x'"),
        (job_with(Request(1, 1, GPU), walltime=1e13), r"found 1e\+?13|found 10000000000000"),
        (job_with(Request(1, 1, GPU), submit_time=2e12), "expected at most 1e\\+12"),
        (job_with(Request(1, 1, (("gpu", 20_000.0),))), "found 20000.0, expected at most 10000"),
        (job_with(Request(1, 2_000_000, GPU)), "found 2000000, expected at most 1e\\+06"),
        (Workload("w", job_with(Request(1, 1, GPU)).jobs, TableTruth()), "no true time"),
    ],
)
def test_what_a_job_file_cannot_say_is_refused(workload: Workload, expected: str) -> None:
    if expected == "no true time":
        job = workload.jobs[0]
        workload = Workload("w", [job], TableTruth({("j", "x", 1): 1.0}))
    with pytest.raises(InputError, match=expected):
        dump_jobfile(workload)


IMPLEMENTATION = {
    "kind": '"gpu"',
    "command": '["prog", "{n}"]',
    "env": '{ A = "b" }',
    "tasks": "2",
    "cpus": "3",
    "gpus": "0.5",
    "models": '["T4"]',
    "memory": '"auto"',
    "gpu_memory": '"6GB"',
    "slurm": '["--qos", "gpu"]',
    "time": "4.5",
    "times": "{ 1 = 9.0, 2 = 5.0 }",
}
APP = {"restartable": "true", "prologue": '"module load cuda"'}
JOB = {
    "id": '"one"',
    "inputs": '{ n = 5, "word y" = "x" }',
    "grid": "{ k = [1, 2] }",
    "command": '["prog", "two words"]',
    "env": '{ A = "c" }',
    "times": "{ cpu = 4.5 }",
    "sequential": "7.25",
    "speedup": "{ cpu = 2.0 }",
    "submit": '"1h"',
    "count": "2",
    "nodes": "1",
    "implementation": '"cpu"',
    "walltime": '"1h30m"',
    "user": '"u"',
    "group": '"g"',
    "queue": '"q"',
    "priority": "2",
    "depends": '["afterok:zero"]',
    "retries": "3",
    "retry_memory": "1.5",
    "kill_risk": "0.25",
    "name": '"for people"',
    "slurm": '["--account=x"]',
    "communication": "{ other = 2.0, gpu_calls = 3.0 }",
}
FILED = [option for option in map(job_option, KEPT) if option.file]
JOB |= {option.file: json.dumps(value_of(option)) for option in FILED}
ELSEWHERE = {"name", "app", "implementation", "on", "command", "env", "tasks", "cpus", "gpus", "memory"}
ELSEWHERE |= {"gpu_memory"}
"""Fields that every file has, or that another form of the same has above."""
ELSEWHERE |= {"implementations", "restartable", "array"}  # written as apps, and as a job for each element
LIVE = {
    "folder",
    "stdout",
    "stderr",
    "stdin",
    "append",
    "signal",
    "singleton",
    "partition",
    "models",
    "exclusive",
}
"""Fields of which nothing is written, or only where there are partitions: a job's start is no workload."""


def test_the_samples_have_every_field_of_a_job_file() -> None:
    for sample, entry in ((IMPLEMENTATION, ImplementationEntry), (APP, AppEntry), (JOB, JobEntry)):
        assert sample.keys() | ELSEWHERE | LIVE >= entry.model_fields.keys() >= sample.keys()


def table(head: str, sample: dict[str, str], keys: set[str]) -> str:
    return "\n".join([head, *(f"{key} = {sample[key]}" for key in sample if key in keys), ""])


@settings(deadline=None, derandomize=True, max_examples=full(60, 20))
@given(*(st.sets(st.sampled_from(sorted(sample))) for sample in (IMPLEMENTATION, IMPLEMENTATION, APP, JOB)))
def test_what_is_read_is_written_and_read_alike(
    cpu: set[str], gpu: set[str], app: set[str], job: set[str]
) -> None:
    cpu, gpu = cpu - {"kind", "models", "gpus"}, gpu | {"command"}
    text = table('[[app]]\nname = "a"', APP, app)
    text += table('[[app.implementation]]\nname = "cpu"', IMPLEMENTATION, cpu | {"command"})
    text += table('[[app.implementation]]\nname = "fast"', IMPLEMENTATION, gpu | {"kind"})
    text += '[[job]]\nid = "zero"\napp = "a"\ninputs = { n = 1 }\n'
    job |= {"command"} if "env" in job else {"inputs"}
    text += table('[[job]]\napp = "a"', JOB, job)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.toml"
        path.write_text(text)
        read = load_jobfile(path)
        again = copied(read, Path(folder))
    assert essence(again) == essence(read)
    assert [one.sizing for one in again.jobs] == [one.sizing for one in read.jobs]


@pytest.mark.parametrize("keys", [set(), {"memory"}, {"cpus", "gpus", "memory"}])
def test_what_a_job_without_an_app_asks_for_is_kept(tmp_path: Path, keys: set[str]) -> None:
    own = {"cpus": "2", "gpus": "2", "memory": '"8GB"', "communication": JOB["communication"]}
    (tmp_path / "jobs.toml").write_text(table("[[job]]", own, keys | {"communication"}))
    read = load_jobfile(tmp_path / "jobs.toml")
    assert essence(copied(read, tmp_path)) == essence(read)
