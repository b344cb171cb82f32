"""The command ``dovetail``: its commands, and how errors become one sentence and an exit status.

Exit status: 0 all well; 1 some job failed; 2 the input or the use was wrong; 3 an internal error; 130
interrupted; 141 the reader of the output has gone.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import typer

from dovetail import __version__
from dovetail.cli import interrupts
from dovetail.cli.completing import whole_words
from dovetail.cli.examples import epilog_of
from dovetail.cli.lazy import LazyGroup, Target, own_target, registered_targets
from dovetail.cli.usage import read_plainly, used_wrongly
from dovetail.errors import DovetailError, DovetailWarning
from dovetail.extras import missing_extra, need_distribution
from dovetail.files.little_memory import explain_limit, guard_libraries, is_about_memory
from dovetail.files.sentences import make_printable
from dovetail.files.shortage import describe_lack, lack_of
from dovetail.files.streams import forgiving_stderr, print_note, whole_stream

_SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Every day": {
        "run": ("run:run", "Run jobs on this machine, for real, and learn from it."),
        "submit": ("submit:submit", "Submit jobs to the service."),
        "queue": ("queue:queue", "Show what runs and waits, with predicted starts."),
        "logs": ("logs:logs", "Show what a job wrote."),
        "wait": ("wait:wait", "Wait until jobs have ended."),
        "cancel": ("wait:cancel", "Cancel or stop jobs of the service."),
        "explain": ("explain:explain", "Show why each job went where it did."),
        "map": ("map:map_command", "Run CPU and GPU programs over many files at once."),
    },
    "Service": {
        "serve": ("serve:serve", "Run the service: a queue that is always there."),
        "info": ("queue:info", "Show the service's state, or all about a job."),
        "nodes": ("queue:nodes", "Show the service's nodes and what runs there."),
        "hold": ("wait:hold", "Hold waiting jobs."),
        "release": ("wait:release", "Release held jobs."),
        "requeue": ("wait:requeue", "Run jobs again."),
        "update": ("wait:update", "Change waiting jobs, and walltimes of running ones."),
        "move": ("wait:move", "Move a waiting job in the queue."),
        "pause": ("wait:pause", "Start no new jobs; running jobs go on."),
        "resume": ("wait:resume", "Start jobs again after a pause."),
        "reserve": ("reserve:reserve", "Reserve GPUs for a user and a time."),
        "forecast": ("forecast:forecast", "Predict when jobs of a Slurm cluster start."),
        "top": ("watch:top", "Watch the service."),
        "whatif": ("watch:whatif", "Predict when jobs would end under another policy."),
        "dashboard": ("watch:dashboard", "Open the service's page in a browser."),
        "token": ("token:token_app", "Manage tokens for the service on the network."),
    },
    "Simulation": {
        "simulate": ("simulate:simulate", "Simulate a workload under a policy, on any cluster."),
        "compare": ("compare:compare", "Compare policies, seeds and loads."),
        "policies": ("policies:policies", "List policies and planners."),
        "workload": ("workload:workload_app", "Describe, convert, cut and scale traces."),
        "replay": ("replay:replay", "Check that a journal gives the same decisions again."),
        "split": ("split:split", "Compute the best split of tasks over CPUs and GPUs."),
        "schema": ("schema:schema", "Print the JSON Schemas of job and cluster files."),
    },
    "Learning": {
        "history": ("history:history_app", "Show, predict, export and import measured runs."),
        "model": ("model:model_app", "Show what was learned of run times."),
        "memory": ("memory:memory", "Show what jobs reserved, used and wasted of memory."),
    },
    "Machine": {
        "devices": ("devices:devices", "Show this machine's cores, GPUs and OpenCL devices."),
        "runs": ("runs:runs", "List past runs, and remove old ones."),
        "recover": ("recover:recover", "Clean up after runs that were killed."),
    },
}
"""Our commands as the help groups them: where each is, and its line in the list."""


def _command_table() -> dict[str, Target]:
    own = {name: about for section in _SECTIONS.values() for name, about in section.items()}
    return {name: own_target(f"dovetail.cli.{spec}", line) for name, (spec, line) in own.items()}


BESIDE: Mapping[str, str] = {
    # Known here so that the list of commands needs none of these packages to be imported.
    "device-server": "Lend this node's devices.",
    "mcp": "Offer the queue to an agent as tools.",
    "pack": "Partition moldable tasks into packs.",
    "bench": "Run the benchmark apps; fill the history.",
    "bench-remote": "Measure what a borrowed GPU costs here.",
    "bench-sharing": "Measure what sharing a node costs here.",
    "slurm-shims": "Write Slurm's commands (sbatch, squeue …) for a service.",
    "reproduce": "Reproduce the papers' figures.",
}
"""Commands of our other distributions, and their lines in the list of commands."""


def _other_target(name: str) -> Target:
    """A command of another package; raises `KeyError`, or `InputError` where its package is missing."""
    found = registered_targets("dovetail.commands")
    # Only the named one is loaded: importing all of them would cost every call half a second.
    if name in found:
        return Target(found[name].load, (lambda: BESIDE[name]) if name in BESIDE else found[name].line)
    need_distribution("dovetail.commands", name, "the command")
    raise KeyError(name)


class _Dovetail(LazyGroup):
    """Our own commands, then those of other packages (entry points ``dovetail.commands``).

    Entry points are only read where a command is none of ours, or all are listed: that takes a while.
    """

    own: ClassVar[Mapping[str, Target]] = _command_table()

    @classmethod
    def command_targets(cls) -> Mapping[str, Target]:
        """All commands; ours win over others of the same name."""
        # Ours first: another package must not take a command's name over.
        others = [name for name in registered_targets("dovetail.commands") if name not in cls.own]
        return {**cls.own, **{name: _other_target(name) for name in others}}

    @classmethod
    def help_sections(cls) -> Mapping[str, Sequence[str]]:
        """The commands as the help groups them."""
        others = [name for name in cls.command_targets() if name not in cls.own]
        return {**{title: list(names) for title, names in _SECTIONS.items()}, "Of other packages": others}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, with examples at the end of its help."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            found.epilog = epilog_of(cmd_name) or found.epilog
        return found

    @classmethod
    def find_target(cls, name: str) -> Target:
        """One of them; raises `KeyError`."""
        return cls.own[name] if name in cls.own else _other_target(name)


app = typer.Typer(
    name="dovetail",
    help="Schedule jobs on CPUs and GPUs, and learn how long they take.",
    cls=_Dovetail,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        print(f"dovetail {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Schedule jobs on CPUs and GPUs, and learn how long they take."""


