"""``dovetail forecast``: between when and when jobs of a Slurm cluster start; nothing is changed there."""

from __future__ import annotations

import getpass
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.cli import options as opt
from dovetail.cli.service import format_clock, print_json
from dovetail.errors import DovetailError, InputError
from dovetail.files.reading import read_text
from dovetail.files.writing import replace_file
from dovetail.plugins import load_named

if TYPE_CHECKING:
    from dovetail.starts.calibration import Calibration
    from dovetail.starts.slurm import SlurmCluster, SlurmJob
    from dovetail.starts.slurm_rules import SlurmRules

WEEKS = "now-28days"
MOST_REMEMBERED = 100
"""Of the jobs that are new in a call so many are remembered, evenly over the line."""


class Outlook(NamedTuple):
    """Seconds since the epoch."""

    low: float
    middle: float
    high: float


@opt.takes_options("forecast")
def forecast(
    *,
    slurm: bool,
    user: str | None,
    job: str | None,
    if_: str | None,
    squeue: Path | None,
    nodes: Path | None,
    sacct: Path | None,
    partitions: Path | None,
    config: Path | None,
    sprio: Path | None,
    as_json: bool,
) -> int:
    """Forecast when waiting jobs start, on a Slurm cluster that need not run Dovetail.

    Only reads: squeue, scontrol show, sacct, sprio, or files of what they print. Keeps its own forecasts and
    what became of them, and corrects the next ones by that.
    """
    from dovetail.starts import slurm as state
    from dovetail.starts import slurm_rules

    if not slurm and squeue is None:
        raise InputError("found neither --slurm nor --squeue, expected one of them", where="forecast")
    queue_text = _read_text_or_run(squeue, "squeue", "-a", "-r", "-t", "all", "-o", state.SQUEUE)
    cluster = state.SlurmCluster(
        state.read_nodes(
            _read_text_or_run(nodes, "scontrol", "show", "nodes"), _source_name(nodes, "scontrol")
        )
    )
    jobs = state.read_squeue(queue_text, _source_name(squeue, "squeue"))
    call = ("-a", "-X", "--parsable2", "-S", WEEKS, "--format", state.SACCT)
    notes: list[str] = []
    ended = []
    rules = _read_rules(
        {"partition": partitions, "config": config, "sprio": sprio}, live=squeue is None, notes=notes
    )
    # Without accounting there is still a forecast, by walltimes: a missing file that was named is an error.
    try:
        ended = state.read_accounting(_read_text_or_run(sacct, "sacct", *call), _source_name(sacct, "sacct"))
    except DovetailError as error:
        if sacct is not None:
            raise
        notes.append(f"no accounting ({error}): run times are walltimes, and what ended of late")
        ended = state.ended_jobs(jobs)
    # A recorded queue has its own present; judging it by the clock would shift every wait.
    now = _current_moment(squeue, jobs)
    draws = state.draws_of(cluster, ended, jobs, now)
    calibration = _load_calibration()
    # Starts that were forecast at an earlier call are judged first: they teach the correction.
    for one in jobs:
        if (one.hosts or (one.state in state.ENDED and one.ran)) and one.start is not None:
            calibration.start(one.id, one.start)
    for past in ended:
        if past.job.start is not None:
            calibration.start(past.job.id, past.job.start)
    still = {one.id for one in jobs if one.state not in state.ENDED}
    for key in calibration.waiting_keys:
        # It left the queue without a start that we could see, so its forecast has no outcome.
        if key not in still:
            calibration.drop_forecast(key)
    wanted = None
    if if_ is not None:
        default = slurm_rules.default_partition(rules, cluster)
        wanted = rules.complete_job(state.job_of_sbatch(if_, user or getpass.getuser(), now, default))
        if rules.refusal_reason(wanted):
            raise InputError(rules.refusal_reason(wanted), where="--if")
    # Jobs that no roll-out can place are listed without a start, rather than left out.
    situation, unknown = cluster.current_situation(
        jobs, now, rules.policy, rules.tier_of_job, rules.is_closed
    )
    starts = draws.starts(situation)
    found: list[dict[str, Any]] = []
    by_id = {one.id: one for one in jobs}

    def is_chosen(one: SlurmJob) -> bool:
        # A number is a job or its whole array, as in Slurm's own commands.
        return job in (None, one.id, one.array) and user in (None, one.user)

    ids = [str(queued.key) for queued in situation.waiting]
    for id, seen in zip(ids, _make_outlooks(starts, calibration, now, ids), strict=True):
        if is_chosen(by_id[id]) and wanted is None:
            found.append(_forecast_row(by_id[id], seen))
    if wanted is None:
        found += [_forecast_row(by_id[id], None) for id in unknown if is_chosen(by_id[id])]
        if job is not None and not found:
            raise InputError(f"found no waiting job {job}", where="--job")
    chosen = wanted or next((by_id[row["id"]] for row in found if job is not None), None)
    sooner = (
        []
        if chosen is None or chosen.hosts
        else _find_sooner(chosen, cluster, rules, draws, jobs, calibration, now)
    )
    # The job itself is the first of the variants, by the same draws, so differences are not chance.
    if wanted is not None:
        found = [sooner.pop(0)["job"]]
    _save_calibration(calibration)
    about: dict[str, Any] = {
        "rules": rules.assumption_sentences(),
        "notes": notes,
        "judged": calibration.judged,
        "missed_below": calibration.missed_below,
        "missed_above": calibration.missed_above,
        "ended_jobs": len(ended),
    }
    if as_json:
        print_json({"now": now, "jobs": found, "sooner": sooner, **about})
        return 0
    for row in found:
        print(f"{row['id']}  {row['user']}  {row['partition']}  {_forecast_words(row, now)}")
    for other in sooner:
        same = "" if other["differs"] else " (no difference can be shown)"
        print(f"with {other['with']}: {_forecast_words(other['job'], now)}{same}")
    if not found:
        print("No job waits.")
    hits = calibration.judged - calibration.missed_below - calibration.missed_above
    print(
        f"so far here {hits} of {calibration.judged} intervals held"
        if calibration.judged
        else "not calibrated here yet"
    )
    for line in (*notes, *(f"assumed: {rule}" for rule in about["rules"])):
        print(line)
    return 0


