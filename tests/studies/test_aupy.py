"""What Aupy 2013 says of its figures: golden points, and verdicts that can come out each way."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from verdicts_page import texts

from dovetail.cli.main import status_of
from dovetail.errors import InputError
from dovetail_lab.aupy import study as aupy
from dovetail_lab.aupy.claims import make_claims
from dovetail_lab.aupy.found import ALGORITHMS, FULL, MEASURES, SETS, StudySamples, Timing
from dovetail_lab.aupy.study import FIGURES, PAPER_MILLISECONDS, Sequential, approx_steps
from dovetail_lab.packing.synthetic import set_1_like, set_2

COSTS = MEASURES.index("relative_cost")


@pytest.fixture(scope="module")
def forms() -> StudySamples:
    return aupy.run_heuristics(seeds=3)


def test_every_algorithm_ran_at_every_k(forms: StudySamples) -> None:
    assert len(forms.samples) == 9 * (5 + 8 + 5) + 5
    assert all(values.shape == (3, 3) for values in forms.samples.values())
    assert len(forms.timings) == 7 * 3
    for k in SETS["I-like"]:
        optimum = forms.values("I-like", k, "optimum")
        for label in forms.algorithm_labels("I-like"):
            assert np.all(forms.values("I-like", k, label) >= optimum - 1e-12)


@pytest.mark.parametrize(
    ("place", "mean"),
    [
        (("I-like", 2, "optimum"), 0.6395),
        (("II", 4, "pack-by-pack-9"), 0.3452),
        (("II", 16, "pack-by-pack-9"), 0.1633),
        (("III", 32, "pack-by-pack-9"), 0.0723),
        (("III", 8, "random-proc-9"), 0.1698),
        (("III", 8, f"random-proc-9{FULL}"), 0.5203),
    ],
)
def test_points_have_their_values(forms: StudySamples, place: tuple[str, int, str], mean: float) -> None:
    assert forms.mean(*place) == pytest.approx(mean, abs=0.00006)


def test_lengths_without_the_papers_forms_are_those_of_the_method_notes() -> None:
    """S = 10: pack-by-pack-9 at k = 16 costs 0.164 of one task at a time, over five seeds, 0.106 on III."""
    found = aupy.run_heuristics(seeds=5, sequential=Sequential.log_uniform)
    assert found.mean("II", 16, "pack-by-pack-9") == pytest.approx(0.164, abs=0.01)
    assert found.mean("II", 8, "pack-by-pack-9") == pytest.approx(0.218, abs=0.01)
    assert found.mean("III", 16, "pack-by-pack-9") == pytest.approx(0.106, abs=0.005)
    assert found.mean("III", 32, "pack-by-pack-9") == pytest.approx(0.070, abs=0.005)


@pytest.mark.holds(
    "aupy",
    "I: the optimum costs over 35 %",
    "I: pack-Approx and pack-by-pack",
    "I, II: Random-Proc",
    "II: costs fall",
    "II: packing ratios",
    "III: pack-Approx and pack-by-pack are",
    "III: response time",
    "pack-Approx takes fewer steps",
)
def test_the_verdicts_of_the_papers_forms() -> None:
    found = {claim.text: claim.verdict.value for claim in make_claims(aupy.run_heuristics(seeds=10))}

    def verdict(part: str) -> str:
        (text,) = [text for text in found if part in text]
        return found[text]

    assert verdict("costs over 35 % less") == "open"  # at k = 2 the interval holds 35 %
    assert verdict("very close to the optimum") == "no"
    assert verdict("better than Random-Pack") == "open"
    assert verdict("II: costs fall by over 80 %") == "yes"
    assert verdict("II: response times fall by over 80 %") == "in direction only"
    assert verdict("packing ratios are very close to one") == "no"
    assert verdict("superior to the random ones") == "open"
    assert verdict("response time falls by 80%") == "yes"
    assert verdict("fewer steps on II") == "yes"


Costs = dict[str | tuple[str, str], float]
"""Of an algorithm on every workload, or on one."""


def made_up(
    cost: Costs,
    ratio: float,
    response: float,
    steps: tuple[int, int],
    milliseconds: float,
    slower: float,
) -> StudySamples:
    """A world in which an algorithm costs the same at every k, with a little noise over six seeds.

    ``slower`` is by what factor the random ones take longer.
    """
    noise = 1 + 0.001 * np.array([-1, 1, -2, 2, -1, 1])
    samples = {
        (workload, k, label): np.stack(
            [own * noise, np.full(6, ratio) / noise, response * own * noise], axis=1
        )
        for workload, ks in SETS.items()
        for k in ks
        for label in ALGORITHMS
        if label != "optimum" or workload == "I-like"
        for own in [cost.get((workload, label), cost[label])]
    }
    timings = tuple(
        Timing(
            w,
            name,
            milliseconds * (0.5 if w == "II" else 1.0) * (slower if name.startswith("random") else 1.0),
            1.0,
        )
        for w in SETS
        for name in PAPER_MILLISECONDS
    )
    first, second = steps
    return StudySamples(
        samples, timings, {"I-like": [first, first + 1], "II": [second, second + 1], "III": [1, 1]}
    )


@pytest.mark.holds("aupy")
def test_verdicts_follow_the_numbers() -> None:
    procs = ("random-proc-9", f"random-proc-9{FULL}")
    good: Costs = dict.fromkeys(ALGORITHMS, 0.09)
    random: Costs = {label: 0.2 for label in ALGORITHMS if label.startswith("random-proc")}
    random |= {label: 0.3 for label in ALGORITHMS if label.startswith("random-pack")}
    random |= {("I-like", "random-pack-9"): 0.15} | {("I-like", label): 0.0901 for label in procs}
    one_run: Costs = {("II", "pack-by-pack-1"): 0.0905}
    as_said = make_claims(made_up(good | random | one_run, 0.98, 0.5, (12, 3), 0.5, 2.0))
    assert {claim.verdict.value for claim in as_said} == {"yes"}
    assert [claim.text for claim in as_said] == texts("aupy")
    bad: Costs = dict.fromkeys(ALGORITHMS, 1.2) | {"optimum": 1.05, "pack-by-pack-9": 1.1}
    bad |= {
        label: 1.01 if label.startswith("random-proc") else 1.005
        for label in ALGORITHMS
        if label.startswith("random")
    }
    bad |= {("I-like", label): 1.2 for label in procs} | {("I-like", "pack-approx"): 4.0}
    bad |= {("II", "pack-by-pack-1"): 1.05}
    opposite = [claim.verdict.value for claim in make_claims(made_up(bad, 0.5, 1.0, (3, 12), 50.0, 0.5))]
    assert opposite.count("no") == len(opposite) - 1  # II is faster than I in both worlds


def test_the_study_is_written_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    aupy.command(seeds=1, workers=1, out=tmp_path / "aupy", quiet=True)
    text = capsys.readouterr().out
    for part in ("Figure 2: relative cost, workload I-like", "Table 1", "Workload-I itself", "(1..p)"):
        assert part in text
    for name in FIGURES:
        assert (tmp_path / "aupy" / f"{name}.svg").stat().st_size > 0
    stored = json.loads((tmp_path / "aupy" / "aupy.json").read_text())
    assert len(stored["points"]) == 9 * 18 + 5
    assert stored["sequential"] == "forms"
    assert (tmp_path / "aupy" / "aupy.html").read_text().count("<svg") == len(FIGURES)
    assert status_of(["reproduce", "aupy", "--seeds", "1", "--sequential", "log-uniform", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["seeds"], said["sequential"]) == (1, "log-uniform")


def test_pack_approx_takes_fewer_steps_on_the_second_set() -> None:
    first = [approx_steps(set_1_like(np.random.default_rng(seed))) for seed in range(5)]
    second = [approx_steps(set_2(np.random.default_rng(seed))) for seed in range(5)]
    assert max(second) <= 5 < np.mean(first)
    assert approx_steps(np.array([[60, 32, 24, 20], [48, 30, 22, 18]], dtype=float)) > 2


def test_refusals() -> None:
    with pytest.raises(InputError, match="0 seeds"):
        aupy.run_heuristics(seeds=0)
