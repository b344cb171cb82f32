"""Options of commands, made from `dovetail.spec`, and what several commands make of their values."""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import typer

from dovetail.cli import completing
from dovetail.cli.usage import read_choice
from dovetail.errors import InputError
from dovetail.files.streams import print_note
from dovetail.files.units import (
    DURATION,
    SIZE,
    bytes_given,
    seconds_given,
    seconds_of,
    spell_duration,
    spell_size,
)
from dovetail.spec import option as units
from dovetail.spec.commands import option_of, options_of
from dovetail.spec.jobs import PartialSpec, read_texts
from dovetail.spec.option import Option

if TYPE_CHECKING:  # arrays, models: who only reads the help waits for neither
    from dovetail.model import Cluster as Machine
    from dovetail.report.metrics import TrimmedTrace

R = TypeVar("R")

# -- options from the specification --------------------------------------------------------------------


def command_group(about: str) -> typer.Typer:
    """A command of several commands."""
    return typer.Typer(
        help=about,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def takes_options(
    command: str, of: typer.Typer | None = None
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """A decorator: the parameters of a command's function are the options of `dovetail.spec` of that name.

    ``of`` is the group of a command such as ``"history show"``, which it joins.

    An annotation is the type that the function gets: with ``float`` a duration is read to seconds, with
    ``str`` it comes as it was written. A function with ``**given`` gets there, after its arguments, what else
    the specification has for the command, as it was written. Raises `KeyError` for a name that is not there.
    """

    def with_options(function: Callable[..., R]) -> Callable[..., R]:
        hints = get_type_hints(function)
        named = inspect.signature(function).parameters
        made: list[inspect.Parameter] = []
        for parameter in named.values():
            # In the specification's order: positional arguments first, as typer needs them.
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                rest = [option for option in options_of(command) if option.name not in named]
                at = sum(one.name == "context" or option_of(command, one.name).positional for one in made)
                made[at:at] = [_make_parameter(option, _as_written(option)) for option in rest]
            elif parameter.name == "context":
                made.append(parameter.replace(annotation=typer.Context))
            else:
                made.append(_make_parameter(option_of(command, parameter.name), hints[parameter.name]))

        def call_with_options(**given: Any) -> R:
            return function(**given)

        # The name and the signature are what typer reads; the body is one function for all.
        call_with_options.__name__, call_with_options.__doc__ = function.__name__, function.__doc__
        call_with_options.__module__ = function.__module__
        call_with_options.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]  # typer reads it
        call_with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in made}
        if of is not None:
            of.command(command.rpartition(" ")[2])(call_with_options)
        return call_with_options

    return with_options


def _as_written(option: Option) -> Any:
    """The type of a value that a service reads, not we."""
    if not option.value:
        return bool
    return list[str] | None if option.kind is not None and option.kind.many else str | None


_SPELT = {units.DURATION: spell_duration, units.SIZE: spell_size}


