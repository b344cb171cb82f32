"""``dovetail run``: jobs on this machine, for real."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dovetail.cli import options as opt
from dovetail.errors import InputError
from dovetail.files.sentences import make_printable
from dovetail.files.streams import is_input_given, print_note, ring_bell
from dovetail.records import dataclass
from dovetail.spec.jobs import PartialSpec
from dovetail.spec.values import Neighbourhood, Overrun

if TYPE_CHECKING:
    from dovetail.engine.state.core import Engine
    from dovetail.model import Result, Workload
    from dovetail.report.options import ReportOptions
    from dovetail.report.report import Report
    from dovetail.running.session import Session

MOST_COMPARED = 2_000
"""Up to so many jobs, the run is compared with what the CPUs alone would have needed."""


@opt.takes_options("run")
def run(
    context: typer.Context,
    file: str | None,
    cluster: str | None,
    policy: str,
    drop: list[str] | None,
    add: list[str] | None,
    jobs: int | None,
    keep_order: bool,
    halt: str,
    neighbours: Neighbourhood,
    seed: int | None,
    model: str,
    history: Path | None,
    overrun: Overrun,
    default_walltime: str | None,
    grace: float,
    executor: str,
    cut_walltimes: bool,
    resume: bool,
    retry_failed: str | None,
    then: str | None,
    bell: bool,
    run_dir: Path | None,
    as_json: bool,
    csv: Path | None,
    gantt: Path | None,
    report: Path | None,
    idle_watts: float | None,
    busy_watts: float | None,
    verbose: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """Run jobs on this machine's CPUs and GPUs, and learn from what happens.

    A single command goes after two dashes:

    \b
      dovetail run --on cpu,gpu -- python train.py --device {device}

    A plain command gets one CPU (-c N for more); jobs of a job file get what stands there. Options of a
    job hold for each job, over what its file gives; --retries and --memory for those that give none.
    """
    from dovetail import api
    from dovetail.cli.keep_order import KeepOrder
    from dovetail.cli.live_progress import LiveProgress
    from dovetail.model import Workload

    # Both want standard output, and a mixture would be neither.
    if keep_order and as_json:
        raise InputError(
            "found --keep-order with --json, expected one of them: both write to standard output"
        )
    options = None
    if any(given is not None for given in (csv, gantt, report, idle_watts, busy_watts)):
        # Before anything runs: a report that cannot be written must not be found after a day of work.
        from dovetail.cli.output import check_targets, watts_of  # else once all have run
        from dovetail.report.options import ReportOptions

        options = ReportOptions(watts=watts_of(idle_watts, busy_watts))
        check_targets(csv, gantt=gantt, folder=report)
    command, each, part = list(context.obj or []), given["each"], opt.part_of_options(given)
    is_bare = file is None and not (command or resume or retry_failed or "implementations" in part)
    if is_bare and is_input_given():
        file = "-"  # as 'submit' and sbatch read a here-document
    script = None if resume or file is None else _script_workload(file, context.obj, part, each)
    # These two hold for jobs that give none of their own, so they are not part of each job's spec.
    retries, memory = part.pop("retries", None), part.pop("memory", None)
    if resume and command:
        raise InputError("found --resume and a command after '--', expected one of them")
    if retry_failed is not None and (resume or command or file is not None):
        raise InputError("found --retry-failed and other jobs, expected one of them")
    # Words behind a script are the script's.
    if script is None and command and executor == "local" and not part.keys() & {"folder", "env"}:
        _check_program(command)
    follows = None if then is None else _split_then(then)
    of_commands = opt.reader_options(
        on=part.pop("on", None), app=part.pop("app", None), drop=drop, add=add, each=each
    )
    if retry_failed is not None:
        from dovetail.running.folder import find_run
        from dovetail.running.retrying import failed_jobs

        workload: str | Workload | None = failed_jobs(find_run(retry_failed, maps=False))
    else:
        workload = script or (None if resume else _make_workload(file, command, part, of_commands))
    # A workload that is built already has its options inside.
    if isinstance(workload, Workload):
        part, of_commands = {}, {"on": of_commands.get("on", ())}
    kept = KeepOrder() if keep_order else None
    ended = _Ended(as_json, csv, gantt, report, options, verbose=verbose, quiet=quiet, ordered=keep_order)
    # Inside of the block the terminal belongs to the progress, and notes go above it.
    with LiveProgress(hidden=quiet or keep_order) as progress:

        def note_started(session: Session) -> None:
            ended.folder, ended.session = session.folder, session
            if kept is not None:
                kept.started(session)

        def note_changed(engine: Engine) -> None:
            progress.changed(engine)
            if kept is not None:
                kept.changed(engine)

        if workload is None:
            what = "the run"
            found = api.resume(file, changed=note_changed, started=note_started, tell=print_note)
        else:
            what = file or "the command"
            found = api.run(
                workload,
                cluster=cluster,
                policy=policy,
                history=history,
                model=model,
                seed=seed,
                overrun=overrun,
                default_walltime=_read_seconds(default_walltime),
                run_dir=run_dir,
                grace=grace,
                executor=executor,
                cut_walltimes=cut_walltimes,
                at_once=jobs,
                retries=retries,
                memory=memory,
                halt=halt,
                neighbours=neighbours,
                changed=note_changed,
                started=note_started,
                tell=print_note,
                **of_commands,
                **part,
            )
    # After the block: what is left of ordered output must not be overwritten by the progress.
    if kept is not None:
        kept.rest()
    ended.show_results(found)
    status = ended.status(found.result, what, halted=halt != "never")
    # Last of all, but before what comes next, which may take long.
    if bell:
        ring_bell()
    if follows is not None:
        _start_after(follows, found.result, ended.folder, status)
    return status


def _split_then(text: str) -> list[str]:
    """The words of `--then`. Raises `InputError`."""
    from dovetail.programs.shell_words import split_words  # runs without --then do not wait for it
    from dovetail.workloads.commands import refuse_operators

    try:
        refuse_operators(split_words(text), "--then")
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"found {text!r}: {error}", where="--then") from None
    if not words:
        raise InputError("found nothing, expected a command", where="--then")
    return words


LONGEST_VARIABLE = 30_000
"""Characters of a variable: the kernel takes 128 KiB, and a character has up to four bytes."""


def _start_after(words: list[str], result: Result, folder: Path | None, status: int) -> None:
    """Run what comes after a run, wait for it, and note where it fails. Its exit status is not the run's."""
    from dovetail.report.run_summary import failure_lines, outcome_line

    counts = dict(sorted(Counter(str(record.state) for record in result.records).items()))
    outcome = make_printable(outcome_line(result))
    run = "" if folder is None else str(folder)
    text = "\n".join([outcome, *failure_lines(result), *([f"Outputs and journal: {run}"] if run else [])])
    about = {
        "DOVETAIL_RUN": run,
        "DOVETAIL_STATUS": str(status),
        "DOVETAIL_COUNTS": ",".join(f"{state}={count}" for state, count in counts.items()),
        "DOVETAIL_OUTCOME": outcome,
        "DOVETAIL_TEXT": text[:LONGEST_VARIABLE],
    }
    form = {"run": run, "status": status, "counts": counts, "outcome": outcome, "text": f"{text}\n"}
    try:
        # As a file rather than a pipe: a command that never reads would hold the run.
        with tempfile.TemporaryFile() as summary:
            summary.write(json.dumps(form).encode() + b"\n")
            summary.seek(0)
            # With the words as they are, and no shell: the user has split them already.
            done = subprocess.run(words, stdin=summary, env={**os.environ, **about}, check=False)
    except OSError as error:
        print_note(f"--then: {words[0]} cannot be started: {error.strerror}")
        return
    if done.returncode:
        print_note(f"--then: {words[0]} ended with exit status {done.returncode}")


