"""What was meant by a command line that names a program where a file of jobs goes, or none that is there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from dovetail.spec.commands import options_of

TAKING = ("run", "submit")
"""Commands after whose two dashes a command goes."""
ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("list", "ls", "status", "ps", "jobs", "squeue", "qstat", "sq"), "queue"),
    **dict.fromkeys(("kill", "stop", "rm", "remove", "delete", "abort", "scancel", "qdel"), "cancel"),
    **dict.fromkeys(("add", "enqueue", "sbatch", "qsub"), "submit"),
    **dict.fromkeys(("srun", "exec", "parallel"), "run"),
    **dict.fromkeys(("log", "cat", "output", "tail"), "logs"),
    **dict.fromkeys(("start", "daemon", "server", "pueued"), "serve"),
    **dict.fromkeys(("restart", "retry", "rerun"), "requeue"),
    **dict.fromkeys(("follow", "watch"), "top"),
    **dict.fromkeys(("edit", "modify", "set"), "update"),
    **dict.fromkeys(("switch", "urgent"), "move"),
    **dict.fromkeys(("unhold", "unpause", "continue"), "resume"),
    **dict.fromkeys(("sinfo", "hosts"), "nodes"),
    **dict.fromkeys(("sacct",), "queue --ended"),
    **dict.fromkeys(("gpus", "hardware"), "devices"),
    **dict.fromkeys(("version",), "--version"),
    **dict.fromkeys(("sim",), "simulate"),
}
"""What other tools call it, and our command."""
SHELL_SIGNS = re.compile(r"[|&;<>$`*?~'\"\\]")
SHELLS = {".sh": "bash", ".bash": "bash", ".py": "python"}


def meant_by(words: Sequence[str]) -> str:
    """A sentence with the command that was meant; empty where the words name no program.

    For use once ``dovetail WORDS`` was refused: what is a file of jobs may be called as a program is.
    """
    if not words or words[0] not in TAKING:
        return ""
    if wrapped := _unwrap(words):
        return (
            f"found --wrap, expected --cpu or --gpu for a line of a shell, did you mean: dovetail {wrapped}"
        )
    at = _first_positional(words)
    if at is None:
        return ""
    # A whole command in quotes is one word; a file may have blanks in its name.
    first, *rest = (words[at].split() or [""]) if not os.path.exists(words[at]) else [words[at]]
    program = _as_typed(first)
    if not program:
        return ""
    if rest and SHELL_SIGNS.search(words[at]):  # what a shell does with these, a program does not
        program, rest = ["sh", "-c", words[at]], []
    what = "the file" if os.path.isfile(first) else "the program"
    command = ["dovetail", *words[:at], "--", *program, *rest, *words[at + 1 :]]
    return (
        f"found {what} {first}, expected a file of jobs; one command goes after two dashes: "
        f"{' '.join(map(_quote_word, command))}"
    )


def meant_command(words: Sequence[str], known: Iterable[str]) -> str:
    """A sentence about a command that other tools have, or a program where a command of ours goes.

    For use once its first word was refused as none of the ``known`` commands; empty where it is neither.
    """
    word, *rest = words
    ours = ELSEWHERE.get(word)
    if ours is not None:
        command = " ".join(["dovetail", ours, *map(_quote_word, rest)])
        return f"found no command {word!r}, did you mean: {command}"
    program = _as_typed(word)
    # A misspelt command may be some program's name, too.
    if not program or get_close_matches(word, known, 1, 0.75):
        return ""
    command = " ".join(map(_quote_word, [*program, *rest]))
    return f"found no command {word!r}, did you mean: dovetail run -- {command}"


def _quote_word(word: str) -> str:
    """As a shell wants it; ``{device}`` needs no quotes."""
    return word if word and not shlex.quote(re.sub(r"[{}]", "", word)).startswith("'") else shlex.quote(word)


def _unwrap(words: Sequence[str]) -> str:
    """The words with ``--cpu`` in the place of sbatch's ``--wrap``; empty without it."""
    if not any(word.partition("=")[0] == "--wrap" for word in words):
        return ""
    parts = [
        part for word in words for part in (word.split("=", 1) if word.startswith("--wrap=") else [word])
    ]
    return " ".join(_quote_word("--cpu" if part == "--wrap" else part) for part in parts)


def _first_positional(words: Sequence[str]) -> int | None:
    """Where the first word is that is neither an option nor the value of one; None behind unknown options."""
    options = options_of(words[0])
    known = {name for one in options for name in one.spellings}
    valued = {name for one in options if one.value or one.least is not None for name in one.spellings}
    skip = False
    for at, word in enumerate(words[1:], 1):
        if skip:
            skip = False
        elif word.startswith("--") and word.partition("=")[0] not in known:
            return None  # the refusal names it
        elif word.startswith("-") and word != "-":
            skip = word in valued
        else:
            return at
    return None


def _as_typed(word: str) -> list[str]:
    """How a program or a script is begun on a command line; empty where it is neither."""
    if os.path.isfile(word):
        interpreter = SHELLS.get(os.path.splitext(word)[1])
        if os.access(word, os.X_OK):
            # A shell finds no program in the working directory without `./`.
            return [word if "/" in word else f"./{word}"]
        return [interpreter, word] if interpreter else []
    return [word] if "/" not in word and shutil.which(word) else []


def missing_program(command: Sequence[str], verb: str = "submit") -> str:
    """A sentence where the first word of a command is no program here; empty where it may be one.

    What becomes one only when the job starts, as ``{device}`` does, may be one.
    """
    word = command[0]
    # Braces and assignments are filled in later, so nothing can be known of them now.
    if "{" in word or "=" in word or shutil.which(word):
        return ""
    first, *rest = word.split() or [word]
    if rest and (program := _as_typed(first)):  # a whole command in quotes
        whole = ["sh", "-c", word] if SHELL_SIGNS.search(word) else [*program, *rest]
        words = " ".join(map(_quote_word, [*whole, *command[1:]]))
        return f"found no program {word!r}, did you mean: dovetail {verb} -- {words}"
    likely = _as_typed(word) or ([] if "/" in word else get_close_matches(word, _find_programs(), 1, 0.75))
    if likely:
        meant = " ".join(map(_quote_word, [*likely, *command[1:]]))
        return f"found no program {word!r}, did you mean: dovetail {verb} -- {meant}"
    return (
        f"found no program {word!r}, expected one that is in PATH, or a path to one: "
        f"dovetail {verb} -- PROGRAM ARGUMENTS"
    )


def _find_programs() -> set[str]:
    found: set[str] = set()
    for folder in os.get_exec_path():
        if os.path.isdir(folder):
            found.update(os.listdir(folder))
    return found
