"""``sacct``: what jobs requested, had and used."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dovetail_slurm.shims import jobs as of
from dovetail_slurm.shims.columns import fit_text
from dovetail_slurm.shims.jobs import Job
from dovetail_slurm.shims.lines import Line, step_elapsed, step_state
from dovetail_slurm.shims.options import Given, Options, Wrong, has_option, last_value, listed_values
from dovetail_slurm.shims.service import Service
from dovetail_slurm.shims.step_records import StepRecord, path_of, read_records
from dovetail_slurm.shims.times import format_cpu_time, format_full, format_moment, parse_moment

OPTIONS = Options(
    "sacct",
    "allusers!a accounts=A allocations!X array! batch-script!B brief!b .clusters=M .completion!c "
    "constraints=C delimiter= .duplicates!D endtime=E env-vars! .federation! fields= file=f flags=F "
    "format=o gid=g group= help!h helpformat!e help-fields! jobs=j json! .local! long!l name= ncpus=I "
    "nnodes=i nodelist=N noconvert! noheader!n parsable!p parsable2!P partition=r qos=q reason=R .sibling! "
    "starttime=S state=s timelimit-max=K timelimit-min=k truncate!T uid=u user= units= usage! "
    "use-local-uid! verbose!v version!V wckeys=W whole-hetjob? .yaml! associations=x .allclusters!L "
    "jobname=",
)
USUAL = "jobid,jobname,partition,account,alloccpus,state,exitcode"
BRIEF = "jobid,state,exitcode"
LONG = (
    "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,"
    "maxrsstask,averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,"
    "alloccpus,elapsed,state,exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,"
    "consumedenergy,maxdiskread,maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,"
    "maxdiskwritetask,avediskwrite,reqtres,alloctres,tresusageinave,tresusageinmax,tresusageinmaxn,"
    "tresusageinmaxt,tresusageinmin,tresusageinminn,tresusageinmint,tresusageintot,tresusageoutmax,"
    "tresusageoutmaxn,tresusageoutmaxt,tresusageoutave,tresusageouttot"
)
WIDTHS = (
    "Account:10 AdminComment:15 AllocCPUS:10 AllocNodes:10 AllocTRES:10 AssocID:7 AveCPU:10 AveCPUFreq:10 "
    "AveDiskRead:14 AveDiskWrite:14 AvePages:10 AveRSS:10 AveVMSize:10 BlockID:16 Cluster:10 Comment:14 "
    "Constraints:19 ConsumedEnergy:14 ConsumedEnergyRaw:17 Container:19 CPUTime:10 CPUTimeRAW:10 DBIndex:10 "
    "DerivedExitCode:15 Elapsed:10 ElapsedRaw:10 Eligible:19 End:19 ExitCode:8 Flags:19 GID:6 Group:9 "
    "JobID:-12 JobIDRaw:-12 JobName:10 Layout:9 MaxDiskRead:12 MaxDiskReadNode:15 MaxDiskReadTask:15 "
    "MaxDiskWrite:12 MaxDiskWriteNode:16 MaxDiskWriteTask:16 MaxPages:8 MaxPagesNode:12 MaxPagesTask:14 "
    "MaxRSS:10 MaxRSSNode:10 MaxRSSTask:10 MaxVMSize:10 MaxVMSizeNode:14 MaxVMSizeTask:14 McsLabel:12 "
    "MinCPU:10 MinCPUNode:10 MinCPUTask:10 NCPUS:10 NNodes:8 NodeList:15 NTasks:8 Partition:10 Priority:10 "
    "QOS:10 QOSRAW:6 Reason:22 ReqCPUFreq:10 ReqCPUFreqGov:13 ReqCPUFreqMax:13 ReqCPUFreqMin:13 ReqCPUS:8 "
    "ReqMem:10 ReqNodes:8 ReqTRES:10 Reservation:20 ReservationId:8 Reserved:10 ResvCPU:10 ResvCPURAW:10 "
    "Start:19 State:10 Submit:19 SubmitLine:20 Suspended:10 SystemComment:15 SystemCPU:10 Timelimit:10 "
    "TimelimitRaw:10 TotalCPU:10 TRESUsageInAve:14 TRESUsageInMax:14 TRESUsageInMaxNode:18 "
    "TRESUsageInMaxTask:18 TRESUsageInMin:14 TRESUsageInMinNode:18 TRESUsageInMinTask:18 TRESUsageInTot:14 "
    "TRESUsageOutAve:15 TRESUsageOutMax:15 TRESUsageOutMaxNode:19 TRESUsageOutMaxTask:19 TRESUsageOutMin:15 "
    "TRESUsageOutMinNode:19 TRESUsageOutMinTask:19 TRESUsageOutTot:15 UID:6 User:9 UserCPU:10 WCKey:10 "
    "WCKeyID:10 WorkDir:20"
)
"""The fields of Slurm 22.05 and their widths; a minus: at the left."""
UNIT_NAMES = "KMGTP"


class Column(NamedTuple):
    """One field with its width; negative: at the left."""

    name: str
    width: int


def _for_jobs(value: Callable[[Job], str]) -> Callable[[Line, str], str]:
    return lambda line, unit: "" if line.step else value(line.job)


def _for_steps(value: Callable[[Job, str], str]) -> Callable[[Line, str], str]:
    return lambda line, unit: value(line.job, unit) if line.step else ""


def _for_both(value: Callable[[Job], str]) -> Callable[[Line, str], str]:
    return lambda line, unit: value(line.job)


def _state_cell(line: Line, unit: str) -> str:
    job = line.job
    if job.state == "CANCELLED" and job.canceller_number and not line.step:
        return f"CANCELLED by {job.canceller_number}"
    return "CANCELLED" if line.step and job.state == "TIMEOUT" else job.state


def _exit_cell(line: Line, unit: str) -> str:
    code, signal = line.job.exit
    if not line.step and line.job.state in ("CANCELLED", "TIMEOUT"):
        # Slurm notes no exit code for a job that it ended itself; that of the batch step has the signal.
        return "0:0"
    return f"{code}:{signal}"


def _peak_cell(job: Job, unit: str) -> str:
    return _amount(job["peak_memory"], unit)


def _amount(amount: int | None, unit: str) -> str:
    if amount is None:
        return ""
    number, at = amount / 1024, 0
    if unit in UNIT_NAMES and unit:
        at = UNIT_NAMES.index(unit)
        return f"{number / 1024**at:.2f}{unit}"
    return f"{number:.0f}K"


def _memory_cell(job: Job) -> str:
    return of.format_size(job.memory * job.nodes) if job.memory else "0"


def _timelimit_cell(job: Job) -> str:
    return "UNLIMITED" if job.limit is None else format_full(job.limit)


def _end_cell(job: Job) -> str:
    return format_moment(job["end"])


def _cpu_time(job: Job) -> float:
    return job.elapsed * job.cpus


def _held_seconds(job: Job) -> float:
    start = job["start"] if job["start"] is not None else job.now
    # Reserved time counts from when the job could have begun, not from its submission.
    return max(0.0, float(start) - max(float(job["submit"]), float(job["begin"] or 0)))


def _nodes_cell(job: Job) -> str:
    return "None assigned" if not job["nodes"] or job.waits else str(job["nodes"])


def _id_cell(line: Line, unit: str) -> str:
    return line.job.id + (f".{line.step}" if line.step else "")


def _raw_id_cell(line: Line, unit: str) -> str:
    return f"{line.job.number}" + (f".{line.step}" if line.step else "")


VALUES: Mapping[str, Callable[[Line, str], str]] = {
    "account": _for_both(lambda j: str(j.option.get("account") or "")),
    "alloccpus": _for_both(lambda j: "0" if j.waits else str(j.cpus)),
    "allocnodes": _for_both(lambda j: "0" if j.waits else str(j.nodes)),
    "alloctres": _for_both(lambda j: "" if j.waits else j.tres()),
    "averss": _for_steps(_peak_cell),
    "avecpu": lambda line, unit: format_full(line.job["cpu_time"] or 0) if line.step else "",
    "cluster": _for_both(lambda j: "dovetail"),
    "comment": _for_jobs(lambda j: str(j.option.get("comment") or "")),
    "cputime": _for_both(lambda j: format_full(_cpu_time(j))),
    "cputimeraw": _for_both(lambda j: str(int(_cpu_time(j)))),
    "derivedexitcode": _for_jobs(lambda j: "0:0"),
    "elapsed": _for_both(lambda j: format_full(j.elapsed)),
    "elapsedraw": _for_both(lambda j: str(int(j.elapsed))),
    "eligible": _for_both(lambda j: format_moment(max(float(j["submit"]), float(j["begin"] or 0)))),
    "end": _for_both(_end_cell),
    "exitcode": _exit_cell,
    "gid": _for_jobs(lambda j: str(of.group_of(j.user)[1])),
    "group": _for_jobs(lambda j: of.group_of(j.user)[0]),
    "jobid": _id_cell,
    "jobidraw": _raw_id_cell,
    "jobname": lambda line, unit: line.step or line.job.name,
    "maxrss": _for_steps(_peak_cell),
    "maxrssnode": lambda line, unit: str(line.job["nodes"]) if line.step and line.job["peak_memory"] else "",
    "maxrsstask": lambda line, unit: "0" if line.step and line.job["peak_memory"] else "",
    "ncpus": _for_both(lambda j: str(j.cpus)),
    "nnodes": _for_both(lambda j: str(j.nodes)),
    "nodelist": _for_both(_nodes_cell),
    "ntasks": lambda line, unit: "1" if line.step else "",
    "partition": _for_jobs(lambda j: j.partition),
    "priority": _for_jobs(lambda j: f"{j['priority']:g}"),
    "qos": _for_jobs(lambda j: str(j.option.get("qos") or "normal")),
    "reason": _for_jobs(lambda j: j.reason),
    "reqcpus": _for_both(lambda j: str(j.cpus)),
    "reqmem": _for_jobs(_memory_cell),
    "reqnodes": _for_both(lambda j: str(j.nodes)),
    "reqtres": _for_jobs(lambda j: j.tres()),
    "reserved": _for_jobs(lambda j: format_full(_held_seconds(j))),
    "planned": _for_jobs(lambda j: format_full(_held_seconds(j))),
    "resvcpu": _for_jobs(lambda j: format_full(_held_seconds(j) * j.cpus)),
    "resvcpuraw": _for_jobs(lambda j: str(int(_held_seconds(j) * j.cpus))),
    "restarts": _for_jobs(lambda j: str(max(0, int(j["attempts"]) - 1))),
    "start": _for_both(lambda j: format_moment(None if j.waits else j["start"])),
    "state": _state_cell,
    "stderr": _for_jobs(lambda j: str(j["stderr"])),
    "stdout": _for_jobs(lambda j: str(j["stdout"])),
    "stdin": _for_jobs(lambda j: str(j["stdin"] or "/dev/null")),
    "submit": _for_both(lambda j: format_moment(j["submit"])),
    "suspended": _for_both(lambda j: "00:00:00"),
    "systemcpu": _for_both(lambda j: "00:00:00"),
    "timelimit": _for_jobs(_timelimit_cell),
    "timelimitraw": _for_jobs(lambda j: "" if j.limit is None else str(int(j.limit // 60))),
    "totalcpu": _for_both(lambda j: format_cpu_time(j["cpu_time"])),
    "uid": _for_jobs(lambda j: str(of.uid_of(j.user))),
    "user": _for_jobs(lambda j: j.user),
    "usercpu": _for_both(lambda j: format_cpu_time(j["cpu_time"])),
    "wckey": _for_jobs(lambda j: str(j.option.get("wckey") or "")),
    "workdir": _for_jobs(lambda j: str(j["folder"])),
}
"""Those of which something is known; others are empty."""


def _step_tres(one: StepRecord) -> str:
    return f"cpu={one.cpus},node={one.nodes}"


STEP_VALUES: Mapping[str, Callable[[Line, StepRecord, str], str]] = {
    "alloccpus": lambda line, one, unit: str(one.cpus),
    "allocnodes": lambda line, one, unit: str(one.nodes),
    "alloctres": lambda line, one, unit: _step_tres(one),
    "avecpu": lambda line, one, unit: format_full((one.user + one.system) / max(1, one.tasks)),
    "averss": lambda line, one, unit: _amount(one.mean or None, unit),
    "cputime": lambda line, one, unit: format_full(step_elapsed(line, one) * one.cpus),
    "cputimeraw": lambda line, one, unit: str(int(step_elapsed(line, one) * one.cpus)),
    "elapsed": lambda line, one, unit: format_full(step_elapsed(line, one)),
    "elapsedraw": lambda line, one, unit: str(int(step_elapsed(line, one))),
    "end": lambda line, one, unit: format_moment(line.job["end"] if one.end is None else one.end),
    "exitcode": lambda line, one, unit: f"{one.code}:{one.signal}",
    "jobname": lambda line, one, unit: one.name,
    "maxrss": lambda line, one, unit: _amount(one.peak or None, unit),
    "maxrssnode": lambda line, one, unit: one.where if one.peak else "",
    "maxrsstask": lambda line, one, unit: str(one.task) if one.peak else "",
    "ncpus": lambda line, one, unit: str(one.cpus),
    "nnodes": lambda line, one, unit: str(one.nodes),
    "nodelist": lambda line, one, unit: one.where,
    "ntasks": lambda line, one, unit: str(one.tasks),
    "reqcpus": lambda line, one, unit: str(one.cpus),
    "reqnodes": lambda line, one, unit: str(one.nodes),
    "start": lambda line, one, unit: format_moment(one.start),
    "state": lambda line, one, unit: step_state(line, one),
    "submit": lambda line, one, unit: format_moment(one.start),
    "systemcpu": lambda line, one, unit: format_cpu_time(one.system),
    "totalcpu": lambda line, one, unit: format_cpu_time(one.user + one.system),
    "usercpu": lambda line, one, unit: format_cpu_time(one.user),
}
"""Fields in which a step of ``srun``'s is not as the batch step of its job."""