@dataclass(slots=True)
class _Ended:
    """What is shown of a run that is over: the outcome first, what failed, where it lies, then the rest."""

    as_json: bool
    csv: Path | None
    gantt: Path | None
    report: Path | None
    options: ReportOptions | None
    verbose: bool
    quiet: bool
    ordered: bool
    folder: Path | None = None
    session: Session | None = None

    def show_results(self, found: Report) -> None:
        """Everything but the exit status. With ``--keep-order`` standard output is the jobs' alone."""

        from dovetail.cli.output import show_report, write_files
        from dovetail.report.run_summary import completion_remarks, failure_lines, outcome_line

        result = found.result
        if not self.as_json and result.records:
            # With --keep-order standard output belongs to the jobs alone.
            line = outcome_line(result, _on_cpus_alone(result, self.folder))
            print(line, file=sys.stderr if self.ordered else sys.stdout, flush=True)
        for line in failure_lines(result):
            print_note(line)
        for line in () if self.quiet else completion_remarks(result):
            print_note(line)
        if self.folder is not None and result.records and not self.quiet and not self.as_json:
            print_note(f"Outputs and journal of run {self._run_id()}: {self.folder}")
        if self.as_json or (result.records and not self.ordered):
            if not self.as_json:
                print(flush=True)
            show_report(
                found, as_json=self.as_json, csv=self.csv, gantt=self.gantt, folder=self.report,
                options=self.options, verbose=self.verbose,
            )  # fmt: skip
        else:
            write_files(found, csv=self.csv, gantt=self.gantt, folder=self.report, options=self.options)

    def status(self, result: Result, what: str, *, halted: bool) -> int:
        """The exit status by what became of the jobs, for scripts, with a line where more is to do."""

        from dovetail.cli.output import note_rejected
        from dovetail.driver.prepare import NO_NODE
        from dovetail.model import State
        from dovetail.report.run_summary import FAILED
        from dovetail.running.session import unfinished_jobs

        # In this order: an interrupt explains the cancelled jobs, so it is looked at before them.
        records = result.records
        failed = any(record.state in FAILED for record in records)
        cancelled = [record for record in records if record.state is State.CANCELLED]
        live = None if self.session is None else self.session.live
        if cancelled and live is not None and live.stopped:
            left = unfinished_jobs(self.folder) if self.folder else []
            if left:
                # With --halt the run ended as its user wished: no signal's status then.
                jobs, _, them = _count_words(len(left))
                print_note(f"{jobs} never started; 'dovetail run --resume {self._run_id()}' takes {them} up")
            return int(failed) if halted else 130
        stranded = sum(record.detail.startswith(NO_NODE) for record in cancelled)
        if stranded:
            jobs, _, them = _count_words(stranded)
            were = "was" if stranded == 1 else "were"
            print_note(
                f"{jobs} {were} cancelled: no node is left that could run {them}; "
                f"'dovetail run --resume {self._run_id()}' in another allocation takes {them} up"
            )
        late = sum(record.state is State.PENDING for record in records)
        if late:
            jobs, they, them = _count_words(late)
            over = live is not None and live.driver.engine.horizon.end <= live.driver.engine.view.now
            why = "the allocation ended" if over else f"{they} cannot end before the allocation does"
            print_note(
                f"{jobs} {'is' if late == 1 else 'are'} left: {why}; "
                f"'dovetail run --resume {self._run_id()}' in another one takes {them} up"
            )
        if failed or late or cancelled:
            return 1
        return 2 if note_rejected(result, what) else 0

    def _run_id(self) -> str:
        from dovetail.running.folder import read_about, short_id

        return short_id(read_about(self.folder).uid) if self.folder is not None else ""


