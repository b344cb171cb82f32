"""Apps from the entries that describe them: in a job file, in a request to a service."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from dovetail.errors import InputError
from dovetail.files.sentences import show_value
from dovetail.model import App, Command, Implementation, Seconds, request_for
from dovetail.model.batch_options import fold_options
from dovetail.model.command_line import after_prologue
from dovetail.model.templates import DEVICE, placeholder_names
from dovetail.records import dataclass

# And with it pydantic, for which a command alone does not wait.
if TYPE_CHECKING:
    from dovetail.workloads.jobfile_schema import AppEntry


@dataclass
class KnownApp:
    """An app, and what its entry has beside it: true times, what commands need, whose memory is learned."""

    app: App
    times: dict[str, Mapping[int, Seconds]]  # by implementation: true seconds by node count
    time: dict[str, Seconds]
    needs: list[tuple[str, str]] = field(default_factory=list)  # (implementation, placeholder)
    auto: tuple[str, ...] = ()  # implementations whose memory is learned
    gpu_auto: tuple[str, ...] = ()  # those whose devices' memory is
    batch_options: list[str] = field(default_factory=list)  # each for one implementation alone


def build_app(entry: AppEntry, where: str) -> KnownApp:
    """The app that an entry describes. Raises `InputError`, which begins with ``where``."""
    if entry.on:
        if entry.implementation:
            raise InputError("found both on and [[app.implementation]], expected one of them", where=where)
        from dovetail.workloads.jobfile_schema import ImplementationEntry

        same = ImplementationEntry(name=entry.on[0], command=entry.command, env=entry.env, tasks=entry.tasks)
        forms = [same.model_copy(update={"name": kind}) for kind in entry.on]
    elif entry.command is not None or entry.env or entry.tasks != 1:
        raise InputError("found a command without on, expected on = ['cpu', 'gpu'] beside it", where=where)
    else:
        forms = entry.implementation
    if not forms:
        raise InputError(
            "found an app with no implementation, expected [[app.implementation]], or on", where=where
        )
    implementations: list[Implementation] = []
    built = KnownApp(App(entry.name, ()), {}, {})
    for number, form in enumerate(forms, 1):
        place = f"{where}, implementation {number} {form.name!r}"
        if any(i.name == form.name for i in implementations):
            raise InputError(f"found the name {form.name!r} twice, expected each once", where=place)
        kind = check_kind(form.kind or form.name, place)
        memory = form.memory if isinstance(form.memory, int) else 0  # to be learned
        gpus = entry.gpus if form.gpus is None else form.gpus
        if gpus == 0 and kind != "cpu":
            raise InputError(f"gpus: found 0, expected at least a share of one for kind {kind}", where=place)
        on_each = form.gpu_memory or entry.gpu_memory or 0
        request = request_for(
            kind, cpus=form.cpus, gpus=1.0 if gpus == "auto" else gpus, memory=memory, models=form.models,
            gpu_memory=on_each if isinstance(on_each, int) else 0, sharing=gpus == "auto",
        )  # fmt: skip
        if on_each == "auto" and request.devices:
            built.gpu_auto += (form.name,)
        if not request.devices and request.cpus == 0:
            raise InputError("cpus: found 0, expected at least 1 for kind cpu", where=place)
        command, env = None, env_of(form.env, place)
        if form.command is not None:
            words = split_command(form.command, place)
            command = Command(after_prologue(entry.prologue, words), env, form.tasks)
            built.needs += [(form.name, name) for name in needs_of(command, place)]
        implementations.append(Implementation(form.name, kind, request, command))
        built.batch_options += [f"{form.name}:{option}" for option in fold_options(form.slurm)]
        if form.times is not None:
            built.times[form.name] = dict(sorted(form.times.items()))
        if form.time is not None:
            built.time[form.name] = form.time
    built.app = App(entry.name, tuple(implementations), entry.restartable)
    built.auto = tuple(form.name for form in forms if form.memory == "auto")
    return built


def check_kind(kind: str, where: str) -> str:
    """The kind of an implementation, if it can be one. Raises `InputError`."""
    device = kind.removeprefix("cpu+")
    if "+" in device or not device or (device == "cpu" and kind != "cpu"):
        raise InputError(
            f"kind: found {kind!r}, expected cpu, cpu+gpu, or a kind of device such as gpu", where=where
        )
    return kind


def split_command(command: str | Sequence[str], where: str) -> tuple[str, ...]:
    """The argv of a command that is written as a list, or as one string, split as a shell splits words.

    >>> split_command("./mm_gpu {n} 'two words'", "here")
    ('./mm_gpu', '{n}', 'two words')
    """
    if isinstance(command, str):
        try:
            argv = tuple(shlex.split(command))
        except ValueError as error:
            raise InputError(
                f"command: found {str(error).lower()}, expected words as a shell splits them", where=where
            ) from None
    else:
        argv = tuple(command)
    if not argv or not argv[0]:
        raise InputError("command: found no program, expected a program and its arguments", where=where)
    if any("\0" in word for word in argv):
        raise InputError("command: found a null character, expected text without", where=where)
    return argv


def env_of(env: Mapping[str, str], where: str, called: str = "env") -> tuple[tuple[str, str], ...]:
    """What a process can be given. Raises `InputError`."""
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InputError(
                f"{called}: found {show_value(name)} = {show_value(value)}, "
                "expected a name without '=', no null character",
                where=where,
            )
    return tuple(env.items())


def needs_of(command: Command, where: str) -> list[str]:
    """Inputs that the command uses."""
    try:
        return [name for name in placeholder_names(command.argv) if name != DEVICE]
    except ValueError as error:
        raise InputError(f"command: found {error}, expected {{n}} or {{device}}", where=where) from None
