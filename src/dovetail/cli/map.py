"""``dovetail map``: CPU and GPU programs over many files, so that all is done soonest."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli import options as opt
from dovetail.cli.service import open_service
from dovetail.errors import InputError, MapError
from dovetail.files.streams import print_note

if TYPE_CHECKING:  # NumPy and others load when the command runs, not when the help is shown
    from dovetail.mapping.api import Map
    from dovetail.mapping.programs import FileItem
    from dovetail.mapping.record import Record
    from dovetail.mapping.summary import MapSummary

REDUCED = "reduced"
SHOWN = 10
"""Failed items that are named."""


@opt.takes_options("map")
def map_command(
    items: list[str] | None,
    cpu: str | None,
    gpu: str | None,
    out: Path | None,
    reduce: str | None,
    workers: str | None,
    persistent: bool,
    line: str | None,
    resume: bool,
    executor: str,
    address: str | None,
    rule: str,
    by_size: bool,
    retries: int,
    duplicate: bool,
    timeout: float | None,
    memory: int | None,
    app: str | None,
    history: Path | None,
    submit: bool,
    at: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Run a CPU and a GPU program over many files at once, and split the work so that it is done soonest.

    {in} is the item's file, {out} where its result goes; without them the program reads standard input
    and writes standard output. DOVETAIL_DEVICE names its device, e.g. gpu:1.
    """
    from dovetail.mapping.record import Record, items_of

    if out is None:
        raise InputError("is missing, expected a folder for the results", where="--out")
    commands = {
        name: text
        for name, text in (("--cpu", cpu), ("--gpu", gpu), ("--reduce", reduce), ("--line", line))
        if text is not None
    }
    chosen = items_of(_item_names(items or []), out)
    if submit:
        # The service's job runs this very command, without --submit.
        return _submit_map([item.path for item in chosen], workers, app or _app_of(commands), at, as_json)
    reduction = None if reduce is None else _Reduction(out, reduce, chosen)
    # What makes no sense is refused before anything is written.
    make = _prepare_map(
        out, commands, persistent=persistent, app=app, workers=workers, engine=executor, address=address,
        rule=rule, retries=retries, duplicate=duplicate, timeout=timeout, memory=memory,
        history=history, progress=False if quiet or as_json else None,
    )  # fmt: skip
    record = Record.open(out, commands, resume=resume)
    finished = False
    # SIGTERM too, since cancelling the job that a map is sends it: what was done is kept, as with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        todo = [item for item in chosen if not record.is_done(item)]
        made = make(todo, cost=_item_sizes(todo) if by_size else None)
        # Interrupts do not propagate from here: the record must be closed with what has been done.
        own, interrupted, failure = _collect_results(made, record)
        summary = made.summary
        whole = not interrupted and not summary.failed and failure is None
        if reduction is not None and whole:
            reduction.run(record)
        finished = not interrupted and failure is None
    finally:
        # Only a finished map may be taken as complete by the next --resume.
        record.close(finished=finished)
    form = _summary_form(summary, own, skipped=len(chosen) - len(todo))
    if reduction is not None:
        form["reduced"] = str(out / reduction.name) if whole else None
    print(json.dumps(form) if as_json else _summary_text(form))
    for failed in summary.failed[:SHOWN]:
        print_note(str(failed["reason"]))
    if failure is not None:
        raise failure
    if interrupted:
        left = len(todo) - summary.items
        print_note(f"dovetail: interrupted: {left} of {len(chosen)} items are not done; --resume does them")
        return 130
    return 1 if summary.failed else 0


def _app_of(commands: Mapping[str, str]) -> str:
    """What the history knows the programs by."""
    from dovetail.mapping.programs import IN, OUT, parse_command
    from dovetail.programs.identity import identify_command

    option = next((option for option in ("--cpu", "--gpu") if option in commands), None)
    if option is None:
        raise InputError("found neither --cpu nor --gpu, expected a program")
    return identify_command(parse_command(commands[option], option, [IN, OUT])).app


