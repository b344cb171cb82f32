"""The argv of a job: its implementation's command with the placeholders filled. No shell is involved."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.errors import InputError
from dovetail.model.record import Placed
from dovetail.model.templates import DEVICE, device_word, escape_template, render_template


def command_words(placed: Placed) -> list[str]:
    """The command to run. Raises `InputError` where there is none, or a placeholder has no value."""
    implementation, job = placed.implementation, placed.job
    command = implementation.command
    if command is None or not command.argv:
        raise InputError(f"implementation '{implementation.name}' of app '{job.app.name}' has no command")
    values = {**job.inputs, DEVICE: device_word(implementation.kind)}
    try:
        return [render_template(a, values) if "{" in a or "}" in a else a for a in command.argv]
    except KeyError as error:
        raise InputError(
            f"the command of implementation '{implementation.name}' names {{{error.args[0]}}}, "
            f"expected one of {', '.join('{' + name + '}' for name in values)}"
        ) from None


def after_prologue(prologue: str, words: Sequence[str]) -> tuple[str, ...]:
    """The command, run by a login shell after what its user wants done there first; as it is without that.

    Where the prologue fails, the command is not run, and its exit status is the job's.
    """
    if not prologue:
        return tuple(words)
    return ("bash", "-lc", 'eval "$0" || exit; exec "$@"', escape_template(prologue), *words)
