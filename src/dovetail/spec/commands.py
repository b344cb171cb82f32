"""The options of commands that are no options of a job: of a run, a service, a simulation, a map …

They stand with the commands that take them; the same name may mean another thing elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.spec.jobs import JOB
from dovetail.spec.option import DURATION, SIZE, Option
from dovetail.spec.values import DEFAULT_MODEL, LEAST_LENT

HISTORY = (
    "history list, history show, history predict, history forget, history export, history import, "
    "history vacuum, history import-slurm, history import-nextflow, history import-snakemake, model list, "
    "model show, model error"
)
WITH_HISTORY = f"run, explain, map, serve, simulate, compare, {HISTORY}"
WORKLOADS = "workload describe, workload convert, workload cut, workload scale, workload export"
WITH_TRACES = f"simulate, compare, {WORKLOADS}, workload pack-nodes"
"""Commands that have options in common."""

# Without nodes, CPUs and devices: plans and promises rest on these.
UPDATED = (
    *("name", "walltime", "memory", "priority", "nice", "retries", "on", "depends", "singleton"),
    *("begin", "every", "comment"),
)
"""Options of a job that can be changed while it waits."""

# A letter means one thing everywhere, so that what the fingers have learned holds.
LETTERS: Mapping[str, tuple[str, ...]] = {
    "D": ("folder",), "G": ("gpus",), "H": ("hold",), "I": ("implementation",), "J": ("name",),
    "N": ("nodes",), "W": ("wait",), "a": ("array",), "b": ("begin",), "c": ("cpus",), "d": ("depends",),
    "e": ("stderr", "err"), "f": ("follow",), "i": ("inputs",), "j": ("jobs",), "k": ("keep_order",),
    "o": ("stdout",), "p": ("partition",), "q": ("quiet",), "s": ("state",), "t": ("walltime",),
    "u": ("user",), "v": ("verbose",),
}  # fmt: skip
"""What a short letter stands for in all commands: names of options that mean the same."""
OLD_LETTERS: Mapping[tuple[str, str], str] = {
    ("d", "device"): "of the history's commands, which know no dependencies",
    ("e", "ended"): "from before this table",
    ("n", "name"): "from before this table; -J everywhere",
    ("o", "columns"): "as in squeue",
}
"""Letters that mean something else in some commands, and why."""
WITHOUT_LETTERS: Mapping[tuple[str, str], str] = {
    ("forecast", "--nodes"): "a file, not a number of nodes",
    ("run", "--input"): "sbatch's -i is standard input",
    ("submit", "--input"): "sbatch's -i is standard input",
    ("simulate", "--partition"): "makes partitions, does not choose one",
    ("compare", "--partition"): "makes partitions, does not choose one",
    ("workload describe", "--partition"): "makes partitions, does not choose one",
    ("workload cut", "--jobs"): "jobs of a trace, not jobs at once",
}
"""Commands and options that are spelt as an option with a letter is and do not take it, and why."""

# Keys are commands that share the options below them: one entry cannot drift from another.
_COMMANDS: Mapping[str, tuple[Option, ...]] = {
    "submit": (
        Option(
            "what",
            "A job file, a list of commands ('-': standard input), or a batch script and its arguments.",
            "FILE.toml|COMMANDS|SCRIPT [ARGUMENTS]…",
            positional=True,
        ),
        Option("wait", "Wait for the end; 1 if not all complete.", flags="--wait -W"),
        Option("interactive", "Run the command after -- (default: $SHELL) here, on a terminal of the job."),
        Option("parsable", "Print the numbers alone."),
        Option("test", "Print when it would start if it were submitted now; submit nothing."),
        Option(
            "explain_script",
            "Print what becomes of each option of a batch script, and submit nothing.",
            "FILE",
        ),
    ),
    "run": (
        Option(
            "file",
            "Job file, or a list of commands, one a line; with --resume the id of a run.",
            "FILE",
            positional=True,
        ),
        Option("jobs", "At most so many jobs at once.", "N", "--jobs -j", least=1),
        Option("keep_order", "Print what jobs write, in the order of the list.", flags="--keep-order -k"),
        Option(
            "halt",
            "End early: now,fail=1 or soon,fail=10% (also success, done).",
            "WHEN,WHAT",
            default="never",
        ),
        Option(
            "cut_walltimes",
            "Request the time that a restartable job with 20 known runs needs (slurm-queue).",
        ),
        Option("resume", "Take up a run whose Dovetail ended before its jobs (the newest one)."),
        Option(
            "retry_failed",
            "Run what failed in an earlier run (its id, or last) once more, as a new run.",
            "RUN",
            complete="runs",
        ),
        Option("then", "Start it when all is over, with a summary as JSON on its input.", "COMMAND"),
        Option("run_dir", "Outputs and journal; must not hold a run yet.", "FOLDER"),
    ),
    "run, explain, serve, whatif, simulate": (
        Option("cluster", "Cluster file, or e.g. 16x8cpu+1gpu. Default: this machine.", "FILE|SHORT"),
    ),
    "run, explain, serve": (
        Option(
            "policy",
            "See 'dovetail policies'.",
            "NAME[?OPTION=VALUE]",
            default="history",
            complete="policies",
        ),
    ),
    "run, explain": (
        Option("drop", "Leave a feature of plain commands out.", "FEATURE"),
        Option("add", "Add a feature to plain commands.", "NAME=VALUE"),
    ),
    "run, serve, simulate, compare": (
        Option("seed", "Draws, or shuffles, jobs submitted together.", "N", least=0),
        Option("overrun", "At its walltime a job is killed, or runs on.", default="kill"),
        Option("default_walltime", "Of jobs without a walltime ('actual' in simulation).", DURATION),
    ),
    "run, explain, serve, simulate, compare, history predict, model show": (
        Option("model", "How run times are predicted.", "NAME", default=DEFAULT_MODEL, complete="models"),
    ),
    WITH_HISTORY: (Option("history", "History database.", "FILE", complete="files"),),
    "run, serve": (
        Option("grace", "Between TERM and KILL.", DURATION, default=5.0),
        Option("executor", "Where the jobs run.", "NAME[?option=value]", default="local"),
        Option(
            "neighbours",
            "Devices where others compute: avoid them, leave out their memory, or ignore it.",
            "avoid|memory|ignore",
            default="avoid",
        ),
    ),
    "run, simulate": (
        Option("csv", "Write one line a job (evalys columns).", "FILE"),
        Option("gantt", "Draw the schedule to an SVG, PNG or PDF file.", "FILE"),
        Option("idle_watts", "Of an idle processor, for the energy.", "W"),
        Option("busy_watts", "Of a busy processor, for the energy.", "W"),
    ),
    "run, simulate, compare": (
        Option("report", "Write an HTML page, charts, CSV and JSON there.", "FOLDER"),
        Option(
            "verbose",
            "Show more: decision times, idle resources, predictions, why a simulation is not compiled.",
            flags="--verbose -v",
        ),
    ),
    "run, map, simulate, compare": (Option("quiet", "No progress.", flags="--quiet -q"),),
    "queue": (
        Option(
            "jobs", "Only these, ended or not: numbers, ranges, a name, 'last'.", "[JOBS]…", positional=True
        ),
        Option("state", "Only in this state; repeatable.", "STATE", "--state -s"),
        Option("user", "Only of this user.", "NAME", "--user -u"),
        Option("name", "Only of this name.", "NAME", "--name -J -n"),
        Option("ended", "Those that have ended, the last one first.", flags="--ended -e"),
        Option("failed", "Those that have failed: FAILED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY."),
        Option("since", "Those that have ended since so long ago, e.g. 2d.", DURATION),
        Option(
            "columns",
            "Columns by name, e.g. id,name,command, or squeue's: '%i %j'.",
            "COLUMNS",
            "--columns --output -o",
        ),
        Option("limit", "At most so many rows.", default=1000, least=1, most=100000),
    ),
    "queue, nodes": (Option("parsable", "Fields separated by '|', no header, no alignment."),),
    "logs": (
        Option("job", "A number, a name (all jobs of it), 'last'.", "JOB", positional=True, required=True),
        Option("follow", "Go on until the job ends.", flags="--follow -f"),
        Option("err", "Standard error instead of output.", flags="--err -e"),
        Option("attempt", "Of this attempt.", "N", least=1),
        Option("tail", "Only the last so many bytes.", SIZE),
        Option("run", "A job of this run, not of the service.", "RUN", complete="runs"),
    ),
    "requeue": (
        Option("jobs", "Numbers, 3-7, 3,5, 12_0-4, a name, 'last' or 'all'.", "[JOBS]…", positional=True),
        Option("failed", "Of these, or of all of yours, only those that have failed."),
    ),
    "wait, cancel, hold, release, update": (
        Option(
            "jobs",
            "Numbers, 3-7, 3,5, 12_0-4, a name, 'last' or 'all'.",
            "JOBS…",
            positional=True,
            required=True,
        ),
    ),
    "cancel": (Option("signal", "Send running jobs this signal, and cancel nothing.", "NAME"),),
    "wait": (Option("timeout", "Give up after this; exit status 124.", DURATION),),
    "run, wait": (Option("bell", "Ring the terminal's bell when all is over."),),
    "submit, logs, wait": (
        Option("patience", "Wait so long for a service that starts anew.", DURATION, default=300.0, least=0),
    ),
    "move": (
        Option("job", "One job that waits.", "JOB", positional=True, required=True),
        Option("first", "Before all others of its priority."),
        Option("after", "Right after this one.", "JOB"),
    ),
    "reserve": (
        Option("gpus", "How many GPUs.", "N", "--gpus -G", least=1, most=100_000),
        Option("start", "When it begins, e.g. 14:00 or now+1hour. Default: now.", "WHEN", "--from"),
        Option("span", "How long it lasts, e.g. 3h.", DURATION, "--for", least=0, above=True),
        Option(
            "user",
            "Whose jobs run there. Default: the caller; an operator names others.",
            "USER",
            "--user -u",
        ),
        Option("name", "A name for people.", "NAME", "--name -J"),
        Option("list_", "Show the reservations that are not over.", flags="--list"),
        Option("cancel", "Give this reservation up.", "ID"),
    ),
    "pause, resume": (
        Option("kind", "Only these kinds of devices, e.g. gpu or cpu,gpu. Default: all.", "KINDS"),
    ),
    "explain": (
        Option(
            "target",
            "A run (its id or folder), a journal, a file of jobs, or jobs of the service. "
            "Default: the last run.",
            "RUN|JOURNAL|FILE|JOBS",
            complete="runs",
            positional=True,
        ),
        Option("job", "Only this job.", "ID"),
    ),
    "map": (
        Option("items", "Files; - reads their names, one a line.", "ITEMS…", positional=True),
        Option("cpu", "Program for a core: 'prog {in} {out}'.", "CMD"),
        Option("gpu", "Program for a GPU, or an OpenCL device.", "CMD"),
        Option("out", "Where results go.", "FOLDER"),
        Option("reduce", "Program over all results: 'prog {ins} {out}'.", "CMD"),
        Option("workers", "E.g. cpu:14,gpu:2; of each node on a cluster. Default: all.", "KIND:COUNT,…"),
        Option("persistent", "Programs stay: one item a line in, one line out."),
        Option("line", "With --persistent: the line sent. Default: {in}.", "TEMPLATE"),
        Option("resume", "Do what is not done yet."),
        Option("executor", "Where workers run.", "local|ray|slurm", "--executor --engine", default="local"),
        Option("address", "Of a Ray cluster; nodes of a Slurm allocation.", "HOST:PORT|NODES"),
        Option("rule", "finish-time, shares or greedy.", "NAME", default="finish-time"),
        Option("by_size", "The larger a file, the longer it takes."),
        Option("retries", "How often a failed item is run again.", default=0, least=0),
        Option(
            "duplicate",
            "A straggler at the end may run twice.",
            flags="--duplicate/--no-duplicate",
            default=True,
        ),
        Option("timeout", "Most that one item may take.", DURATION, least=0, above=True),
        Option("memory", "Most that one process may allocate.", SIZE, "--memory --mem", least=1),
        Option("submit", "Hand it to the service, as a job: seen in queue, cancelled there."),
    ),
    "serve, token add, token remove, token list": (
        Option(
            "folder",
            "Where it keeps everything. Default: in the XDG state folder.",
            "FOLDER",
            "--folder --service",
        ),
    ),
    "serve": (
        Option("socket", "The socket, another than the default one.", "FILE"),
        Option("group", "Let this group use the socket too (0660).", "GROUP"),
        Option("listen", "Listen on the network too; takes tokens.", "HOST:PORT"),
        Option("certificate", "Certificate chain (PEM).", "FILE", "--tls-cert"),
        Option("key", "Its key, if not in the same file.", "FILE", "--tls-key"),
        Option("insecure", "Listen without TLS beyond this machine: tokens can be read."),
        Option("keep", "How long ended jobs stay in memory.", DURATION, default=3600.0),
        Option(
            "forget_after", "How long ended jobs stay on record; 0: for ever.", DURATION, default=7776000.0
        ),
        Option("keep_output", "How long their output stays; 0: for ever.", DURATION, default=2592000.0),
        Option("max_request", "Bytes that a request may have.", SIZE, default=8000000, least=10000),
        Option("user_limit", "Jobs of one user that may run at once.", "N", least=1),
        Option("max_gpus_per_user", "GPUs that one user's jobs may have at once.", "N", least=1),
        Option(
            "max_gpu_hours_per_user",
            "GPU hours that one user's jobs may use within --gpu-hours-window.",
            "HOURS",
            least=0,
            above=True,
        ),
        Option(
            "gpu_hours_window",
            "Over so long GPU hours are counted. Default: 7d.",
            DURATION,
            least=0,
            above=True,
        ),
        Option("memory", "auto: learned, of jobs that give none.", "auto", "--memory --mem"),
        Option("partitions", "Names for nodes, with limits of jobs (TOML).", "FILE"),
        Option("mail_idle", "Have --mail-command mail of each GPU that a job has not used for 30 min."),
        Option("mail_command", "Gets a job as JSON on its input where the job wants mail.", "COMMAND"),
        Option("notify", "Gets each job as JSON when it begins, ends and fails.", "COMMAND|URL"),
        Option(
            "half_life",
            "Fair shares: after so long half of what was used is forgotten.",
            DURATION,
            least=0,
            above=True,
        ),
        Option("share", "Fair shares: this user's, where all others have 1; repeatable.", "USER=N"),
        Option("log_level", "Lowest level of log lines.", default="info"),
        Option("log_format", "Lines for people, or JSON for a collector.", default="text"),
        Option("new", "Where the ledger has gone: begin with an empty queue."),
        Option("drain", "Have the service that runs start nothing more and end."),
        Option("stop", "End the service that runs; its jobs run on for the next one."),
    ),
    "info": (
        Option("job", "A job, or several as in queue; default: the service.", "[JOB]", positional=True),
    ),
    "whatif": (
        Option("policy", "See 'dovetail policies'. Default: as it is.", "NAME[?OPTION=VALUE]", default=""),
    ),
    "dashboard": (Option("browse", "Open a browser there.", flags="--browse/--no-browse", default=True),),
    "token add, token remove": (
        Option("name", "The user that its holder is to the service.", "NAME", positional=True, required=True),
    ),
    "token add": (Option("admin", "May do everything with everybody's jobs, and end the service."),),
    "simulate, compare": (
        Option(
            "file",
            "Job file, list, trace, an earlier run or a published workload.",
            "FILE|RUN|published:NAME",
            complete="sources",
            positional=True,
            required=True,
        ),
        Option("knowledge", "What policies know of run times."),
        Option("rates", "Rate model of sharing.", "NAME"),
        Option("compiled", "Compiled stand-in for large rigid workloads, the same schedule.", default="auto"),
        Option("cpus_per_node", "Of a trace that counts processors.", "N", least=1),
        Option("fields", "Numbers on a line of SWF, where more than 18; these are read.", "N", least=18),
        Option(
            "by",
            "Break the outcome down by user, group, queue, app, implementation or size; can be repeated.",
            "FIELD",
        ),
        Option("warmup", "Leave the first jobs out of means, e.g. 10%.", "DURATION|SHARE%"),
        Option("cooldown", "The same at the end; default: as --warmup.", "DURATION|SHARE%"),
        Option("reference", "Count the jobs that end later than under this policy.", "POLICY"),
    ),
    "simulate": (
        Option(
            "policy",
            "See 'dovetail policies'. Default: history; easy where jobs take several nodes.",
            "NAME[?OPTION=VALUE]",
            complete="policies",
        ),
        Option("learn", "Write what ends into the history."),
        Option("strict", "Exit with 2 if a job was rejected."),
        Option("perfetto", "Write a Perfetto (Chrome) trace.", "FILE"),
        Option("journal", "Write the journal, which can be replayed.", "FILE"),
    ),
    "simulate, compare, workload describe": (
        Option("partition", "Nodes of a trace's partition, e.g. cpu=n[0-3]; repeatable.", "NAME=NODES"),
    ),
    WITH_TRACES: (Option("lenient", "Skip and count malformed lines of a trace."),),
    "compare": (
        Option(
            "policy",
            "Policies, joined by commas.",
            "A,B,…",
            default="history,best-device",
            complete="policies",
        ),
        Option(
            "cluster",
            "Cluster file, or e.g. 16x8cpu+1gpu; can be repeated. Default: the trace's, else this machine.",
            "FILE|SHORT",
        ),
        Option("seeds", "Seeds 1 to N.", "N", least=1),
        Option(
            "replicates", "Draws of a trace. Default: 10 up to 100,000 jobs, else 1, as it is.", "N", least=1
        ),
        Option("jitter", "By how much submissions of a replicate move. Default: 10m.", DURATION),
        Option("bootstrap", "Draw weeks of a trace anew. Default: from 8 weeks on."),
        Option("drift", "Widen intervals of figures by what the months of a trace differ by."),
        Option("loads", "Scale to these offered loads, e.g. 0.8,0.9,1.0.", "X,Y,…"),
        Option("workers", "Processes. Default: one for each CPU.", "N", least=1),
        Option("live", "Really run, one policy after the other."),
        Option("html", "Write one HTML page.", "FILE"),
        Option("summary", "Write differences, intervals and verdicts by metric, as JSON.", "FILE"),
    ),
    f"{WORKLOADS}, workload pack-nodes": (
        Option(
            "file",
            "A trace, a job file, published:NAME or synthetic:KIND.",
            "FILE",
            positional=True,
            required=True,
        ),
    ),
    WORKLOADS: (
        Option("cluster", "Cluster file, or e.g. 256x1cpu; jobs too large are rejected.", "FILE|SHORT"),
        Option("cpus_per_node", "CPUs of a node, for traces that count processors.", "N", least=1),
    ),
    "workload convert, workload cut, workload scale": (
        Option(
            "out",
            "File to write: *.swf, *.swf.gz, or *.toml (a job file).",
            "OUT",
            positional=True,
            required=True,
        ),
    ),
    "workload cut": (
        Option("begin", "First moment of submission.", DURATION, "--from"),
        Option("end", "Moment after the last one.", DURATION, "--to"),
        Option("jobs", "The first N of these jobs.", "N", least=1),
    ),
    "workload scale": (Option("load", "Offered load wanted, e.g. 0.9.", "X", required=True),),
    "workload nodes": (
        Option("file", "Node list of AAIC, Philly or openb (CSV).", "FILE", positional=True, required=True),
    ),
    "workload pack-nodes": (
        Option("cluster", "A cluster with GPUs.", "FILE|SHORT", required=True),
        Option(
            "placement", "Placements to compare: pack, spread, first.", "A,B,…", default="pack,spread,first"
        ),
        Option("demand", "Go through the jobs until they have requested X times the GPUs.", "X", least=0.01),
    ),
    "replay": (
        Option(
            "run",
            "A run (its id or folder, last), or a journal.",
            "RUN|JOURNAL",
            default="last",
            complete="runs",
            positional=True,
        ),
        Option("trust", "Execute the Python file that the journal names as its policy."),
    ),
    "split": (
        Option("tasks", "Tasks of one size.", "N", least=1, most=10000000, required=True),
        Option("cpu_slots", "CPU slots of a node.", "n", least=0, required=True),
        Option("gpu_slots", "GPU slots of a node.", "m", least=0, required=True),
        Option("cpu_time", "Of a task on a CPU slot.", DURATION, least=0, above=True, required=True),
        Option("gpu_time", "Of a task on a GPU slot.", DURATION, least=0, above=True, required=True),
        Option("nodes", "Nodes, all alike.", "K", "--nodes -N", default=1, least=1),
    ),
    "schema": (Option("out", "Write one file for each schema.", "FOLDER"),),
    "history show, history predict, model show, model error": (
        Option("app", "Name of the app.", "APP", complete="apps", positional=True, required=True),
    ),
    "history show, history predict, history forget, model show, model error": (
        Option(
            "device", "Only this kind or class of device, e.g. gpu, gpu:T4.", "KIND[:MODEL]", "--device -d"
        ),
        Option("implementation", "Only this implementation.", "NAME", "--implementation -I"),
    ),
    "history show": (Option("runs", "Show the last N runs instead.", "N", default=0, least=0),),
    "history predict": (
        Option("values", "Inputs, as with --input.", "[NAME=VALUE]…", positional=True),
        Option("inputs", "An input, a number or a word; repeatable.", "NAME=VALUE", "--input -i"),
        Option("nodes", "Number of nodes.", flags="--nodes -N", least=1),
        Option("cpus", "CPUs per node.", flags="--cpus -c", least=0),
        Option("gpus", "Devices per node.", flags="--gpus -G", least=0),
        Option("walltime", "Walltime, e.g. 1h30m.", DURATION, "--walltime --time -t"),
        Option("user", "User (for last-two).", flags="--user -u"),
        Option("memory", "Its peak of memory instead of its time, and what to reserve."),
    ),
    "history forget": (
        Option("app", "Name of the app.", "[APP]", complete="apps", positional=True),
        Option("before", "Only runs that ended before this local time."),
        Option("everything", "Of all apps.", flags="--all"),
    ),
    "history export, history import": (
        Option("file", "*.jsonl, *.csv, or - for the terminal's.", "FILE", positional=True, required=True),
        Option("form", "Default: by the file's ending.", "jsonl|csv", "--format"),
    ),
    "history export": (Option("app", "Only this app.", "APP", complete="apps"),),
    "history import-slurm": (
        Option(
            "file", "What sacct --parsable2 printed, or -. Default: sacct is run.", "FILE", positional=True
        ),
        Option("since", "Import jobs that ended after it, e.g. 2026-01-31.", "DATE", default="now-90days"),
        Option("lenient", "Leave malformed lines out, and count them."),
    ),
    "history import-nextflow": (Option("files", "Also .gz.", "FILE…", positional=True, required=True),),
    "history import-snakemake": (
        Option(
            "files", "Benchmark files, or folders of them.", "FILE|FOLDER…", positional=True, required=True
        ),
        Option("app", "Default: the rule, else the file's folder.", "NAME"),
    ),
    "model show": (
        Option("plot", "Draw times against size with the 90 % interval (PNG, SVG, PDF).", "FILE"),
    ),
    "model starts": (
        Option(
            "service",
            "State folder of the service. Default: this account's.",
            "FOLDER",
            "--service --folder",
        ),
    ),
    "model error": (Option("model", "Only these models; repeatable.", "NAME"),),
    "forecast": (
        Option("slurm", "Read Slurm's own commands."),
        Option("user", "Only this user's jobs.", "NAME", "--user -u"),
        Option("job", "Only this job, and what would start sooner.", "ID"),
        Option(
            "if_", "A job as if it were submitted now, e.g. 'sbatch -N2 -t 1:00:00'.", "SBATCH", flags="--if"
        ),
        Option("squeue", "Text of 'squeue -a -o FORMAT' instead of a call.", "FILE"),
        Option("nodes", "Text of 'scontrol show nodes'.", "FILE"),
        Option("sacct", "Text of 'sacct -a -X --parsable2'.", "FILE"),
        Option("partitions", "Text of 'scontrol show partition'.", "FILE", "--show-partition"),
        Option("config", "Text of 'scontrol show config'.", "FILE", "--show-config"),
        Option("sprio", "Text of 'sprio -o FORMAT'.", "FILE"),
    ),
    "memory": (
        Option(
            "run", "Id or folder of a run, or its journal.", "RUN|JOURNAL", default="last", positional=True
        ),
        Option("svg", "Draw it over time there (SVG, PDF, PNG).", "FILE"),
    ),
    "devices": (
        Option("executor", "Show the nodes on which it runs jobs.", "NAME[?option=value]", default="local"),
        Option("timeout", "How long drivers may take.", DURATION, default=20.0, least=0, above=True),
    ),
    "device-server": (
        Option(
            "device",
            "What to lend: cuda:N, torch:cuda:N, opencl[:TEXT], numpy, torch; once for each device.",
            "DEVICE",
        ),
        Option("socket", "The unix socket; - for none. Default: in the runtime folder.", "PATH"),
        Option("listen", "Listen on the network too; port 0 takes any.", "HOST:PORT"),
        Option("token_file", "The token of clients on the network (mode 600).", "FILE"),
        Option(
            "memory",
            "For arrays on each device, e.g. 8GB. Default: all.",
            SIZE,
            "--memory --mem",
            default=0,
            least=LEAST_LENT,
        ),
        Option(
            "quota", "For the arrays of one client. Default: the same.", SIZE, default=0, least=LEAST_LENT
        ),
        Option("clients", "Clients on each device at most.", default=64, least=1, most=1000),
        Option("status", "Show the state of the running server, and exit."),
    ),
    "mcp": (
        Option(
            "label",
            "Names the agent; it cancels jobs of its name alone.",
            "NAME",
            default="agent",
        ),
        Option(
            "most", "Jobs of the agent that have not ended, at most.", "N", default=20, least=1, most=10_000
        ),
    ),
    "runs": (
        Option("prune", "Remove runs, and ended jobs of the service, that are older, e.g. 30d.", DURATION),
        Option("limit", "Show so many, the newest first.", "N", default=20, least=1),
    ),
    "recover": (
        Option("stop", "End what still runs."),
        Option("give_up", "Look at this run no more, whatever of it is not recorded.", "RUN"),
    ),
    (
        "submit, map, queue, logs, wait, cancel, explain, info, nodes, hold, release, requeue, "
        "update, move, pause, resume, reserve, top, whatif, dashboard, mcp"
    ): (
        Option(
            "at",
            "Another service than this account's own. Default: $DOVETAIL_SERVICE.",
            "URL|FOLDER",
            "--service",
        ),
    ),
    (
        "run, submit, queue, wait, cancel, explain, map, info, nodes, hold, release, requeue, "
        "update, move, pause, resume, reserve, whatif, dashboard, token list, simulate, compare, policies, "
        "workload describe, "
        f"workload pack-nodes, split, {HISTORY}, memory, forecast, model starts, devices, device-server, "
        "runs, recover"
    ): (Option("as_json", "Print JSON alone on standard output.", flags="--json"),),
}
"""Options by the commands that take them."""


# A job's options first: where a command has an option of the same name of its own, the later entry wins.
def _all_options() -> dict[tuple[str, str], Option]:
    found = {(command, option.name): option for option in JOB for command in option.commands}
    found |= {("update", option.name): option for option in JOB if option.name in UPDATED and option.commands}
    for at, options in _COMMANDS.items():
        for option in options:
            placed = option._replace(at=at)
            found |= {(command, option.name): placed for command in placed.commands}
    return found


_OPTIONS = _all_options()


def option_of(command: str, name: str) -> Option:
    """The option of that name of a command (``"history show"``); raises `KeyError`."""
    return _OPTIONS[command, name]


def options_of(command: str) -> list[Option]:
    """All that a command takes, in the order of the tables."""
    return [option for (of, _), option in _OPTIONS.items() if of == command]


def commands_with_options() -> list[str]:
    """All commands with options, in the order of the tables."""
    return list(dict.fromkeys(command for command, _ in _OPTIONS))
