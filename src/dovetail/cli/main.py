"""The command ``dovetail``: its commands, and how errors become one sentence and an exit status.

Exit status: 0 all well; 1 some job failed; 2 the input or the use was wrong; 3 an internal error; 130
interrupted; 141 nobody reads the output any more.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from dovetail import __version__
from dovetail.cli.usage import used_wrongly
from dovetail.errors import DovetailError

__all__ = ["app", "run_cli"]

# Each command lives in a module of its own, which is imported when that command runs: `dovetail devices`,
# the list of commands and their completion need not wait for solvers and charts.
# name: (module:function or module:typer app, line in the list of commands)
_COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("dovetail.cli.run:run", "Run jobs on this machine, for real, and learn from it."),
    "simulate": ("dovetail.cli.simulate:simulate", "Simulate a workload under a policy, on any cluster."),
    "compare": ("dovetail.cli.compare:compare", "Put several policies, seeds and loads side by side."),
    "explain": ("dovetail.cli.explain:explain", "Show why each job went where it did."),
    "history": (
        "dovetail.cli.history:history_app",
        "Look at measured runs; predict; export, import.",
    ),
    "model": ("dovetail.cli.model:model_app", "Look at what was learned of run times."),
    "devices": ("dovetail.cli.devices:devices", "Show this machine's cores, GPUs and OpenCL devices."),
    "policies": ("dovetail.cli.policies:policies", "List policies and planners."),
    "workload": ("dovetail.cli.workload:workload_app", "Describe, convert, cut and scale traces."),
    "pack": ("dovetail.cli.pack:pack", "Partition moldable tasks into packs."),
    "bench": ("dovetail.cli.bench:bench", "Run the benchmark apps; fill the history."),
    "bench-sharing": ("dovetail.cli.sharing:bench_sharing", "Measure what sharing a node costs here."),
    "reproduce": ("dovetail.cli.reproduce:reproduce_app", "Set the papers' figures beside ours."),
    "replay": ("dovetail.cli.replay:replay", "Check that a journal gives the same decisions again."),
    "recover": ("dovetail.cli.recover:recover", "Clear up after runs whose Dovetail was killed."),
    "schema": ("dovetail.cli.schema:schema", "Print the JSON Schemas of job and cluster files."),
}


@cache
def _command(name: str) -> Any:
    """The command of that name; imports its module."""
    module, _, attribute = _COMMANDS[name][0].partition(":")
    found = getattr(importlib.import_module(module), attribute)
    holder = typer.Typer(rich_markup_mode=None, add_completion=False)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    return typer.main.get_group(holder).commands[name]


class _Commands(Mapping[str, Any]):
    """All commands by name, each made when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        if name not in _COMMANDS:
            raise KeyError(name)
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class _LazyGroup(TyperGroup):
    """The group of all commands, which knows their names and a line of each without importing them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()  # type: ignore[assignment]  # nothing is ever added to it
        self._listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Names, in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command; while commands are only listed, its name and line."""
        if self._listing and cmd_name in _COMMANDS:
            return TyperCommand(cmd_name, help=_COMMANDS[cmd_name][1])
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Their list in the help."""
        with self._only_listing():
            super().format_commands(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Names of commands that begin so."""
        with self._only_listing():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _only_listing(self) -> Iterator[None]:
        self._listing = True
        try:
            yield
        finally:
            self._listing = False


app = typer.Typer(
    name="dovetail",
    help="Schedule jobs on CPUs and GPUs, and learn how long they take.",
    cls=_LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        print(f"dovetail {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Schedule jobs on CPUs and GPUs, and learn how long they take."""


@cache
def _whole() -> Any:
    return typer.main.get_command(app)


def run_cli(arguments: Sequence[str] | None = None) -> None:
    """Entry point: runs a command and leaves with its exit status."""
    if sys.stdout is None:  # closed by whoever started us: there is nobody to print for
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # where names cannot be spelt: JSON stays JSON
    sys.exit(status_of(list(sys.argv[1:] if arguments is None else arguments)))


def status_of(arguments: list[str]) -> int:
    """Run a command; returns its exit status. ``--debug`` anywhere before ``--`` shows tracebacks."""
    own, command = _split(arguments)
    debug = "--debug" in own
    own = [argument for argument in own if argument != "--debug"]
    try:
        outcome = _whole().main(own, "dovetail", standalone_mode=False, obj=command)
        sys.stdout.flush()
        return outcome if isinstance(outcome, int) else 0
    except DovetailError as error:
        if debug:
            raise
        return _say(str(error), error.exit_status)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return _nobody_listens()
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):  # how typer and rich leave over one
            raise
        return _nobody_listens()
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without its command: its help
            print(error, file=sys.stderr)
            return 2
        if hasattr(error, "format_message"):  # typer's own: the use was wrong
            return _say(used_wrongly(error, own), 2)
        if type(error).__name__ == "Abort":
            return 130
        if debug:
            raise
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            _drop_output()
            return _say(f"cannot write: {error.strerror}", 2)
        what = f"{type(error).__name__}: {error}".replace("\n", " ")
        return _say(f"internal error: {what} (--debug shows where)", 3)


def _drop_output() -> None:
    """What is still to be printed cannot be: leave quietly, without a second complaint at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What is ours, and the command after ``--`` (for ``run`` and ``explain``)."""
    if "--" in arguments and arguments[0] in ("run", "explain"):
        at = arguments.index("--")
        return arguments[:at], arguments[at + 1 :]
    return arguments, []


def _nobody_listens() -> int:
    """Whoever read our output has left: nothing more to say, and nothing to say it to."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + signal.SIGPIPE


def _say(message: str, status: int) -> int:
    print(f"dovetail: {message}", file=sys.stderr)
    return status
