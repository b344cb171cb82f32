"""What ``docs/reference/verdicts.md`` says of a study's claims."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["ROWS", "texts"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "verdicts.md"
TABLE = re.compile(r"(?ms)^<!-- figures: dovetail reproduce (\S+)(.*?)\|.*?-->\n(.*?)<!-- /figures")
ROWS: dict[str, list[list[str]]] = {}
"""The cells of each claim, by study, and by study and engine where it was measured live: its text first."""
for study, options, part in TABLE.findall(PAGE.read_text(encoding="utf-8")):
    about = f"{study} {' '.join(options.split())}" if "--live" in options else study
    ROWS[about] = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")][2:]


def texts(study: str) -> list[str]:
    """The claims of a study, in its order."""
    return [row[0] for row in ROWS[study]]
