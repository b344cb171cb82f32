"""Every option of sbatch, and what becomes of it in a service of Dovetail's.

The table follows sbatch(1) of Slurm 22.05, with options of later versions (up to 25.05) and spellings of
earlier ones. `dovetail.workloads.batch` reads scripts by it; the page for people who come from Slurm is made
from it. Plain data, without imports of other rooms.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Treatment = Literal["honoured", "warned", "refused"]
Value = Literal["none", "optional", "required"]


class ScriptOption(NamedTuple):
    """One option of sbatch.

    ``treatment`` is what usually becomes of it: *honoured*; *warned* about, where the job runs but something
    is different; *refused*, where the job would not be what its author meant. Some values of an honoured
    option are warned about or refused, as ``meaning`` has it. ``variables`` are the ``SBATCH_*`` variables
    with the same effect.
    """

    name: str
    short: str
    value: Value
    treatment: Treatment
    meaning: str
    variables: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


def _honoured(name: str, value: Value, meaning: str, *names: str) -> ScriptOption:
    return _option(name, value, "honoured", meaning, names)


def _warned(name: str, value: Value, meaning: str, *names: str) -> ScriptOption:
    return _option(name, value, "warned", meaning, names)


def _refused(name: str, value: Value, meaning: str, *names: str) -> ScriptOption:
    return _option(name, value, "refused", meaning, names)


def _option(
    name: str, value: Value, treatment: Treatment, meaning: str, names: tuple[str, ...]
) -> ScriptOption:
    """The rest of the names: ``-x`` is the short one, ``SBATCH_X`` a variable, others are aliases."""
    short = "".join(one[1:] for one in names if one.startswith("-"))
    variables = tuple(one for one in names if one.isupper() and not one.startswith("-"))
    aliases = tuple(one for one in names if not one.startswith("-") and one not in variables)
    return ScriptOption(name, short, value, treatment, meaning, variables, aliases)


# Each option of sbatch is here, even if nothing becomes of it: a script from a cluster must never meet
# "unknown option", and what is dropped in silence would run as another job than was meant.
SBATCH_OPTIONS: tuple[ScriptOption, ...] = (
    # Accounts, QOS and the like decide nothing here, but are kept: scripts and reports print them.
    _warned("account", "required", "kept and shown; there are no accounts", "-A", "SBATCH_ACCOUNT"),
    _warned("acctg-freq", "required", "usage is measured all the time", "SBATCH_ACCTG_FREQ"),
    _honoured("array", "required", "a job for each index; steps and %N as in sbatch", "-a",
              "SBATCH_ARRAY_INX"),
    _warned("batch", "required", "nodes have no features; the script runs on the job's first node",
            "SBATCH_BATCH"),
    _warned("bb", "required", "there is no burst buffer, and nothing is staged"),
    _warned("bbf", "required", "there is no burst buffer, and nothing is staged"),
    _honoured("begin", "required", "the job starts at this moment or later", "-b"),
    _honoured("chdir", "required", "the folder in which the job runs", "-D", "workdir"),
    _warned("cluster-constraint", "required", "there is one cluster"),
    _warned("clusters", "required", "there is one cluster: the service's", "-M", "SBATCH_CLUSTERS",
            "SLURM_CLUSTERS", "cluster"),
    _honoured("comment", "required", "kept and shown"),
    _warned("consolidate-segments", "none", "nodes have no topology"),
    _warned("constraint", "required", "nodes have no features; the job may run on any node", "-C",
            "SBATCH_CONSTRAINT"),
    _refused("container", "required", "the job would run outside its container", "SBATCH_CONTAINER"),
    _refused("container-id", "required", "the job would run outside its container", "SBATCH_CONTAINER_ID"),
    _warned("context", "required", "the security context is that of the service"),
    _warned("contiguous", "none", "nodes have no order"),
    _warned("core-spec", "required", "no cores are set aside for the system", "-S", "SBATCH_CORE_SPEC"),
    _warned("cores-per-socket", "required", "CPUs are given out one by one, whatever their socket"),
    _warned("cpu-freq", "required", "frequencies stay as they are"),
    _honoured("cpus-per-gpu", "required", "CPUs for each GPU", "SBATCH_CPUS_PER_GPU"),
    _honoured("cpus-per-task", "required", "CPUs for each task", "-c"),
    _warned("deadline", "required", "the job stays in the queue after this moment"),
    _warned("delay-boot", "required", "no node is booted for a job", "SBATCH_DELAY_BOOT"),
    _honoured("dependency", "required",
              "after, afterok, afternotok, afterany, aftercorr, singleton; ',' or '?' between them", "-d"),
    _warned("distribution", "required", "set for srun in the script; CPUs are given out one by one", "-m",
            "SBATCH_DISTRIBUTION"),
    _honoured("error", "required", "a file name pattern", "-e", "SBATCH_ERROR"),
    _warned("exclude", "required", "the job may run on any node", "-x"),
    _honoured("exclusive", "optional", "all CPUs of its nodes; =user and =mcs: the same, with a warning",
              "SBATCH_EXCLUSIVE"),
    _honoured("export", "required", "the variables that the job gets", "SBATCH_EXPORT"),
    _honoured("export-file", "required", "a file of variables, separated by null characters; no descriptor"),
    _warned("extra", "required", "nodes have no further properties"),
    _warned("extra-node-info", "required", "CPUs are given out one by one, whatever their socket", "-B"),
    _warned("get-user-env", "optional", "the environment is that of the submission", "SBATCH_GET_USER_ENV"),
    _refused("gid", "required", "jobs run with the groups of the service's account"),
    _warned("gpu-bind", "required", "all tasks see all GPUs of the job", "SBATCH_GPU_BIND"),
    _warned("gpu-freq", "required", "frequencies stay as they are", "SBATCH_GPU_FREQ"),
    _honoured("gpus", "required", "GPUs of the job, shared evenly over its nodes", "-G", "SBATCH_GPUS"),
    _honoured("gpus-per-node", "required", "GPUs a node", "SBATCH_GPUS_PER_NODE"),
    _honoured("gpus-per-socket", "required", "GPUs for each of --sockets-per-node"),
    _honoured("gpus-per-task", "required", "GPUs for each task", "SBATCH_GPUS_PER_TASK"),
    _honoured("gres", "required", "gpu[:TYPE][:COUNT] a node; other kinds are warned about", "SBATCH_GRES"),
    _warned("gres-flags", "required", "CPUs are chosen whatever their distance to a GPU",
            "SBATCH_GRES_FLAGS"),
    _refused("help", "none", "it prints a page of help, and submits no job", "-h"),
    _warned("hint", "required", "CPUs are given out one by one, threads of a core alike", "SBATCH_HINT",
            "SLURM_HINT"),
    _honoured("hold", "none", "the job waits until it is released", "-H"),
    _honoured("ignore-pbs", "none", "#PBS and #BSUB lines are never read", "SBATCH_IGNORE_PBS"),
    _honoured("input", "required", "a file name pattern: what the script reads", "-i", "SBATCH_INPUT"),
    _honoured("job-name", "required", "the name of the job", "-J", "SBATCH_JOB_NAME"),
    _honoured("kill-on-invalid-dep", "required",
              "yes: a job whose dependency cannot come true is cancelled; no: it is so too, with a warning"),
    _warned("licenses", "required", "licenses are not counted", "-L"),
    _honoured("mail-type", "required",
              "mail at these events by the command that the site names (serve --mail-command); where the "
              "service has none it is passed over with a warning"),
    _honoured("mail-user", "required", "recipient of the mail; default: the submitter"),
    _warned("mcs-label", "required", "there are no such labels"),
    _honoured("mem", "required", "memory a node in MiB, or with K, M, G, T of 1024; 0: not counted",
              "SBATCH_MEM_PER_NODE"),
    _warned("mem-bind", "required", "memory is not bound", "SBATCH_MEM_BIND"),
    _honoured("mem-per-cpu", "required", "times the CPUs a node", "SBATCH_MEM_PER_CPU"),
    _honoured("mem-per-gpu", "required", "times the GPUs a node", "SBATCH_MEM_PER_GPU"),
    _honoured("mincpus", "required", "at least so many CPUs a node"),
    _warned("network", "required", "no networks are reserved", "SBATCH_NETWORK"),
    _honoured("nice", "optional", "behind jobs of the same user that are less nice; below 0: a warning"),
    _warned("no-kill", "optional", "a job that loses a node ends", "-k", "SBATCH_NO_KILL"),
    _honoured("no-requeue", "none", "what was cut short does not begin again", "SBATCH_NO_REQUEUE"),
    _warned("nodefile", "required", "the job may run on any node", "-F"),
    _warned("nodelist", "required", "the job may run on any node", "-w"),
    _honoured("nodes", "required", "so many nodes; of MIN-MAX the smaller, with a warning", "-N"),
    _honoured("ntasks", "required", "times the CPUs of a task, shared evenly over the nodes", "-n"),
    _warned("ntasks-per-core", "required", "CPUs are given out one by one"),
    _honoured("ntasks-per-gpu", "required", "tasks for each GPU", "ntasks-per-tres"),
    _honoured("ntasks-per-node", "required", "tasks a node", "tasks-per-node"),
    _warned("ntasks-per-socket", "required", "CPUs are given out one by one, whatever their socket"),
    _warned("oom-kill-step", "optional", "a job that exceeds its memory is ended as a whole",
            "SBATCH_OOM_KILL_STEP"),
    _honoured("open-mode", "required", "append or truncate", "SBATCH_OPEN_MODE"),
    _honoured("output", "required", "a file name pattern", "-o", "SBATCH_OUTPUT"),
    _honoured("overcommit", "none", "one task's CPUs a node", "-O", "SBATCH_OVERCOMMIT"),
    _warned("oversubscribe", "none", "no CPU is given to two jobs", "-s", "share"),
    _warned("parsable", "none", "it belongs on the command line"),
    _honoured("partition", "required",
              "nodes of this partition; where the service has none it is passed over with a warning", "-p",
              "SBATCH_PARTITION"),
    _warned("power", "required", "power is not managed", "SBATCH_POWER"),
    _warned("prefer", "required", "nodes have no features; the job may run on any node"),
    _warned("priority", "required", "priorities of Slurm have another scale"),
    _warned("profile", "required", "no profile is written", "SBATCH_PROFILE"),
    _warned("propagate", "optional", "limits are those of the submission"),
    _warned("qos", "required", "kept and shown; there are no qualities of service", "-q", "SBATCH_QOS"),
    _warned("quiet", "none", "it belongs on the command line", "-Q"),
    _warned("reboot", "none", "no node is booted for a job"),
    _honoured("requeue", "none", "what was cut short begins again", "SBATCH_REQUEUE"),
    _warned("reservation", "required", "there are no reservations by name", "SBATCH_RESERVATION"),
    _warned("resv-ports", "optional", "no ports are reserved"),
    _warned("segment", "required", "nodes have no topology"),
    _honoured("signal", "required",
              "[B:]SIGNAL[@SECONDS] before the limit: to the script alone (B:), else to what it started",
              "SBATCH_SIGNAL"),
    _warned("sockets-per-node", "required", "CPUs are given out one by one, whatever their socket"),
    _warned("spread-job", "none", "nodes are chosen by the policy", "SBATCH_SPREAD_JOB"),
    _warned("spread-segments", "none", "nodes have no topology"),
    _warned("stepmgr", "none", "steps need no manager"),
    _warned("switches", "required", "nodes have no topology", "SBATCH_REQ_SWITCH"),
    _refused("test-only", "none", "it checks, and submits no job: dovetail submit --explain-script FILE"),
    _warned("thread-spec", "required", "no threads are set aside for the system", "SBATCH_THREAD_SPEC"),
    _warned("threads-per-core", "required", "CPUs are given out one by one, threads of a core alike",
            "SBATCH_THREADS_PER_CORE"),
    _honoured("time", "required", "the walltime, in minutes or any of Slurm's forms; 0, UNLIMITED: none",
              "-t", "SBATCH_TIMELIMIT"),
    _warned("time-min", "required", "the walltime stays that of --time"),
    _warned("tmp", "required", "disks are not counted"),
    _warned("tres-bind", "required", "all tasks see all GPUs of the job", "SBATCH_TRES_BIND"),
    _honoured("tres-per-task", "required", "cpu=N, gres/gpu[:TYPE]=N and mem=SIZE for each task",
              "SBATCH_TRES_PER_TASK"),
    _refused("uid", "required", "jobs run as the service's account"),
    _refused("usage", "none", "it prints a page of help, and submits no job"),
    _honoured("use-min-nodes", "none", "of a range of nodes the smaller number is taken anyway",
              "SBATCH_USE_MIN_NODES"),
    _warned("verbose", "none", "it belongs on the command line", "-v", "SBATCH_DEBUG"),
    _refused("version", "none", "it prints a version, and submits no job", "-V"),
    _honoured("wait", "none", "the command ends when the job does", "-W", "SBATCH_WAIT"),
    _honoured("wait-all-nodes", "required", "a job starts when all its nodes are there",
              "SBATCH_WAIT_ALL_NODES"),
    _honoured("wckey", "required", "kept and shown", "SBATCH_WCKEY"),
    # A script with --wrap would have two bodies.
    _refused("wrap", "required", "a command in the place of a script belongs on the command line"),
)  # fmt: skip
"""In the order of the alphabet."""

BY_NAME = {name: option for option in SBATCH_OPTIONS for name in (option.name, *option.aliases)}
"""By long name, aliases included."""
BY_LETTER = {option.short: option for option in SBATCH_OPTIONS if option.short}
BY_VARIABLE = {name: option for option in SBATCH_OPTIONS for name in option.variables}


class InputVariable(NamedTuple):
    """A variable of the submission that is no option of sbatch's, and what becomes of it."""

    name: str
    treatment: Treatment
    meaning: str