def _value(line: Line, name: str, unit: str) -> str:
    if line.own is not None and name in STEP_VALUES:
        return STEP_VALUES[name](line, line.own, unit)
    return VALUES.get(name, _empty_cell)(line, unit)


_NEWER = "StdErr:20 StdOut:20 StdIn:20 Restarts:8 Planned:10"


def _column_fields() -> dict[str, Column]:
    found = {}
    for word in f"{WIDTHS} {_NEWER}".split():
        name, _, width = word.partition(":")
        found[name.lower()] = Column(name, int(width))
    return found


def run(words: list[str], place: str) -> int:
    """Print what is on record; exit status 1 for what is wrong."""
    given, rest = OPTIONS.read(words)
    if has_option(given, "help", "usage"):
        print(f"sacct [<OPTION>]\n{' '.join(f'--{name}' for name in OPTIONS.values)}")
        return 0
    if has_option(given, "helpformat", "help-fields"):
        return _print_fields()
    if rest:
        raise Wrong("sacct: error: Unknown arguments:", *(f"sacct: error:  {one}" for one in rest))
    columns = _choose_columns(given)
    what = _wanted_texts(given)
    service = Service("sacct", place)
    found = choose_jobs(given, service)
    if what:
        _print_texts(found, service, what)
        return 0
    if has_option(given, "json"):
        from dovetail_slurm.shims.sacct_json import print_json

        print_json(_lines_by_job(given, found, service))
        return 0
    delimiter = last_value(given, "delimiter") or "|"
    parsed = (
        "" if not has_option(given, "parsable", "parsable2") else "p" if _last_is(given, "parsable") else "P"
    )
    unit = (last_value(given, "units") or "").upper()
    if not has_option(given, "noheader"):
        names = [one.name for one in columns]
        print(_format_line(names, columns, parsed, delimiter))
        if not parsed:
            print(" ".join("-" * abs(one.width) for one in columns) + " ")
    for line in _job_lines(given, found, service):
        values = [_value(line, one.name.lower(), unit) for one in columns]
        print(_format_line(values, columns, parsed, delimiter))
    return 0