@cache
def _whole_command() -> Any:
    found = typer.main.get_command(app)
    read_plainly(found)
    return found


def run_cli(arguments: Sequence[str] | None = None) -> None:
    """Entry point: runs a command and leaves with its exit status."""
    if sys.stdout is None:  # closed by our parent process: there is no reader
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # where names cannot be spelt: JSON stays JSON
    # Buffered whole: a table that is cut by a closed pipe must not end in a traceback.
    sys.stdout = whole_stream(sys.stdout)
    forgiving_stderr()
    interrupts.raise_if_interrupted()
    guard_libraries()
    if os.getpid() == 1:  # of a container: what has no handler does not end it
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # Before typer looks at the words, so completion sees them as they were typed.
    with whole_words(os.environ):
        sys.exit(status_of(list(sys.argv[1:] if arguments is None else arguments)))


_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def status_of(arguments: list[str]) -> int:
    """Run a command; returns its exit status. ``--debug`` anywhere before ``--`` shows tracebacks."""
    own, command = _split_arguments(arguments)
    debug = "--debug" in own
    # Taken out, since typer knows no option that is valid in front of every command.
    own = [argument for argument in own if argument != "--debug"]
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            outcome = _whole_command().main(own, "dovetail", standalone_mode=False, obj=command)
        # Here, while errors are still handled: a full disk shows at the flush.
        sys.stdout.flush()
        if outcome == 130 and interrupts.interrupted_at():  # in a policy that does not come to an end
            print_note(f"interrupted in a file of yours: {make_printable(interrupts.interrupted_at())}")
        return outcome if isinstance(outcome, int) else 0
    except DovetailError as error:
        if debug:
            raise
        return _print_error(_suggest_meant(own, command) or str(error), error.exit_status)
    except KeyboardInterrupt:
        return 130
    except MemoryError:
        if debug:
            raise
        # The message is small: the memory that was missing is free again once the error got here.
        limited = explain_limit()
        if limited:
            return _print_error(limited, 2)
        return _print_error(
            "found more than fits in memory, expected less input or a smaller machine to simulate", 2
        )
    except BrokenPipeError:
        return _reader_left()
    except SystemExit as error:
        # typer and rich turn a closed pipe into an exit; its cause shows what it was.
        if not isinstance(error.__context__, BrokenPipeError):  # how typer and rich leave over one
            raise
        return _reader_left()
    except Exception as error:
        limited = explain_limit() if is_about_memory(error) else ""
        if limited and not debug:
            return _print_error(limited, 2)
        # A library of an extra is missing: the sentence names the extra to install.
        extra = missing_extra(error, what="this command") if isinstance(error, ImportError) else None
        if extra is not None and not debug:
            return _print_error(str(extra), extra.exit_status)
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without its command: its help
            print(error, file=sys.stderr)
            return 2
        if hasattr(error, "format_message"):  # typer's own: the use was wrong
            return _print_error(_suggest_meant(own, command) or used_wrongly(error), 2)
        # A library may turn Ctrl-C into an error of its own.
        if type(error).__name__ == "Abort" or interrupts.was_interrupted():
            return 130
        if debug:
            raise
        if isinstance(error, OSError) and error.errno in _UNWRITABLE:
            _drop_output()
            return _print_error(f"cannot write: {error.strerror}", 2)
        if isinstance(error, PermissionError) and error.filename is not None:
            return _print_error(f"{error.filename}: {error.strerror}", 2)
        if lack := lack_of(error):
            what = describe_lack(error) if isinstance(error, OSError) else lack
            return _print_error(f"cannot go on: {what}", 2)
        if isinstance(error, OSError) and not os.path.exists("/proc/self"):
            return _print_error("found no /proc, expected that file system: jobs are followed by it", 2)
        what = f"{type(error).__name__}: {error}".replace("\n", " ")
        return _print_error(f"internal error: {what} (--debug shows where)", 3)


