"""All that is unpickled is on one list in the docs."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "robustness.md"


def unpicklings(folder: Path) -> Counter[str]:
    """Mentions of ``pickle.loads`` and its like, by file."""
    found: Counter[str] = Counter()
    for path in folder.rglob("*.py"):
        text = path.read_text()
        if not re.search("pickle|marshal", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and node.attr in ("load", "loads", "Unpickler"):
                if isinstance(node.value, ast.Name) and node.value.id in ("pickle", "cloudpickle", "marshal"):
                    found[path.relative_to(folder).as_posix()] += 1
            elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                found[path.relative_to(folder).as_posix()] += 1
    return found


def test_the_list_in_the_docs_is_whole() -> None:
    table = PAGE.read_text().partition("## All that is unpickled")[2].partition("\n## ")[0]
    listed = Counter[str]()
    for row in table.splitlines():
        file = re.match(r"\| `([\w/]+\.py)`([^|]*)", row)
        if file:
            listed[file[1]] += max(1, file[2].count("`") // 2)
    found = unpicklings(ROOT / "src" / "dovetail")
    for package in ROOT.glob("packages/*/src"):
        found += unpicklings(package)
    assert sum(found.values()) >= 8
    assert listed == found
