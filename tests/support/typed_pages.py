"""What pages have people type: every ``$ `` line of a page's blocks, and what came beside what is shown.

A line that begins with ``$ `` is typed here; one with a word before it (``login$ ``) belongs to another
machine. A here-document goes on to its end. What follows is the output that the page shows: ``…`` alone
stands for any lines, within a line for any text, or none. Numbers, times, ids and bars are compared by their
shape. A comment ``# pip install 'dovetail-scheduler[EXTRA]'`` says what a command needs beyond the plain
package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from shown_commands import blocks

from dovetail.records import dataclass

__all__ = ["Typed", "difference", "typed"]

_NEEDS = re.compile(r"\s#.*pip install 'dovetail-scheduler\[([a-z]+)\]'")
_HERE = re.compile(r"<<\s*'?([A-Z]+)'?")


@dataclass(frozen=True, slots=True)
class Typed:
    """One command of a page: ``text`` for a shell, the ``shown`` lines, the extra that it ``needs``."""

    text: str
    shown: Sequence[str]
    needs: str = ""


def typed(page: Path) -> Iterator[Typed]:
    """The commands of a page in their order."""
    for block in blocks(page.read_text(encoding="utf-8")):
        lines = block.splitlines()
        while lines:
            line = lines.pop(0)
            if not line.startswith("$ "):
                continue
            text = [line[2:]]
            while text[-1].endswith("\\") and lines:
                text.append(lines.pop(0))
            ends = _HERE.search(line)
            while ends and lines and text[-1].strip() != ends[1]:
                text.append(lines.pop(0))
            shown: list[str] = []
            while lines and not re.match(r"\w*\$ ", lines[0]):
                shown.append(lines.pop(0))
            needs = _NEEDS.search(line)
            yield Typed("\n".join(text), [one for one in shown if one.strip()], needs[1] if needs else "")


_UNIT = r"(?:\s?(?:µs|ms|min|s|m|h|d|%|[kMGT]i?B))?"
_NUMBER = re.compile(rf"[~+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?x?{_UNIT}(?![\w.])")
_ID = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,40}\b|\b[a-f]{8,40}\b")
_CLOCK = re.compile(r"~?\d\d:\d\d(?::\d\d)?")
_STATE = re.compile(r"\S*/dovetail/runs/\S*")
_BARS = re.compile(r"[█▓▒░▏▎▍▌▋▊▉┬─┴]")


def _shape(line: str) -> str:
    line = _STATE.sub("RUN", line)
    line = _ID.sub("ID", line)
    line = _CLOCK.sub("0", line)
    line = re.sub(r" \*", "", line)
    line = _NUMBER.sub("0", line)
    line = re.sub(r"(?<!\S)(?:µs|ms|s|min|h)(?!\S)", "s", line)  # of a column: longer on a busy machine
    return " ".join(re.sub(r"(^|\s)[-?](?=\s|$)", r"\g<1>0", line).split())


def _drawn(line: str) -> bool:
    """Whether a line is a bar of a chart, its axis, or a rule of a table."""
    return bool(_BARS.search(line)) or not re.search(r"[^\d\s.smhµ]", line)


def difference(shown: Sequence[str], came: str) -> str:
    """The first line of what is shown that did not come, in its order; empty where all did."""
    have = [_shape(line) for line in came.splitlines()]
    at = 0
    for line in shown:
        if line.strip() in ("…", "...") or _drawn(line):
            continue
        form = ".*".join(re.escape(part) for part in re.split(r",?\s*…\s*", _shape(line)))
        found = next((i for i in range(at, len(have)) if re.fullmatch(form, have[i])), None)
        if found is None:
            return line
        at = found + 1
    return ""
