"""Lists of commands, one a line, and single commands, as workloads.

No shell reads the lines: words are split as a shell splits them, ``~``, ``$NAME`` and file patterns are
expanded, everything else that only a shell understands is refused. docs/reference/commands.md has the rules.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from dovetail.errors import InputError
from dovetail.files.reading import read_text
from dovetail.files.sentences import file_name, show_value
from dovetail.files.streams import STDIN, standard_input
from dovetail.model import TableTruth, Workload
from dovetail.model.templates import DEVICE
from dovetail.programs.identity import identify_command
from dovetail.programs.shell_words import Piece, Quote, Unexpandable, Word, split_words
from dovetail.programs.wrappers import ASSIGNMENT, word_set
from dovetail.records import dataclass
from dovetail.spec.jobs import JobSpec, PartialSpec, laid_over
from dovetail.workloads.dependencies import EntryJobs, resolve_dependencies
from dovetail.workloads.grids import grid_combinations, parse_each
from dovetail.workloads.job_builder import INDEX, JobBuilder, depends_of

_EXPECTED = "a job file, a trace, or commands, one a line"
_SHELL = re.compile(r"(?:\|\|?|&&?|;)$|[0-9]?>>?[^=]*$|<")
_HOLE = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_]*)\}\}|(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")

Cpus = int | Literal["all"] | None


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """What all commands of a list request.

    ``on`` are the kinds of device for which each command can run (default: cpu), ``cpus`` the CPUs that it
    requests there (default: 1; ``all``: those of the node). Each is repeated for every combination of the
    values of ``each`` (``NAME=VALUES``) whose ``{NAME}`` it holds. Files are looked up from ``cwd``. ``app``,
    ``drop`` and ``add`` change what it is taken for (`identify_command`).
    """

    on: Sequence[str] = ()
    cwd: str | os.PathLike[str] = "."
    app: str | None = None
    drop: Sequence[str] = ()
    add: Sequence[str] = ()
    each: Sequence[str] = ()
    cpus: Cpus = None


@dataclass(frozen=True, slots=True)
class _Line:
    """One command: where it stands, variables set before it, its words with their quotes."""

    where: str
    env: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]

    @property
    def all_words(self) -> list[Word]:
        """All its words, those of variables included."""
        return [*(word for _, word in self.env), *self.words]


def load_commands(
    path: str | os.PathLike[str], part: Mapping[str, Any] | None = None, **options: Any
) -> Workload:
    """The jobs of a list of commands, one a line; ``#`` begins a comment, ``-`` is standard input.

    ``part`` of a `JobSpec` is laid over each; ``options`` are those of `CommandOptions`. Raises `InputError`
    with file and line; nothing of a list runs then. Linear.
    """
    name, parts = _parts_of_list(path, part or {}, options)
    return _make_workload(name, parts)


def list_parts(path: str | os.PathLike[str], part: Mapping[str, Any], **options: Any) -> list[PartialSpec]:
    """The jobs of a list of commands as parts of specs, for a service. Raises as `load_commands`."""
    # Dependencies stay out of the check: they may name jobs that only the service knows.
    own = {name: value for name, value in part.items() if name != "depends"}
    name, parts = _parts_of_list(path, own, options)
    # What cannot be built here is not sent.
    _make_workload(name, parts)
    after = {"depends": part["depends"]} if "depends" in part else {}
    return [laid_over(one, after) for _, one in parts]


def _parts_of_list(
    path: str | os.PathLike[str], part: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[str, list[tuple[str, PartialSpec]]]:
    if os.fspath(path) == STDIN:
        text, source = standard_input("commands, one a line"), "standard input"
    else:
        text, source = read_text(path, _EXPECTED), file_name(path)
    raw = text.splitlines()
    # Before any line is read as a command.
    _refuse_what_is_no_list(raw, source)
    lines = [
        line
        for number, words in enumerate(raw, 1)
        if (line := _parse_line(words, f"{source}: line {number}")) is not None
    ]
    if not lines:
        raise InputError("found only comments, expected commands, one a line", where=source)
    return source, _Reading(CommandOptions(**options), part).spec_parts(lines, expand=True)


def command_workload(argv: Sequence[str], part: Mapping[str, Any] | None = None, **options: Any) -> Workload:
    """One command as a workload: what ``dovetail run -- COMMAND`` runs. Raises `InputError`.

    The shell in which it was typed has expanded its words, so nothing is expanded again.

    >>> found = command_workload(["python", "train.py", "--lr", "{lr}"], each=["lr=0.1,0.01"])
    >>> [dict(job.inputs)["lr"] for job in found.jobs]
    [0.1, 0.01]
    """
    if any("\0" in word for word in argv):
        raise InputError("command: found a null character, expected text without")
    if not argv or not argv[0]:
        raise InputError("command: found no program, expected a program and its arguments")
    return _make_workload(shlex.join(argv), _parts_of_command(argv, part or {}, options))


def command_parts(argv: Sequence[str], part: Mapping[str, Any], **options: Any) -> list[PartialSpec]:
    """One command, for each combination of ``each``, as parts of specs. Raises as `command_workload`."""
    return [one for _, one in _parts_of_command(argv, part, options)]


def _parts_of_command(
    argv: Sequence[str], part: Mapping[str, Any], options: Mapping[str, Any]
) -> list[tuple[str, PartialSpec]]:
    # In single quotes, as far as expansion goes: the user's shell has done it.
    line = _Line("command", (), tuple(Word(((word, ""),)) for word in argv))
    return _Reading(CommandOptions(**options), part).spec_parts([line], expand=False)


def spec_workload(name: str, part: Mapping[str, Any]) -> Workload:
    """The job that a part of a spec is alone, as of ``run --cpu CMD --gpu CMD``. Raises `InputError`."""
    built = JobBuilder().build(JobSpec(**part), "")
    jobs = list(built.named_jobs(f"{built.fields['app'].name}-1", 0))
    return Workload(
        name, resolve_dependencies([EntryJobs("", None, jobs, depends_of(JobSpec(**part)))]), TableTruth()
    )


def _parse_line(raw: str, where: str) -> _Line | None:
    """The command of a line, or ``None`` if it has none."""
    if "\0" in raw:
        raise InputError("found a null character, expected text without", where=where)
    try:
        words = split_words(raw)
    except ValueError as error:
        raise InputError(f"found {error}, expected words as a shell splits them", where=where) from None
    if not words:
        return None
    _refuse_what_no_command_begins_with(words, where)
    refuse_operators(words, where)
    env: list[tuple[str, Word]] = []
    while words and (match := ASSIGNMENT.fullmatch(words[0].bare_text)):
        env.append((match[1], _without_prefix(words[0], len(match[1]) + 1)))
        del words[0]
    if not words or not words[0].text:
        raise InputError("found no program, expected a program and its arguments", where=where)
    return _Line(where, tuple(env), tuple(words))


def refuse_operators(words: Iterable[Word], where: str) -> None:
    """Raise `InputError` for pipes, redirections and the like, which a program would get as arguments."""
    shell = next((word.text for word in words if _only_a_shell(word.bare_text)), None)
    if shell is not None:
        raise InputError(
            f"found {show_value(shell)}, expected one program and its arguments: no shell reads this line "
            "(sh -c '…' starts one)",
            where=where,
        )


def _only_a_shell(bare: str) -> bool:
    return bool(_SHELL.match(bare)) or bare.endswith((";", "&"))


def _without_prefix(word: Word, count: int) -> Word:
    """The word without its first characters, which are not quoted."""
    (first, quote), *rest = word.pieces
    return Word(((first[count:], quote), *rest))


# -- placeholders --------------------------------------------------------------------------------------


def _names_in_line(line: _Line, grid: Mapping[str, Sequence[str]], more: Sequence[str]) -> list[str]:
    """Names of the grid that the line uses, in its order. Raises `InputError` for one that is not there.

    ``more`` are names that are filled in later.

    In quotes, where a program has braces of its own, only known names are placeholders.
    """
    used: set[str] = set()
    for word in line.all_words:
        for text, quote in word.pieces:
            for match in _HOLE.finditer(text):
                name = match[2]
                if name in grid:
                    used.add(name)
                # In quotes braces may be a program's own (awk, JSON).
                elif name is not None and name != DEVICE and name not in more and not quote:
                    known = ", ".join(grid) or "none is given"
                    raise InputError(
                        f"found the unknown placeholder {show_value(match[0])}, expected a name of --each "
                        f"({known}) or {{device}}; {{{match[0]}}} stands for the text itself",
                        where=line.where,
                    )
    return [name for name in grid if name in used]


def _fill_word(word: Word, values: Mapping[str, str]) -> Word:
    """The word with values for its placeholders; what is filled in is not expanded."""

    def fill_piece(text: str, quote: Quote) -> Sequence[Piece]:
        pieces: list[Piece] = []
        at = 0
        for match in _HOLE.finditer(text):
            if match[2] in values:
                pieces += [(text[at : match.start()], quote), (values[match[2]], "'")]
            # A doubled brace is the text itself, as in a format string.
            elif match[1] is not None and not quote:
                pieces += [(text[at : match.start()], quote), (match[0][1:-1], "'")]
            else:
                continue
            at = match.end()
        return [*pieces, (text[at:], quote)] if pieces else [(text, quote)]

    return word.replace_pieces(fill_piece)


# -- jobs ----------------------------------------------------------------------------------------------


class _Reading:
    """Makes parts of specs of lines, each with the place that it comes from."""

    def __init__(self, options: CommandOptions, part: Mapping[str, Any]) -> None:
        if options.app is not None and not options.app.strip():
            raise InputError("found an empty name, expected the app's name", where="--app")
        self._options, self._part = options, part
        self._form: PartialSpec = {"on": _check_kinds(options.on), "cpus": _check_cpus(options.cpus)}
        if not options.on and part.get("gpus"):
            self._form["on"] = ["gpu"]
        self._is_array = part.get("array") is not None
        self._features: set[str] = set()
        self._counts: dict[str, int] = {}
        self._parts: list[tuple[str, PartialSpec]] = []

    def spec_parts(self, lines: Sequence[_Line], *, expand: bool) -> list[tuple[str, PartialSpec]]:
        """The jobs of all lines. Raises `InputError`."""
        grid = parse_each(self._options.each, self._options.cwd)
        used: set[str] = set()
        for line in lines:
            # Only names that this line uses: a grid of others would repeat it without a difference.
            names = _names_in_line(line, grid, (INDEX,) if self._is_array else ())
            used.update(names)
            for values in grid_combinations({name: grid[name] for name in names}):
                self._add_job(line, values, expand=expand)
        self._check_options(grid, used)
        return self._parts

    def _check_options(self, grid: Mapping[str, Sequence[str]], used: set[str]) -> None:
        unused = next((name for name in grid if name not in used), None)
        if unused is not None:
            raise InputError(
                f"found the name {unused!r}, expected {{{unused}}} in a command that it stands for",
                where="--each",
            )
        # A feature that no command has is a typing mistake: left alone, it would change nothing in silence.
        unknown = next((key for key in self._options.drop if key not in self._features), None)
        if unknown is not None:
            known = ", ".join(sorted(self._features)) or "none"
            raise InputError(
                f"found {show_value(unknown)}, expected a feature of a command: {known}", where="--drop"
            )

    def _add_job(self, line: _Line, values: Mapping[str, str], *, expand: bool) -> None:
        try:
            env = {
                name: "".join(self._expand_word(_fill_word(word, values), expand)[:1])
                for name, word in line.env
            }
            argv = [
                text for word in line.words for text in self._expand_word(_fill_word(word, values), expand)
            ]
            choices = self._options
            identity = identify_command(
                argv, cwd=choices.cwd, app=choices.app, drop=choices.drop, add=choices.add
            )
        except (InputError, Unexpandable) as error:
            raise InputError(str(error), where=line.where) from None
        self._features |= {*identity.inputs, *identity.dropped}
        part = {**self._form, "app": identity.app}
        if env:
            part["env"] = env
        # Its arguments, or its words, are looked at later.
        if self._is_array or "inputs" in self._part:
            part["command"] = argv
        else:
            part |= {"command": identity.argv, "inputs": identity.inputs}
        number = self._counts[identity.app] = self._counts.get(identity.app, 0) + 1
        part["id"] = f"{identity.app}-{number}"
        self._parts.append((line.where, laid_over(part, self._part) if self._part else part))

    def _expand_word(self, word: Word, expand: bool) -> list[str]:
        return word.expand_word(self._options.cwd, os.environ) if expand else [word.text]


def _make_workload(name: str, parts: Sequence[tuple[str, PartialSpec]]) -> Workload:
    """The jobs of parts of specs. Raises `InputError`."""
    builder = JobBuilder()
    entries: list[EntryJobs] = []
    at = 0
    for where, part in parts:
        spec = JobSpec(**part)
        assert spec.id is not None
        jobs = list(builder.build(spec, where).named_jobs(spec.id, at))
        entries.append(EntryJobs(where, spec.id, jobs, depends_of(spec)))
        at += len(jobs)
    return Workload(name, resolve_dependencies(entries), TableTruth())


def _check_cpus(cpus: Cpus) -> int | str | None:
    """The CPUs that a plain command requests. Raises `InputError`."""
    if cpus != "all" and cpus is not None and (isinstance(cpus, bool) or cpus < 1):
        raise InputError(f"--cpus: found {cpus!r}, expected a whole number of at least 1, or 'all'")
    return cpus


def _check_kinds(on: Sequence[str]) -> list[str]:
    """The kinds of device for which plain commands are. Raises `InputError`."""
    kinds = list(on) or ["cpu"]
    for kind in kinds:
        device = kind.removeprefix("cpu+")
        if not device or "+" in device or not kind.isprintable() or (device == "cpu" and kind != "cpu"):
            raise InputError(f"--on: found {show_value(kind)}, expected kinds of device such as cpu,gpu")
        if kinds.count(kind) > 1:
            raise InputError(f"--on: found {show_value(kind)} twice, expected each kind once")
    return kinds


# -- what is no list --------------------------------------------------------------------------------
#
# Accounting, traces, tables, job files: a table read as commands would run whatever programs its first column
# happens to name, so a list is refused as a whole at the first line that no person means as a command.

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


def _refuse_what_is_no_list(lines: Sequence[str], source: str) -> None:
    """Raise `InputError` if the text as a whole is another kind of file. O(lines)."""
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        for pattern, what in _OPENINGS:
            if pattern.match(line):
                raise InputError(f"line {number}: found {what}", where=source)
        break
    # Slurm's tables without a header: every row holds a state.
    rows = [(number, line.split()) for number, line in enumerate(lines, 1) if line.strip()]
    rows = [(number, words) for number, words in rows if not words[0].startswith("#")]
    if rows and all(_tells_a_state(words) for _, words in rows):
        raise InputError(f"line {rows[0][0]}: found {_ACCOUNTING}", where=source)


def _tells_a_state(words: Sequence[str]) -> bool:
    """Whether a word is a state of Slurm's and no option's value."""
    return any(word in _STATES and not before.startswith("-") for before, word in itertools.pairwise(words))


def _refuse_what_no_command_begins_with(words: Sequence[Word], where: str) -> None:
    """Raise `InputError` for a line whose first word names no program: a number, a column, shell grammar."""
    first = words[0].bare_text
    if _NUMERIC.fullmatch(first):
        raise InputError(
            f"found {show_value(words[0].text)}, expected a program: this looks like a table, "
            f"which is never run "
            "(a trace is named FORMAT:PATH)",
            where=where,
        )
    # A bar within a word is a table's: as an operator it stands alone, and was refused before.
    table = next((word.text for word in words if "|" in word.bare_text.strip("|&")), None)
    # Commas without a path: the header of a table.
    if table is None and first.count(",") > 1 and "/" not in first:
        table = words[0].text
    if table is not None:
        raise InputError(
            f"found {show_value(table)}, expected one program and its arguments: no shell reads "
            f"this line, and a "
            "table is never run (quotes make '|' text, sh -c '…' starts a shell, a trace is sacct:PATH)",
            where=where,
        )
    if first in _GRAMMAR:
        raise InputError(
            f"found {show_value(first)}, which only a shell knows, expected a program (sh -c '…' "
            f"starts a shell)",
            where=where,
        )
    if first.startswith("-"):
        raise InputError(f"found {show_value(first)}, expected a program and its arguments", where=where)
