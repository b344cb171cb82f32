"""The command ``dovetail``: its commands, and how errors become one sentence and an exit status.

Exit status: 0 all well; 1 some job failed; 2 the input or the use was wrong; 3 an internal error; 130
interrupted.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import typer
from typer.core import TyperGroup

from dovetail import __version__
from dovetail.errors import DovetailError

__all__ = ["app", "run_cli"]

# Each command lives in a module of its own, which is imported when that command is needed: `dovetail
# devices` need not wait for matplotlib. (name, module:function or module:typer app, sub-commands?)
_COMMANDS: tuple[tuple[str, str, bool], ...] = (
    ("run", "dovetail.cli.run:run", False),
    ("simulate", "dovetail.cli.simulate:simulate", False),
    ("compare", "dovetail.cli.compare:compare", False),
    ("explain", "dovetail.cli.explain:explain", False),
    ("history", "dovetail.cli.history:history_app", True),
    ("model", "dovetail.cli.model:model_app", True),
    ("devices", "dovetail.cli.devices:devices", False),
    ("policies", "dovetail.cli.policies:policies", False),
    ("workload", "dovetail.cli.workload:workload_app", True),
    ("pack", "dovetail.cli.pack:pack", False),
    ("bench", "dovetail.cli.bench:bench", False),
    ("reproduce", "dovetail.cli.reproduce:reproduce_app", True),
    ("replay", "dovetail.cli.replay:replay", False),
    ("recover", "dovetail.cli.recover:recover", False),
    ("schema", "dovetail.cli.schema:schema", False),
)
_TARGETS = {name: (target, group) for name, target, group in _COMMANDS}


@cache
def _command(name: str) -> Any:
    """The command of that name; imports its module."""
    target, group = _TARGETS[name]
    module, _, attribute = target.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    holder = typer.Typer(rich_markup_mode=None, add_completion=False)
    if group:
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    return typer.main.get_group(holder).commands[name]


class _Commands(Mapping[str, Any]):
    """All commands by name, each made when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        if name not in _TARGETS:
            raise KeyError(name)
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_TARGETS)

    def __len__(self) -> int:
        return len(_TARGETS)


class _LazyGroup(TyperGroup):
    """The group of all commands, which knows their names without having imported them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()  # type: ignore[assignment]  # nothing is ever added to it

    def list_commands(self, ctx: Any) -> list[str]:
        """Names, in the order of the help."""
        return list(_TARGETS)


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
        # Whoever read our output has left: nothing more to say, and nothing to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's own: the use was wrong
            return _say(error.format_message(), 2)
        if type(error).__name__ == "Abort":
            return 130
        if debug:
            raise
        what = f"{type(error).__name__}: {error}".replace("\n", " ")
        return _say(f"internal error: {what} (--debug shows where)", 3)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What is ours, and the command after ``--`` (for ``run`` and ``explain``)."""
    if "--" in arguments and arguments[0] in ("run", "explain"):
        at = arguments.index("--")
        return arguments[:at], arguments[at + 1 :]
    return arguments, []


def _say(message: str, status: int) -> int:
    print(f"dovetail: {message}", file=sys.stderr)
    return status
