"""What Ravi 2012 claims, over draws: golden values, and verdicts that can come out each way."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from verdicts_page import texts

from dovetail.cli.main import status_of
from dovetail.errors import InputError
from dovetail.testing.builders import full
from dovetail_lab.apps.bench.sharing import PAIRS, Sharing
from dovetail_lab.ravi import multi, single

needs_ortools = pytest.mark.skipif(
    importlib.util.find_spec("ortools") is None, reason="the optimum needs OR-Tools"
)

# ------------------------------------------------------------------------------------------ single node


@needs_ortools
def test_eight_draws_of_each_mix_have_their_values() -> None:
    """Deterministic: the draws are seeded, and every optimum is proven."""
    found = single.make_study(seeds=8, pool="B").numbers["numbers"]
    assert found["proven"] == 24
    for name, mean in (
        ("brr_over_ours", 2.036137),
        ("brr_dynamic_over_ours", 1.517077),
        ("ours_over_optimum", 1.162339),
        ("best_per_draw_over_optimum", 1.043321),
    ):
        assert found[name].mean == pytest.approx(mean, abs=1e-5), name
    assert found["policy_over_optimum"]["rsc"].mean == pytest.approx(1.156895, abs=1e-5)
    for mix in single.MIXES:
        means = found["means"][mix]
        assert means["anl"]["rsc"] == pytest.approx(0, abs=1e-9)
        assert means["anl"]["rsa"] > means["anl"]["asjf"]
        assert means["aql"]["asjf"] < means["aql"]["rsa"] < means["aql"]["rsc"]


@needs_ortools
@pytest.mark.skipif(
    full(1, 0) == 0,
    reason="300 draws: few have too long tails; tests/reference/test_ravi_single.py compares each",
)
def test_over_many_draws_the_means_are_the_references() -> None:
    """Within four standard errors of 1,500 draws of a program written apart."""
    found = single.make_study(seeds=300, pool="B")
    panel = found.numbers["panels"][-1]
    for row, values, reference in zip(panel.rows, panel.values, panel.reference, strict=True):
        for value, told in zip(values, reference, strict=True):
            # The intervals are 95 %: two standard errors of a mean over so many draws.
            assert abs(value.mean - told) <= 2 * value.half_width + 0.02, row


def drawn(world: Callable[[str, str, int], float], draws: int = 12) -> dict[str, list[single.Drawn]]:
    """Draws in a world that says what a metric of a policy is, in seconds, in the n-th draw."""
    return {
        mix: [
            single.Drawn(
                mix,
                n,
                {
                    policy: {metric: world(metric, policy, n) for metric in single.METRICS}
                    for policy in (*single.POLICIES, "optimal")
                },
                0.0,
            )
            for n in range(draws)
        ]
        for mix in single.MIXES
    }


def verdicts(by_mix: dict[str, list[single.Drawn]]) -> list[str]:
    return [c.verdict.value for c in single.make_claims(by_mix, single.claim_numbers(by_mix, True), True)]


World = dict[str, dict[str, float]]
AS_PUBLISHED: World = {
    "makespan": {
        "optimal": 585.0, "rsa": 705.2, "rsc": 720.0, "asjf": 650.0, "brr": 1440.0, "brr-dynamic": 900.0,
    },
    "anl": {"rsa": 9.0, "rsc": 0.0, "asjf": 2.0, "brr": 30.0},
    "aql": {"rsa": 60.0, "rsc": 100.0, "asjf": 20.0, "brr": 300.0},
    "mit": {"rsa": 226.6, "rsc": 400.0, "asjf": 300.0, "brr": 700.0},
}  # fmt: skip
OPPOSITE: World = {
    "makespan": {
        "optimal": 585.0, "rsa": 1400.0, "rsc": 1300.0, "asjf": 1500.0, "brr": 1170.0, "brr-dynamic": 1170.0,
    },
    "anl": {"rsa": 1.0, "rsc": 3.0, "asjf": 2.0, "brr": 0.5},
    "aql": {"rsa": 60.0, "rsc": 20.0, "asjf": 100.0, "brr": 10.0},
    "mit": {"rsa": 1400.0, "rsc": 200.0, "asjf": 300.0, "brr": 100.0},
}  # fmt: skip


def of(world: World, metric: str, policy: str, n: int) -> float:
    """Draws differ by 2 % either way, round robin's by 3."""
    spread = 0.03 if policy == "brr" else 0.02
    return world[metric].get(policy, 1.0) * (1 + spread * (-1) ** n)


def published(metric: str, policy: str, n: int) -> float:
    """A world in which the paper is right."""
    return of(AS_PUBLISHED, metric, policy, n)


@pytest.mark.holds("ravi-single")
def test_in_the_papers_world_every_verdict_is_yes() -> None:
    assert verdicts(drawn(published)) == ["yes"] * 11


