"""`JobSpec`: all that a job may have, each thing once, as a typed field with its option.

Everything in which a person writes a job down is made from this table: the options of ``dovetail run`` and
``submit``, the lines of scripts, the ``[[job]]`` entries of job files, the HTTP form, the keywords of
`Client`, the schemas and the reference page. It goes one way: a text becomes a part of a spec (`read_texts`),
parts are laid over each other, `dovetail.workloads.job_builder` makes the `Job`.

To add an option: its field here, and the code that gives it meaning. A field that ``becomes`` ``Job.options``
is kept in that mapping of a job under its name, from the ledger to the journal, without further code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from typing import Any

from dovetail.errors import InputError
from dovetail.files.sentences import show_value
from dovetail.records import dataclass
from dovetail.spec import kinds
from dovetail.spec.kinds import Kind
from dovetail.spec.option import DURATION, Option
from dovetail.spec.values import MOST_NODES, MOST_PRIORITY, MOST_RETRIES

PartialSpec = dict[str, Any]
"""Some fields of a spec, by name, with their values: what one command line, script or entry gives."""

HIGHEST_PRIORITY = 1e15
"""Of a job in a file; traces have such numbers."""
_JOBS = "run, submit"
_LISTS = "run, submit, explain, simulate, compare"
MOST_NICE = 2_147_483_645
"""As in Slurm, whose users may only make their jobs wait."""
JOB_OPTIONS = "Job.options"
"""What the fields become that are kept by name."""


def _empty_mapping() -> Mapping[str, Any]:
    return {}


def _spec_field(
    kind: Kind,
    help: str = "",  # noqa: A002
    value: str = "",
    flags: str = "",
    *,
    at: str = "",
    default: Any = None,
    absent: Any = ...,
    lines: str = "",
    about: str = "",
    http: bool | str = True,
    file: bool | str = True,
    file_kind: Kind | None = None,
    python: bool | None = None,
    becomes: str = "",
) -> Any:
    """A field of `JobSpec`. HTTP and files have it under its own name, if they have no other for it, or none.

    `Client` takes what HTTP takes, unless ``python`` has it otherwise. ``absent`` is the value of a field for
    which nothing was given, where that is not the same as its ``default``.
    """
    # The name of the field is not known here: "*" stands for it until `_name_option` puts it in.
    option = Option(
        "", help, value, flags, at, default, kind.least, kind.most, kind.above, lines,
        kind=kind, about=about, http=http if isinstance(http, str) else "*" * http,
        file=file if isinstance(file, str) else "*" * file, file_kind=file_kind,
        python=bool(http) if python is None else python, becomes=becomes,
    )  # fmt: skip
    # `...` and not `None` for "the default itself": `None` is a value that a field may have when it is
    # absent.
    default = default if absent is ... else absent
    # A dataclass takes no mutable default; tuples do for lists, since nothing changes a spec.
    if isinstance(default, dict):
        return field(default_factory=_empty_mapping, metadata={"option": option})
    plain = tuple(default) if isinstance(default, list) else default
    return field(default=plain, metadata={"option": option})


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job as it was written down, before a cluster, a number or a folder is known.

    What it runs is one of: an ``app`` that is described beside it; ``implementations``, a command for each
    kind of device; a ``command`` for every kind in ``on``; a ``script``. A command with ``inputs``, be they
    empty, is a template, and these are the features of its prediction; one without is known by its arguments.
    """

    # fmt: off
    # -- what it runs

    id: str | None = _spec_field(
        kinds.NAME, about="its name in `depends` of other jobs of this request or file; "
        "in a file by default APP-1, APP-2 …; with count ID-1, ID-2 …", python=False, becomes="Job.id",
    )
    name: str | None = _spec_field(
        kinds.TEXT, "Display name.", "NAME", "--name -J", at=_JOBS,
        lines="-J --job-name --name", about="for people; default: the name of the app", becomes="Job.name",
    )
    # `name` is what people read, `app` what run times are learned under: a new name does not lose them.
    app: str | None = _spec_field(
        kinds.NAME, "Name under which run times are learned.", "NAME", at="run, submit, explain, map",
        lines="--app", about="an app that is described beside the jobs, or the name to be known by",
        becomes="App.name",
    )
    implementations: Mapping[str, Any] = _spec_field(
        kinds.COMMANDS, default={}, about="a command for each kind of device: cpu, gpu, cpu+gpu, opencl …",
        python=False, becomes="Implementation.command",
    )
    command: Any = _spec_field(
        kinds.ARGV, about="one command for every kind in `on`, or instead of the commands of the app",
        python=False, becomes="Command.argv",
    )
    on: Sequence[str] = _spec_field(
        kinds.KINDS, "Kinds of devices that may run it, e.g. cpu,gpu.", "KINDS", at=_LISTS,
        lines="--on", default=[], about="kinds for `command`; default: cpu", becomes="Implementation.kind",
    )
    script: str | None = _spec_field(
        kinds.SCRIPT, about="a program that begins with #!; kept as it is now", file=False, python=False,
        becomes="Command.argv",
    )
    arguments: Sequence[str] = _spec_field(
        kinds.WORDS, default=[], about="of the script", file=False, python=False, becomes="Command.argv"
    )
    # Absent differs from empty: a command with inputs, be they none, is a template whose braces are filled;
    # one without is taken as it is written.
    inputs: Mapping[str, float | str] | None = _spec_field(
        kinds.INPUTS, "Feature that run times depend on; fills {NAME} in commands.", "NAME=VALUE", "--input",
        at=_JOBS,
        lines="--input",
        default={}, absent=None, about="features of the prediction; they fill placeholders of commands",
        becomes="Job.inputs",
    )
    env: Mapping[str, str] = _spec_field(
        kinds.ENV, default={}, about="of its command, over the environment around it", becomes="Command.env"
    )

    # -- of what simulations and papers' policies know

    implementation: str | None = _spec_field(
        kinds.NAME, about="wanted; obeyed by torque, torque-plan and fms-nodes",
        becomes="Job.implementation",
    )
    group: str | None = _spec_field(
        kinds.NAME, http=False, about="of its user, for tables", becomes="Job.group"
    )
    user: str | None = _spec_field(kinds.NAME, http=False, about="whose job it is", becomes="Job.user")
    queue: str | None = _spec_field(
        kinds.NAME, http=False, about="for tables; of a job that is submitted: the partition",
        becomes="Job.queue",
    )
    # Seconds on one core and speedups: how traces and the papers' workloads give run times.
    sequential: float | None = _spec_field(
        kinds.duration(), about="seconds on one core", python=False, becomes="Job.sequential"
    )
    speedup: Mapping[str, float] = _spec_field(
        kinds.TABLE, default={}, http=False, about="over one core, by implementation", becomes="Job.speedup"
    )
    submit: float = _spec_field(
        kinds.duration(), default=0.0, http=False, about="seconds after the first submission",
        becomes="Job.submit_time",
    )
    count: int = _spec_field(
        kinds.TABLE, default=1, http=False, about="so many jobs that are alike", becomes="Job.id"
    )
    grid: Mapping[str, Any] = _spec_field(
        kinds.TABLE, default={}, http=False,
        about="more inputs: a job for each combination; a list, or a text such as 1..5 or 0.1,0.01",
        becomes="Job.inputs",
    )
    times: Mapping[str, Any] = _spec_field(
        kinds.TABLE, default={}, http=False,
        about="true seconds by implementation, or by it and node count", becomes="Truth",
    )
    communication: Any = _spec_field(
        kinds.TABLE, http=False, about="of jobs on remote GPUs", becomes="Job.communication"
    )

    # -- what it needs

    cpus: int | str | None = _spec_field(
        kinds.CPUS, "CPUs per node. Default: 1.", "N|all", "--cpus -c", at=_LISTS,
        lines="-c --cpus-per-task --cpus", about="a node; default 1 for a plain command on CPUs",
        becomes="Request.cpus",
    )
    gpus: float | str | None = _spec_field(
        kinds.DEVICES, "GPUs per node; 0.5 shares one; auto shares where that pays.", "N|auto", "--gpus -G",
        at=_JOBS, lines="-G --gpus --gpus-per-node --gres",
        about="devices a node; below 1 shares one; auto: one, beside another where that pays; default 1",
        becomes="Request.devices",
    )
    # `--mem` is Slurm's word, but a number without a unit is bytes here and megabytes there:
    # `dovetail.workloads.batch` converts what a #SBATCH line gives.
    memory: int | str | None = _spec_field(
        kinds.SIZE_OR_AUTO, "Memory per node, e.g. 8GB; a job that uses more is killed.", "SIZE|auto",
        "--memory --mem",
        at=_JOBS, lines="--memory --mem",
        about="bytes a node, beyond which the job is ended; auto: learned", becomes="Request.memory",
    )
    gpu_memory: int | str | None = _spec_field(
        kinds.SIZE_OR_AUTO, "Memory on each GPU, e.g. 6GB; other jobs may use the rest.", "SIZE|auto",
        "--gpu-mem",
        at=_JOBS, lines="--gpu-mem",
        about="bytes on each device, which others may then share; auto: learned",
        becomes="Request.gpu_memory",
    )
    retry_memory: str | float = _spec_field(
        kinds.RETRY_MEMORY, "Retry a job killed for memory with more.", "learned|FACTOR|no",
        at=_JOBS, lines="--retry-memory", default="learned",
        about="after a kill for memory it starts again with: learned, a factor of before, or no",
        becomes="Sizing.retry",
    )
    kill_risk: float | None = _spec_field(
        kinds.real("a probability", most=1.0), "Accept this chance of a kill with --mem auto. Default: 0.05.",
        "P", at=_JOBS, lines="--kill-risk",
        about="with memory auto: the largest probability of a kill; default 0.05", becomes="Sizing.risk",
    )
    models: Sequence[str] = _spec_field(
        kinds.KINDS, "Run only on devices of these models, e.g. a100.", "MODELS", at=_JOBS, lines="--models",
        default=[], about="models of devices that will do, or words of their names",
        becomes="Request.models",
    )
    exclusive: bool = _spec_field(
        kinds.FLAG, "Take all CPUs of the job's nodes.", at=_JOBS, lines="--exclusive", default=False,
        about="it has all CPUs of its nodes, whatever it runs on", becomes="Request.cpus",
    )
    # `absent` is no 1: a template or a script may give a number of its own, which a default would cover.
    nodes: int | None = _spec_field(
        kinds.whole(1, MOST_NODES), "Number of nodes.", "N", "--nodes -N", at=_JOBS,
        lines="-N --nodes", default=1, absent=None, becomes="Job.nodes",
    )
    walltime: float | None = _spec_field(
        kinds.duration(above=True), "Time limit, e.g. 1h30m; a job that runs longer is killed.", DURATION,
        "--walltime --time -t", at=_JOBS,
        lines="-t --walltime --time", about="seconds; a limit, not an estimate", becomes="Job.walltime",
    )
    partition: str | None = _spec_field(
        kinds.NAME, "Run only on nodes of this partition.", "NAME", "--partition -p", at=_JOBS,
        lines="-p --partition", about="of the nodes", becomes="Request.partition",
    )
    batch_options: Sequence[str] = _spec_field(
        kinds.OPTIONS, "Pass an option to the batch system (slurm-queue: sbatch).", "OPTION",
        "--slurm", at=_JOBS, lines="--slurm", default=[], http="sbatch", file="slurm",
        about="options for sbatch, where jobs go to Slurm's queue", becomes="Job.batch_options",
    )

    # -- when it runs

    # Files allow higher ones than the service: traces carry priorities of their own schedulers.
    priority: float = _spec_field(
        kinds.within(MOST_PRIORITY), "Start before jobs of lower priority; above 0: owner only.", "N",
        at=_JOBS,
        lines="--priority", default=0, file_kind=kinds.real("a number", most=HIGHEST_PRIORITY),
        about="higher first", becomes="Job.priority",
    )
    nice: int = _spec_field(
        kinds.whole(0, MOST_NICE), "Start after your own jobs of lower N, at equal priority.", "N", at=_JOBS,
        lines="--nice", default=0, about="behind jobs of the same user that have a lower one",
        becomes=JOB_OPTIONS,
    )
    depends: Sequence[str] = _spec_field(
        kinds.DEPENDS,
        "Wait for jobs: afterok:JOB, afternotok:, afterany:, after:JOB[+MINUTES], aftercorr:JOB, "
        "singleton.", "WHEN", "--depends -d", at=_JOBS, lines="-d --depends --dependency", default=[],
        about="afterok:JOB, afternotok:JOB, afterany:JOB, after:JOB[+MINUTES] or aftercorr:JOB; "
        "of those with ? before them one is enough", becomes="Job.depends",
    )
    singleton: bool = _spec_field(
        kinds.FLAG, default=False, about="at most one of this name and user at once", becomes="Job.throttles"
    )
    array: str | None = _spec_field(
        kinds.TEXT, "Run one job per index; %2: two at once.", "0-9[%2]", "--array -a", at=_JOBS,
        lines="-a --array", about="indices such as 0-9 or 1,3,5; 0-9%2: two at once", becomes="Job.id",
    )
    # No key of files: a file is read again by `explain` and `simulate`, for which a date means nothing.
    begin: float | None = _spec_field(
        kinds.MOMENT, "Start no earlier: 16:00, now+1hour, 2030-01-20T12:34.", "TIME", "--begin -b",
        at=_JOBS, lines="-b --begin", file=False,
        about="start then or later: seconds since 1970, or 16:00, now+1hour, a date", becomes="Job.begin",
    )
    every: float | None = _spec_field(
        kinds.duration(above=True), "Run it again this long after each start; one at a time.", DURATION,
        at="submit", lines="--every", file=False,
        about="seconds from one start to the next, one run at a time, until it is cancelled",
        becomes=JOB_OPTIONS,
    )
    hold: bool = _spec_field(
        kinds.FLAG, "Wait until released by 'dovetail release'.", flags="--hold -H", at="submit",
        lines="-H --hold", default=False, file=False, about="wait until released", becomes="Submitted.held",
    )
    retries: int = _spec_field(
        kinds.whole(0, MOST_RETRIES), "Retry a failed job up to N times.", "N", at=_JOBS,
        lines="--retries", default=0, about="how often it may start again after a failure",
        becomes="Job.retries",
    )
    restartable: bool = _spec_field(
        kinds.FLAG, "Restart a job that was interrupted.", at=_JOBS,
        lines="--requeue --restartable", default=False, about="a run that was cut short may begin again",
        becomes="App.restartable",
    )
    signal: str | None = _spec_field(
        kinds.TEXT, "Send a signal before the time limit, e.g. USR1@60 (seconds).", "SIG@SECONDS", at=_JOBS,
        lines="--signal", about="SIGNAL@SECONDS before the walltime, e.g. USR1@60; B:USR1@60: to its first "
        "process alone, S:USR1@60: to all others", becomes="Launch.signal",
    )

    # -- where it runs and writes

    folder: str | None = _spec_field(
        kinds.TEXT, "Run in this folder. Default: the current one.", "FOLDER", "--chdir -D", at=_JOBS,
        lines="-D --chdir",
        about="where it runs, seen from the folder of who submits", becomes="Launch.folder",
    )
    stdout: str | None = _spec_field(
        kinds.TEXT, "Write output there; %j: id, %A: number, %a: index, %x: name.", "FILE", "--output -o",
        at=_JOBS,
        lines="-o --output",
        about="a path from the folder; %j the job's id, %A the array's, %a the index, %x name",
        becomes="Launch.stdout",
    )
    stderr: str | None = _spec_field(
        kinds.TEXT, "Write standard error there; pattern as for --output.", "FILE", "--error -e", at=_JOBS,
        lines="-e --error", about="default: as stdout where that is given", becomes="Launch.stderr",
    )
    stdin: str | None = _spec_field(
        kinds.TEXT, "Read standard input from there; pattern as for --output.", "FILE", at=_JOBS,
        lines="--stdin",
        about="a path from the folder that it reads, a pattern as stdout", becomes="Launch.stdin",
    )
    append: bool = _spec_field(
        kinds.FLAG, "Append to output files that exist.", at=_JOBS, lines="--append", default=False,
        about="its output is added to files that are there", becomes="Launch.append",
    )
    comment: str | None = _spec_field(
        kinds.TEXT, "Comment to keep with the job and show.", "TEXT", at=_JOBS, lines="--comment",
        about="kept with the job, and shown", becomes=JOB_OPTIONS,
    )
    account: str | None = _spec_field(
        kinds.TEXT, "Account to keep with the job and show.", "NAME", at=_JOBS, lines="--account",
        about="kept with the job, and shown", becomes=JOB_OPTIONS,
    )
    qos: str | None = _spec_field(
        kinds.TEXT, "Quality of service to keep with the job and show.", "NAME", at=_JOBS, lines="--qos",
        about="kept with the job, and shown", becomes=JOB_OPTIONS,
    )
    wckey: str | None = _spec_field(
        kinds.TEXT, "Workload key to keep with the job and show.", "NAME", at=_JOBS, lines="--wckey",
        about="kept with the job, and shown", becomes=JOB_OPTIONS,
    )
    mail_type: str | None = _spec_field(
        kinds.MAIL, "Send mail at these events: BEGIN, END, FAIL, REQUEUE, ALL ….", "EVENT", at="submit",
        lines="--mail-type", about="events of which mail is sent, where the service has a command for it",
        becomes=JOB_OPTIONS,
    )
    mail_user: str | None = _spec_field(
        kinds.TEXT, "Recipient of mail. Default: the submitter.", "USER", at="submit", lines="--mail-user",
        about="recipient of the mail; default: the submitter", becomes=JOB_OPTIONS,
    )
    notify: str | None = _spec_field(
        kinds.TEXT, "Send the job as JSON there when it begins, ends or fails.", "COMMAND|URL", at="submit",
        lines="--notify",
        about="a command or an address that gets the job as JSON when it begins, ends or fails",
        becomes=JOB_OPTIONS,
    )
    # This and the two below are for our own client: they carry what the reader of a batch script found.
    batch_variables: bool = _spec_field(
        kinds.FLAG, default=False, http="slurm", file=False, python=False,
        about="its environment has what sbatch would set", becomes="Launch.batch_variables",
    )
    from_script: Sequence[str] = _spec_field(
        kinds.WORDS, default=[], file=False, python=False,
        about="names of fields that only repeat the script's #SBATCH lines", becomes="Job.batch_options",
    )
    variables: Mapping[str, str] = _spec_field(
        kinds.ENV, default={}, file=False, python=False,
        about="over its environment, with marks for what its start shows (dovetail.model.marks)",
        becomes="Launch.variables",
    )
    # fmt: on