def _suggest_meant(own: list[str], command: list[str]) -> str:
    """What was meant by a command line that was refused, where that is known."""
    is_script = type(command) is not list  # its name was found, and what follows it is its own
    if command or is_script or not own:
        return ""
    if own[0] in ("run", "submit"):
        from dovetail.cli.meant import meant_by

        return meant_by(own)
    known = [*_Dovetail.own, *BESIDE]
    if own[0].startswith("-") or own[0] in known or own[0] in registered_targets("dovetail.commands"):
        return ""
    from dovetail.cli.meant import meant_command

    return meant_command(own, known)


_show_other = warnings.showwarning


def _show_warning(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
    """A warning of ours is a sentence, whatever line it comes from."""
    if issubclass(category, DovetailWarning):
        print("dovetail:", make_printable(str(message)), file=sys.stderr)
    else:
        _show_other(message, category, *where, **more)


def _drop_output() -> None:
    """What is still to be printed cannot be: leave quietly, without a second complaint at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _split_arguments(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What is ours, and what is not: a command after ``--``, or what follows the name of a batch script.

    That is for ``run`` and ``submit``, a command for ``explain``, too.
    """
    if arguments and arguments[0] in ("run", "submit"):
        at = _script_at(arguments)
        if at is not None:
            from dovetail.cli.options import ScriptArguments

            return arguments[: at + 1], ScriptArguments(arguments[at + 1 :])
    if "--" in arguments and arguments[0] in ("run", "explain", "submit"):
        at = arguments.index("--")
        return arguments[:at], arguments[at + 1 :]
    return arguments, []


def _script_at(arguments: list[str]) -> int | None:
    """The place of a batch script's name, if the first argument that is no option names one."""
    from dovetail.workloads.batch.opening import is_script_file

    if not any(os.path.exists(argument) for argument in arguments[1:]):
        return None
    command = _whole_command().get_command(None, arguments[0])
    takes = {name for one in command.params if not getattr(one, "is_flag", False) for name in one.opts}
    at = 1
    while at < len(arguments):
        argument = arguments[at]
        if argument == "--":
            return None
        if not argument.startswith("-") or argument == "-":
            return at if is_script_file(argument) else None
        at += 2 if argument in takes else 1
    return None


def _reader_left() -> int:
    """The reader of our output has left: there is nothing more to print to."""
    _drop_output()
    return 128 + signal.SIGPIPE


def _print_error(message: str, status: int) -> int:
    """Print an error; a damaged file's text in it cannot move the cursor."""
    print("dovetail:", "\n".join(map(make_printable, message.split("\n"))), file=sys.stderr)
    return status