INPUT_VARIABLES: tuple[InputVariable, ...] = (
    InputVariable("SBATCH_WAIT4SWITCH", "warned", "nodes have no topology"),
    # Set for all commands where a machine has several clusters: a warning each time would be noise.
    InputVariable("SLURM_CONF", "honoured", "for Slurm's own commands; a service reads no slurm.conf"),
    InputVariable("SLURM_DEBUG_FLAGS", "warned", "Slurm's parts do not run here: dovetail --debug"),
    InputVariable(
        "SLURM_EXIT_ERROR", "honoured", "exit status of the sbatch and srun of slurm-shims on errors"
    ),
    InputVariable("SLURM_STEP_KILLED_MSG_NODE_ID", "warned", "a job that is ended is logged once"),
    InputVariable("SLURM_UMASK", "honoured", "the umask of the job, in octal digits"),
)
"""The rest of what sbatch(1) lists as input environment variables."""

LATER = frozenset(
    {
        *("container-id", "consolidate-segments", "extra", "oom-kill-step", "resv-ports", "segment"),
        *("spread-segments", "stepmgr", "tres-per-task"),
    }
)
"""Options of versions after 22.05."""

# If one of these cannot be carried over, a job may start elsewhere, earlier or never.
PLACEMENT = frozenset(
    {
        *("account", "qos", "reservation", "partition", "constraint", "prefer", "nodelist", "exclude"),
        *("nodefile", "nodes", "ntasks", "ntasks-per-node", "ntasks-per-core", "ntasks-per-socket"),
        *("ntasks-per-gpu", "cpus-per-task", "cpus-per-gpu", "mincpus", "exclusive", "oversubscribe"),
        *("overcommit", "mem", "mem-per-cpu", "mem-per-gpu", "tmp", "gres", "gres-flags", "gpus"),
        *("gpus-per-node", "gpus-per-task", "gpus-per-socket", "licenses", "time", "time-min", "hint"),
        *("contiguous", "switches", "cores-per-socket", "sockets-per-node", "threads-per-core"),
        *("extra-node-info", "core-spec", "thread-spec", "distribution", "use-min-nodes"),
    }
)
"""Options that decide whether and where a job can start."""