BATCH_SCRIPT = "Batch Script for {}"
ENVIRONMENT = "Environment used for {} (must be batch to display)"


def _wanted_texts(given: Sequence[Given]) -> str:
    """The heading of the texts that are printed in the place of a table, if any. Raises `Wrong`."""
    wanted = [name for name in ("batch-script", "env-vars") if has_option(given, name)]
    if len(wanted) > 1:
        raise Wrong("sacct: fatal: Options --batch-script and --env-vars are mutually exclusive")
    if not wanted:
        return ""
    if last_value(given, "jobs") is None:
        kind = "scripts" if wanted == ["batch-script"] else "environment"
        raise Wrong(
            f"sacct: fatal: When requesting job {kind} you must also request specific jobs with the '-j' "
            "option."
        )
    return BATCH_SCRIPT if wanted == ["batch-script"] else ENVIRONMENT


def _print_texts(found: Sequence[Job], service: Service, heading: str) -> None:
    """The script of each job; environments are not kept by job, as in a Slurm without ``job_env``."""
    for job in found:
        text = _script_of(job, service) if heading == BATCH_SCRIPT else b""
        head = f"{heading.format(job.id)}\n{'-' * 80}\n"
        # Bytes: a script has whatever encoding its writer has chosen.
        sys.stdout.buffer.write(head.encode() + (text or b"NONE\n") + b"\n")


