"""``scontrol``: jobs, nodes and partitions in full; hold, release, requeue, change, move to the top."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail_slurm.shims import jobs as of
from dovetail_slurm.shims.jobs import Job
from dovetail_slurm.shims.options import Options, Wrong, has_option, outlive_our_job, write_complaint
from dovetail_slurm.shims.service import Refused, Service
from dovetail_slurm.shims.times import format_full, format_moment

OPTIONS = Options(
    "scontrol",
    ".all!a .clusters=M .cluster= .details!d .federation!F .future! help!h .hide! .local! oneliner!o quiet!Q "
    ".sibling! uid=u usage! .verbose!v version!V .json! .yaml!",
)
NO_JOB = "Invalid job id specified"
DISABLED = "Requested operation is presently disabled"


def run(words: list[str], place: str) -> int:
    """One command; exit status 1 for what is wrong, or was refused."""
    given, rest = OPTIONS.read(words)
    if has_option(given, "help", "usage") or rest[:1] == ["help"]:
        print(f"scontrol [<OPTION>] [<COMMAND>]\n{' '.join(_COMMANDS)}")
        return 0
    if not rest:
        raise Wrong("scontrol: error: found no command, expected one, such as show job")
    name = rest[0].lower()
    # Slurm takes abbreviations of commands as long as only one begins so.
    near = [one for one in _COMMANDS if one == name] or [one for one in _COMMANDS if one.startswith(name)]
    if len(near) != 1:
        raise Wrong(f"invalid keyword: {rest[0]}")
    return _COMMANDS[near[0]](Service("scontrol", place), rest[1:], has_option(given, "oneliner"))


# -- show ----------------------------------------------------------------------------------------------


def _show_entities(service: Service, words: Sequence[str], oneline: bool) -> int:
    if not words:
        raise Wrong("too few arguments for keyword:show")
    what, _, equals = words[0].partition("=")
    names = [*([equals] if equals else []), *words[1:]]
    entity = what.lower()
    for known, act in _SHOWN.items():
        if known == entity or (len(entity) > 2 and known.startswith(entity)) or entity == f"{known}s":
            return act(service, names, oneline)
    raise Wrong(f"invalid entity:{what} for keyword:show")


def _show_jobs(service: Service, names: Sequence[str], oneline: bool) -> int:
    now = time.time()
    from dovetail_slurm.shims.squeue import MIN_JOB_AGE

    ids = _read_ids(names)
    found = of.load_jobs(service, jobs=",".join(ids) or None)
    # As slurmctld does, which forgets jobs MinJobAge after their end.
    found = [job for job in found if job["end"] is None or job["end"] > now - MIN_JOB_AGE]
    if ids and not found:
        raise Wrong(f"slurm_load_jobs error: {NO_JOB}")
    for job in of.gather_arrays(found) if found else ():
        print(_join_lines(_job_lines(job), oneline))
    if not found:
        print("No jobs in the system")
    return 0


def _join_lines(lines: Sequence[str], oneline: bool) -> str:
    return " ".join(lines) + " " if oneline else "\n   ".join(lines) + "\n"


def _job_lines(job: Job) -> list[str]:
    array = ""
    if job["array"] is not None:
        array = f"ArrayJobId={job.array} ArrayTaskId={job.indices or job['index']} "
        array += f"ArrayTaskThrottle={job['at_once']} " if job["at_once"] else ""
    group, gid = of.group_of(job.user)
    code, signal = job.exit
    start, end = job.start, job.end
    nodes = "" if job.waits else str(job["nodes"])
    variables = job["variables"]
    tasks, cpus = job.tasks, variables.get("SLURM_CPUS_PER_TASK", "1")
    first = ""
    if nodes:
        from dovetail.model.hostlist import expand_hostlist

        first = expand_hostlist(nodes)[0]
    limit, least = (
        "UNLIMITED" if job.limit is None else format_full(job.limit),
        max(1, int(job["request"]["cpus"])),
    )
    # Eligible from its submission on, or from the begin that it names.
    begin = max(float(job["submit"]), float(job["begin"] or 0))
    lines = [
        f"JobId={job.number} {array}JobName={job.name}",
        f"UserId={job.user}({of.uid_of(job.user)}) GroupId={group}({gid}) MCS_label=N/A",
        f"Priority={job['priority']:g} Nice={job.option.get('nice', 0)} "
        f"Account={job.option.get('account') or '(null)'} QOS={job.option.get('qos') or 'normal'}"
        + (f" WCKey={job.option['wckey']}" if job.option.get("wckey") else ""),
        f"JobState={job.state} Reason={job.reason} Dependency={job.dependency or '(null)'}",
        f"Requeue={int(job['restartable'])} Restarts={max(0, int(job['attempts']) - 1)} "
        f"BatchFlag={int(job['script'])} Reboot=0 ExitCode={code}:{signal}",
        f"RunTime={format_full(job.elapsed)} TimeLimit={limit} TimeMin=N/A",
        f"SubmitTime={format_moment(job['submit'])} EligibleTime={format_moment(begin)}",
        f"AccrueTime={format_moment(begin)}",
        f"StartTime={format_moment(start)} EndTime={format_moment(end)} Deadline=N/A",
        f"SuspendTime=None SecsPreSuspend=0 LastSchedEval={format_moment(job.now)} Scheduler=Main",
        f"Partition={job.partition} AllocNode:Sid={socket.gethostname().partition('.')[0]}:0",
        "ReqNodeList=(null) ExcNodeList=(null)",
        f"NodeList={nodes or '(null)' if not job.waits else ''}",
        *([f"BatchHost={first}"] if first else []),
        f"NumNodes={job.nodes} NumCPUs={job.cpus} NumTasks={tasks} CPUs/Task={cpus} ReqB:S:C:T=0:0:*:*",
        f"TRES={job.tres()}",
        "Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*",
        f"MinCPUsNode={least} MinMemoryNode={of.format_size(job.memory)} MinTmpDiskNode=0",
        "Features=(null) DelayBoot=00:00:00",
        "OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)",
        f"Command={job['command'] or '(null)'}",
        f"WorkDir={job['folder']}",
        *([f"Comment={job.option['comment']} "] if job.option.get("comment") else []),
        f"StdErr={job['stderr']}",
        f"StdIn={job['stdin'] or '/dev/null'}",
        f"StdOut={job['stdout']}",
        "Power=",
    ]
    if job.devices:
        lines.append("TresPerNode=" + ",".join(f"gres:{kind}:{count}" for kind, count in job.devices.items()))
    return lines


def _show_config(service: Service, names: Sequence[str], oneline: bool) -> int:
    from dovetail_slurm.shims.main import VERSION
    from dovetail_slurm.shims.squeue import MIN_JOB_AGE

    info = service.get("/api/v1/info")
    found = {
        "AccountingStorageType": "accounting_storage/dovetail",
        "AuthType": "auth/socket",
        "BOOT_TIME": format_moment(info["since"]),
        "ClusterName": "dovetail",
        "JobRequeue": "0",
        "KillWait": "5 sec",
        "MaxArraySize": "100001",
        "MaxJobCount": "1000000",
        "MinJobAge": f"{MIN_JOB_AGE:.0f} sec",
        "PreemptMode": "OFF",
        "SchedulerType": f"sched/dovetail ({info['policy']})",
        "SLURM_CONF": "(null)",
        "SLURM_VERSION": VERSION.split()[1],
        "SlurmctldHost[0]": socket.gethostname().partition(".")[0],
    }
    print(f"Configuration data as of {format_moment(time.time())}")
    for name, value in found.items():
        print(f"{name:23} = {value}")
    return 0


def _show_partitions(service: Service, names: Sequence[str], oneline: bool) -> int:
    from dovetail_slurm.shims.sinfo import gres_of, list_partitions, memory_of

    found = [one for one in list_partitions(service) if not names or one.name in names]
    if not found:
        raise Wrong(f"Partition {names[0]} not found")
    from dovetail.model.hostlist import compress_names

    for one in found:
        cpus = sum(int(node["cpus"]) for node in one.nodes)
        memory = sum(memory_of(node) for node in one.nodes if node["memory"])
        gpus = sum(len(node["devices"]) for node in one.nodes)
        tres = f"cpu={cpus},mem={memory}M,node={len(one.nodes)},billing={cpus}"
        tres += f",gres/gpu={gpus}" if any(gres_of(node) != "(null)" for node in one.nodes) else ""
        limit = "UNLIMITED" if one.longest is None else format_full(one.longest)
        usual = "NONE" if one.walltime is None else format_full(one.walltime)
        lines = [
            f"PartitionName={one.name}",
            "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL",
            f"AllocNodes=ALL Default={'YES' if one.default else 'NO'} QoS=N/A",
            f"DefaultTime={usual} DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO",
            f"MaxNodes={one.most_nodes or 'UNLIMITED'} MaxTime={limit} MinNodes=0 LLN=NO "
            "MaxCPUsPerNode=UNLIMITED",
            f"Nodes={compress_names([node['name'] for node in one.nodes])}",
            "PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO",
            "OverTimeLimit=NONE PreemptMode=OFF",
            f"State={'UP' if one.up else 'DOWN'} TotalCPUs={cpus} TotalNodes={len(one.nodes)} "
            "SelectTypeParameters=NONE",
            "JobDefaults=(null)",
            "DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED",
            f"TRES={tres}",
        ]
        print(_join_lines(lines, oneline))
    return 0


def _show_nodes(service: Service, names: Sequence[str], oneline: bool) -> int:
    from dovetail.model.hostlist import expand_hostlist
    from dovetail_slurm.shims.main import VERSION
    from dovetail_slurm.shims.sinfo import gres_of, memory_of, state_of

    wanted = [one for text in names for one in expand_hostlist(text)]
    nodes = service.get("/api/v1/nodes")["nodes"]
    found = [node for node in nodes if not wanted or node["name"] in wanted]
    for name in wanted:
        if name not in [node["name"] for node in nodes]:
            write_complaint(f"Node {name} not found")
    for node in found:
        lines = [
            f"NodeName={node['name']} Arch=x86_64 CoresPerSocket=1 ",
            f"CPUAlloc={node['cpus_used']} CPUEfctv={node['cpus']} CPUTot={node['cpus']} CPULoad=N/A",
            "AvailableFeatures=(null)",
            "ActiveFeatures=(null)",
            f"Gres={gres_of(node)}",
            f"NodeAddr={node['name']} NodeHostName={node['name']} Version={VERSION.split()[1]}",
            f"RealMemory={memory_of(node)} AllocMem=0 FreeMem=N/A Sockets={node['cpus']} Boards=1",
            f"State={state_of(node).upper()} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A",
            f"Partitions={','.join(node['partitions']) or of.PARTITION} ",
            f"CfgTRES=cpu={node['cpus']},mem={memory_of(node)}M,billing={node['cpus']}",
            f"AllocTRES={'cpu=' + str(node['cpus_used']) if node['cpus_used'] else ''}",
        ]
        print(_join_lines(lines, oneline))
    return int(bool(wanted) and not found)


def _show_hostnames(service: Service, names: Sequence[str], oneline: bool) -> int:
    import os

    from dovetail.errors import InputError
    from dovetail.model.hostlist import expand_hostlist

    text = ",".join(names) or os.environ.get("SLURM_JOB_NODELIST", "")
    if not text:
        raise Wrong("scontrol: error: host list is empty")
    try:
        print("\n".join(expand_hostlist(text)))
    except InputError:
        raise Wrong(f"Invalid hostlist: {text}") from None
    return 0


def _show_hostlist(service: Service, names: Sequence[str], oneline: bool) -> int:
    from dovetail.model.hostlist import compress_names, expand_hostlist

    if not names:
        raise Wrong("scontrol: error: host list is empty")
    print(compress_names([one for text in names for one in expand_hostlist(text)]))
    return 0


def _show_nothing(sentence: str) -> Callable[[Service, Sequence[str], bool], int]:
    def print_sentence(service: Service, names: Sequence[str], oneline: bool) -> int:
        print(sentence)
        return 0

    return print_sentence


_SHOWN: Mapping[str, Callable[[Service, Sequence[str], bool], int]] = {
    "job": _show_jobs,
    "config": _show_config,
    "partition": _show_partitions,
    "node": _show_nodes,
    "hostnames": _show_hostnames,
    "hostlist": _show_hostlist,
    "hostlistsorted": _show_hostlist,
    "reservation": _show_nothing("No reservations in the system"),
    "licenses": _show_nothing("No licenses configured in Slurm."),
    "step": _show_nothing("Job steps are not on record: srun runs them within their job"),
}


# -- change --------------------------------------------------------------------------------------------


def _read_ids(names: Sequence[str]) -> list[str]:
    found = []
    for text in (part for name in names for part in of.split_list(name)):
        bare = text.partition("=")[2] if text.lower().startswith(("jobid=", "job=")) else text
        try:
            found.append(of.parse_selector(bare)[0])
        except ValueError:
            raise Wrong(f"scontrol_print_job error: {NO_JOB}") from None
    return found


def _make_action(action: str) -> Callable[[Service, Sequence[str], bool], int]:
    """A wish of the service, for each of some jobs; one that is refused keeps none of the others back."""

    def act_on_jobs(service: Service, words: Sequence[str], oneline: bool) -> int:
        if not words:
            raise Wrong(f"too few arguments for keyword:{action}")
        status, last = 0, ""
        for word in _by_name(service, words):
            try:
                status |= _request_action(service, action, _read_id(word))
            except Wrong as error:
                last = error.lines[0].partition(" for job ")[0]
                write_complaint(*error.lines)
                status = 1
        # Slurm's own command has a second line for these two, by the name of the call that it makes.
        if last and action in ("hold", "release"):
            write_complaint(f"slurm_suspend error: {last}")
        return status

    return act_on_jobs


def _read_id(word: str) -> str:
    try:
        return of.parse_selector(word)[0]
    except ValueError:
        raise Wrong(f"{NO_JOB} for job {word}") from None


def _by_name(service: Service, words: Sequence[str]) -> list[str]:
    """Jobs that words name, of which ``name=NAME`` stands for this user's jobs of that name."""
    found: list[str] = []
    for word in words:
        key, equals, name = word.partition("=")
        if equals and key.lower() in ("name", "jobname"):
            jobs = of.load_jobs(service, name=[name], user=[of.account_name()], state=list(of.OPEN))
            found += [str(job["id"]) for job in jobs]
        else:
            found += of.split_list(name if equals and key.lower() in ("jobid", "job") else word)
    return found