def _forecast_words(row: dict[str, Any], now: float) -> str:
    if row["predicted_start"] is None:
        return "unknown"
    low, high = format_clock(row["predicted_start_low"], now), format_clock(row["predicted_start_high"], now)
    return f"between {low} and {high} ({100 * row['confidence']:.0f} %)"


def _forecast_row(job: SlurmJob, seen: Outlook | None) -> dict[str, Any]:
    from dovetail.starts.calibration import CONFIDENCE

    low, middle, high = (None, None, None) if seen is None else seen
    return {
        "id": job.id,
        "user": job.user,
        "partition": job.partition,
        "walltime": job.walltime,
        "predicted_start": middle,
        "predicted_start_low": low,
        "predicted_start_high": high,
        "confidence": None if seen is None else CONFIDENCE,
        "slurm_start": job.start,
        "reason": job.reason,
    }


def _make_outlooks(
    starts: Any, calibration: Calibration, now: float, remembered: Sequence[str] = ()
) -> list[Outlook]:
    """Of each column of starts; some of the jobs ``remembered``, which are new, are judged later."""
    import numpy as np

    from dovetail.starts.calibration import MINUTE, log_wait, spread_of
    from dovetail.starts.rolling import waits_as_logs

    if not starts.shape[1]:
        return []
    bounds = np.quantile(waits_as_logs(starts), (0.05, 0.5, 0.95), axis=0)
    middles = bounds[1]
    spreads = np.array([spread_of(low, high) for low, high in bounds[::2].T.tolist()])
    low, high = middles + calibration.line_corrections(now, middles) * spreads
    low = np.maximum(low, log_wait(0.0))
    waits = np.maximum(np.exp(np.array([low, middles, high])) - MINUTE, 0.0)
    # Those of a long queue would leave no room in the calibration's window for outcomes that are known.
    known = set(calibration.waiting_keys)
    new = [place for place, id in enumerate(remembered) if id not in known]
    for place in new[:: -(-len(new) // MOST_REMEMBERED) or 1]:
        calibration.make_forecast(remembered[place], now, float(middles[place]), float(spreads[place]))
    return [Outlook(*row) for row in (now + waits).T.tolist()]


def _find_sooner(
    job: SlurmJob,
    cluster: SlurmCluster,
    rules: SlurmRules,
    draws: Any,
    jobs: list[SlurmJob],
    calibration: Calibration,
    now: float,
) -> list[dict[str, Any]]:
    """The job itself, then what its owner could request instead, by the same draws."""
    import numpy as np

    from dovetail.starts.slurm import job_alternatives
    from dovetail.starts.slurm_rules import allowed_jobs

    found: list[dict[str, Any]] = []
    plain = None
    for words, one in (("as it is", job), *allowed_jobs(rules, job_alternatives(job, cluster))):
        others = (other for other in jobs if other.id != job.id)
        situation, _ = cluster.current_situation(
            [*others, one], now, rules.policy, rules.tier_of_job, rules.is_closed
        )
        places = [place for place, queued in enumerate(situation.waiting) if queued.key == one.id]
        if not places:
            if plain is None:
                raise InputError("no node that is in use could run it", where="forecast")
            continue
        starts = draws.starts(situation, places[0])[:, places[0]]
        (seen,) = _make_outlooks(starts[:, None], calibration, now)
        if plain is None:
            plain = starts
        share = float(np.mean(starts < plain - 60.0)) - float(np.mean(starts > plain + 60.0))
        found.append({"with": words, "job": _forecast_row(one, seen), "differs": share > 0.5})
    return found if job.id == "this" else found[1:]


def _read_text_or_run(path: Path | None, *command: str) -> str:
    """What a file holds, or a command prints. Raises `DovetailError`."""
    if path is not None:
        return read_text(path)
    # Who calls the commands of a batch system is the part of Dovetail that is for it.
    printed: str = load_named("dovetail.executors", "slurm-queue", "executor").read_table(command)
    return printed


def _source_name(path: Path | None, command: str) -> str:
    return command if path is None else str(path)


def _current_moment(squeue: Path | None, jobs: Sequence[SlurmJob]) -> float:
    """This moment; of a file of the queue when it was printed, by what runs, else when it was written."""
    if squeue is None:
        return time.time()
    # A copy of a file is newer than what is in it.
    moments = [
        job.start + job.ran for job in jobs if job.state == "RUNNING" and job.start is not None and job.ran
    ]
    return median(moments) if moments else squeue.stat().st_mtime


def _read_rules(files: dict[str, Path | None], *, live: bool, notes: list[str]) -> SlurmRules:
    """The cluster's rules from files, or from its commands; what could not be read is noted."""
    from dovetail.starts.slurm_rules import SPRIO, SlurmRules, read_config, read_partitions, read_sprio

    calls: dict[str, tuple[str, ...]] = {
        "partition": ("scontrol", "show", "partition"),
        "config": ("scontrol", "show", "config"),
        "sprio": ("sprio", "-o", SPRIO),
    }
    texts = dict.fromkeys(calls, "")
    for name, path in files.items():
        if path is None and not live:
            continue
        try:
            texts[name] = _read_text_or_run(path, *calls[name])
        except DovetailError as error:
            if path is not None:
                raise
            if name != "sprio":  # which only a cluster has that weighs priorities
                notes.append(f"no rules of '{' '.join(calls[name])}' ({error})")
    return SlurmRules(
        read_partitions(texts["partition"], _source_name(files["partition"], "scontrol"))
        if texts["partition"]
        else {},
        read_config(texts["config"], _source_name(files["config"], "scontrol")) if texts["config"] else {},
        read_sprio(texts["sprio"], _source_name(files["sprio"], "sprio")) if texts["sprio"] else {},
    )


def _calibration_file() -> Path:
    """Where forecasts and outcomes are kept, one file a cluster."""
    from dovetail.client.folder import default_service_folder

    name = os.environ.get("SLURM_CLUSTER_NAME", "slurm")
    return default_service_folder().parent / f"forecast-{name}.json"


def _load_calibration() -> Calibration:
    from dovetail.starts.calibration import Calibration

    found, path = Calibration(), _calibration_file()
    if path.exists():
        try:
            found.restore_state(json.loads(path.read_text()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"found no forecasts that can be read ({error}): delete it", where=str(path)
            ) from error
    return found


def _save_calibration(calibration: Calibration) -> None:
    path = _calibration_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(calibration.as_dict()))
