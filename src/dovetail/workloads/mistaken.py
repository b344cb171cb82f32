"""Text that looks like a list of commands and is none: accounting, traces, tables, job files.

A table read as commands would run whatever programs its first column happens to name, so a list is refused
as a whole at the first line that no person means as a command.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from dovetail.errors import InputError
from dovetail.files.sentences import shown
from dovetail.workloads.shell_words import Word
from dovetail.workloads.wrappers import word_set

__all__ = ["refuse_what_is_no_list", "refuse_what_no_command_begins_with"]

# A job id, a moment, a share, a row of dashes: digits and what stands between them, no program's name.
_NUMERIC = re.compile(r"[0-9][0-9.,:;_+/\[\]%TZ-]*|-[0-9.]+|-{2,}|[0-9]+[._+][a-z_]+")
_STATES = word_set(
    "BOOT_FAIL CANCELLED CANCELLED+ COMPLETED COMPLETING DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY OUT_OF_ME+ "
    "PENDING PREEMPTED REQUEUED RESIZING RUNNING SUSPENDED TIMEOUT"
)
_ACCOUNTING = "the output of sacct; for a trace: sacct --parsable2 with its header, then sacct:PATH"
_OPENINGS = (
    (re.compile(r"\[\[?[ \w.\"'-]+\]\]?\s*(#.*)?$"), "TOML; the name of a job file ends in .toml"),
    (re.compile(r"[{\[]"), "JSON; a trace is named FORMAT:PATH"),
    (re.compile(r"<[!?a-zA-Z]"), "HTML or XML, expected commands, one a line"),
    (re.compile(r";"), "a comment of SWF; a trace is named swf:PATH"),
    (re.compile(r"\s*JobID(Raw)?\b"), _ACCOUNTING),
)
_GRAMMAR = word_set(
    "if then else elif fi for while until do done case esac in function select { } ! [[ ]] (( cd export "
    "source . set unset alias eval exit return shift shopt trap local ulimit umask module pushd popd"
)


def refuse_what_is_no_list(lines: Sequence[str], source: str) -> None:
    """Raise `InputError` if the text as a whole is another kind of file. O(lines)."""
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        for pattern, what in _OPENINGS:
            if pattern.match(line):
                raise InputError(f"line {number}: found {what}", where=source)
        break
    told = [(number, line.split()) for number, line in enumerate(lines, 1) if line.strip()]
    told = [(number, words) for number, words in told if not words[0].startswith("#")]
    if told and all(_tells_a_state(words) for _, words in told):
        raise InputError(f"line {told[0][0]}: found {_ACCOUNTING}", where=source)


def _tells_a_state(words: Sequence[str]) -> bool:
    """Whether a word is a state of Slurm's and no option's value."""
    return any(word in _STATES and not before.startswith("-") for before, word in itertools.pairwise(words))


def refuse_what_no_command_begins_with(words: Sequence[Word], where: str) -> None:
    """Raise `InputError` for a line whose first word names no program: a number, a column, shell grammar."""
    first = words[0].bare
    if _NUMERIC.fullmatch(first):
        raise InputError(
            f"found {shown(words[0].text)}, expected a program: this looks like a table, which is never run "
            "(a trace is named FORMAT:PATH)",
            where=where,
        )
    table = next((word.text for word in words if "|" in word.bare.strip("|&")), None)
    if table is None and first.count(",") > 1 and "/" not in first:
        table = words[0].text
    if table is not None:
        raise InputError(
            f"found {shown(table)}, expected one program and its arguments: no shell reads this line, and a "
            "table is never run (quotes make '|' text, sh -c '…' starts a shell, a trace is sacct:PATH)",
            where=where,
        )
    if first in _GRAMMAR:
        raise InputError(
            f"found {shown(first)}, which only a shell knows, expected a program (sh -c '…' starts a shell)",
            where=where,
        )
    if first.startswith("-"):
        raise InputError(f"found {shown(first)}, expected a program and its arguments", where=where)
