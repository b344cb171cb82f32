"""How well, and how fast, what real commands took is predicted: `learned` beside the same without CPU times.

The runs are stored (`benchmarks/prediction/measure.py` measures others); each benchmark asserts its result.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

import pytest

FOLDER = Path(__file__).parent / "prediction"
sys.path.insert(0, str(FOLDER))

from judge import MODELS, floor, judge, load  # noqa: E402 - the folder is no package


@pytest.mark.parametrize(("name", "most"), [("calm", 1.0), ("busy-1", 0.7), ("busy-2", 0.7)])
def test_unseen_sizes(benchmark, name: str, most: float) -> None:
    """The median error over passes 2 to 4, as a ratio to that of run times alone."""
    runs = load(FOLDER / f"{name}.jsonl.gz")
    turns = (2, 3, 4)
    rows = benchmark.pedantic(
        lambda: judge(runs, MODELS["learned"], unseen=True, turns=turns), rounds=1, iterations=1
    )
    learned = median(row.error for row in rows)
    alone = median(row.error for row in judge(runs, MODELS["run times alone"], unseen=True, turns=turns))
    benchmark.extra_info |= {"learned": learned, "run times alone": alone, "floor": floor(runs)}
    print(
        f"\n{name}: {learned:.1%} beside {alone:.1%}; two runs of the same inputs differ by {floor(runs):.1%}"
    )
    assert learned <= most * alone