def _request_action(service: Service, action: str, id: str, form: Mapping[str, Any] | None = None) -> int:
    """Have one thing done; 1 where it was refused. Raises `Wrong`."""
    # A job may requeue or hold itself: this process must not end with it before the request is through.
    outlive_our_job()
    try:
        answer = service.post_form(f"/api/v1/{action}", {"jobs": id} if form is None else form)
    except Refused as error:
        if error.status == 404:
            raise Wrong(f"{NO_JOB} for job {id}") from None
        if error.status == 403:
            raise Wrong(f"Access/permission denied for job {id}") from None
        raise Wrong(f"{error.text} for job {id}") from None
    for job, why in answer["refused"].items():
        if action == "hold" and why == "it runs":  # Slurm takes it, and it counts when the job is requeued
            continue
        write_complaint(f"{_REFUSED.get(why, why)} for job {job}")
    return int(bool(answer["refused"]) and not answer["jobs"] and action != "hold")


_REFUSED = {
    "it has ended": "Job has already finished",
    "it runs": "Job is no longer pending execution",
    "it waits already": "Job is pending execution",
    "it does not wait": "Job is no longer pending execution",
}


def _requeue_and_hold(service: Service, words: Sequence[str], oneline: bool) -> int:
    names = [word for word in words if not word.lower().startswith("state=")]
    status = _make_action("requeue")(service, names, oneline)
    if status == 0:
        _held_when_it_waits(service, [_read_id(word) for word in _by_name(service, names)])
    return status


