"""Says how well models predict what `measure.py` measured.

    python benchmarks/prediction/judge.py benchmarks/prediction/*.jsonl.gz

Every run is predicted from what had run before it, as `dovetail run` would have done: *next*; and from all of
that but the runs of its own inputs: *unseen*. Beside the errors stands the floor: by how much two runs of the
same inputs differ, which no model can know, in the median and at worst from one run to the next. The same is
said of CPU times alone: what is left of an error there is the law's, not that of the load.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from dovetail.history import MemoryHistory
from dovetail.history.base import canonical_inputs, request_key
from dovetail.history.exchange import read_json_lines
from dovetail.interfaces import History
from dovetail.model import Run
from dovetail.runtimes import make_model
from dovetail.runtimes.base import HistoryModel, Query, key_of
from dovetail.runtimes.learned import LearnedModel

PASSES = 4


class RunTimesAlone(LearnedModel):
    """`learned` without CPU times."""

    by_cpu_time = False


MODELS: dict[str, Callable[[History], HistoryModel]] = {
    "learned": LearnedModel,
    "run times alone": RunTimesAlone,
    "least-squares": lambda history: make_model("least-squares", history),
}


@dataclass(frozen=True, slots=True)
class Judged:
    """A run, its pass from 1, how many runs of its app came before, and what was predicted."""

    run: Run
    turn: int
    before: int
    expected: float
    inside: bool

    @property
    def error(self) -> float:
        """Relative to the actual time."""
        return abs(self.expected / self.run.seconds - 1)

    @property
    def factor(self) -> float:
        """The larger of the two over the smaller."""
        return math.exp(abs(math.log(self.expected / self.run.seconds)))


def load(path: str | Path) -> list[Run]:
    """The runs of a file, in their order."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return list(read_json_lines(lines, str(path)))


def judge(
    runs: Sequence[Run],
    model: Callable[[History], HistoryModel],
    *,
    unseen: bool,
    turns: Sequence[int] = range(1, PASSES + 1),
) -> list[Judged]:
    """What the model would have said of each run of these passes, where it knew anything."""
    found: list[Judged] = []
    history = MemoryHistory()
    grown = model(history)
    for i, run in enumerate(runs):
        turn = i * PASSES // len(runs) + 1
        before = history.count(run.app, run.implementation, run.device_class)
        if turn in turns and before:
            other = grown
            if unseen:
                same = (run.app, key_of(run))
                other = model(MemoryHistory(r for r in runs[:i] if (r.app, key_of(r)) != same))
            answer = other.ask(
                Query(
                    run.app,
                    run.implementation,
                    run.device_class,
                    request_key(run),
                    canonical_inputs(run.inputs),
                )
            )
            if answer is not None:
                inside = answer.lower <= run.seconds <= answer.upper
                found.append(Judged(run, turn, before, answer.expected, inside))
        history.record(run)
    return found


def floor(runs: Sequence[Run]) -> float:
    """Median relative difference of two runs of the same inputs."""
    by_key: dict[object, list[float]] = {}
    for run in runs:
        by_key.setdefault((run.app, key_of(run)), []).append(run.seconds)
    pairs = [pair for times in by_key.values() for pair in itertools.permutations(times, 2)]
    return median(abs(one - other) / other for one, other in pairs)


def swing(runs: Sequence[Run]) -> float:
    """The largest factor between a run and the next one of the same inputs."""
    last: dict[object, float] = {}
    worst = 1.0
    for run in runs:
        key = (run.app, key_of(run))
        worst = max(worst, run.seconds / last.get(key, run.seconds), last.get(key, run.seconds) / run.seconds)
        last[key] = run.seconds
    return worst


def of_cpu_time(runs: Sequence[Run]) -> list[Run]:
    """The same runs, each as long as its CPU time: as if nothing else had run beside them."""
    return [replace(run, seconds=run.usage.cpu_time) for run in runs if run.usage and run.usage.cpu_time]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    for path in parser.parse_args().files:
        runs = load(path)
        print(
            f"{path.name}: {len(runs)} runs; two of the same inputs differ by {floor(runs):.1%}, "
            f"one from the next by up to x {swing(runs):.2g}"
        )
        print(f"  {'':<17}{'':<8}{'pass 2':>8}{'pass 3':>8}{'pass 4':>8}{'inside':>8}{'worst':>8}{'> x5':>6}")
        cases = [(name, runs, model) for name, model in MODELS.items()]
        for name, judged, model in [*cases, ("CPU times", of_cpu_time(runs), LearnedModel)]:
            for unseen in (True, False):
                rows = judge(judged, model, unseen=unseen)
                errors = [median(row.error for row in rows if row.turn == turn) for turn in (2, 3, 4)]
                later = [row for row in rows if row.before >= 2]
                print(
                    f"  {name:<17}{'unseen' if unseen else 'next':<8}"
                    + "".join(f"{error:>8.1%}" for error in errors)
                    + f"{sum(row.inside for row in later) / len(later):>8.0%}"
                    + f"{'x ' + format(max(row.factor for row in later), '.2g'):>8}"
                    + f"{sum(row.factor > 5 for row in later):>6}"
                )


if __name__ == "__main__":
    main()