def _name_option(name: str, option: Option) -> Option:
    """The option under the name of its field."""
    return option._replace(
        name=name, http=option.http.replace("*", name), file=option.file.replace("*", name)
    )


# From the dataclass itself: a field without its option, or an option without its field, cannot come to be.
SPEC: tuple[Option, ...] = tuple(_name_option(one.name, one.metadata["option"]) for one in fields(JobSpec))
"""The options of the fields, in their order."""
SHORTHANDS: tuple[Option, ...] = (
    Option(
        "cpu", "Command for CPUs.", "COMMAND", at=_JOBS, kind=kinds.ARGV, becomes="JobSpec.implementations"
    ),
    Option(
        "gpu", "Command for a GPU.", "COMMAND", at=_JOBS, kind=kinds.ARGV, becomes="JobSpec.implementations"
    ),
    Option(
        "each", "Repeat commands for each value of {NAME}: lr=0.1,0.01 or seed=1..5; repeatable.",
        "NAME=VALUES", at=_LISTS, kind=kinds.WORDS, becomes="several JobSpec",
    ),
)  # fmt: skip
"""What command lines have instead of fields."""
JOB: tuple[Option, ...] = (*SPEC, *SHORTHANDS)

_BY_NAME = {option.name: option for option in JOB}
OF_PYTHON = frozenset(option.http for option in SPEC if option.python)
"""What `Client` takes of a job beside the function or the command and its arguments."""
# Without retries, memory and hold: `run` has parameters of these names that mean something else (a default
# for jobs that give none), and a run holds nothing back.
OF_RUNS = frozenset(
    option.name
    for option in SPEC
    if ("run" in option.commands or option.python) and option.name not in ("retries", "memory", "hold")
)
"""What a run takes for each of its jobs; retries and memory are for those that give none of their own."""
KEPT = tuple(option.name for option in SPEC if option.becomes == JOB_OPTIONS)
"""Fields that a job keeps by name."""