def _submit_map(paths: Sequence[str], workers: str | None, app: str, at: str | None, as_json: bool) -> int:
    """The same command, as a job of the service on all that its workers hold."""
    from dovetail.cli.submit import tell_submitted
    from dovetail.client.requests import request_context
    from dovetail.mapping.places import devices_here, parse_workers
    from dovetail.mapping.run import app_name
    from dovetail.model import CPU
    from dovetail.model.templates import escape_template

    # The workers decide the cores and devices that the job holds: its map starts as many.
    wanted = [] if workers is None else parse_workers(workers)
    cores = sum(some.count * some.cores for some in wanted) if wanted else opt.read_cpus("all")
    devices = {
        some.kind: min(some.count, len(devices_here(some.kind))) for some in wanted if some.kind != CPU
    }
    if not wanted and "--gpu" in sys.argv:
        devices = {"gpu": len(devices_here("gpu"))}
    kind, count = next(((kind, count) for kind, count in devices.items() if count), (CPU, 0))
    words = [word for word in sys.argv[1:] if word != "--submit"]
    # What standard input gave must be part of the command: the job has no such input.
    if "-" in words:  # the list that was read from standard input
        place = words.index("-")
        words[place : place + 1] = paths
    job: dict[str, Any] = {
        "command": [
            sys.executable,
            "-m",
            "dovetail",
            # Escaped, since braces in file names would be taken for fields of the command.
            *map(escape_template, words),
        ],
        "app": app_name(app),
        "inputs": {"items": float(len(paths))},
        "cpus": cores,
        "on": [kind],
        "restartable": True,
    }
    if count:
        job["gpus"] = count
    with open_service(at, start=True) as service:
        tell_submitted(service.post("/api/v1/jobs", {**request_context(), "jobs": [job]}), as_json, False)
    return 0


def _item_names(items: list[str]) -> list[str]:
    """The items' files; those of a list on standard input."""
    return [name for name in sys.stdin.read().splitlines() if name] if items == ["-"] else items


def _item_sizes(items: Sequence[FileItem]) -> list[float]:
    """Bytes of each item, as its cost; an empty file costs something too."""
    return [max(1.0, float(os.stat(item.path).st_size)) for item in items]


def _prepare_map(
    out: Path, commands: Mapping[str, str], *, persistent: bool, app: str | None, **options: Any
) -> Callable[..., Map]:
    """The map of the programs, which still needs its items. Raises `InputError`."""
    from dovetail.mapping import api
    from dovetail.mapping.function import Function
    from dovetail.mapping.programs import IN, OUT, Program, Staying, parse_command
    from dovetail.mapping.record import parts_of
    from dovetail.programs.identity import identify_command

    line = commands.get("--line")
    if line is not None and not persistent:
        raise InputError("found without --persistent, with which it goes", where="--line")
    parts, folder = str(parts_of(out).absolute()), os.getcwd()
    made: Function | None = None
    for option, kind in (("--cpu", "cpu"), ("--gpu", "gpu")):
        if option not in commands:
            continue
        argv = parse_command(commands[option], option, [] if persistent else [IN, OUT])
        program = (
            Staying(argv, parts, folder, line or f"{{{IN}}}") if persistent else Program(argv, parts, folder)
        )
        if made is None:
            made = Function(program, kind, app or identify_command(argv).app)
        made.implementations[kind] = program
    if made is None:
        raise InputError("found neither --cpu nor --gpu, expected a program")
    batch = None if persistent else 1  # each is recorded as soon as it is done

    def start_map(items: Sequence[FileItem], cost: Sequence[float] | None = None) -> Map:
        return api.map(made, items, cost=cost, batch=batch, errors="return", **options)

    start_map(())
    return start_map