def _script_of(job: Job, service: Service) -> bytes:
    """The script of a job; nothing where it has none, or its file is not of this machine or account."""
    folder = service.folder()
    if not (folder and job["script"]):
        return b""
    try:
        with open(f"{folder}/scripts/{job.array}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _last_is(given: Sequence[Given], name: str) -> bool:
    """Whether of ``--parsable`` and ``--parsable2`` this came last."""
    return next(one.name for one in reversed(given) if one.name in ("parsable", "parsable2")) == name


def _empty_cell(line: Line, unit: str) -> str:
    return ""


def _print_fields() -> int:
    names = [one.name for one in _column_fields().values()]
    for at in range(0, len(names), 4):
        print(" ".join(f"{name:19}" for name in names[at : at + 4]))
    return 0


def _format_line(values: Sequence[str], columns: Sequence[Column], parsed: str, delimiter: str) -> str:
    if parsed:
        return delimiter.join(values) + (delimiter if parsed == "p" else "")
    cells = [_fit_value(value, one.width) for value, one in zip(values, columns, strict=True)]
    return " ".join(cells) + " "


def _fit_value(value: str, width: int) -> str:
    """A value in its column; what is too long ends in a plus, as in sacct."""
    wide = abs(width)
    if len(value) > wide:
        value = value[: wide - 1] + "+"
    return fit_text(value, wide, right=width > 0)


def _choose_columns(given: Sequence[Given]) -> list[Column]:
    texts = [one.value or "" for one in given if one.name in ("format", "fields")]
    if not texts:
        texts = [os.environ.get("SACCT_FORMAT", "")] if "SACCT_FORMAT" in os.environ else []
    if not texts:
        texts = [LONG if has_option(given, "long") else BRIEF if has_option(given, "brief") else USUAL]
    known = _column_fields()
    found: list[Column] = []
    for part in ",".join(texts).split(","):
        name, percent, width = part.strip().lower().partition("%")
        if not name and not percent:
            continue
        if name == "all":
            found += [known[word.partition(":")[0].lower()] for word in WIDTHS.split()]
            continue
        column = known.get(name) or next((one for key, one in known.items() if key.startswith(name)), None)
        if column is None or (percent and not re.fullmatch(r"-?\d+", width, re.ASCII)):
            raise Wrong(f'sacct: error: Invalid field requested: "{name}"')
        if percent:
            column = column._replace(width=int(width))
        found.append(column)
    return found


def choose_jobs(given: Sequence[Given], service: Service) -> list[Job]:
    """The jobs that the options leave. Raises `Wrong`."""
    texts = [text for one in given if one.name == "jobs" for text in of.split_list(one.value or "")]
    try:
        ids = [of.parse_selector(text)[0] for text in texts]
    except ValueError as error:
        raise Wrong(f"sacct: fatal: Bad job/step specified: {error}") from None
    states = _wanted_states(given)
    since, until = _time_window(given, ids, states)
    question: dict[str, Any] = {"jobs": ",".join(ids) or None, "since": since, "until": until}
    question["state"] = [one for one in states if one in of.OURS]
    question["name"] = listed_values(given, "name", "jobname")
    if states and not question["state"]:
        return []
    users = of.user_names(listed_values(given, "uid", "user"))
    if users or not (ids or has_option(given, "allusers") or os.geteuid() == 0):  # root sees all, as in Slurm
        question["user"] = users or [of.account_name()]
    found = of.load_jobs(service, **question)
    for names, value in (
        (("accounts",), lambda job: str(job.option.get("account") or "")),
        (("partition",), lambda job: job.partition),
        (("qos",), lambda job: str(job.option.get("qos") or "normal")),
        (("wckeys",), lambda job: str(job.option.get("wckey") or "")),
        (("gid", "group"), lambda job: of.group_of(job.user)[0]),
    ):
        wanted = listed_values(given, *names)
        if wanted:
            found = [job for job in found if value(job) in wanted]
    return of.gather_arrays(found) if not has_option(given, "array") else found


def _time_window(
    given: Sequence[Given], ids: Sequence[str], states: Sequence[str]
) -> tuple[float | None, float | None]:
    """Between when jobs were there: by default today; of named jobs, at any time."""
    now = time.time()
    since, until = last_value(given, "starttime"), last_value(given, "endtime")
    try:
        begin = None if since is None else parse_moment(since, now)
        end = None if until is None else parse_moment(until, now)
    except ValueError as error:
        raise Wrong(f"Invalid time specification (pos=0): {error}") from None
    if begin is not None and end is not None and begin > end:
        raise Wrong("sacct: error: Start time cannot be after end time", status=1)
    if begin is None and not ids:
        begin = now if states and end is None else parse_moment("midnight", now)
    return begin, end


def _lines_by_job(given: Sequence[Given], found: Sequence[Job], service: Service) -> list[list[Line]]:
    """Each job with its steps, as `_job_lines` has them."""
    return [list(_job_lines(given, [job], service)) for job in found]


def _wanted_states(given: Sequence[Given]) -> list[str]:
    try:
        return of.state_names(listed_values(given, "state"))
    except ValueError as error:
        raise Wrong(f"sacct: fatal: Unknown state: {error}") from None


def _job_lines(given: Sequence[Given], found: Sequence[Job], service: Service) -> Iterator[Line]:
    """Each job and, once it has begun, its steps; with ``-j 12.batch`` or ``-j 12.0`` those steps alone."""
    texts = [text for one in given if one.name == "jobs" for text in of.split_list(one.value or "")]
    steps = {of.parse_selector(text)[1] for text in texts}
    for job in found:
        has_begun = job["script"] and not job.waits and job["start"] is not None
        every = steps <= {""}
        if every:
            yield Line(job)
        if not has_begun or (every and has_option(given, "allocations")):
            continue
        if every or "batch" in steps:
            yield Line(job, "batch")
        for one in read_records(path_of(service, job.id)):
            if every or str(one.number) in steps:
                yield Line(job, str(one.number), one)
