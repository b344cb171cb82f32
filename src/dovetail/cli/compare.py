"""``dovetail compare``: several policies, seeds and loads side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from dovetail import api
from dovetail.cli import options as opt
from dovetail.cli.output import Asked, check_targets, note, show_comparison
from dovetail.cli.parallel import Task, simulate_all
from dovetail.errors import InputError
from dovetail.model import Result, State
from dovetail.plugins import load_policy
from dovetail.runtimes.registry import DEFAULT_MODEL

__all__ = ["compare"]


def compare(
    file: opt.Source,
    policy: Annotated[
        str, typer.Option(metavar="A,B,…", help="Policies, joined by commas.")
    ] = "history,best-device",
    cluster: opt.Cluster = None,
    seed: opt.Seed = None,
    seeds: Annotated[int | None, typer.Option(min=1, metavar="N", help="Seeds 1 to N.")] = None,
    loads: Annotated[
        str | None, typer.Option(metavar="X,Y,…", help="Scale to these offered loads, e.g. 0.8,0.9,1.0.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Processes. Default: one for each CPU.")
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Really run, one policy after the other.")] = False,
    knowledge: opt.Known = None,
    model: opt.Model = DEFAULT_MODEL,
    history: opt.HistoryFile = None,
    overrun: opt.AtWalltime = opt.Overrun.kill,
    default_walltime: opt.DefaultWalltime = None,
    rates: opt.Rates = None,
    cpus_per_node: opt.CpusPerNode = None,
    on: opt.On = None,
    lenient: opt.Lenient = False,
    by: opt.Breakdowns = None,
    warmup: opt.Warmup = None,
    cooldown: opt.Cooldown = None,
    reference: opt.Reference = None,
    as_json: opt.Json = False,
    report: opt.ReportFolder = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one HTML page.")] = None,
    quiet: opt.Quiet = False,
) -> int:
    """Run or simulate a workload under several policies and put them side by side."""
    policies = _policies(policy)
    if seed is not None and seeds is not None:
        raise InputError("found --seed and --seeds, expected one of them")
    check_targets(html, folder=report)
    asked = Asked(opt.cut(warmup, cooldown), [name.value for name in by or ()])
    if html is not None and loads is not None and "," in loads:
        raise InputError(
            "found several loads, expected one; --report FOLDER makes a page for each", where="--html"
        )
    study = Study(policies, [seed] if seeds is None else list(range(1, seeds + 1)), _loads(loads), reference)
    common: dict[str, Any] = {
        "cluster": cluster,
        "model": model,
        "history": history,
        "overrun": overrun.value,
        "on": opt.kinds(on),
        **opt.reader_options(cpus_per_node=cpus_per_node),
    }
    hidden = quiet or as_json
    if live:
        common["default_walltime"] = opt.walltime(default_walltime, simulated=False)
        found = _live(study, file, common, hidden)
    else:
        common |= {
            "default_walltime": opt.walltime(default_walltime, simulated=True),
            "knowledge": None if knowledge is None else knowledge.value,
            "rates": rates,
            "lenient": lenient,
        }
        tasks: list[Task] = [(file, {**common, **case.options}) for case in study.cases()]
        found = dict(zip(study.cases(), simulate_all(tasks, workers, hidden=hidden), strict=True))
    results = [found[case] for case in study.shown()]
    references = [] if reference is None else [found[case.under(reference)] for case in study.shown()]
    show_comparison(results, as_json=as_json, folder=report, html=html, asked=asked, references=references)
    failed = live and any(
        r.state in (State.FAILED, State.TIMEOUT) for result in results for r in result.records
    )
    return 1 if failed else 0


@dataclass(frozen=True, slots=True)
class Case:
    """One simulation of a study."""

    policy: str
    seed: int | None
    load: float | None

    @property
    def options(self) -> dict[str, Any]:
        """As options of `api.simulate_result`."""
        return {"policy": self.policy, "seed": self.seed, "load": self.load}

    def under(self, policy: str) -> Case:
        """The same under another policy."""
        return Case(policy, self.seed, self.load)


@dataclass(frozen=True, slots=True)
class Study:
    """All policies at all loads with all seeds; the reference policy too, if there is one."""

    policies: Sequence[str]
    seeds: Sequence[int | None]
    loads: Sequence[float | None]
    reference: str | None

    def shown(self) -> list[Case]:
        """What is compared: by load, then policy, then seed."""
        return [Case(p, s, x) for x in self.loads for p in self.policies for s in self.seeds]

    def cases(self) -> list[Case]:
        """What is simulated, the reference last where it is not compared itself."""
        extra = [Case(self.reference, s, x) for x in self.loads for s in self.seeds] if self.reference else []
        return list(dict.fromkeys([*self.shown(), *extra]))

    def __post_init__(self) -> None:
        if self.reference is not None:
            load_policy(self.reference)


def _policies(text: str) -> list[str]:
    """Names, each checked before anything runs; raises `InputError`."""
    names = [name.strip() for name in text.split(",")]
    labels: set[str] = set()
    for name in names:
        label = load_policy(name).label
        if label in labels:
            raise InputError(f"found {label} twice, expected each policy once", where="--policy")
        labels.add(label)
    return names


def _loads(text: str | None) -> list[float | None]:
    if text is None:
        return [None]
    loads: list[float | None] = []
    for part in text.split(","):
        try:
            load = float(part)
        except ValueError:
            load = math.nan
        if not (math.isfinite(load) and load > 0):
            raise InputError(
                f"found {part.strip()!r}, expected loads above 0 joined by commas, e.g. 0.8,0.9,1.0",
                where="--loads",
            )
        if load in loads:
            raise InputError(f"found {load:g} twice, expected each load once", where="--loads")
        loads.append(load)
    return loads


def _live(study: Study, file: str, common: dict[str, Any], hidden: bool) -> dict[Case, Result]:
    if study.loads != [None]:
        raise InputError("found --loads with --live, expected it in simulation only")
    if study.reference is not None and study.reference not in study.policies:
        raise InputError("with --live expected one of the policies that are compared", where="--reference")
    cases = [Case(p, s, None) for s in study.seeds for p in study.policies]
    return dict(_really_run(cases, file, common, hidden))


def _really_run(
    cases: Sequence[Case], file: str, common: dict[str, Any], hidden: bool
) -> Iterator[tuple[Case, Result]]:
    for case in cases:
        if not hidden:
            note(f"running under {case.policy}" + ("" if case.seed is None else f", seed {case.seed}"))
        result = api.run(file, policy=case.policy, seed=case.seed, **common).result
        if any(r.state is State.CANCELLED for r in result.records):
            raise KeyboardInterrupt
        yield case, result
