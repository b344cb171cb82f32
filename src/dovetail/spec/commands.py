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
        Option("wait", "Wait for the end; exit with 1 unless all complete.", flags="--wait -W"),
        Option("interactive", "Run the command after -- (default: $SHELL) here, on a terminal of the job."),
        Option("parsable", "Print job numbers only."),
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
            "Job file or list of commands, one per line; with --resume the id of a run.",
            "FILE",
            positional=True,
        ),
        Option("jobs", "Run at most N jobs at once.", "N", "--jobs -j", least=1),
        Option("keep_order", "Print what jobs write, in the order of the list.", flags="--keep-order -k"),
        Option(
            "halt",
            "End early: now,fail=1 or soon,fail=10% (also success, done).",
            "WHEN,WHAT",
            default="never",
        ),
        Option(
            "cut_walltimes",
            "Request the learned time for restartable jobs with 20 known runs (slurm-queue).",
        ),
        Option("resume", "Resume an interrupted run (default: the newest)."),
        Option(
            "retry_failed",
            "Run the failed jobs of an earlier run again (its id, or last).",
            "RUN",
            complete="runs",
        ),
        Option("then", "Run this command at the end, with a summary as JSON on its input.", "COMMAND"),
        Option("run_dir", "Write outputs and journal there; must not hold a run.", "FOLDER"),
    ),
    "run, explain, serve, whatif, simulate": (
        Option("cluster", "Cluster file, or e.g. 16x8cpu+1gpu. Default: this machine.", "FILE|SHORT"),
    ),
    "run, explain, serve": (
        Option(
            "policy",
            "Scheduling policy; 'dovetail policies' lists them.",
            "NAME[?OPTION=VALUE]",
            default="history",
            complete="policies",
        ),
    ),
    "run, explain": (
        Option("drop", "Ignore a feature of plain commands.", "FEATURE"),
        Option("add", "Add a feature to plain commands.", "NAME=VALUE"),
    ),
    "run, serve, simulate, compare": (
        Option("seed", "Seed of draws; shuffles jobs submitted together.", "N", least=0),
        Option("overrun", "Kill a job at its walltime, or let it run on.", default="kill"),
        Option("default_walltime", "Walltime of jobs that give none ('actual' in simulation).", DURATION),
    ),
    "run, explain, serve, simulate, compare, history predict, model show": (
        Option(
            "model",
            "Model that predicts run times; see 'dovetail model list'.",
            "NAME",
            default=DEFAULT_MODEL,
            complete="models",
        ),
    ),
    WITH_HISTORY: (Option("history", "History database.", "FILE", complete="files"),),
    "run, serve": (
        Option("grace", "Time between TERM and KILL.", DURATION, default=5.0),
        Option(
            "executor",
            "Engine that runs the jobs: local, slurm, slurm-queue, ray ….",
            "NAME[?option=value]",
            default="local",
        ),
        Option(
            "neighbours",
            "GPUs that others use: avoid them, subtract their memory, or ignore the use.",
            "avoid|memory|ignore",
            default="avoid",
        ),
    ),
    "run, simulate": (
        Option("csv", "Write one line per job (evalys columns).", "FILE"),
        Option("gantt", "Draw the schedule to an SVG, PNG or PDF file.", "FILE"),
        Option("idle_watts", "Watts of an idle processor, for energy figures.", "W"),
        Option("busy_watts", "Watts of a busy processor, for energy figures.", "W"),
    ),
    "run, simulate, compare": (
        Option("report", "Write an HTML page, charts, CSV and JSON there.", "FOLDER"),
        Option(
            "verbose",
            "Show decision times, idle resources, predictions, and why a simulation is not compiled.",
            flags="--verbose -v",
        ),
    ),
    "run, map, simulate, compare": (Option("quiet", "Hide progress.", flags="--quiet -q"),),
    "queue": (
        Option(
            "jobs",
            "Show only these, ended or not: numbers, ranges, a name, 'last'.",
            "[JOBS]…",
            positional=True,
        ),
        Option("state", "Show only jobs in this state; repeatable.", "STATE", "--state -s"),
        Option("user", "Show only jobs of this user.", "NAME", "--user -u"),
        Option("name", "Show only jobs of this name.", "NAME", "--name -J -n"),
        Option("ended", "Show ended jobs, the last one first.", flags="--ended -e"),
        Option("failed", "Show failed jobs: FAILED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY."),
        Option("since", "Show jobs that ended within this time, e.g. 2d.", DURATION),
        Option(
            "columns",
            "Choose columns by name, e.g. id,name,command, or as squeue: '%i %j'.",
            "COLUMNS",
            "--columns --output -o",
        ),
        Option("limit", "Show at most this many rows.", default=1000, least=1, most=100000),
    ),
    "queue, nodes": (Option("parsable", "Separate fields by '|', without header and alignment."),),
    "logs": (
        Option("job", "Job number, name (all jobs of it) or 'last'.", "JOB", positional=True, required=True),
        Option("follow", "Follow the output until the job ends.", flags="--follow -f"),
        Option("err", "Show standard error instead of output.", flags="--err -e"),
        Option("attempt", "Show the output of the N-th attempt.", "N", least=1),
        Option("tail", "Show only the last bytes, e.g. 10KB.", SIZE),
        Option("run", "Show a job of this run, not of the service.", "RUN", complete="runs"),
    ),
    "requeue": (
        Option("jobs", "Job numbers, 3-7, 3,5, 12_0-4, a name, 'last' or 'all'.", "[JOBS]…", positional=True),
        Option("failed", "Take only the failed ones, of these or of all of yours."),
    ),
    "wait, cancel, hold, release, update": (
        Option(
            "jobs",
            "Job numbers, 3-7, 3,5, 12_0-4, a name, 'last' or 'all'.",
            "JOBS…",
            positional=True,
            required=True,
        ),
    ),
    "cancel": (Option("signal", "Send running jobs this signal; cancel nothing.", "NAME"),),
    "wait": (Option("timeout", "Give up after this time; exit status 124.", DURATION),),
    "run, wait": (Option("bell", "Ring the terminal's bell when all is over."),),
    "submit, logs, wait": (
        Option("patience", "Wait this long for a service that restarts.", DURATION, default=300.0, least=0),
    ),
    "move": (
        Option("job", "Waiting job to move, or all of a name.", "JOB", positional=True, required=True),
        Option("first", "Move it before all others of its priority."),
        Option("after", "Move it right after this job.", "JOB"),
    ),
    "reserve": (
        Option("gpus", "Number of GPUs.", "N", "--gpus -G", least=1, most=100_000),
        Option("start", "Begin at this time, e.g. 14:00 or now+1hour. Default: now.", "WHEN", "--from"),
        Option("span", "Duration, e.g. 3h.", DURATION, "--for", least=0, above=True),
        Option(
            "user",
            "User whose jobs may run there. Default: you; operators may name others.",
            "USER",
            "--user -u",
        ),
        Option("name", "Display name.", "NAME", "--name -J"),
        Option("list_", "List current and coming reservations.", flags="--list"),
        Option("cancel", "Cancel this reservation.", "ID"),
    ),
    "pause, resume": (Option("kind", "Kinds of devices, e.g. gpu or cpu,gpu. Default: all.", "KINDS"),),
    "explain": (
        Option(
            "target",
            "A run (its id or folder), a journal, a file of jobs, or jobs of the service. "
            "Default: the last run.",
            "RUN|JOURNAL|FILE|JOBS",
            complete="runs",
            positional=True,
        ),
        Option("job", "Explain only this job.", "ID"),
    ),
    "map": (
        Option(
            "items",
            "Files; - reads their names from standard input, one per line.",
            "ITEMS…",
            positional=True,
        ),
        Option("cpu", "Program for a core: 'prog {in} {out}'.", "CMD"),
        Option("gpu", "Program for a GPU, or an OpenCL device.", "CMD"),
        Option("out", "Folder for results.", "FOLDER"),
        Option("reduce", "Program over all results: 'prog {ins} {out}'.", "CMD"),
        Option(
            "workers",
            "Workers per node, e.g. cpu:14,gpu:2. Default: one for each core and GPU.",
            "KIND:COUNT,…",
        ),
        Option("persistent", "Keep programs running: one item per line in, one line out."),
        Option("line", "Line sent for an item with --persistent. Default: {in}.", "TEMPLATE"),
        Option("resume", "Skip items whose results exist."),
        Option(
            "executor",
            "Engine that runs the workers.",
            "local|ray|slurm",
            "--executor --engine",
            default="local",
        ),
        Option("address", "Address of a Ray cluster, or nodes of a Slurm allocation.", "HOST:PORT|NODES"),
        Option(
            "rule", "Rule that assigns items: finish-time, shares or greedy.", "NAME", default="finish-time"
        ),
        Option("by_size", "Assume that larger files take longer."),
        Option("retries", "Retry a failed item up to this many times.", default=0, least=0),
        Option(
            "duplicate",
            "Run a straggler at the end twice.",
            flags="--duplicate/--no-duplicate",
            default=True,
        ),
        Option("timeout", "Time limit of one item.", DURATION, least=0, above=True),
        Option("memory", "Memory limit of one process, e.g. 4GB.", SIZE, "--memory --mem", least=1),
        Option("submit", "Submit the map to the service as a job."),
    ),
    "serve, token add, token remove, token list": (
        Option(
            "folder",
            "Folder of the service. Default: in the XDG state folder.",
            "FOLDER",
            "--folder --service",
        ),
    ),
    "serve": (
        Option("socket", "Unix socket to use instead of the default.", "FILE"),
        Option("group", "Allow this group to use the socket (mode 0660).", "GROUP"),
        Option("listen", "Listen on the network, with tokens.", "HOST:PORT"),
        Option("certificate", "TLS certificate chain (PEM).", "FILE", "--tls-cert"),
        Option("key", "TLS key, if not in the certificate's file.", "FILE", "--tls-key"),
        Option("insecure", "Listen without TLS beyond this machine: tokens can be read by others."),
        Option("keep", "Keep ended jobs in memory this long.", DURATION, default=3600.0),
        Option(
            "forget_after", "Keep ended jobs on record this long; 0: for ever.", DURATION, default=7776000.0
        ),
        Option("keep_output", "Keep their output this long; 0: for ever.", DURATION, default=2592000.0),
        Option("max_request", "Largest request, e.g. 8MB.", SIZE, default=8000000, least=10000),
        Option("user_limit", "Running jobs per user, at most.", "N", least=1),
        Option("max_gpus_per_user", "GPUs per user at once, at most.", "N", least=1),
        Option(
            "max_gpu_hours_per_user",
            "GPU hours per user within --gpu-hours-window, at most.",
            "HOURS",
            least=0,
            above=True,
        ),
        Option(
            "gpu_hours_window",
            "Window over which GPU hours are counted. Default: 7d.",
            DURATION,
            least=0,
            above=True,
        ),
        Option("memory", "Memory of jobs that give none; auto: learned.", "auto", "--memory --mem"),
        Option("partitions", "File of partitions: names of nodes, limits of jobs (TOML).", "FILE"),
        Option("mail_idle", "Mail about GPUs that a job left idle for 30 min, by --mail-command."),
        Option("mail_command", "Command that sends mail; it reads the job as JSON on its input.", "COMMAND"),
        Option("notify", "Send each job as JSON there when it begins, ends or fails.", "COMMAND|URL"),
        Option(
            "half_life",
            "Halve the usage that counts for fair shares after this time.",
            DURATION,
            least=0,
            above=True,
        ),
        Option("share", "Fair share of a user, where others have 1; repeatable.", "USER=N"),
        Option("log_level", "Log level: debug, info, warning or error.", default="info"),
        Option("log_format", "Log format: text, or json for a collector.", default="text"),
        Option("new", "Start with an empty queue where the ledger is lost."),
        Option("drain", "Stop starting jobs, and end the running service when none runs."),
        Option("stop", "Stop the running service; its jobs run on for the next one."),
    ),
    "info": (Option("job", "Jobs, as in queue. Default: the service itself.", "[JOB]", positional=True),),
    "whatif": (
        Option(
            "policy", "Policy to compare with. Default: the present one.", "NAME[?OPTION=VALUE]", default=""
        ),
        Option("job", "Waiting job of which to show what would start it sooner.", "JOB"),
    ),
    "dashboard": (Option("browse", "Open a browser there.", flags="--browse/--no-browse", default=True),),
    "token add, token remove": (
        Option("name", "User that the token stands for.", "NAME", positional=True, required=True),
    ),
    "token add": (Option("admin", "Allow everything with all jobs, and to stop the service."),),
    "simulate, compare": (
        Option(
            "file",
            "Job file, list, trace, earlier run or published workload.",
            "FILE|RUN|published:NAME",
            complete="sources",
            positional=True,
            required=True,
        ),
        Option("knowledge", "Knowledge that policies have of run times."),
        Option("rates", "Rate model of sharing.", "NAME"),
        Option("compiled", "Use the compiled simulation where it gives the same schedule.", default="auto"),
        Option("cpus_per_node", "CPUs per node, for a trace that counts processors.", "N", least=1),
        Option("fields", "Numbers per line of an SWF trace that has more than 18.", "N", least=18),
        Option(
            "by",
            "Break results down by user, group, queue, app, implementation or size; repeatable.",
            "FIELD",
        ),
        Option("warmup", "Leave the first jobs out of means, e.g. 10%.", "DURATION|SHARE%"),
        Option("cooldown", "Leave the last jobs out of means. Default: as --warmup.", "DURATION|SHARE%"),
        Option("reference", "Count the jobs that end later than under this policy.", "POLICY"),
    ),
    "simulate": (
        Option(
            "policy",
            "Scheduling policy. Default: history; easy where jobs take several nodes.",
            "NAME[?OPTION=VALUE]",
            complete="policies",
        ),
        Option("learn", "Write simulated runs into the history."),
        Option("strict", "Exit with 2 if a job was rejected."),
        Option("perfetto", "Write a Perfetto (Chrome) trace.", "FILE"),
        Option("journal", "Write the journal, for 'dovetail replay'.", "FILE"),
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
            "Cluster file, or e.g. 16x8cpu+1gpu; repeatable. Default: the trace's, else this machine.",
            "FILE|SHORT",
        ),
        Option("seeds", "Simulate with seeds 1 to N.", "N", least=1),
        Option(
            "replicates", "Number of draws of a trace. Default: 10 up to 100,000 jobs, else 1.", "N", least=1
        ),
        Option("jitter", "Move submissions of a replicate by up to this. Default: 10m.", DURATION),
        Option("bootstrap", "Resample weeks of a trace. Default: from 8 weeks on."),
        Option("drift", "Widen intervals of figures by what the months of a trace differ by."),
        Option("loads", "Scale to these offered loads, e.g. 0.8,0.9,1.0.", "X,Y,…"),
        Option("workers", "Worker processes. Default: one per CPU.", "N", least=1),
        Option("live", "Run for real, one policy after the other."),
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
        Option("begin", "Keep jobs submitted from this time on.", DURATION, "--from"),
        Option("end", "Keep jobs submitted before this time.", DURATION, "--to"),
        Option("jobs", "Keep the first N of these jobs.", "N", least=1),
    ),
    "workload scale": (Option("load", "Target offered load, e.g. 0.9.", "X", required=True),),
    "workload nodes": (
        Option("file", "Node list of AAIC, Philly or openb (CSV).", "FILE", positional=True, required=True),
    ),
    "workload pack-nodes": (
        Option("cluster", "Cluster with GPUs.", "FILE|SHORT", required=True),
        Option(
            "placement", "Placements to compare: pack, spread, first.", "A,B,…", default="pack,spread,first"
        ),
        Option("demand", "Repeat jobs until they have requested X times the GPUs.", "X", least=0.01),
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
        Option("tasks", "Number of tasks of one size.", "N", least=1, most=10000000, required=True),
        Option("cpu_slots", "CPU slots per node.", "n", least=0, required=True),
        Option("gpu_slots", "GPU slots per node.", "m", least=0, required=True),
        Option("cpu_time", "Time of a task on a CPU slot.", DURATION, least=0, above=True, required=True),
        Option("gpu_time", "Time of a task on a GPU slot.", DURATION, least=0, above=True, required=True),
        Option("nodes", "Number of nodes, all alike.", "K", "--nodes -N", default=1, least=1),
    ),
    "schema": (Option("out", "Write one file for each schema.", "FOLDER"),),
    "history show, history predict, model show, model error": (
        Option("app", "Name of the app.", "APP", complete="apps", positional=True, required=True),
    ),
    "history show, history predict, history forget, model show, model error": (
        Option(
            "device", "Select a kind or class of device, e.g. gpu, gpu:T4.", "KIND[:MODEL]", "--device -d"
        ),
        Option("implementation", "Select this implementation.", "NAME", "--implementation -I"),
    ),
    "history show": (Option("runs", "Show the last N runs instead of averages.", "N", default=0, least=0),),
    "history predict": (
        Option("values", "Inputs, as with --input.", "[NAME=VALUE]…", positional=True),
        Option("inputs", "Input, a number or a word; repeatable.", "NAME=VALUE", "--input -i"),
        Option("nodes", "Number of nodes.", flags="--nodes -N", least=1),
        Option("cpus", "CPUs per node.", flags="--cpus -c", least=0),
        Option("gpus", "Devices per node.", flags="--gpus -G", least=0),
        Option("walltime", "Walltime, e.g. 1h30m.", DURATION, "--walltime --time -t"),
        Option("user", "User, for model last-two.", flags="--user -u"),
        Option("memory", "Predict peak memory and what to reserve, instead of time."),
    ),
    "history forget": (
        Option("app", "Name of the app.", "[APP]", complete="apps", positional=True),
        Option("before", "Forget only runs that ended before this local time."),
        Option("everything", "Forget runs of all apps.", flags="--all"),
    ),
    "history export, history import": (
        Option(
            "file",
            "File *.jsonl or *.csv, or - for standard input or output.",
            "FILE",
            positional=True,
            required=True,
        ),
        Option("form", "File format. Default: by the file's ending.", "jsonl|csv", "--format"),
    ),
    "history export": (Option("app", "Export only this app.", "APP", complete="apps"),),
    "history import-slurm": (
        Option("file", "Output of sacct --parsable2, or -. Default: runs sacct.", "FILE", positional=True),
        Option(
            "since", "Import jobs that ended after this date, e.g. 2026-01-31.", "DATE", default="now-90days"
        ),
        Option("lenient", "Skip and count malformed lines."),
    ),
    "history import-nextflow": (
        Option("files", "Nextflow traces, also .gz.", "FILE…", positional=True, required=True),
    ),
    "history import-snakemake": (
        Option(
            "files", "Benchmark files, or folders of them.", "FILE|FOLDER…", positional=True, required=True
        ),
        Option("app", "App name. Default: the rule, else the file's folder.", "NAME"),
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
    "model error": (Option("model", "Show only these models; repeatable.", "NAME"),),
    "forecast": (
        Option("slurm", "Read Slurm's own commands."),
        Option("user", "Forecast only this user's jobs.", "NAME", "--user -u"),
        Option("job", "Forecast only this job, and what would start sooner.", "ID"),
        Option(
            "if_", "Forecast a job as if submitted now, e.g. 'sbatch -N2 -t 1:00:00'.", "SBATCH", flags="--if"
        ),
        Option("squeue", "Output of 'squeue -a -o FORMAT', instead of a call.", "FILE"),
        Option("nodes", "Output of 'scontrol show nodes'.", "FILE"),
        Option("sacct", "Output of 'sacct -a -X --parsable2'.", "FILE"),
        Option("partitions", "Output of 'scontrol show partition'.", "FILE", "--show-partition"),
        Option("config", "Output of 'scontrol show config'.", "FILE", "--show-config"),
        Option("sprio", "Output of 'sprio -o FORMAT'.", "FILE"),
    ),
    "memory": (
        Option(
            "run", "Id or folder of a run, or its journal.", "RUN|JOURNAL", default="last", positional=True
        ),
        Option("svg", "Draw memory over time to an SVG, PDF or PNG file.", "FILE"),
    ),
    "devices": (
        Option("executor", "Engine whose nodes to show.", "NAME[?option=value]", default="local"),
        Option("timeout", "Time that drivers may take.", DURATION, default=20.0, least=0, above=True),
    ),
    "device-server": (
        Option(
            "device",
            "Device to lend: cuda:N, torch:cuda:N, opencl[:TEXT], numpy, torch; repeatable.",
            "DEVICE",
        ),
        Option("socket", "Unix socket; - for none. Default: in the runtime folder.", "PATH"),
        Option("listen", "Listen on the network; port 0 takes any free port.", "HOST:PORT"),
        Option("token_file", "File of the token of network clients (mode 600).", "FILE"),
        Option(
            "memory",
            "Memory for arrays per device, e.g. 8GB. Default: all.",
            SIZE,
            "--memory --mem",
            default=0,
            least=LEAST_LENT,
        ),
        Option(
            "quota",
            "Memory for the arrays of one client. Default: the same.",
            SIZE,
            default=0,
            least=LEAST_LENT,
        ),
        Option("clients", "Clients per device, at most.", default=64, least=1, most=1000),
        Option("status", "Show the state of the running server, and exit."),
    ),
    "mcp": (
        Option(
            "label",
            "Name of the agent, which may cancel only its own jobs.",
            "NAME",
            default="agent",
        ),
        Option("most", "Unfinished jobs of the agent, at most.", "N", default=20, least=1, most=10_000),
    ),
    "runs": (
        Option("prune", "Remove runs and ended jobs of the service older than this, e.g. 30d.", DURATION),
        Option("limit", "Show at most N, the newest first.", "N", default=20, least=1),
    ),
    "recover": (
        Option("stop", "Stop what still runs."),
        Option("give_up", "Ignore this run from now on, even with records missing.", "RUN"),
    ),
    (
        "submit, map, queue, logs, wait, cancel, explain, info, nodes, hold, release, requeue, "
        "update, move, pause, resume, reserve, top, whatif, dashboard, mcp"
    ): (
        Option(
            "at",
            "Service to use: a URL or folder. Default: $DOVETAIL_SERVICE, else your own.",
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
    ): (Option("as_json", "Print JSON only.", flags="--json"),),
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