def _make_parameter(option: Option, kind: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if option.required else option.default
    if option.kind is not None or (default is None and kind is bool):
        default = False if kind is bool else None  # of a job only what was given is sent
    # As a person would write it: help shows it so, and it is read as what is given.
    if option.value in _SPELT and isinstance(default, int | float) and default:
        default = _SPELT[option.value](default)
    about = declare_option(option, kind)
    inner = next((one for one in get_args(kind) if get_origin(one) is list), kind)
    # A list of fixed words is read by our own parser, as typer has none for it.
    if get_origin(inner) is list and get_origin(get_args(inner)[0]) is Literal:  # typer has no such lists
        about.parser, kind = partial(read_choice, choices=get_args(get_args(inner)[0])), list[str] | None
    annotation = Annotated[kind, about]
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def declare_option(option: Option, kind: Any) -> Any:
    """An option, or an argument, as typer wants it declared."""
    more: dict[str, Any] = {"help": option.help, "metavar": option.value or None}
    if option.complete == "files":
        more["dir_okay"] = False
    elif option.complete:
        more["autocompletion"] = getattr(completing, option.complete)
    if option.positional:
        return typer.Argument(**more)
    if option.value in _SPELT and option.default == 0:
        more["show_default"] = False  # it stands for what the help names
    numbers = {int, int | None, float, float | None}
    if kind in numbers and option.value == units.DURATION:
        more["parser"] = partial(seconds_given, where=option.spellings[0], above_zero=option.above)
    elif kind in numbers and option.value == units.SIZE:
        more["parser"] = partial(_check_size, where=option.spellings[0], least=int(option.least or 0))
    # Limits of a duration or a size are in its unit, which typer would show as bare numbers.
    elif not option.value_unit:  # in seconds or bytes limits are no help, and a text is measured later
        more |= {"min": option.least, "max": option.most}
    return typer.Option(*option.spellings, **more)


def _check_size(value: float | str, where: str, least: int) -> int:
    found = bytes_given(value, where)
    if isinstance(value, str) and found < least:
        raise InputError(f"found {value!r}, expected at least {least} {SIZE}", where=where)
    return found


def duration_option(*names: str, help: str, above_zero: bool = False) -> Any:  # noqa: A002
    """An option that takes seconds, or a duration such as ``1h30m``; the command is given seconds."""
    return declare_option(Option("", help, units.DURATION, " ".join(names), least=0, above=above_zero), float)


def _shared_option(command: str, name: str, kind: Any) -> Any:
    """For commands of other packages: the option as a command of ours has it."""
    return Annotated[kind, declare_option(option_of(command, name), kind)]


if TYPE_CHECKING:
    Json: TypeAlias = bool
    Quiet: TypeAlias = bool
    HistoryFile: TypeAlias = Path | None
    Cluster: TypeAlias = str | None
    IdleWatts: TypeAlias = float | None
    BusyWatts: TypeAlias = float | None
else:
    Json = _shared_option("run", "as_json", bool)
    Quiet = _shared_option("run", "quiet", bool)
    HistoryFile = _shared_option("run", "history", Path | None)
    Cluster = _shared_option("run", "cluster", str | None)
    IdleWatts = _shared_option("run", "idle_watts", float | None)
    BusyWatts = _shared_option("run", "busy_watts", float | None)

# -- what their values mean ----------------------------------------------------------------------------


def read_machine(cluster: str | None, partitions: Sequence[str] | None) -> Machine | None:
    """``--cluster`` with ``--partition``; ``None`` where no cluster is given. Raises `InputError`."""
    if cluster is None:
        if partitions:
            raise InputError(
                "found a partition, expected --cluster too, whose nodes it names", where="--partition"
            )
        return None
    from dovetail.model import Cluster as Machine
    from dovetail.workloads.partitions import with_partitions

    return with_partitions(Machine.parse(cluster), partitions or ())


def read_machines(clusters: Sequence[str] | None, partitions: Sequence[str] | None) -> list[Machine]:
    """Every ``--cluster``, each once, with ``--partition``. Raises `InputError`."""
    if not clusters:
        # The partition is refused even without a cluster, which it would need.
        read_machine(None, partitions)
        return []
    twice = [text for i, text in enumerate(clusters) if text in clusters[:i]]
    if twice:
        raise InputError(f"found {twice[0]} twice, expected each cluster once", where="--cluster")
    return [found for text in clusters if (found := read_machine(text, partitions)) is not None]


class ScriptArguments(list[str]):
    """What follows the name of a batch script on a command line: options and all, it is the script's."""


def part_of_options(given: Mapping[str, Any]) -> PartialSpec:
    """Options of a job, as they were written, as a part of its spec. Raises `InputError`.

    A folder counts from this one. ``each`` is left out: it is no field of a job.
    """
    texts = {name: text for name, text in given.items() if text not in (None, False, []) and name != "each"}
    part = read_texts(texts)
    for kind in ("cpu", "gpu"):
        _note_number(kind, str(texts.get(kind, "")))
    # Absolute here: a service would take it from its own working directory.
    if "folder" in part:
        part["folder"] = os.path.abspath(part["folder"])
    return part


def _note_number(kind: str, text: str) -> None:
    """Note where a program is a number that no program here is called by: ``--cpus N`` was meant."""
    if text.isdecimal() and shutil.which(text) is None:
        print_note(f"--{kind} {text} runs a program called {text}; --{kind}s {text} gives a job so many")


def read_cpus(text: str | None) -> int | Literal["all"] | None:
    """``--cpus``: a number, or ``all`` of the node. Raises `InputError`."""
    return None if text is None else part_of_options({"cpus": text})["cpus"]


def or_journal(source: str) -> str:
    """A workload as it was named; of an earlier run (its id or folder, ``last``) the journal."""
    # A file is no run: nothing of what runs jobs is imported for it.
    if source.startswith(("published:", "synthetic:")) or os.path.isfile(source):
        return source
    from dovetail.running.folder import journal_of

    found = journal_of(source)
    return source if found is None else str(found)


def read_kinds(on: str | None) -> list[str]:
    """``cpu,gpu`` as a list; raises `InputError` for an empty name."""
    return [] if on is None else list(part_of_options({"on": on})["on"])


def read_walltime(text: str | None, *, simulated: bool) -> float | Literal["actual"] | None:
    """``--default-walltime``: seconds, or ``actual`` in simulation (its default)."""
    if text is None:
        return "actual" if simulated else None
    if text == "actual" and simulated:
        return "actual"
    try:
        found = seconds_of(text)
    except ValueError:
        found = 0.0
    if not found:
        expected = f"more than 0 {DURATION}" + (" or 'actual'" if simulated else "")
        raise InputError(f"found {text!r}, expected {expected}", where="--default-walltime")
    return found


def read_trim(warmup: str | None, cooldown: str | None) -> TrimmedTrace | None:
    """``--warmup`` and ``--cooldown``; ``None`` where neither was given."""
    if warmup is None and cooldown is None:
        return None
    from dovetail.report.metrics import TrimmedTrace

    return TrimmedTrace.parse_trim("0" if warmup is None else warmup, cooldown)


def read_inputs(words: Sequence[str] | None) -> dict[str, float | str]:
    """``--input NAME=VALUE``, each name once: numbers and words. Raises `InputError`."""
    return part_of_options({"inputs": list(words)})["inputs"] if words else {}


def reader_options(**options: Any) -> dict[str, Any]:
    """Options for workload readers, those that were given."""
    return {key: value for key, value in options.items() if value is not None and value != [] and value != ()}