@pytest.mark.holds("ravi-single")
def test_in_the_opposite_world_none_is() -> None:
    assert verdicts(drawn(lambda metric, policy, n: of(OPPOSITE, metric, policy, n))) == ["no"] * 11


def test_half_the_effect_is_in_direction_only() -> None:
    def half(metric: str, policy: str, n: int) -> float:
        value = published(metric, policy, n)
        return 1.3 * value if metric == "makespan" and policy in single.OURS else value

    assert verdicts(drawn(half))[0] == "in direction only"
    assert verdicts(drawn(half))[1:3] == ["in direction only"] * 2


def test_two_wild_draws_say_nothing() -> None:
    def wild(metric: str, policy: str, n: int) -> float:
        return published(metric, policy, n) * (1.0 if policy != "brr" else 0.1 + 1.8 * n)

    assert verdicts(drawn(wild, draws=2))[0] == "open"


# ---------------------------------------------------------------------------------------- several nodes


@pytest.mark.parametrize(
    ("task", "seconds"),
    [
        (
            ("25sj75lj", 1, 30.0, "rollout"),
            (1618.2, 1618.2, 1598.6, 1298.308696, 1394.60708, 1383.701301, 1525.2),
        ),
        (("25sj75lj", 2, 30.0, "rollout"), (2252.0, 2252.0, 2064.0, 1537.0, 1666.0, 1594.0, 1712.0)),
        (("75sr25lr", 1, 0.0, "area"), (1044.4, 1044.4, 1041.0, 802.9, 779.4, 832.9, 781.5)),
    ],
)
def test_draws_have_their_values(task: tuple[str, int, float, str], seconds: tuple[float, ...]) -> None:
    found = multi.draw_policies(task)
    assert [found.seconds[policy] for policy in multi.POLICIES] == pytest.approx(seconds, abs=1e-5)
    assert found.seconds[multi.SHARED] >= found.seconds["fms"] * 0.95


def test_long_jobs_gain_as_much_as_the_reference() -> None:
    """25SJ/75LJ over 40 draws (fewer in a short run): the reference says 1.38 and 1.28."""
    draws = [multi.draw_policies(("25sj75lj", seed, 30.0, "rollout")) for seed in range(1, full(40, 5) + 1)]
    error = 0.05 if len(draws) == 40 else 0.13  # three standard errors
    for policy, reference in (
        (multi.BETTER, 1.38),
        ("torque-plan", 1.28),
        ("fms-type", 1.07),
        ("fms-nodes", 1.06),
    ):
        assert fmean(d.ratio_to_fms(policy) for d in draws) == pytest.approx(reference, abs=error), policy


MULTI_PUBLISHED = {
    "torque": 1.42, "mct": 1.42, "torque-plan": 1.3, "fms": 1.0, "fms-type": 1.12, "fms-nodes": 1.2,
    "fms-order": 1.1, multi.SHARED: 1.05,
}  # fmt: skip
SIZES_PUBLISHED = MULTI_PUBLISHED | {"torque": 1.32, "mct": 1.32, "fms-type": 1.113}


FEW_LONG = multi.LENGTHS[0]
"""Where few jobs are long the paper's FMS gains less."""


def multi_verdicts(world: dict[str, float], sizes: dict[str, float]) -> list[str]:
    by_mix = {
        mix: [
            multi.Drawn(
                mix,
                n,
                {
                    p: (s - 0.1 * (s - 1) * (mix == FEW_LONG and p in ("torque", "mct")))
                    * (1000 + (3 if p != "fms" else 0) * (-1) ** n)
                    for p, s in own.items()
                },
            )
            for n in range(10)
        ]
        for mixes, own in ((multi.LENGTHS, world), (multi.SIZES, sizes))
        for mix in mixes
    }
    return [claim.verdict.value for claim in multi.make_claims(by_mix)]


@pytest.mark.holds(
    "ravi-multi",
    "FMS",
    "Each molding alone",
    "Both moldings together",
    "Molding types beats",
    "How much of the gain",
    "Sharing nodes pays",
)
def test_molding_verdicts_follow_the_numbers() -> None:
    beside = "not in the paper"
    assert multi_verdicts(MULTI_PUBLISHED, SIZES_PUBLISHED) == [
        "yes", "yes", "yes", "yes", "yes", beside, "yes", "yes", "yes", "yes", beside, "yes",
    ]  # fmt: skip
    none = dict.fromkeys(MULTI_PUBLISHED, 0.99) | {"fms": 1.0}
    assert {v for v in multi_verdicts(none, none) if v != beside} == {"no"}
    some = MULTI_PUBLISHED | {"torque": 1.2, "mct": 1.2, "fms-type": 1.03, "fms-nodes": 1.02}
    less = "in direction only"
    assert multi_verdicts(some, some) == [
        less, "yes", "yes", "yes", "yes", beside, less, less, less, "no", beside, "yes",
    ]  # fmt: skip


