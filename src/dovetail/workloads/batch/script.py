"""A batch script as sbatch would take it: what of its options is honoured, warned about, refused."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import Any

from dovetail.errors import InputError
from dovetail.files.moments import parse_begin
from dovetail.files.reading import read_text
from dovetail.model.hostlist import expand_hostlist
from dovetail.records import dataclass
from dovetail.spec.jobs import MOST_NICE, PartialSpec, laid_over
from dovetail.spec.sbatch import INPUT_VARIABLES, ScriptOption
from dovetail.spec.values import MAIL_TYPES
from dovetail.workloads.batch import environment, units
from dovetail.workloads.batch.head import DOVETAIL, SBATCH, Directive, check_script, read_directives
from dovetail.workloads.batch.options import Given, Placed, UnknownOptionError, from_environment, parse_words
from dovetail.workloads.batch.passed_over import CHECKS
from dovetail.workloads.batch.patterns import fill_pattern
from dovetail.workloads.batch.resources import Requested, Shares, share_out

_JOB = re.compile(r"\+?0*([1-9]\d*(?:_[^+]+)?)(?:\+0*([1-9]\d*))?", re.ASCII)
"""A job to wait for, and the minutes after it."""
_STATE = re.compile(r"\((?:un)?fulfilled\)|\(failed\)")
"""What scontrol writes behind a dependency, and sbatch passes over."""
_NUMBER = re.compile(r"\s*([+-]?\d+)", re.ASCII)
VRAM = "vram"
"""A generic resource of some sites: memory of a GPU."""
MOST_NAMES = 1 << 20
"""Bytes of a file of names of nodes."""
PASSED_OVER = "has no meaning here and is passed over"


@dataclass(frozen=True, slots=True)
class Note:
    """What becomes of one option: where it stands, how it was written, what happens.

    ``line`` is that of the script, ``None`` for what the environment or the command line sets. What
    ``is_for_slurm`` is refused here, and may be honoured by a Slurm that gets the script as it is.
    """

    where: str
    option: str
    effect: str
    line: int | None = None
    is_for_slurm: bool = False

    def sentence(self) -> str:
        """``job.sh: line 3: --mail-type=END: no mail is sent``."""
        return f"{self.where}: {self.placeless_sentence}"

    @property
    def placeless_sentence(self) -> str:
        """The sentence without the place."""
        joint = "" if not self.option else " " if self.effect.startswith(PASSED_OVER) else ": "
        return f"{self.option}{joint}{self.effect}"


@dataclass(slots=True)
class BatchScript:
    """A script that was read.

    ``fields`` are those of a job as `dovetail.spec` names them, in bytes and seconds; ``own`` those of its
    ``#DOVETAIL`` lines; ``places`` has the options of sbatch that count, by their names. ``export`` is what
    ``--export`` has, and ``export_file`` the file of variables. With ``wait``
    the command ends when the job does. ``from_slurm``: it has ``#SBATCH`` lines;
    ``path`` is empty where it came through standard input.
    """

    name: str
    text: str
    fields: dict[str, Any] = field(default_factory=dict)
    own: PartialSpec = field(default_factory=dict)
    places: dict[str, Given] = field(default_factory=dict)
    export: str = "ALL"
    export_file: str | None = None
    wait: bool = False
    from_slurm: bool = False
    path: str = ""
    requested: Requested = field(default_factory=Requested)
    shares: Shares | None = None
    array: units.Array | None = None
    honoured: list[Note] = field(default_factory=list)
    warned: list[Note] = field(default_factory=list)
    refused: list[Note] = field(default_factory=list)

    @property
    def job_name(self) -> str:
        """The name of its job, unless an option gives one: that of its file, else ``sbatch``."""
        return os.path.basename(self.name) if self.path else "sbatch"

    def leave_to_slurm(self) -> None:
        """Refuse nothing that a Slurm may honour: the script goes to its sbatch as it is."""
        self.refused = [note for note in self.refused if not note.is_for_slurm]

    def check(self) -> None:
        """Raise `InputError` for the first option that is refused."""
        if self.refused:
            first = self.refused[0]
            more = len(self.refused) - 1
            rest = f" ({more} more: dovetail submit --explain-script FILE)" if more else ""
            raise InputError(f"{first.placeless_sentence}{rest}", where=first.where)


def read_script(
    text: str,
    name: str,
    *,
    environ: Mapping[str, str],
    words: Sequence[str] = (),
    path: str = "",
    now: datetime | None = None,
) -> BatchScript:
    """The script ``name`` (for sentences) with all that its options become.

    ``environ`` may hold ``SBATCH_*`` variables, which win over the script; ``words`` are options of sbatch's
    own command line, which win over both. Raises `InputError` where the text is no batch script; an option
    that cannot be is in ``refused``.
    """
    found = BatchScript(name, check_script(text, name), path=path)
    reader = _Reader(found, datetime.now(UTC).astimezone() if now is None else now)
    reader.read(environ, words)
    return found


class _Reader:
    """Reads the options of one script, one method for each that is honoured."""

    def __init__(self, found: BatchScript, now: datetime) -> None:
        self.found, self.now = found, now
        self.requested = found.requested
        self.places = found.places
        self.given: Given
        self.is_typed: set[bool] = set()

    def read(self, environ: Mapping[str, str], words: Sequence[str]) -> None:
        """Everything: collect, let later ones win, take each, add up."""
        # Variables after the script and the command line after both, as sbatch has it: later ones win.
        given = [*self._of_head(), *from_environment(environ)]
        given += self._of_words([Placed(word, "the command line") for word in words], "command line")
        for one in self._last_ones(given):
            self._take(one)
        self._note_inputs(environ)
        self._add_up()

    # ------------------------------------------------------------------------------ collecting

    def _of_head(self) -> Iterator[Given]:
        row: list[Placed] = []
        try:
            for line in read_directives(self.found.text, self.found.name):
                where = f"{self.found.name}: line {line.line}"
                if line.keyword == SBATCH:
                    row += [Placed(word, where, line.line) for word in line.words]
                    self.found.from_slurm = True
                elif line.keyword == DOVETAIL:
                    from dovetail.spec.script_lines import read_own_line  # most scripts have none

                    self.found.own = laid_over(self.found.own, read_own_line(line.rest, where))
                    effect = "as 'dovetail submit' reads it"
                    self.found.honoured.append(Note(where, line.rest.strip(), effect, line.line))
                else:
                    self._warn_foreign(line, where)
        # One unreadable line refuses the script, and the notes on the others are given all the same.
        except InputError as error:
            self._refuse_error(error)
        yield from self._of_words(row, "script")

    def _of_words(self, row: Sequence[Placed], origin: str) -> list[Given]:
        unknown: list[UnknownOptionError] = []
        try:
            given, rest = parse_words(row, origin, unknown=unknown)
        except InputError as error:
            self._refuse_error(error)
            return []
        finally:
            for one in unknown:
                self._refuse_error(one, is_for_slurm=True)
        if rest:
            note = Note(rest[0].where, rest[0].text, "found no option, expected one", rest[0].line)
            self.found.refused.append(note)
        return given

    def _refuse_error(self, error: InputError, *, is_for_slurm: bool = False) -> None:
        """An error of reading: its place and its sentence, as a note."""
        place, _, sentence = str(error).rpartition(": found ")
        line = place.rpartition("line ")[2]
        number = int(line) if line.isdecimal() else None
        self.found.refused.append(Note(place, "", f"found {sentence}", number, is_for_slurm))

    def _warn_foreign(self, line: Directive, where: str) -> None:
        effect = f"{PASSED_OVER}: only #SBATCH and #DOVETAIL lines are read"
        self.found.warned.append(Note(where, line.keyword, effect, line.line))

    def _note_inputs(self, environ: Mapping[str, str]) -> None:
        """Variables of the submission that are no options."""
        for one in INPUT_VARIABLES:
            if value := environ.get(one.name):
                honoured = one.treatment == "honoured"
                effect = one.meaning if honoured else f"{PASSED_OVER}: {one.meaning}"
                notes = self.found.honoured if honoured else self.found.warned
                notes.append(Note("the environment", f"{one.name}={value}", effect))

    def _last_ones(self, given: Iterable[Given]) -> list[Given]:
        """Of each option the one that wins; of rival options, those of the last origin."""
        winner: dict[str, Given] = {}
        for one in given:
            before = winner.pop(one.option.name, None)
            if before is not None and not self._is_wrong_alone(before):
                if one.option.name == "mail-type":
                    one = self._with_events_of(before, one)
                else:
                    self._note_replaced(before, one)
            winner[one.option.name] = one
        # One setting with two names: the last of them, whatever it is called. The dictionary has their order.
        for group in SAME:
            named = [name for name in winner if name in group]
            for name in named[:-1]:
                self._note_replaced(winner.pop(name), winner[named[-1]])
        # As sbatch has it: within one origin, rivals stand beside each other.
        order = ("environment", "script", "command line")
        for group in RIVALS:
            rivals = [winner[name] for name in group if name in winner]
            last = max((order.index(one.origin) for one in rivals), default=0)
            for one in rivals:
                if order.index(one.origin) < last:
                    del winner[one.option.name]
                    self._note_replaced(one, next(r for r in rivals if order.index(r.origin) == last))
        return list(winner.values())

    def _with_events_of(self, before: Given, after: Given) -> Given:
        """Both of two ``--mail-type``: sbatch adds them up, and ``NONE`` takes no event away."""
        effect = f"with those of {after.text} ({after.where})"
        self.found.honoured.append(Note(before.where, before.text, effect, before.line))
        events = [one.value or "" for one in (before, after)]
        kept = [one for one in events if "NONE" not in one.upper().split(",")]
        return replace(after, value=",".join(kept) or "NONE")

    def _is_wrong_alone(self, given: Given) -> bool:
        """Whether sbatch refuses a value though another replaces it, which is noted then.

        sbatch reads each value when it comes; those that its controller reads are no matter once replaced.
        """
        if given.option.name in LATE or given.option.treatment == "refused":
            return False
        alone = _Reader(BatchScript(self.found.name, self.found.text, path=self.found.path), self.now)
        alone._take(given)
        self.found.refused += alone.found.refused
        return bool(alone.found.refused)

    def _note_replaced(self, before: Given, after: Given) -> None:
        effect = f"replaced by {after.text} ({after.where})"
        self.found.honoured.append(Note(before.where, before.text, effect, before.line))

    # ---------------------------------------------------------------------------------- taking

    def _take(self, given: Given) -> None:
        """One option, by the method of its name, else by the table."""
        option = given.option
        self.given = self.places[option.name] = given
        # A method where the value decides; for all others the table of options has the treatment.
        method: Callable[[str], str] | None = getattr(self, f"_{option.name.replace('-', '_')}", None)
        if option.treatment == "refused":
            self._note(self.found.refused, option.meaning, is_for_slurm=option.name in OF_CONTAINERS)
        elif method is None and self._is_wrong(option.name, given.value):
            pass
        elif method is None:
            honoured = option.treatment == "honoured"
            self._note(
                self.found.honoured if honoured else self.found.warned,
                option.meaning if honoured else _passed_over(option),
            )
        else:
            try:
                effect = method(given.value or "")
            except ValueError as error:
                self._note(self.found.refused, str(error))
            else:
                if effect:
                    self._note(self.found.honoured, effect)

    def _is_wrong(self, name: str, value: str | None) -> bool:
        """Whether the value is one that sbatch refuses, which is noted then."""
        check = CHECKS.get(name)
        if check is None:
            return False
        try:
            check(value or "")
        except ValueError as error:
            self._note(self.found.refused, str(error))
            return True
        return False

    def _note(self, notes: list[Note], effect: str, *, is_for_slurm: bool = False) -> None:
        given = self.given
        notes.append(Note(given.where, given.text, effect, given.line, is_for_slurm))

    def _warn(self, effect: str) -> str:
        """Warn about this option, and have it in no other list."""
        self._note(self.found.warned, effect)
        return ""

    def _keep(self, name: str, value: object) -> None:
        self.found.fields[name] = value

    def _keep_text(self, name: str, value: str) -> None:
        if value:
            self._keep(name, value)

    # ----------------------------------------------------------------- who, where, when, what

    def _account(self, value: str) -> str:
        self._keep_text("account", value)
        return self._warn(_passed_over(self.given.option))

    def _array(self, value: str) -> str:
        if not value.strip(","):  # as sbatch has it
            return self._warn("names no index: the job is no array")
        array = self.found.array = units.parse_array(value)
        self._keep("array", array.text)
        return _count_things(array.count, "job")

    def _begin(self, value: str) -> str:
        try:
            moment = parse_begin(value, self.now)
        except ValueError as error:
            raise ValueError(f"found {value!r}, expected {error}") from None
        # Slurm takes a moment that has passed for "now" too.
        if moment <= self.now:
            return "at once"
        self._keep("begin", moment.timestamp())
        return f"not before {moment:%Y-%m-%d %H:%M:%S}"

    def _chdir(self, value: str) -> str:
        if not value:
            return self._warn("an empty name: the job runs in the folder of the submission")
        self._keep("folder", value)
        return f"runs in {value}"

    def _comment(self, value: str) -> str:
        self._keep_text("comment", value)
        return "kept and shown"

    def _wckey(self, value: str) -> str:
        self._keep_text("wckey", value)
        return "kept and shown"

    def _qos(self, value: str) -> str:
        self._keep_text("qos", value)
        return self._warn(_passed_over(self.given.option))

    def _dependency(self, value: str) -> str:
        if not value:
            return "no dependency"
        # Slurm allows no mix: commas mean all of them, question marks any.
        if "?" in value and "," in re.sub(r"\[[^]]*\]", "", value):
            raise ValueError(f"found {value!r}, expected ',' or '?' between dependencies, and not both")
        either = "?" if "?" in value else ""
        depends = []
        value = units.elements_named(value)
        for part in value.replace("?", ",").split(","):
            kind, *jobs = part.split(":")
            if not jobs and kind.lower() == "singleton":
                self._keep("singleton", True)
                continue
            # A bare number is the oldest form, which meant afterany, and has no more than a number.
            is_bare = not jobs
            if is_bare:
                kind, jobs = "afterany", [kind]
            kind = self._kind_of_dependency(kind.lower(), value)
            named = [_JOB.fullmatch(_STATE.sub("", job).strip()) for job in jobs]
            if not all(named) or (is_bare and (either or "+" in jobs[0])):
                raise ValueError(f"found {value!r}, expected dependencies such as afterok:12:13,afterany:14")
            if kind != "after" and any(match and match[2] for match in named):
                self._warn(f"the minutes of {kind} are passed over, as in sbatch: they go with after alone")
            minutes = ""
            for match in filter(None, named):
                # As in sbatch: the minutes of a job are those of the next ones, too, that have none.
                if kind == "after" and match[2]:
                    minutes = f"+{match[2]}"
                depends.append(f"{either}{kind}:{match[1]}{minutes}")
        if depends:
            self._keep("depends", depends)
        others = ["others of this name"] if "singleton" in self.found.fields else []
        return f"waits for {', '.join([*depends, *others])}"

    def _kind_of_dependency(self, kind: str, value: str) -> str:
        if kind == "afterburstbuffer":
            self._warn("afterburstbuffer is afterany: there is no burst buffer")
            return "afterany"
        if kind not in ("after", "afterok", "afternotok", "afterany", "aftercorr"):
            raise ValueError(
                f"found {value!r}, expected after, afterok, afternotok, afterany, aftercorr or singleton"
            )
        return kind

    def _error(self, value: str) -> str:
        return self._file("stderr", value)

    def _output(self, value: str) -> str:
        return self._file("stdout", value)

    def _input(self, value: str) -> str:
        return self._file("stdin", value)

    def _file(self, name: str, value: str) -> str:
        if not value:
            return self._warn("an empty name: output is kept where 'dovetail logs' finds it")
        if value.lower() == "none":  # as sbatch has it
            value = "/dev/null"
        # A mark that is unknown stays in the name, as in Slurm, but is worth a word.
        _, unknown = fill_pattern(value, "x", "u", is_array=True)
        if unknown:
            self._warn(f"{', '.join(unknown)} stands for nothing and is left as it is")
        self._keep(name, value)
        return "" if unknown else f"{'reads' if name == 'stdin' else 'writes'} {value}"

    def _open_mode(self, value: str) -> str:
        mode = value.lower()
        if not mode.startswith(("a", "t")):  # sbatch reads no further
            raise ValueError(f"found {value!r}, expected append or truncate")
        self._keep("append", mode.startswith("a"))
        return "adds to its files" if mode.startswith("a") else "begins its files anew"

    def _export(self, value: str) -> str:
        self.found.export = value or "NIL"
        if environment.is_plain(self.found.export) and value.upper() != "NIL":
            return self._warn(
                "only these variables, and those with which a login begins: no login files are read"
            )
        return f"variables: {value or 'none'}"

    def _export_file(self, value: str) -> str:
        try:
            environment.read_export_file(os.path.expanduser(value))
        except OSError as error:
            raise ValueError(f"found {value!r}, which cannot be read: {error.strerror}") from None
        self.found.export_file = value
        return f"variables of {value}"

    def _hold(self, _: str) -> str:
        self._keep("hold", True)
        return "waits until released"

    def _job_name(self, value: str) -> str:
        if not value:
            return self._warn("an empty name: the job has that of the script")
        self._keep("name", value)
        return f"named {value}"

    def _kill_on_invalid_dep(self, value: str) -> str:
        if value.lower() not in ("yes", "no"):
            raise ValueError(f"found {value!r}, expected yes or no")
        if value.lower() == "no":
            return self._warn("a job whose dependency cannot come true is cancelled")
        return "a job whose dependency cannot come true is cancelled"

    def _mail_type(self, value: str) -> str:
        types = [part.upper() for part in value.split(",") if part]
        if not types:
            raise ValueError(f"found no type, expected some of {', '.join(MAIL_TYPES)}")
        wrong = [part for part in types if part not in MAIL_TYPES]
        if wrong:
            raise ValueError(f"found {wrong[0]!r}, expected some of {', '.join(MAIL_TYPES)}")
        # As sbatch has it: the others go with it.
        if "NONE" in types:
            return "no mail"
        self._keep("mail_type", ",".join(dict.fromkeys(types)))
        if "STAGE_OUT" in types:
            return self._warn("nothing is staged; mail at the other events")
        return "mail, where the service has a command for it (serve --mail-command)"

    def _mail_user(self, value: str) -> str:
        self._keep_text("mail_user", value)
        return f"mail is for {value}" if value else "mail is for who submits"

    def _nice(self, value: str) -> str:
        # sbatch without a number means 100, and reads as much of a word as is a number.
        match = _NUMBER.match(value)
        nice = 100 if not value else int(match[1][:20]) if match else 0
        if abs(nice) > MOST_NICE:
            raise ValueError(f"found {value!r}, expected a number within {MOST_NICE}")
        # Raising a job is a privilege in Slurm, and has no equivalent.
        if nice < 0:
            return self._warn(f"{PASSED_OVER}: it lowers jobs, and raises none")
        self._keep("nice", nice)
        return "behind jobs of the same user that are less nice"

    def _no_requeue(self, _: str) -> str:
        self._keep("restartable", False)
        return "does not begin again"

    def _requeue(self, _: str) -> str:
        self._keep("restartable", True)
        return "begins again where it was cut short"

    def _partition(self, value: str) -> str:
        names = [name for name in value.split(",") if name]
        if not names:
            return self._warn("names no partition: the job may run in any")
        self._keep("partition", ",".join(names))
        return f"nodes of {' or '.join(names)}, where the service has partitions"

    def _signal(self, value: str) -> str:
        notice = units.parse_signal(value)
        receiver = "B:" if notice.script_alone else "S:"
        self._keep("signal", f"{receiver}{notice.signal}@{notice.seconds:g}")
        to = "the script" if notice.script_alone else "what the script has started"
        return f"{notice.signal} to {to} {notice.seconds:g} s before its end"

    def _time(self, value: str) -> str:
        limit = units.parse_limit(value)
        if limit is None:
            return "no limit"
        self._keep("walltime", limit)
        return f"{limit:g} s"

    def _wait(self, _: str) -> str:
        self.found.wait = True
        return "the command ends when the job does"

    # ------------------------------------------------------------------------------- machines

    def _nodes(self, value: str) -> str:
        if value and not value.strip("0"):  # as sbatch has it
            return "as if it were not given"
        least, most = units.parse_nodes(value)
        self.requested.nodes, self.requested.most_nodes = least, most
        # A range of nodes is a wish: the smaller number starts earlier.
        if most != least:
            return self._warn(f"the job gets {least}, the smaller number")
        return _count_things(least, "node")

    def _nodelist(self, value: str) -> str:
        if "/" in value:  # a file of names
            return self._nodefile(value)
        return self._count_hosts([value])

    def _nodefile(self, value: str) -> str:
        try:
            text = read_text(os.path.expanduser(value), "a file of names of nodes", most=MOST_NAMES)
        except InputError as error:
            raise ValueError(str(error)) from None
        lines = [line.partition("#")[0] for line in text.splitlines()]
        # As in sbatch: "n1*3" is the node n1, for three tasks.
        return self._count_hosts([word.partition("*")[0] for line in lines for word in line.split()])

    def _count_hosts(self, lists: Sequence[str]) -> str:
        try:
            # Counted without doubles: a host that is named twice is one node.
            count = len({host for one in lists for host in expand_hostlist(one)})
        except InputError as error:
            raise ValueError(str(error)) from None
        self.requested.named_nodes = count
        return self._warn(f"{PASSED_OVER}: the job may run on any {_count_things(count, 'node')}")

    def _ntasks(self, value: str) -> str:
        self.requested.tasks = units.parse_count(value)
        return _count_things(self.requested.tasks, "task")

    def _ntasks_per_node(self, value: str) -> str:
        self.requested.tasks_per_node = units.parse_count(value)
        return f"{_count_things(self.requested.tasks_per_node, 'task')} a node"

    def _ntasks_per_gpu(self, value: str) -> str:
        self.requested.tasks_per_gpu = units.parse_count(value)
        return f"{_count_things(self.requested.tasks_per_gpu, 'task')} a GPU"

    def _cpus_per_task(self, value: str) -> str:
        self.requested.cpus_per_task = units.parse_count(value)
        return f"{_count_things(self.requested.cpus_per_task, 'CPU')} a task"

    def _cpus_per_gpu(self, value: str) -> str:
        self.requested.cpus_per_gpu = units.parse_count(value)
        return f"{_count_things(self.requested.cpus_per_gpu, 'CPU')} a GPU"

    def _mincpus(self, value: str) -> str:
        self.requested.least_cpus = units.parse_count(value)
        return f"at least {_count_things(self.requested.least_cpus, 'CPU')} a node"

    def _overcommit(self, _: str) -> str:
        self.requested.overcommit = True
        return "one task's CPUs a node"

    def _exclusive(self, value: str) -> str:
        if value not in ("", "user", "mcs", "topo"):
            raise ValueError(f"found {value!r}, expected nothing, user or mcs")
        self.requested.exclusive = True
        if value:
            return self._warn("the job has its nodes to itself, among jobs of the same user, too")
        return "all CPUs of its nodes"

    def _sockets_per_node(self, value: str) -> str:
        self.requested.sockets = units.parse_count(value)
        return self._warn(_passed_over(self.given.option))

    def _gres(self, value: str) -> str:
        return self._devices(units.parse_resources(value), "gpus_per_node")

    def _gpus(self, value: str) -> str:
        return self._devices(units.parse_gpus(value), "gpus")

    def _gpus_per_node(self, value: str) -> str:
        return self._devices(units.parse_gpus(value), "gpus_per_node")

    def _gpus_per_task(self, value: str) -> str:
        return self._devices(units.parse_gpus(value), "gpus_per_task")

    def _gpus_per_socket(self, value: str) -> str:
        return self._devices(units.parse_gpus(value), "gpus_per_socket")

    def _devices(self, entries: Sequence[units.Resource], way: str) -> str:
        """GPUs among generic resources; what is none is warned about."""
        gpus = [one for one in entries if one.name == "gpu" and one.count]
        self.is_typed |= {bool(one.type) for one in gpus}
        if len(self.is_typed) > 1:
            raise ValueError("found GPUs with and without a type, expected either")
        foreign = [one for one in entries if one.name not in ("gpu", VRAM)]
        vram = [one for one in entries if one.name == VRAM and one.count]
        # As sites write it: a GPU, and memory of it.
        if vram:
            # Sites write the number in MiB or in bytes: below 1 MiB it cannot be bytes.
            size = vram[-1].count * (1 if vram[-1].count >= units.MEBIBYTE else units.MEBIBYTE)
            self._keep("gpu_memory", size)
            gpus = gpus or [units.Resource("gpu", "", 1)]
            amount = f"{size // units.MEBIBYTE} MiB"
            self._warn(f"vram is no gres that is counted here: it is read as --gpu-mem, {amount} on each GPU")
        models = [one.type for one in gpus if one.type]
        if len(set(models)) > 1:
            # Devices of two types in one job would need two requests on a node.
            raise ValueError(f"found GPUs of the types {', '.join(models)}, expected one type for a job")
        count = sum(one.count for one in gpus)
        # --gres and --gpus-per-node are two ways to count the same: they add up.
        setattr(self.requested, way, count + (getattr(self.requested, way) or 0))
        self.requested.models += [one for one in dict.fromkeys(models) if one not in self.requested.models]
        of = f" of type {models[0]}" if models else ""
        if foreign:
            names = ", ".join(dict.fromkeys(one.name for one in foreign))
            kept = f"; {_count_things(count, 'GPU')}{of} as requested" if count else ""
            return self._warn(f"{names} {PASSED_OVER}: only GPUs are counted{kept}")
        per = {"gpus": " in all", "gpus_per_node": " a node", "gpus_per_task": " a task"}.get(
            way, " a socket"
        )
        if vram:
            return ""
        return f"{_count_things(count, 'GPU')}{of}{per}" if count else "no GPU"

    def _mem(self, value: str) -> str:
        found = units.parse_memory(value)
        self.requested.memory = found
        if not found:
            return self._warn("memory is not counted, and not reserved for the job alone")
        return f"{found // units.MEBIBYTE} MiB a node"

    def _mem_per_cpu(self, value: str) -> str:
        found = units.parse_memory(value)
        self.requested.memory_per_cpu = found
        if not found:
            return self._warn("memory is not counted, and not reserved for the job alone")
        return f"{self.requested.memory_per_cpu // units.MEBIBYTE} MiB a CPU"

    def _mem_per_gpu(self, value: str) -> str:
        self.requested.memory_per_gpu = units.parse_memory(value)
        return f"{self.requested.memory_per_gpu // units.MEBIBYTE} MiB a GPU"

    def _tres_per_task(self, value: str) -> str:
        for entry in value.split(","):
            # "gres/gpu" and "gres:gpu" are both written.
            name, equals, amount = entry.replace("gres:", "gres/").partition("=")
            kind, _, model = name.partition(":")
            if not equals:  # as in the first versions: cpu:2, gres/gpu:a100:2
                model, _, amount = model.rpartition(":")
            if kind == "cpu":
                self.requested.cpus_per_task = units.parse_count(amount)
            elif kind == "mem":
                self.requested.memory_per_task = units.parse_memory(amount)
            elif kind == "gres/gpu":
                self.requested.gpus_per_task = units.parse_count(amount)
                self.requested.models += [model] if model else []
            else:
                raise ValueError(f"found {entry!r}, expected cpu=N, mem=SIZE or gres/gpu=N")
        return f"a task: {value}"

    # ------------------------------------------------------------------------------ adding up

    def _add_up(self) -> None:
        """The shares of nodes, and with them the fields and the variables."""
        found = self.found
        # Shares that rest on a refused option would only refuse it again.
        if not all(note.is_for_slurm for note in found.refused):
            return
        # A remark is put beside the first option that counts.
        place = next((self.places[name] for name in COUNTED if name in self.places), None)
        try:
            shares = share_out(self.requested)
        except ValueError as error:
            # Nothing contradicts itself that was not given.
            assert place is not None
            found.refused.append(Note(place.where, place.text, str(error), place.line))
            return
        for remark in shares.remarks:
            assert place is not None
            found.warned.append(Note(place.where, place.text, remark, place.line))
        found.shares = shares
        if shares.cpus is not None:
            self._keep("cpus", shares.cpus)
        if shares.nodes > 1:
            self._keep("nodes", shares.nodes)
        if shares.memory:
            self._keep("memory", shares.memory)
        if shares.gpus:
            self._keep("gpus", shares.gpus)
            self._keep("on", ["gpu"])
            if shares.cpus == "all":
                self._keep("exclusive", True)
            if self.requested.models:
                self._keep("models", list(self.requested.models))
        self._check_moments()
        # Without a limit there is no moment that lies before it.
        if "signal" in found.fields and "walltime" not in found.fields:
            del found.fields["signal"]
            self.given = self.places["signal"]
            self._warn("it is never sent: the job has no time limit")

    def _check_moments(self) -> None:
        """Refuse a least time above the limit, and a deadline that has passed, as sbatch does."""
        found = self.found
        least, most = self.places.get("time-min"), found.fields.get("walltime")
        if least is not None and most is not None:
            time = units.parse_limit(least.value or "")
            if time is None or time > most:
                self.given = least
                self._note(
                    found.refused, f"found more than the {most:g} s of --time, expected at most as much"
                )
        if (deadline := self.places.get("deadline")) is not None:
            try:
                past = parse_begin(deadline.value or "", self.now) <= self.now
            except ValueError:
                past = False  # forms that only sbatch knows
            if past:
                self.given = deadline
                self._note(found.refused, "found a moment that has passed, expected a later one")


def _count_things(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _passed_over(option: ScriptOption) -> str:
    return f"{PASSED_OVER}: {option.meaning}"


SAME: tuple[tuple[str, ...], ...] = (("exclusive", "oversubscribe"), ("nodelist", "nodefile"))
"""Options that set the same: the later one counts."""
RIVALS: tuple[tuple[str, ...], ...] = (
    ("mem", "mem-per-cpu", "mem-per-gpu"),
    ("cpus-per-task", "cpus-per-gpu"),
)
"""Options that express the same in other ways: one of the script replaces those of the environment, one of
the command line both."""
LATE = frozenset(
    {"array", "dependency", "gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "partition"}
)
"""Options whose values the controller reads, so that a wrong one that is replaced does no harm."""
OF_CONTAINERS = ("container", "container-id")
"""Options that a Slurm honours where a script goes to it as it is."""
COUNTED = (
    "nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "cpus-per-gpu", "gpus", "gpus-per-node",
    "gpus-per-task", "gpus-per-socket", "ntasks-per-gpu", "gres", "mem", "mem-per-cpu", "mem-per-gpu",
    "tres-per-task", "mincpus", "exclusive", "nodelist",
)  # fmt: skip
"""Options from which the shares of a node follow."""