def _held_when_it_waits(service: Service, ids: Sequence[str]) -> None:
    """Hold jobs as soon as they wait: those that ran are first stopped."""
    deadline = time.monotonic() + 60
    left = list(ids)
    while left and time.monotonic() < deadline:
        # A job that runs is refused until its processes have ended, so it is tried until it waits.
        answer = service.post_form("/api/v1/hold", {"jobs": ",".join(left)})
        left = [job for job, why in answer["refused"].items() if why == "it runs"]
        if left:
            time.sleep(0.05)


def _move_to_top(service: Service, words: Sequence[str], oneline: bool) -> int:
    if not words:
        raise Wrong("too few arguments for keyword:top")
    status = 0
    # Each goes to the front, so the last one named comes first, and the order of the words remains.
    for id in reversed(_read_ids(words)):
        try:
            answer = service.post_form("/api/v1/move", {"job": id})
        except Refused as error:
            raise Wrong(f"{NO_JOB if error.status == 404 else error.text} for job {id}") from None
        for why in answer["refused"].values():
            write_complaint(f"{_REFUSED.get(why, why)} for job {id}")
            status = 1
    return status


def _refuse_disabled(service: Service, words: Sequence[str], oneline: bool) -> int:
    for id in _read_ids(words):
        write_complaint(f"{DISABLED} for job {id}")
    return 1


