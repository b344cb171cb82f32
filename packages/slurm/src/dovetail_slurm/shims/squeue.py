"""``squeue``: what waits and runs, and what ended a short while ago."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from dovetail_slurm.shims import jobs as of
from dovetail_slurm.shims.columns import Field, Layout, by_letters, by_names
from dovetail_slurm.shims.jobs import Job
from dovetail_slurm.shims.options import (
    Given,
    Options,
    Wrong,
    has_option,
    last_value,
    listed_values,
    write_complaint,
)
from dovetail_slurm.shims.service import Service
from dovetail_slurm.shims.times import format_moment, format_short

OPTIONS = Options(
    "squeue",
    "account=A accounts= all!a array!r .array-unique! .clusters=M .cluster= expand-patterns! .federation! "
    "Format=O format=o help! hide! iterate=i jobs~j json! licenses=L .local! long!l me! name=n "
    "nodelist=w nodes= noheader!h noconvert! partition=p priority!P qos=q reservation=R .sibling! "
    "sort=S start! states=t steps~s usage! user=u users= .verbose!v .yaml! version!V only-job-state!",
)
USUAL = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"


def _left_cell(job: Job) -> str:
    if job.limit is None:
        return "UNLIMITED"
    # What runs beyond its limit has a negative rest for a moment, which squeue shows as it is; of others it
    # makes no sense.
    left = job.limit - job.elapsed
    return format_short(left) if left >= 0 or job.state == "RUNNING" else "INVALID"


def _where_cell(job: Job) -> str:
    if job.state in ("RUNNING", "COMPLETED"):
        return str(job["nodes"])
    if job.waits or job.state in ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"):
        return f"({job.reason})"
    return str(job["nodes"])


def _memory_cell(job: Job) -> str:
    return of.format_size(job.memory)


def _value_or_null(value: object) -> str:
    return "(null)" if value in (None, "") else str(value)


def _command_cell(job: Job) -> str:
    return _value_or_null(job["command"])


def _end_cell(job: Job) -> str:
    if job.waits:
        return "N/A"
    return "NONE" if job.end is None else format_moment(job.end)


def _priority_cell(job: Job) -> str:
    return f"{job['priority']:g}"


def _gres_cell(job: Job) -> str:
    return ",".join(f"gres:{kind}:{count}" for kind, count in job.devices.items()) or "N/A"


def _host_cell(job: Job) -> str:
    text = str(job["nodes"])
    if not text or job.waits:
        return "n/a"
    # Imported only where a column needs it: scripts call squeue every few seconds.
    from dovetail.model.hostlist import expand_hostlist

    return expand_hostlist(text)[0]


def _variable_cell(name: str) -> Any:
    return lambda job: str(job["variables"].get(name, "")) or "1"


FIELDS: Sequence[Field] = (
    Field("a", "account", "ACCOUNT", lambda j: _value_or_null(j.option.get("account"))),
    Field("A", "jobid", "JOBID", lambda j: str(j.number)),
    Field("B", "batchhost", "EXEC_HOST", _host_cell),
    Field("c", "mincpus", "MIN_CPUS", lambda j: str(max(1, j["request"]["cpus"]))),
    Field("C", "numcpus", "CPUS", lambda j: str(j.cpus)),
    Field("d", "mintmpdisk", "MIN_TMP_DISK", lambda j: "0"),
    Field("D", "numnodes", "NODES", lambda j: str(j.nodes)),
    Field("e", "endtime", "END_TIME", _end_cell),
    Field("E", "dependency", "DEPENDENCY", lambda j: _value_or_null(j.dependency)),
    Field("f", "feature", "FEATURES", lambda j: "(null)"),
    Field("F", "arrayjobid", "ARRAY_JOB_ID", lambda j: str(j.array)),
    Field("g", "groupname", "GROUP", lambda j: of.group_of(j.user)[0]),
    Field("G", "groupid", "GROUP", lambda j: str(of.group_of(j.user)[1])),
    Field("h", "oversubscribe", "OVER_SUBSCRIBE", lambda j: "OK"),
    Field("H", "sockets", "SOCKETS_PER_NODE", lambda j: "*"),
    Field("i", "jobarrayid", "JOBID", lambda j: j.id),
    Field("I", "cores", "CORES_PER_SOCKET", lambda j: "*"),
    Field("j", "name", "NAME", lambda j: j.name),
    Field("J", "threads", "THREADS_PER_CORE", lambda j: "*"),
    Field("k", "comment", "COMMENT", lambda j: _value_or_null(j.option.get("comment"))),
    Field(
        "K",
        "arraytaskid",
        "ARRAY_TASK_ID",
        lambda j: "N/A" if j["array"] is None else j.indices or str(j["index"]),
    ),
    Field("l", "timelimit", "TIME_LIMIT", lambda j: j.time_limit),
    Field("L", "timeleft", "TIME_LEFT", _left_cell),
    Field("m", "minmemory", "MIN_MEMORY", _memory_cell),
    Field("M", "timeused", "TIME", lambda j: format_short(j.elapsed)),
    Field("n", "reqnodes", "REQ_NODES", lambda j: ""),
    Field("N", "nodelist", "NODELIST", lambda j: "" if j.waits else str(j["nodes"])),
    Field("o", "command", "COMMAND", _command_cell),
    Field("O", "contiguous", "CONTIGUOUS", lambda j: "0"),
    Field("p", "priority", "PRIORITY", _priority_cell),
    Field("P", "partition", "PARTITION", lambda j: j.partition),
    Field("q", "qos", "QOS", lambda j: str(j.option.get("qos") or "normal")),
    Field("Q", "prioritylong", "PRIORITY", _priority_cell),
    Field("r", "reason", "REASON", lambda j: j.reason),
    Field("R", "reasonlist", "NODELIST(REASON)", _where_cell),
    Field("s", "selectjobinfo", "", lambda j: ""),
    Field("S", "starttime", "START_TIME", lambda j: format_moment(j.start, "N/A")),
    Field("t", "statecompact", "ST", lambda j: j.compact),
    Field("T", "state", "STATE", lambda j: j.state),
    Field("u", "username", "USER", lambda j: j.user),
    Field("U", "userid", "UID", lambda j: str(of.uid_of(j.user))),
    Field("v", "reservation", "RESERVATION", lambda j: "(null)"),
    Field("V", "submittime", "SUBMIT_TIME", lambda j: format_moment(j["submit"])),
    Field("w", "wckey", "WCKEY", lambda j: _value_or_null(j.option.get("wckey"))),
    Field("W", "licenses", "LICENSES", lambda j: "(null)"),
    Field("x", "exc_nodes", "EXC_NODES", lambda j: ""),
    Field("X", "corespec", "CORE_SPEC", lambda j: "N/A"),
    Field("y", "nice", "NICE", lambda j: str(j.option.get("nice", 0))),
    Field("Y", "schednodes", "SCHEDNODES", lambda j: "(null)"),
    Field("z", "sct", "S:C:T", lambda j: "*:*:*"),
    Field("Z", "workdir", "WORK_DIR", lambda j: str(j["folder"])),
    Field("b", "tres-per-node", "TRES_PER_NODE", _gres_cell),
    Field("", "gres", "TRES_PER_NODE", _gres_cell),
    Field("", "eligibletime", "ELIGIBLE_TIME", lambda j: format_moment(j["begin"] or j["submit"])),
    Field("", "exit_code", "EXIT_CODE", lambda j: str(j.exit[0])),
    Field("", "numtasks", "TASKS", lambda j: str(j.tasks)),
    Field("", "cpus-per-task", "CPUS_PER_TASK", _variable_cell("SLURM_CPUS_PER_TASK")),
    Field("", "requeue", "REQUEUE", lambda j: str(int(j["restartable"]))),
    Field("", "restartcnt", "RESTART_COUNT", lambda j: str(max(0, int(j["attempts"]) - 1))),
    Field("", "stderr", "STDERR", lambda j: str(j["stderr"])),
    Field("", "stdin", "STDIN", lambda j: str(j["stdin"] or "/dev/null")),
    Field("", "stdout", "STDOUT", lambda j: str(j["stdout"])),
    Field("", "tres-alloc", "TRES_ALLOC", lambda j: j.tres()),
    Field("", "tres", "TRES_ALLOC", lambda j: j.tres()),
    Field("", "cluster", "CLUSTER", lambda j: "dovetail"),
    Field("", "batchflag", "BATCH_FLAG", lambda j: str(int(j["script"]))),
    Field("", "maxcpus", "MAX_CPUS", lambda j: "0"),
    Field("", "jobgroup", "GROUP", lambda j: of.group_of(j.user)[0]),
)

_SORTED: dict[str, Any] = {
    "i": lambda j: (j.array, -1 if j["index"] is None else j["index"]),
    "A": lambda j: j.number,
    "j": lambda j: j.name,
    "P": lambda j: j.partition,
    "t": lambda j: j.compact,
    "T": lambda j: j.state,
    "u": lambda j: j.user,
    "U": lambda j: of.uid_of(j.user),
    "M": lambda j: j.elapsed,
    "l": lambda j: j.limit or float("inf"),
    "S": lambda j: j.start or float("inf"),
    "e": lambda j: j.end or float("inf"),
    "V": lambda j: j["submit"],
    "D": lambda j: j.nodes,
    "C": lambda j: j.cpus,
    "p": lambda j: j.precedence,
    "Q": lambda j: j.precedence,
    "N": lambda j: j["nodes"],
    "m": lambda j: j.memory,
    "L": lambda j: (j.limit or float("inf")) - j.elapsed,
    "a": lambda j: str(j.option.get("account", "")),
    "q": lambda j: str(j.option.get("qos", "")),
    "r": lambda j: j.reason,
    "R": _where_cell,
}


def run(words: list[str], place: str) -> int:
    """Print the queue; exit status 1 for what is wrong."""
    given, rest = OPTIONS.read(words)
    if has_option(given, "help", "usage"):
        print(f"Usage: squeue [OPTIONS]\n{' '.join(f'--{name}' for name in OPTIONS.values)}")
        return 0
    if rest:
        raise Wrong(
            f"squeue: error: Unrecognized option: {rest[0]}", 'Try "squeue --help" for more information'
        )
    layout = _choose_layout(given)
    service = Service("squeue", place)
    every = last_value(given, "iterate")
    if every is not None and not every.isdecimal():
        raise Wrong(f"squeue: error: invalid argument: --iterate={every}")
    while True:
        _show_jobs(given, layout, service)
        if every is None:
            return 0
        # Whole tables, also where a pipe reads them.
        sys.stdout.flush()
        time.sleep(max(1, int(every)))


def _show_jobs(given: Sequence[Given], layout: Layout, service: Service) -> None:
    found: Sequence[Any] = choose_jobs(given, service)
    if has_option(given, "steps"):
        from dovetail_slurm.shims.squeue_steps import choose_steps

        found = choose_steps(found, last_value(given, "steps") or "", service)
    elif has_option(given, "json"):
        _print_json(found)
        return
    if has_option(given, "long") and not has_option(given, "noheader"):
        print(time.strftime("%a %b %d %H:%M:%S %Y"))
    if not has_option(given, "noheader"):
        print(layout.header_line())
    for job in found:
        print(layout.item_line(job))


def _choose_layout(given: Sequence[Given]) -> Layout:
    own = next((one for one in reversed(given) if one.name in ("format", "Format")), None)
    text = "" if own is None else own.value or ""
    if has_option(given, "steps"):
        from dovetail_slurm.shims import squeue_steps as steps

        read = by_names if own is not None and own.name == "Format" else by_letters
        return read(text or steps.USUAL, steps.FIELDS, "squeue")
    if own is None:
        usual = START if has_option(given, "start") else LONG if has_option(given, "long") else ""
        # An option beats the variable, and the older variable beats the newer one, as in squeue.
        text = usual or os.environ.get("SQUEUE_FORMAT") or USUAL
        if not usual and "SQUEUE_FORMAT" not in os.environ and "SQUEUE_FORMAT2" in os.environ:
            return by_names(os.environ["SQUEUE_FORMAT2"], FIELDS, "squeue")
    if own is not None and own.name == "Format":
        return by_names(text, FIELDS, "squeue")
    return by_letters(text, FIELDS, "squeue")


def choose_jobs(given: Sequence[Given], service: Service) -> list[Job]:
    """The jobs that the options leave, in their order. Raises `Wrong`."""
    texts = of.split_list(last_value(given, "jobs") or "")
    try:
        ids = [of.parse_selector(text)[0] for text in texts]
    except ValueError as error:
        raise Wrong(f"squeue: error: Invalid job id: {error}") from None
    states = _wanted_states(given)
    question: dict[str, Any] = {"state": [one for one in states if one in of.OURS]}
    users = of.user_names(listed_values(given, "user", "users")) + (
        [of.account_name()] if has_option(given, "me") else []
    )
    question |= {"jobs": ",".join(ids) or None, "user": users, "name": listed_values(given, "name")}
    if not question["state"]:
        return []
    now = time.time()
    ended = any(one not in of.OPEN for one in question["state"])
    found = of.load_jobs(service, **question)
    keep = MIN_JOB_AGE
    # Slurm forgets jobs some time after their end, and scripts take a job that has gone for a job that is
    # done.
    if ended:
        found = [job for job in found if job["end"] is None or job["end"] > now - keep]
    for one in listed_values(given, "user", "users"):
        # A service on the network has users of its own.
        if not of.is_user(one) and not any(job.user == one for job in found):
            write_complaint(f"squeue: error: Invalid user: {one}")
    # squeue fails for a single unknown job, and is silent about several.
    if ids and not found and len(ids) == 1 and not _is_there(service, ids[0], keep):
        raise Wrong("slurm_load_jobs error: Invalid job id specified")
    for name, value in (
        ("account", lambda job: str(job.option.get("account") or "")),
        ("partition", lambda job: job.partition),
        ("qos", lambda job: str(job.option.get("qos") or "normal")),
    ):
        wanted = listed_values(given, name, f"{name}s")
        if wanted:
            found = [job for job in found if value(job) in wanted]
    nodes = last_value(given, "nodelist", "nodes")
    if nodes:
        from dovetail.model.hostlist import expand_hostlist

        names = set(expand_hostlist(nodes))
        found = [job for job in found if names & set(expand_hostlist(job["nodes"] or ""))]
    if has_option(given, "licenses", "reservation"):
        # Licenses and reservations do not exist here, so none of the jobs has one.
        found = []  # no job has one
    if has_option(given, "start"):
        found = [job for job in found if job.waits]
    if not has_option(given, "array") and "SQUEUE_ARRAY" not in os.environ:
        found = of.gather_arrays(found)
    return _order_jobs(found, last_value(given, "sort") or os.environ.get("SQUEUE_SORT", "P,t,-p"))


MIN_JOB_AGE = 3600.0
"""Seconds for which a job that has ended is still shown; MinJobAge in ``scontrol show config``."""


def _is_there(service: Service, id: str, keep: float) -> bool:
    """Whether a job is still shown with some choice of states."""
    found = of.load_jobs(service, jobs=id)
    return any(job["end"] is None or job["end"] > time.time() - keep for job in found)


def _wanted_states(given: Sequence[Given]) -> list[str]:
    texts = listed_values(given, "states")
    if not texts:
        return list(of.OPEN)
    try:
        return of.state_names(texts)
    except ValueError as error:
        raise Wrong(
            f"squeue: error: Invalid job state specified: {error}",
            f"squeue: error: Valid job states include: {','.join(of.STATES)}",
            "",
        ) from None


def _order_jobs(found: list[Job], text: str) -> list[Job]:
    # Stable sorts from the last key to the first: the first one decides.
    for part in reversed([one.strip() for one in text.split(",") if one.strip()]):
        key = _SORTED.get(part.lstrip("+-"))
        if key is None:
            raise Wrong(f"squeue: error: Invalid sort specification: {part}")
        found.sort(key=key, reverse=part.startswith("-"))
    return found


def _print_json(found: Sequence[Job]) -> None:
    import json

    from dovetail_slurm.shims.main import VERSION

    major, micro, minor = VERSION.split()[1].split(".")[0], VERSION.split(".")[-1], VERSION.split(".")[1]
    meta = {
        "plugin": {"type": "openapi/v0.0.37", "name": "Dovetail"},
        "Slurm": {
            "version": {"major": int(major), "micro": int(micro), "minor": int(minor)},
            "release": VERSION[6:],
        },
    }
    print(json.dumps({"meta": meta, "errors": [], "jobs": [json_of(job) for job in found]}, indent=2))


def json_of(job: Job) -> dict[str, Any]:
    """A job as squeue's JSON of Slurm 22.05 has it (data_parser v0.0.37)."""
    return {
        "account": str(job.option.get("account") or ""),
        "array_job_id": job["array"] or 0,
        "array_task_id": job["index"],
        "array_task_string": job.indices,
        "array_max_tasks": job["at_once"] or 0,
        "batch_host": "" if job.waits else _host_cell(job),
        "cluster": "dovetail",
        "command": job["command"],
        "comment": str(job.option.get("comment") or ""),
        "cpus": job.cpus,
        "current_working_directory": job["folder"],
        "dependency": job.dependency,
        "end_time": int(job.end or 0),
        # The status word of wait(2), which Slurm's JSON has: the exit code in the upper byte, the signal in
        # the lower.
        "exit_code": job.exit[0] << 8 | job.exit[1],
        "group_id": of.group_of(job.user)[1],
        "job_id": job.number,
        "job_state": job.state,
        "memory_per_node": job.memory // of.MEBIBYTE,
        "name": job.name,
        "nice": job.option.get("nice", 0),
        "node_count": job.nodes,
        "nodes": "" if job.waits else job["nodes"],
        "partition": job.partition,
        "priority": job["priority"],
        "qos": str(job.option.get("qos") or "normal"),
        "requeue": job["restartable"],
        "restart_cnt": max(0, int(job["attempts"]) - 1),
        "standard_error": job["stderr"],
        "standard_input": job["stdin"] or "/dev/null",
        "standard_output": job["stdout"],
        "start_time": int(job.start or 0),
        "state_reason": job.reason,
        "submit_time": int(job["submit"]),
        "tasks": job.tasks,
        "time_limit": None if job.limit is None else int(job.limit // 60),
        "tres_alloc_str": job.tres(),
        "user_id": of.uid_of(job.user),
        "user_name": job.user,
        "wckey": str(job.option.get("wckey") or ""),
    }