def job_option(name: str) -> Option:
    """The option of that name; raises `KeyError`."""
    return _BY_NAME[name]


# -- from texts ----------------------------------------------------------------------------------------


def read_texts(given: Mapping[str, Any], where: str = "") -> PartialSpec:
    """A part of a spec from what was written on a command line or in a script.

    ``given`` has texts by the names of fields: a list of them where an option may be given several times,
    ``True`` for a flag. Without ``where`` a sentence begins with the option as it is spelt on a command line.
    Raises `InputError`. Linear.
    """
    part: PartialSpec = {}
    for name, text in given.items():
        option = _BY_NAME[name]
        place = where or option.spellings[0]
        part[name] = (
            _read_many(option, text, place)
            if option.kind and option.kind.many
            else _read_one(option, text, place)
        )
    # `singleton` is written among the dependencies, as in Slurm, but it waits for no job that can be named.
    if kinds.SINGLETON in part.get("depends", ()):
        part["depends"] = [one for one in part["depends"] if one != kinds.SINGLETON]
        part["singleton"] = True
        if not part["depends"]:
            del part["depends"]
    # `--cpu` and `--gpu` are short for one command for each kind.
    commands = {kind: part.pop(kind) for kind in ("cpu", "gpu") if kind in part}
    if commands:
        part["implementations"] = commands
    return part


