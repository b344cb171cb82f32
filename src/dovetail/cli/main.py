"""The command ``dovetail``: its commands, and how errors become one sentence and an exit status.

Exit status: 0 all well; 1 some job failed; 2 the input or the use was wrong; 3 an internal error; 130
interrupted.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import typer

from dovetail import __version__
from dovetail.errors import DovetailError

__all__ = ["app", "run_cli"]

app = typer.Typer(
    name="dovetail",
    help="Schedule jobs on CPUs and GPUs, and learn how long they take.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Each command lives in a module of its own, which is imported when that command runs: `dovetail devices`
# need not wait for matplotlib. (name, module:function or module:typer app, sub-commands?)
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


def _load(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _register(wanted: str | None) -> None:
    """Register one command, or all of them (for help and completion)."""
    for name, target, group in _COMMANDS:
        if wanted is not None and name != wanted:
            continue
        if group:
            app.add_typer(_load(target), name=name)
        else:
            app.command(name)(_load(target))


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


def run_cli(arguments: Sequence[str] | None = None) -> None:
    """Entry point: runs a command and leaves with its exit status."""
    sys.exit(status_of(list(sys.argv[1:] if arguments is None else arguments)))


def status_of(arguments: list[str]) -> int:
    """Run a command; returns its exit status. ``--debug`` anywhere before ``--`` shows tracebacks."""
    own, command = _split(arguments)
    debug = "--debug" in own
    own = [argument for argument in own if argument != "--debug"]
    names = {name for name, _, _ in _COMMANDS}
    completing = "_DOVETAIL_COMPLETE" in os.environ
    first = own[0] if own and own[0] in names and not completing else None
    try:
        _register(first)
        outcome = typer.main.get_command(app).main(own, "dovetail", standalone_mode=False, obj=command)
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
