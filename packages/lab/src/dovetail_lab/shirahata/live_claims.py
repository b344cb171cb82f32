"""What Shirahata 2010 states about Figures 6 to 8, beside maps on a cluster here, and the table of these.

Where a reference stands beside the others' claims, here stands the simulation of the same maps.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.report.intervals import Interval, mean_interval
from dovetail_lab.claims import Chosen, Claim, Verdict, all_of, at_most, judge_match, judge_readings
from dovetail_lab.shirahata.live import BY, PAPER, Live, LiveMap
from dovetail_lab.study import Table, few_draws_note, format_interval

COLUMNS = (
    "tasks",
    "policy",
    "nodes",
    "workers",
    "makespan, live",
    "simulated",
    "split, live",
    "simulated ",
    "first phase, live",
    "simulated  ",
    "CPU task",
    "GPU task",
)


def live_table(found: Live) -> Table:
    """A row for each map: live and simulated; of several rounds the means, and the split of the first."""
    rows = []
    for one in found.rounds[0]:
        key = {name: getattr(one, name) for name in ("tasks", "by", "policy", "nodes")}
        means = [
            format_interval(found.each_round(lambda m, kind=kind: m.means[kind], **key))  # type: ignore[misc]
            if kind in one.means
            else "-"
            for kind in ("cpu", "gpu")
        ]
        rows.append(
            (
                f"{one.tasks}, {one.by}",
                one.policy,
                str(one.nodes),
                _split_text(one.slots),
                format_interval(found.each_round(lambda m: m.makespan, **key)),
                f"{one.simulated_makespan:.2f}",
                _split_text(one.split),
                _split_text(one.simulated_split),
                format_interval(found.each_round(lambda m: m.first_phase, **key)),
                f"{one.simulated_first_phase:.2f}",
                *means,
            )
        )
    shapes = ", ".join(f"{cpus}+{gpus}" for cpus, gpus in found.shapes)
    rounds = len(found.rounds)
    note = (
        f"Live on {found.nodes} nodes of {found.engine} on this host ({shapes} CPUs+GPUs, of which no GPU is "
        f"real): {PAPER} are 77.4 s and 27.9 s times {found.scale:g} and compute nothing, which tests rule, "
        "engine and overhead; K-means computes, its second kind of worker by a matrix product, all on the "
        "host's own cores. Workers and splits are CPU+GPU. Simulated: the same workers and rule with the "
        "times that tasks were to take, of K-means with those measured. The first phase ends with the first "
        f"task of each kind. Seconds; rounds: {rounds}."
    )
    return Table(
        f"Figures 6 to 8 in small, live on {found.engine} and simulated",
        COLUMNS,
        tuple(rows),
        names=2,
        note=note + few_draws_note(rounds),
    )


def _split_text(split: Mapping[str, int]) -> str:
    return "+".join(str(split.get(kind, 0)) for kind in ("cpu", "gpu"))


def live_claims(found: Live, chosen: Chosen) -> tuple[Claim, ...]:
    """What can be seen with so few nodes; the readings are programs and functions."""
    near, hardly = chosen.number("tolerance"), chosen.number("hardly")
    ways = [way for way in BY if any(one.by == way for one in found.rounds[0])]
    most = max(one.nodes for one in found.rounds[0])
    made = [
        _speedup_claim(found, "hadoop-gpu2 is", "hadoop-gpu2", 1.13, most, ways, near),
        _speedup_claim(found, "the proposal is", "shares", 1.93, most, ways, near),
        _hardly_claim(found, most, ways, hardly),
    ]
    apart = [f"{way}: {format_interval(_mean_ratio(found, way))}" for way in ways]
    made.append(
        Claim(
            f"Live, {found.engine}: makespan over that of the simulation",
            "-",
            "1",
            "; ".join(apart),
            Verdict.UNSAID,
            basis="live",
        )
    )
    return tuple(made)


def _mean_ratio(found: Live, way: str) -> Interval | None:
    """Live over simulated, over all maps with the paper's times."""

    def ratio(one: LiveMap) -> float:
        return one.makespan / one.simulated_makespan

    return mean_interval(
        ratio(one) for maps in found.rounds for one in maps if (one.tasks, one.by) == (PAPER, way)
    )


def _speedup_claim(
    found: Live, words: str, policy: str, paper: float, nodes: int, ways: list[str], near: float
) -> Claim:
    live = {way: found.speedup(policy, nodes, way) for way in ways}
    simulated = found.speedup(policy, nodes, ways[0], simulated=True)
    readings = {f"by {way}": judge_match(paper, one, 1.0, near) for way, one in live.items()}
    return Claim(
        f"Live, {found.engine}: {words} {paper:g} times faster than hadoop (Figure 6; {nodes} "
        "nodes, paper 64)",
        f"{paper:g}",
        f"{format_interval(simulated)} simulated",
        "; ".join(f"{format_interval(one)} by {way}" for way, one in live.items()),
        judge_readings(readings),
        ("tolerance", "factor"),
        readings,
        basis="live",
    )


def _hardly_claim(found: Live, nodes: int, ways: list[str], hardly: float) -> Claim:
    more = {Verdict.YES: Verdict.NO, Verdict.NO: Verdict.YES}
    readings, words = {}, []
    for way in ways:
        one = found.speedup("finish-time-gpu1", nodes, way)
        two = found.speedup("finish-time", nodes, way)
        second = at_most(1 + hardly, two)
        readings[f"by {way}"] = all_of([at_most(1 + hardly, one), more.get(second, second)])
        words.append(f"{format_interval(one)} and {format_interval(two)} by {way}")
    sides = [
        format_interval(found.speedup(policy, nodes, ways[0], simulated=True))
        for policy in ("finish-time-gpu1", "finish-time")
    ]
    return Claim(
        f"Live, {found.engine}: one GPU is hardly better than none, two are (Figure 8; read: at most "
        f"{hardly:.0%})",
        "as stated",
        f"{' and '.join(sides)} simulated",
        "; ".join(words),
        judge_readings(readings),
        ("hardly", "factor"),
        readings,
        basis="live",
    )