def _count_words(count: int) -> tuple[str, str, str]:
    """So many jobs, and what they are called in the rest of the sentence."""
    from dovetail.report import wording

    return (wording.count_things(count, "job"), *(("it", "it") if count == 1 else ("they", "them")))


def _on_cpus_alone(result: Result, folder: Path | None) -> float | None:
    """The makespan that the CPUs alone would have needed, by what was measured and predicted.

    ``None`` where nothing ran elsewhere, some job did not complete, or too little is known.
    """
    from dovetail import api
    from dovetail.model import CPU, State

    records = result.records
    elsewhere = any(r.implementation is not None and r.implementation.kind != CPU for r in records)
    completed = all(record.state is State.COMPLETED for record in records)
    journals = list(folder.glob("journal*.jsonl")) if folder is not None else []
    if not elsewhere or not completed or len(records) > MOST_COMPARED or len(journals) != 1:
        return None
    if any(all(c.implementation.kind != CPU for c in record.job.choices) for record in records):
        return None
    try:
        alone = api.simulate(journals[0], cluster=result.cluster, policy="cpu-only")
    except InputError:
        return None  # nothing is known of how long the jobs take on a CPU
    if alone.result.rejected or any(
        r.implementation is None or r.implementation.kind != CPU for r in alone.result.records
    ):
        return None
    return alone.makespan


def _read_seconds(text: str | None) -> float | None:
    found = opt.read_walltime(text, simulated=False)
    assert not isinstance(found, str)
    return found


def _script_workload(
    file: str, arguments: object, part: PartialSpec, each: list[str] | None
) -> Workload | None:
    """The job of a batch script, or its array; ``None`` where the file is none. Raises `InputError`."""
    from dovetail.workloads.batch.opening import open_script

    script = open_script(file, os.environ)
    if script is None:
        return None
    if each:
        raise InputError("found it with a batch script, expected --array", where="--each")
    from dovetail.workloads.batch.workload import script_workload

    words = list(arguments) if isinstance(arguments, opt.ScriptArguments) else []
    found, sentences = script_workload(script, file, words, part)
    for sentence in sentences:
        print_note(sentence)
    return found


def _make_workload(
    file: str | None, command: list[str], part: PartialSpec, options: dict[str, Any]
) -> str | Workload:
    """What is to run: a file's name, or the jobs of a command. Raises `InputError`."""
    from dovetail.workloads.commands import command_workload, spec_workload

    commands = part.get("implementations")
    if command and commands:
        raise InputError("found --cpu or --gpu and a command after '--', expected one of them")
    if (command or commands) and file is not None:
        raise InputError(f"found the file {file} and a command after '--', expected one of them")
    if command:
        return command_workload(command, part, cpus=part.pop("cpus", None), **options)
    if commands:
        return spec_workload(next(iter(commands.values())), {**part, **_named_app(options)})
    if file is None:
        raise InputError("found no FILE, expected a job file, a list of commands, or a command after '--'")
    return file


def _check_program(command: list[str]) -> None:
    """Refuse a program that is not here. Raises `InputError`."""
    # What is in PATH, which is usual, waits for no guesses.
    if shutil.which(command[0]) is None:
        from dovetail.cli.meant import missing_program

        sentence = missing_program(command, "run")
        if sentence:
            raise InputError(sentence)


def _named_app(options: dict[str, Any]) -> PartialSpec:
    return {"app": options["app"]} if "app" in options else {}
