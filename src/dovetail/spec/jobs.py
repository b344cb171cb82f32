"""The options of a job: of ``dovetail submit``, of lines in scripts, of HTTP forms, of the Python client.

Those with ``form`` are fields of a job in HTTP; `Client.submit` takes them but for what it says itself.
A default here is that of the field; on the command line nothing is said unless a person says it.
"""

from __future__ import annotations

from dovetail.spec.option import DURATION, Option
from dovetail.spec.values import MOST_NODES, MOST_PRIORITY, MOST_RETRIES

JOB: tuple[Option, ...] = (
    Option("id", form="its name in `depends` of other jobs of this request"),
    Option(
        "implementations", default={}, form="a command for each kind of device: cpu, gpu, cpu+gpu, opencl …"
    ),
    Option("command", form="one command for every kind in `on`"),
    Option("script", form="a program that begins with #!; kept as it is now"),
    Option("arguments", default=[], form="of the script"),
    Option(
        "name", "For people.", "NAME", "--name -J", at="submit",
        lines="-J --job-name --name", form="for people; default: the name of the app",
    ),
    Option(
        "nodes", "Nodes of a gang.", "N", "--nodes -N", at="submit",
        lines="-N --nodes", default=1, least=1, most=MOST_NODES, form="",
    ),
    Option(
        "cpus", "CPUs that a plain command asks for. Default: 1.", "N|all", "--cpus -c",
        at="run, submit, explain, simulate, compare",
        lines="-c --cpus-per-task --cpus", form="a node; default 1 where it runs on CPUs",
    ),
    Option(
        "gpus", "Devices a node; below 1 shares one.", "N", "--gpus -G", at="submit",
        lines="-G --gpus --gpus-per-node --gres", form="devices a node; below 1 shares one; default 1",
    ),
    Option(
        "memory", "A node, e.g. 8GB; beyond it the job is ended.", "SIZE|auto", "--memory --mem", at="submit",
        lines="--memory --mem", form="bytes a node, beyond which the job is ended; auto: learned",
    ),
    Option(
        "retry_memory", "After a kill for memory it starts again with more.", "learned|FACTOR|no",
        at="submit", lines="--retry-memory", default="learned",
        form="after a kill for memory it starts again with: learned, a factor of before, or no",
    ),
    Option(
        "kill_risk", "With --mem auto: the largest chance of a kill; default 0.05.", "P", at="submit",
        lines="--kill-risk", least=0, most=1,
        form="with memory auto: the largest probability of a kill; default 0.05",
    ),
    Option(
        "walltime", "A limit, not an estimate.", DURATION, "--walltime --time -t", at="submit",
        lines="-t --walltime --time", least=0, above=True,
        form="seconds; a limit, not an estimate",
    ),
    Option(
        "partition", "Of the nodes.", "NAME", "--partition -p", at="submit",
        lines="-p --partition", form="",
    ),
    Option(
        "priority", "Higher first; above 0 for the owner.", "N", at="submit",
        lines="--priority", default=0, least=-MOST_PRIORITY, most=MOST_PRIORITY,
        form="higher first",
    ),
    Option(
        "depends", "afterok:JOB, afternotok:JOB, afterany:JOB or singleton.", "WHEN", "--depends -d",
        at="submit", lines="-d --depends --dependency", default=[],
        form="afterok:JOB, afternotok:JOB or afterany:JOB",
    ),
    Option("singleton", default=False, form="at most one of this name and user at once"),
    Option(
        "array", "A job for each index; %2: two at once.", "0-9[%2]", "--array -a", at="submit",
        lines="-a --array", form="indices such as 0-9 or 1,3,5; 0-9%2: two at once",
    ),
    Option(
        "stdout", "%j: id, %A: number, %a: index, %x: name.", "FILE", "--output -o", at="submit",
        lines="-o --output",
        form="a path from the folder; %j the job's id, %A the array's, %a the index, %x name",
    ),
    Option(
        "stderr", "As --output.", "FILE", "--error -e", at="submit",
        lines="-e --error", form="default: as stdout where that is given",
    ),
    Option(
        "retries", "Starts again after failures.", "N", at="submit",
        lines="--retries", default=0, least=0, most=MOST_RETRIES,
        form="how often it may start again after a failure",
    ),
    Option("cpu", "What runs on CPUs.", "COMMAND", at="submit"),
    Option("gpu", "What runs on a GPU.", "COMMAND", at="submit"),
    Option(
        "on", "Devices on which plain commands may run, e.g. cpu,gpu.", "KINDS",
        at="run, submit, explain, simulate, compare",
        lines="--on", default=[], form="kinds for `command`; default: cpu",
    ),
    Option(
        "app", "Name the app of plain commands.", "NAME", at="run, submit, explain, map",
        lines="--app", form="an app of this request, or the name to be known by",
    ),
    Option(
        "each", "Repeat commands for each value of {NAME}: lr=0.1,0.01 or seed=1..5; repeatable.",
        "NAME=VALUES", at="run, submit, explain, simulate, compare",
    ),
    Option(
        "inputs", "A feature; fills {NAME} in --cpu and --gpu.", "NAME=VALUE", "--input", at="submit",
        default={}, form="features of the prediction; they fill placeholders of commands",
    ),
    Option("env", default={}, form="over the request's environment"),
    Option("folder", "Default: this one.", "FOLDER", "--chdir -D", at="submit", lines="-D --chdir"),
    Option(
        "signal", "Sent so long before the walltime, e.g. USR1@60.", "SIG@SECONDS", at="submit",
        lines="--signal", form="SIGNAL@SECONDS before the walltime, e.g. USR1@60",
    ),
    Option(
        "sbatch", "Passed to sbatch (serve --executor slurm-queue).", "OPTION", "--slurm", at="submit",
        lines="--slurm", default=[], form="options for sbatch, where the service is a guest of Slurm's queue",
    ),
    Option(
        "hold", "Wait until released.", flags="--hold -H", at="submit",
        lines="-H --hold", default=False, form="",
    ),
    Option(
        "restartable", "A run that was cut short may begin again.", at="submit",
        lines="--requeue --restartable", default=False, form="a run that was cut short may begin again",
    ),
    Option("slurm", default=False, form="its environment has what sbatch would set"),
)  # fmt: skip

_BY_NAME = {option.name: option for option in JOB}


def job_option(name: str) -> Option:
    """The option of that name; raises `KeyError`."""
    return _BY_NAME[name]


OF_PYTHON = frozenset(
    option.name
    for option in JOB
    if option.form is not None
    and option.name not in ("id", "implementations", "command", "script", "arguments", "slurm")
)
"""What `Client.submit` takes of a job beside the function or the command and its arguments."""