def sharing(*penalties: float) -> list[Sharing]:
    alone = (1.0, 1.01, 0.99, 1.0)
    return [
        Sharing(
            pair.cpu_app, pair.device_app, "cuda", pinned, alone,
            tuple(a * (1 + p) + 0.0002 * (-1) ** i for i, a in enumerate(alone)),
        )
        for pair, p in zip(PAIRS, penalties, strict=True)
        for pinned in (True, False)
    ]  # fmt: skip


@pytest.mark.holds("ravi-multi", "A job on the CPUs takes", "The penalty of sharing")
def test_the_sharing_verdicts_rest_on_what_was_measured() -> None:
    def verdicts(measured: list[Sharing]) -> list[str]:
        return [claim.verdict.value for claim in multi.sharing_claims(measured)]

    assert verdicts(sharing(0.043, 0.068, 0.024)) == ["yes", "yes"]
    assert verdicts(sharing(0.5, 0.6, 0.7)) == ["in direction only", "no"]
    assert verdicts(sharing(0.043, 0.068, -0.1)) == ["no", "yes"]
    unfit = [replace(one, on_cores=True) for one in sharing(0.043, 0.068, 0.024)]
    assert verdicts(unfit) == ["open", "open"]
    assert verdicts([]) == ["open", "open"]


# --------------------------------------------------------------------------------------------- commands


def test_the_single_node_study_is_written_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    single.command(seeds=2, pool="B", workers=1, as_json=False, out=tmp_path, quiet=True)
    text = capsys.readouterr().out
    assert "Figure 3" in text
    assert "  reference" in text
    stored = json.loads((tmp_path / "ravi-single.json").read_text())
    assert [panel["name"][:8] for panel in stored["panels"]][:3] == ["Figure 3", "Figure 4", "Figure 5"]
    assert [claim["text"] for claim in stored["claims"]] == texts("ravi-single")
    assert all(
        set(c) == {"text", "paper", "reference", "ours", "verdict", "rests_on", "readings", "over", "basis"}
        for c in stored["claims"]
    )
    page = (tmp_path / "ravi-single.html").read_text()
    assert page.count("<svg") == len(stored["panels"])
    assert "  reference" in page
    assert (tmp_path / "ravi-single-figure-3.svg").stat().st_size > 1000
    single.command(seeds=1, pool="A", workers=1, as_json=False, quiet=True)
    assert "  reference" not in capsys.readouterr().out  # it is of pool B


def test_the_multi_node_study_sets_figure_8_beside_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sharing.json"
    path.write_text(json.dumps([one.as_dict() for one in sharing(0.043, 0.068, 0.024)]))
    multi.command(seeds=1, score="area", sharing=path, workers=1, quiet=True)
    text = " ".join(capsys.readouterr().out.split())
    assert "EM beside GK em beside gridding 4.3 %" in text
    assert "PR beside GK pagerank beside gridding 2.4 %" in text
    assert "on cuda (from the file that was named)" in text
    multi.command(seeds=1, interarrival=0.0, score="area", workers=1, as_json=True, out=None, quiet=True)
    found = json.loads(capsys.readouterr().out)
    assert [panel["name"][:8] for panel in found["panels"]] == ["Figure 6", "Figure 7", "Not in t"]
    assert [claim["text"] for claim in found["claims"]] == texts("ravi-multi")
    assert found["numbers"]["25sj75lj"]["seconds"]["fms"] == pytest.approx(1261.0)
    assert found["panels"][0]["values"][0][0]["n"] == 1
    assert {(one["cpu_app"], one["device_app"]) for one in found["figure_8"]} == {
        (pair.cpu_app, pair.device_app) for pair in PAIRS
    }


def test_wrong_use_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="found 'Z', expected one of A, B"):
        single.make_study(seeds=1, pool="Z")
    taken = tmp_path / "file"
    taken.write_text("")
    assert status_of(["reproduce", "ravi-single", "--out", str(taken)]) == 2
    assert "cannot be made" in capsys.readouterr().err
    assert status_of(["reproduce", "ravi-multi", "--score", "best", "--out", str(tmp_path / "a")]) == 2
    assert "score: found 'best'" in capsys.readouterr().err
    assert status_of(["reproduce", "ravi-multi", "--sharing", str(taken)]) == 2
    assert "expected what dovetail bench-sharing --json prints" in capsys.readouterr().err
    assert status_of(["reproduce", "ravi-multi", "--sharing", str(tmp_path / "no")]) == 2
    assert "cannot be read" in capsys.readouterr().err
