"""Choose which tests `make test` leaves to `make test-all`, so that it ends within minutes.

    DOVETAIL_TEST_LONG=1 python -m pytest -n 4 --dist loadgroup --junitxml=times.xml
    python tools/sample_tests.py times.xml SECONDS > tests/sampled.txt

From the seconds that each case took (a JUnit file, of a quiet machine) it keeps what fits into SECONDS of
all workers together. What takes longest goes first: of a test with many cases all but every n-th, then whole
tests; the shortest test of each file stays, so that no file is left out.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path

MOST_NTH = 8
"""Of many cases at least every eighth stays."""
HEAD = "# Of these tests `make test` takes every n-th case, or (0) none: see tools/sample_tests.py.\n"


def read_times(path: Path) -> dict[str, list[float]]:
    """Seconds of each case by test, in the order of the file; skipped ones are left out."""
    found: dict[str, list[float]] = defaultdict(list)
    for case in ET.parse(path).iter("testcase"):
        module, name = case.get("classname", ""), case.get("name", "")
        if case.find("skipped") is not None:
            continue
        parts = module.split(".")
        place = next(n for n, part in enumerate(parts) if part.startswith("test_"))
        file = "/".join(parts[1 : place + 1]) + ".py"
        test = "::".join([file, *parts[place + 1 :], name.partition("[")[0].partition("@")[0]])
        found[test].append(float(case.get("time", "0")))
    return dict(found)


def choose(times: dict[str, list[float]], budget: float) -> dict[str, int]:
    """By test every how many-th case stays (0: none), of those of which not all stay."""
    nth: dict[str, int] = {}

    def cost(test: str) -> float:
        every = nth.get(test, 1)
        return sum(times[test][::every]) if every else 0.0

    shortest: dict[str, str] = {}
    for test in sorted(times, key=lambda one: sum(times[one])):
        shortest.setdefault(test.partition("::")[0], test)
    kept = set(shortest.values())
    total = sum(map(cost, times))
    while total > budget:
        left = [test for test in times if cost(test) and (test not in kept or nth.get(test, 1) < MOST_NTH)]
        left = [test for test in left if test not in kept or len(times[test]) > nth.get(test, 1)]
        if not left:
            break
        test = max(left, key=cost)
        before = cost(test)
        every = nth.get(test, 1)
        nth[test] = every * 2 if every < MOST_NTH and len(times[test]) > every else 0
        total -= before - cost(test)
    return nth


def main() -> None:
    """Print the list."""
    chosen = choose(read_times(Path(sys.argv[1])), float(sys.argv[2]))
    print(HEAD + "\n".join(f"{test} {nth}" for test, nth in sorted(chosen.items())))


if __name__ == "__main__":
    main()