def check_values(given: Mapping[str, Any]) -> PartialSpec:
    """A part of a spec from values of Python, as a file could hold them. Raises `InputError`.

    >>> check_values({"walltime": "1h", "nodes": 2})
    {'walltime': 3600.0, 'nodes': 2}
    """
    part: PartialSpec = {}
    for name, value in given.items():
        kind = _BY_NAME[name].kind
        assert kind is not None
        try:
            part[name] = value if kind.check is None or value is None else kind.check(value)
        except ValueError as error:
            raise InputError(f"found {show_value(value)}, expected {error}", where=name) from None
    return part


def _read_one(option: Option, text: Any, where: str) -> Any:
    kind = option.kind
    assert kind is not None
    if isinstance(text, bool):
        return text
    try:
        value = kind.parse(text)
        return value if kind.check is None else kind.check(value)
    except ValueError as error:
        raise InputError(f"found {show_value(text)}, expected {error}", where=where) from None


def _read_many(option: Option, texts: str | Sequence[str], where: str) -> Any:
    """All that was given of one option: tables are joined, lists follow each other."""
    parts = [_read_one(option, text, where) for text in ([texts] if isinstance(texts, str) else texts)]
    if option.kind is not kinds.INPUTS:
        return [value for part in parts for value in part]
    found: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            # Twice the same input is a slip of the pen: which of the two was meant is not to be guessed.
            if name in found:
                raise InputError(f"found {name} twice", where=where)
            found[name] = value
    return found


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> PartialSpec:
    """Two parts of a spec as one: ``above`` wins, but what a job waits for and options for others add up."""
    joined = {**below, **above}
    # A script's dependencies and those of the command line must all hold; any other field has one value.
    for name in ADDED_UP:
        if name in below and name in above:
            joined[name] = [*below[name], *above[name]]
    # Tables are merged entry by entry, so that one variable on the command line leaves the others as they
    # are.
    for name in ("inputs", "env"):
        if below.get(name) and above.get(name):
            joined[name] = {**below[name], **above[name]}
    return joined


ADDED_UP = ("depends", "batch_options")
"""Fields of which several places may each give some."""


def as_form(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part of a spec as the HTTP form has it. Raises `KeyError` for what HTTP does not have."""
    return {_BY_NAME[name].http: value for name, value in part.items()}
