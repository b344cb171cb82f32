"""The statements of Gregg 2011 about Figures 3 to 5, beside this machine's own runs.

The figures rest on the devices and on the apps' sizes: another machine finds others. Where a reference stands
beside the others' claims, here stands the simulation with the times that were measured.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dovetail.model import Seconds
from dovetail.report.intervals import Interval
from dovetail_lab.claims import Claim, Verdict, judge_match, judge_order
from dovetail_lab.gregg.live import PLACEMENTS, Live
from dovetail_lab.study import Table, few_draws_note, format_interval

RESTS_ON = ("tolerance", "live_sizes")
RESTS_ON_TIMES = ("tolerance", "gpu_cost", "cpu_cost")


def live_claims(found: Live, near: float) -> tuple[Claim, ...]:
    """All of them, in the paper's order; of Figure 5 where two apps or more are faster on the device."""

    def relative_saving(one: Seconds, other: Seconds) -> float:
        return 1 - one / other

    made = [
        _paired_claim(
            found,
            "Live: untrained rules take longer than GPU only (Fig. 2)",
            "longer",
            ("cold", "gpu-only"),
            lambda one, other: one / other - 1,
            lambda ours: judge_order([ours]),
        )
    ]
    for against, words, paper in (("static", "static placement", 0.29), ("gpu-only", "GPU only", 0.39)):
        text = f"Live: the dynamic rules take {paper * 100:.0f} % less than {words} (Fig. 3)"
        near_it = partial(judge_match, paper, nothing=0.0, tolerance=near)
        made.append(
            _paired_claim(found, text, f"{paper:.0%}", ("dynamic", against), relative_saving, near_it)
        )
    made.append(
        _utilisation_claim(found, "static placement uses 17 % of the CPU (Fig. 4(a))", "static", 0.17, near)
    )
    made.append(
        _utilisation_claim(found, "the dynamic rules use 67 % of it (Fig. 4(b))", "dynamic", 0.67, near)
    )
    if "dynamic-5" in found.rounds:
        many = len(found.faster)
        made.append(
            _paired_claim(
                found,
                f"Live: on {many} that are faster on the device, it alone takes 1.33 times as long (Fig. 5)",
                "1.33, on thirteen",
                ("gpu-only-5", "dynamic-5"),
                lambda one, other: one / other,
                lambda ours: judge_match(1.33, ours, 1.0, near),
                format_interval,
            )
        )
        made.append(
            _utilisation_claim(found, "... and the CPU is used 90 % (Fig. 5(b))", "dynamic-5", 0.90, near)
        )
    return tuple(made)


def _paired_claim(
    found: Live,
    text: str,
    paper: str,
    names: tuple[str, str],
    value: Callable[[Seconds, Seconds], float],
    verdict: Callable[[Interval | None], Verdict],
    words: Callable[[Interval | None], str] | None = None,
) -> Claim:
    ran, simulated = found.paired_figures(*names, value)
    words = words or _percent_text
    return _make_claim(found, text, paper, f"{words(simulated)} simulated", words(ran), verdict(ran))


def _utilisation_claim(found: Live, text: str, name: str, paper: float, near: float) -> Claim:
    ran = found.mean_over_rounds(name, lambda one: one.cpu)
    simulated = _percent_text(found.mean_over_rounds(name, lambda one: one.simulated_cpu))
    # What static placement leaves to the CPU differs between machines: no share of it stands for "no effect".
    verdict = judge_match(paper, ran, None, near)
    return _make_claim(
        found, f"Live: {text}", f"{paper:.0%}", f"{simulated} simulated", _percent_text(ran), verdict
    )


def _make_claim(found: Live, text: str, paper: str, reference: str, ours: str, verdict: Verdict) -> Claim:
    if found.times is not None:
        clock = f"+{found.times.gpu_cost:g} s GPU, +{found.times.cpu_cost:g} s CPU"
        text = text.replace("Live: ", "Live, the paper's times: ", 1)
        return Claim(text, paper, reference, ours, verdict, RESTS_ON_TIMES, {clock: verdict}, "live")
    where = f"this machine ({found.machine})"
    return Claim(text, paper, reference, ours, verdict, RESTS_ON, {where: verdict}, "live")


def _percent_text(found: Interval | None) -> str:
    if found is None:
        return "-"
    half = "" if found.half_width is None else f" ± {100 * found.half_width:.0f}"
    return f"{100 * found.mean:.0f}{half} %"


def live_table(found: Live) -> Table:
    """Measured, simulated, the paper's; a row for each placement."""
    rows = []
    for p in PLACEMENTS:
        if p.name not in found.rounds:
            continue
        many = len(found.faster) if p.figure == 5 else len(found.alone)
        share = found.mean_over_rounds(p.name, lambda one: one.cpu)
        rows.append(
            (
                f"Fig. {p.figure}, {many}",
                p.name.removesuffix("-5"),
                "" if p.paper is None else f"{p.paper:.1f}",
                format_interval(found.mean_over_rounds(p.name, lambda one: one.seconds / found.scale)),
                format_interval(found.mean_over_rounds(p.name, lambda one: one.simulated / found.scale)),
                format_interval(found.mean_over_rounds(p.name, lambda one: one.slower)),
                "" if p.paper_cpu is None else f"{p.paper_cpu:.0%}",
                "-" if share is None else f"{share.mean:.0%}",
            )
        )
    rounds = max(map(len, found.rounds.values()))
    where = (
        f"On {found.machine}; GPU stands for its {found.device}. "
        if found.times is None
        else f"Programs that take the times of Table 2 (+{found.times.gpu_cost:g} s on the GPU, "
        f"+{found.times.cpu_cost:g} s on the CPU) times {found.scale:g}, and compute nothing: this "
        "tests scheduler, driver and overhead, not kernels. Seconds are the paper's. "
    )
    note = where + (
        f"Seconds of {rounds} rounds with their 95 % "
        "interval, each in another order of the queue; simulated: the same orders with the median times of "
        "the apps alone; slower: by what factor the apps took longer than these. cold: the dynamic rules "
        "with an empty history; dynamic: after the runs on the CPU only and on the GPU only. Figure 5: what "
        f"was faster on the device in the first round ({', '.join(found.faster) or 'none'})."
    )
    if "dynamic-5" not in found.rounds:
        note += " With less than two of them there is nothing to place."
    columns = ("figure, apps", "placement", "paper s", "live s", "simulated s", "slower", "paper CPU", "CPU")
    title = "Figures 3 to 5, live" + ("" if found.times is None else ", with the paper's times")
    return Table(title, columns, tuple(rows), names=2, note=note + few_draws_note(rounds))
