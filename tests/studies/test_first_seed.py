"""A stranger draws afresh: every study that draws takes the first of its seeds."""

import json
import re

import pytest
from typer.testing import CliRunner

from dovetail.cli.main import app
from dovetail.testing.builders import full

# As little of each study as it can be played with.
LITTLE = {
    "aupy": ["--seeds", "1", "--sequential", "log-uniform"],
    "ravi-multi": ["--seeds", "1"],
    "ravi-single": ["--seeds", "1", "--pool", "B"],
    "shirahata": ["--seeds", "1"],
    "markthub": ["--seeds", "1", "--jobs", "200"],
    "policies": ["--seeds", "1", "--queue", "gregg", "--policies", "fcfs,history"],
    "wrong-predictions": ["--seeds", "2", "--policies", "history"],
}
SLOW = {"shirahata", "markthub", "aupy"}


def drawn(study: str, *more: str) -> tuple[str, str]:
    """What a study says that it has drawn, and its figures."""
    words = ["reproduce", study, *LITTLE[study], "--workers", "1", "--json", *more]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    kept = {
        name: value
        for name, value in found.items()
        if name not in ("about", "first_seed", "timings", "overheads")
    }
    return found["about"], json.dumps(kept)


@pytest.mark.parametrize("study", sorted(LITTLE))
def test_other_seeds_are_other_draws(study: str) -> None:
    if study in SLOW and not full(1, 0):
        pytest.skip("minutes: DOVETAIL_TEST_FULL runs it")
    about, usual = drawn(study)
    assert "(seeds" not in about
    named, afresh = drawn(study, "--first-seed", "4001")
    assert re.search(r"\(seeds 4001 to 400[12]\)", named)
    assert afresh != usual
