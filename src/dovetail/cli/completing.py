"""What the shell offers for a word: names of policies, apps, models, workloads and runs.

Nothing here fails or prints: where a name cannot be found, the shell offers files as it always does.
"""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress

from dovetail.errors import DovetailError

VARIABLE = "_DOVETAIL_COMPLETE"
"""Set by the shell that completes a word."""
MOST_RUNS = 50


@contextmanager
def whole_words(environment: MutableMapping[str, str]) -> Iterator[None]:
    """Bash hands ``published:ravi`` over as three words, since ``:`` divides words there: one again.

    Of what is offered for it bash wants what stands behind the ``:``.
    """
    before = ""
    if environment.get(VARIABLE) == "complete_bash":
        words, at = environment.get("COMP_WORDS", "").split("\n"), int(environment.get("COMP_CWORD", "0"))
        words, at = _rejoin_words(words, at)
        environment["COMP_WORDS"], environment["COMP_CWORD"] = "\n".join(words), str(at)
        before, colon, _ = (words[at] if at < len(words) else "").rpartition(":")
        before += colon
    if not before:
        yield
        return
    output = io.StringIO()
    try:
        with redirect_stdout(output):
            yield
    finally:
        print("\n".join(line.removeprefix(before) for line in output.getvalue().splitlines()))


def _rejoin_words(words: Sequence[str], at: int) -> tuple[list[str], int]:
    """The words without breaks around colons, and the place of the one that was at ``at``."""
    found: list[str] = []
    place = at
    for i, word in enumerate(words):
        if i and ":" in (word, words[i - 1]):
            found[-1] += word
            place -= i <= at
        else:
            found.append(word)
    return found, place


def policies(incomplete: str) -> list[str]:
    """Policies, after those that stand before a comma."""
    from dovetail.plugins import registered_entries

    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in sorted(registered_entries("dovetail.policies"))]


def models(incomplete: str) -> list[str]:
    """Runtime models."""
    from dovetail.plugins import registered_entries
    from dovetail.runtimes.registry import MODELS

    return list(dict.fromkeys([*MODELS, *registered_entries("dovetail.runtimes")]))


def apps(incomplete: str) -> list[str]:
    """Apps that the default history knows."""
    from dovetail.history.sqlite import SqliteHistory, default_history_path

    with suppress(DovetailError, OSError), SqliteHistory(default_history_path(), must_exist=True) as store:
        return sorted({group.app for group in store.list_groups()})
    return []


def runs(incomplete: str) -> list[str]:
    """Ids of the newest runs, and ``last``."""
    from dovetail.running.folder import LAST, run_folders, short_id

    with suppress(OSError):
        return [LAST, *(short_id(folder.name) for folder in run_folders()[:MOST_RUNS])]
    return []


def sources(incomplete: str) -> list[str]:
    """Published workloads and runs, with the files of that beginning; only files where nothing is typed."""
    from dovetail.workloads.published import published_names

    if not incomplete:
        return []
    names = [*(f"published:{name}" for name in published_names()), "synthetic:", *runs(incomplete)]
    if not any(name.startswith(incomplete) for name in names):
        return []  # then the shell completes files by itself
    return [*names, *_matching_files(incomplete)]


def _matching_files(incomplete: str) -> Iterator[str]:
    for path in glob.glob(glob.escape(incomplete) + "*"):
        yield path + "/" * os.path.isdir(path)