def _update_jobs(service: Service, words: Sequence[str], oneline: bool) -> int:
    given = [word.partition("=") for word in words]
    if not given:
        raise Wrong("too few arguments for keyword:update")
    names = {name.lower(): value for name, _, value in given}
    if "jobid" in names:
        return _update_job(service, names, {name.lower(): name for name, _, _ in given})
    if "nodename" in names:
        return _update_node(service, names)
    if "partitionname" in names:
        return _update_partition(service, names)
    raise Wrong(
        "No valid entity in update command", 'Input line must include "NodeName", "PartitionName" or "JobId"'
    )


def _update_job(service: Service, names: Mapping[str, str], typed: Mapping[str, str]) -> int:
    from dovetail.workloads.batch import units

    changes: dict[str, Any] = {}
    ids = _read_ids([names["jobid"]])
    status = 0
    for name, value in names.items():
        try:
            if name == "jobid":
                continue
            if name in ("timelimit", "time"):
                base = value.lstrip("+-")
                limit = units.parse_limit(base)
                if value[:1] in "+-" and limit is not None:
                    now = of.load_jobs(service, jobs=ids[0])
                    before = now[0].limit if now else None
                    # A limit that is reduced below a minute would end the job before a user can correct it.
                    limit = max(60.0, (before or 0) + (limit if value[0] == "+" else -limit))
                if limit is None:
                    raise ValueError(f"found {value!r}, expected a limit")
                changes["walltime"] = limit
            elif name in ("name", "jobname"):
                changes["name"] = value
            elif name == "nice":
                changes["nice"] = int(value or 100)
            elif name == "priority":
                if value == "0":
                    status |= max(_request_action(service, "hold", id) for id in ids)
                    continue
                changes["priority"] = int(value)
            elif name == "dependency":
                changes["depends"] = [
                    f"{kind}:{job}"
                    for part in value.split(",")
                    if part
                    for kind, *jobs in [part.split(":")]
                    for job in jobs
                ]
            elif name in ("minmemorynode", "memory"):
                changes["memory"] = units.parse_memory(value)
            elif name == "hold":
                status |= max(_request_action(service, "hold", id) for id in ids)
            else:
                raise Wrong(
                    f"Update of this parameter is not supported: {typed[name]}={value}", "Request aborted"
                )
        except ValueError as error:
            raise Wrong(f"Invalid {name}: {error}", "Request aborted") from None
    if changes:
        status |= max(_request_action(service, "update", id, {"jobs": id, "changes": changes}) for id in ids)
    return status


