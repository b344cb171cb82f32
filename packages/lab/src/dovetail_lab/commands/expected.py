"""How long a study took the last time, for who waits for it on a terminal."""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from dovetail.files.folders import state_folder
from dovetail.files.streams import print_note
from dovetail.files.writing import replace_file
from dovetail.model import Seconds
from dovetail.report.wording import spell_seconds_shortly

WORTH_SHOWING = 2.0
"""Seconds from which an expected duration is shown."""
MOST_KEPT = 100
"""Command lines of which the last duration is kept."""
MOST_BYTES = 1_000_000
SILENT = frozenset(["-q", "--quiet", "--json", "-h", "--help"])

_log = logging.getLogger(__name__)


def is_watched(words: Sequence[str]) -> bool:
    """Whether progress is shown: on a terminal, unless it is switched off."""
    return sys.stderr.isatty() and not SILENT.intersection(words)


def show_expected(words: Sequence[str]) -> None:
    """Note how long this command line took the last time, where that is known and not short."""
    seconds = read_durations(durations_path()).get(" ".join(words), 0.0)
    if seconds >= WORTH_SHOWING:
        print_note(f"This took {spell_seconds_shortly(seconds)} here the last time.")


def keep_duration(words: Sequence[str], seconds: Seconds) -> None:
    """Keep for the next time how long this command line took."""
    path, line = durations_path(), " ".join(words)
    known = read_durations(path)
    known.pop(line, None)
    # The latest at the end, so that the oldest are left out.
    kept = [*known.items(), (line, round(seconds, 3))][-MOST_KEPT:]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(dict(kept), indent=1))
    except OSError as error:  # the study is done all the same
        _log.warning("%s: the duration of a study cannot be kept: %s", path, error.strerror)


def durations_path() -> Path:
    """Where the durations are kept. Raises `InputError` where this account has no state folder."""
    return state_folder() / "dovetail" / "studies.json"


def read_durations(path: Path) -> dict[str, Seconds]:
    """Seconds by command line; none where the file is missing, damaged or too large: it is written anew."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    items = found.items() if isinstance(found, dict) else ()
    return {
        line: float(seconds)
        for line, seconds in items
        if isinstance(seconds, int | float) and math.isfinite(seconds) and 0 <= seconds < 1e9
    }
