"""``dovetail replay``: a journal's decisions, made again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dovetail.engine.journal import read_journal
from dovetail.engine.journal import replay as replay_journal
from dovetail.errors import InputError
from dovetail.interfaces import Policy
from dovetail.plugins import load_policy
from dovetail.policies.follow_plan import FollowPlan

__all__ = ["replay"]


def replay(file: Annotated[Path, typer.Argument(metavar="JOURNAL", help="A journal.jsonl.")]) -> None:
    """Check that a journal's events give the very same decisions again."""
    journal = read_journal(file)
    loaded = load_policy(str(journal.header["policy"]))
    policy = loaded.policy if isinstance(loaded.policy, Policy) else FollowPlan()
    if not journal.batches:
        raise InputError("holds no instant, expected at least one", where=str(file))
    total = replay_journal(journal, policy)
    print(f"{total} decisions at {len(journal.batches)} instants, all identical")