def _update_node(service: Service, names: Mapping[str, str]) -> int:
    from dovetail.model.hostlist import expand_hostlist

    state = names.get("state", "").lower()
    action = {"drain": "drain", "resume": "resume", "idle": "resume", "undrain": "resume"}.get(state)
    if action is None:
        raise Wrong(f"Invalid input: State={names.get('state', '')}", "Request aborted")
    for name in expand_hostlist(names["nodename"]):
        try:
            service.post_form(f"/api/v1/nodes/{name}/{action}", {})
        except Refused as error:
            text = "Invalid node name specified" if error.status == 404 else error.text
            raise Wrong(f"slurm_update error: {text}") from None
    return 0


def _update_partition(service: Service, names: Mapping[str, str]) -> int:
    from dovetail_slurm.shims.sinfo import list_partitions

    state = names.get("state", "").lower()
    found = list_partitions(service)
    if names["partitionname"] not in [one.name for one in found]:
        raise Wrong("slurm_update error: Invalid partition name specified")
    if state not in ("up", "down", "inactive", "drain") or len(found) > 1:
        raise Wrong(
            f"slurm_update error: {DISABLED}: State=UP and State=DOWN of the only partition are there"
        )
    service.post_form(f"/api/v1/queue/{'resume' if state == 'up' else 'pause'}", {})
    return 0


def _ping_controller(service: Service, words: Sequence[str], oneline: bool) -> int:
    service.get("/api/v1/info")
    print(f"Slurmctld(primary) at {socket.gethostname().partition('.')[0]} is UP")
    return 0


def _print_version(service: Service, words: Sequence[str], oneline: bool) -> int:
    from dovetail_slurm.shims.main import VERSION

    print(VERSION)
    return 0


_COMMANDS: Mapping[str, Callable[[Service, Sequence[str], bool], int]] = {
    "show": _show_entities,
    "hold": _make_action("hold"),
    "uhold": _make_action("hold"),
    "release": _make_action("release"),
    "requeue": _make_action("requeue"),
    "requeuehold": _requeue_and_hold,
    "update": _update_jobs,
    "top": _move_to_top,
    "suspend": _refuse_disabled,
    "resume": _refuse_disabled,
    "ping": _ping_controller,
    "version": _print_version,
}