def _collect_results(made: Map, record: Record) -> tuple[float, bool, MapError | None]:
    """Record what is done as it comes.

    Gives seconds of the programs alone, whether Ctrl-C ended it, and why it ended before all was tried.
    """
    from dovetail.errors import ItemError

    own = 0.0
    try:
        for result in made:
            if not isinstance(result, ItemError):
                record.done(result)
                own += result.seconds
    except KeyboardInterrupt:
        return own, True, None
    except MapError as error:  # what was done before it is in its place
        return own, False, error
    finally:
        made.close()
    return own, False, None


class _Reduction:
    """The reduce of all results, as the options have it. Raises `InputError`."""

    def __init__(self, out: Path, command: str, items: Sequence[FileItem]) -> None:
        from dovetail.mapping.programs import INS, OUT, Program, parse_command
        from dovetail.mapping.record import parts_of

        argv = parse_command(command, "--reduce", [INS, OUT])
        if f"{{{INS}}}" not in argv:
            raise InputError(
                "found no {ins} as a word of its own, expected it for the results", where="--reduce"
            )
        suffixes = {os.path.splitext(item.name)[1] for item in items}
        self.name = REDUCED + (suffixes.pop() if len(suffixes) == 1 else "")
        if any(item.name == self.name for item in items):
            raise InputError(
                f"found an item called {self.name}, as the reduced result is called", where="ITEMS"
            )
        self._command, self._items = command, items
        self._program = Program(argv, str(parts_of(out).absolute()), os.getcwd())

    def run(self, record: Record) -> None:
        """Run it over all results, in the items' order; in groups where they are too many for one."""
        from dovetail.mapping import api
        from dovetail.mapping.programs import FileItem

        if record.is_reduced(self.name, self._items):
            return
        paths = [str(record.out / item.name) for item in self._items]
        while True:
            groups = [FileItem(self._command, self.name, tuple(group)) for group in _group_paths(paths)]
            with api.map(
                self._program, groups, workers="cpu:1", ordered=True, history=False, progress=False
            ) as made:
                paths = [ran.part for ran in made]
            if len(paths) == 1:
                record.note_reduced(self.name, self._items, paths[0])
                return


def _group_paths(paths: Sequence[str]) -> list[list[str]]:
    """As many paths together as one command line can take."""
    room = min(os.sysconf("SC_ARG_MAX") // 4, 1 << 20)
    groups: list[list[str]] = [[]]
    length = 0
    for path in paths:
        length += len(os.fsencode(path)) + 9
        if groups[-1] and length > room:
            groups.append([])
            length = len(os.fsencode(path)) + 9
        groups[-1].append(path)
    return groups


def _summary_form(summary: MapSummary, own: float, *, skipped: int) -> dict[str, Any]:
    """The summary as JSON has it; of programs, the overhead is what is not the program's own time."""
    spent = sum(summary.mean_seconds[kind] * count for kind, count in summary.tasks.items() if count)
    form = asdict(summary)
    form["overhead_per_task"] = (spent - own) / summary.items if summary.items else None
    return form | {"skipped": skipped}


def _summary_text(form: Mapping[str, Any]) -> str:
    parts = [f"{form['items']} items in {form['seconds']:.2f} s"]
    for kind, count in form["tasks"].items():
        if count:
            parts.append(f"{kind} {count} of {form['mean_seconds'][kind]:.3g} s")
    if form["acceleration"]:
        parts.append(f"factor {form['acceleration']:.2f}")
    if form["overhead_per_task"] is not None:
        parts.append(f"overhead {form['overhead_per_task'] * 1e3:.2f} ms an item")
    parts += [f"{form[name]} {name}" for name in ("skipped", "retried", "duplicated") if form[name]]
    parts += [f"{kind} failed {count} times" for kind, count in form["failed_on"].items()]
    parts += [f"{kind} suspended for {seconds:.3g} s" for kind, seconds in form["suspended"].items()]
    return ", ".join(parts)