class ScriptVariable(NamedTuple):
    """A variable that sbatch sets for a job: ``value`` is a pattern of `dovetail.model.Launch`, or words."""

    name: str
    meaning: str
    set_if: str = ""
    """When it is set; empty: always. ``never``: it has no meaning here."""


# `never` is listed too, so that the page shows which variables a script looks for in vain.
SBATCH_VARIABLES: tuple[ScriptVariable, ...] = (
    ScriptVariable("SLURM_ARRAY_JOB_ID", "number of the array, shared by its jobs", "array"),
    ScriptVariable("SLURM_ARRAY_TASK_COUNT", "jobs of the array", "array"),
    ScriptVariable("SLURM_ARRAY_TASK_ID", "index of this job", "array"),
    ScriptVariable("SLURM_ARRAY_TASK_MAX", "largest index", "array"),
    ScriptVariable("SLURM_ARRAY_TASK_MIN", "smallest index", "array"),
    ScriptVariable("SLURM_ARRAY_TASK_STEP", "step of the indices", "array"),
    ScriptVariable("SLURM_CLUSTER_NAME", "dovetail"),
    ScriptVariable("SLURM_CONTAINER", "jobs in containers are refused", "never"),
    ScriptVariable("SLURM_CPUS_ON_NODE", "CPUs of the job on its first node"),
    ScriptVariable("SLURM_CPUS_PER_GPU", "as given", "--cpus-per-gpu"),
    ScriptVariable("SLURM_CPUS_PER_TASK", "CPUs for each task; set without --cpus-per-task, too"),
    ScriptVariable("SLURM_DISTRIBUTION", "as given", "--distribution"),
    ScriptVariable("SLURM_DIST_PLANESIZE", "tasks are not distributed here", "never"),
    ScriptVariable("SLURM_EXPORT_ENV", "as given", "--export"),
    ScriptVariable("SLURM_GPU_BIND", "GPUs are not bound to tasks", "never"),
    ScriptVariable("SLURM_GPU_FREQ", "frequencies stay as they are", "never"),
    ScriptVariable("SLURM_GPUS", "as given", "--gpus"),
    ScriptVariable("SLURM_GPUS_ON_NODE", "GPUs of the job on its first node", "GPUs"),
    ScriptVariable("SLURM_GPUS_PER_NODE", "as given", "--gpus-per-node"),
    ScriptVariable("SLURM_GPUS_PER_SOCKET", "as given", "--gpus-per-socket"),
    ScriptVariable("SLURM_GPUS_PER_TASK", "as given", "--gpus-per-task"),
    ScriptVariable("SLURM_GTIDS", "0"),
    ScriptVariable("SLURM_HET_SIZE", "jobs of several components are refused", "never"),
    ScriptVariable("SLURM_HINT", "as given", "--hint"),
    ScriptVariable("SLURM_JOBID", "as SLURM_JOB_ID"),
    ScriptVariable("SLURM_JOB_ACCOUNT", "as given", "--account"),
    ScriptVariable("SLURM_JOB_CPUS_PER_NODE", "e.g. 4(x2)"),
    ScriptVariable("SLURM_JOB_DEPENDENCY", "as given", "--dependency"),
    ScriptVariable("SLURM_JOB_END_TIME", "when its walltime ends, in seconds since 1970", "--time"),
    ScriptVariable("SLURM_JOB_GID", "of the service's account"),
    ScriptVariable("SLURM_JOB_GPUS", "places of the job's GPUs on its first node", "GPUs"),
    ScriptVariable("SLURM_JOB_ID", "number of the job; each job of an array has its own"),
    ScriptVariable("SLURM_JOB_NAME", "name of the job"),
    ScriptVariable("SLURM_JOB_NODELIST", "names of its nodes, e.g. n[0-3]"),
    ScriptVariable("SLURM_JOB_NUM_NODES", "number of its nodes"),
    ScriptVariable("SLURM_JOB_PARTITION", "its partition, else dovetail"),
    ScriptVariable("SLURM_JOB_QOS", "as given", "--qos"),
    ScriptVariable("SLURM_JOB_RESERVATION", "there are no reservations by name", "never"),
    ScriptVariable("SLURM_JOB_START_TIME", "when it began, in seconds since 1970"),
    ScriptVariable("SLURM_JOB_UID", "of the service's account"),
    ScriptVariable("SLURM_JOB_USER", "name of the submitter"),
    ScriptVariable("SLURM_LOCALID", "0"),
    ScriptVariable("SLURM_MEM_PER_CPU", "MiB, as given", "--mem-per-cpu"),
    ScriptVariable("SLURM_MEM_PER_GPU", "MiB, as given", "--mem-per-gpu"),
    ScriptVariable("SLURM_MEM_PER_NODE", "MiB, as given", "--mem"),
    ScriptVariable("SLURM_NNODES", "as SLURM_JOB_NUM_NODES"),
    ScriptVariable("SLURM_NODEID", "0"),
    ScriptVariable("SLURM_NODELIST", "as SLURM_JOB_NODELIST"),
    ScriptVariable("SLURM_NODE_ALIASES", "nodes have one name", "never"),
    ScriptVariable("SLURM_NPROCS", "as SLURM_NTASKS"),
    ScriptVariable("SLURM_NTASKS", "tasks of the job; set without --ntasks, too"),
    ScriptVariable("SLURM_NTASKS_PER_CORE", "as given", "--ntasks-per-core"),
    ScriptVariable("SLURM_NTASKS_PER_GPU", "as given", "--ntasks-per-gpu"),
    ScriptVariable("SLURM_NTASKS_PER_NODE", "as given", "--ntasks-per-node"),
    ScriptVariable("SLURM_NTASKS_PER_SOCKET", "as given", "--ntasks-per-socket"),
    ScriptVariable("SLURM_OPEN_MODE", "a or t", "--open-mode"),
    ScriptVariable("SLURM_OVERCOMMIT", "1", "--overcommit"),
    ScriptVariable("SLURM_PRIO_PROCESS", "nice value of the submission"),
    ScriptVariable("SLURM_PROCID", "0"),
    ScriptVariable("SLURM_PROFILE", "no profile is written", "never"),
    ScriptVariable("SLURM_RESTART_COUNT", "how often the job has begun again", "above 0"),
    ScriptVariable("SLURM_SHARDS_ON_NODE", "shares of a GPU are no shards", "never"),
    ScriptVariable("SLURM_SUBMIT_DIR", "folder in which submit was typed"),
    ScriptVariable("SLURM_SUBMIT_HOST", "host on which submit was typed"),
    ScriptVariable("SLURM_TASKS_PER_NODE", "e.g. 2(x3),1"),
    ScriptVariable("SLURM_TASK_PID", "$$ in the script is the same", "never"),
    ScriptVariable("SLURM_THREADS_PER_CORE", "as given; 1 with --hint=nomultithread", "--threads-per-core"),
    ScriptVariable("SLURM_TOPOLOGY_ADDR", "nodes have no topology", "never"),
    ScriptVariable("SLURM_TOPOLOGY_ADDR_PATTERN", "nodes have no topology", "never"),
    ScriptVariable("SLURM_WCKEY", "as given", "--wckey"),
    ScriptVariable("SLURMD_NODENAME", "name of the job's first node"),
    ScriptVariable("SBATCH_MEM_BIND", "memory is not bound", "never"),
    ScriptVariable("SBATCH_MEM_BIND_LIST", "memory is not bound", "never"),
    ScriptVariable("SBATCH_MEM_BIND_PREFER", "memory is not bound", "never"),
    ScriptVariable("SBATCH_MEM_BIND_TYPE", "memory is not bound", "never"),
    ScriptVariable("SBATCH_MEM_BIND_VERBOSE", "memory is not bound", "never"),
    ScriptVariable("SBATCH_THREADS_PER_CORE", "SLURM_THREADS_PER_CORE has it", "never"),
)
"""What sbatch(1) lists as output environment variables, and what slurmd sets beside it (Slurm 22.05)."""
