"""``dovetail replay``: a journal's decisions, made again."""

from __future__ import annotations

from pathlib import Path

from dovetail.cli import options as opt
from dovetail.errors import InputError
from dovetail.files.sentences import show_value
from dovetail.interfaces import Policy
from dovetail.running.folder import journal_of


@opt.takes_options("replay")
def replay(run: str, trust: bool) -> None:
    """Check that a journal's events give the very same decisions again."""
    from dovetail.engine.journal.journal import read_journal
    from dovetail.engine.journal.journal import replay as replay_journal
    from dovetail.plugins import load_policy
    from dovetail.policies.follow_plan import FollowPlan

    file = journal_of(run) or Path(run)
    journal = read_journal(file)
    named = str(journal.header["policy"])
    if ".py:" in named and not trust:
        raise InputError(
            f"found the policy {show_value(named)}, which is a program; --trust executes it, if "
            f"you trust the "
            "journal and that file",
            where=str(file),
        )
    loaded = load_policy(named)
    policy = loaded.policy if isinstance(loaded.policy, Policy) else FollowPlan()
    if not journal.batches:
        raise InputError("holds no instant, expected at least one", where=str(file))
    total = replay_journal(journal, policy)
    print(f"{total} decisions at {len(journal.batches)} instants, all identical")
