"""Partitions of a Slurm cluster: into which of them a guest may put jobs, and why not into the others.

A guest uses the partition that Slurm itself would, others where they are named. Never one whose tier preempts
what runs in others (slurm.conf(5): PriorityTier, PreemptMode), nor one that is not open to its user's groups,
accounts or QOS (AllowGroups, AllowAccounts, DenyAccounts, AllowQos, DenyQos), where jobs would wait for ever.
"""

from __future__ import annotations

import getpass
import grp
import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence

from dovetail.model.batch_options import value_of
from dovetail.model.hostlist import expand_hostlist
from dovetail.records import dataclass
from dovetail_slurm import commands
from dovetail_slurm.commands import UNKNOWN, SlurmError, parse_fields

_log = logging.getLogger(__name__)
SETTINGS = ("PreemptType", "ClusterName", "AccountingStorageType", "SlurmUser")
"""What of the cluster's settings is needed here."""
PREEMPTING = ("CANCEL", "REQUEUE", "SUSPEND")
"""Modes in which the jobs of a partition are preempted."""
EVERYTHING = ("ALL", "(null)", "")


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as scontrol shows it. Of lists, empty means that there is no limit."""

    name: str
    is_default: bool
    nodes: frozenset[str]
    tier: int
    preempt_mode: str
    state: str
    root_only: bool = False
    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    denied_accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    denied_qos: tuple[str, ...] = ()

    def can_lose_jobs(self) -> bool:
        """Whether jobs that run here may be preempted by those of a higher tier."""
        return any(mode in self.preempt_mode for mode in PREEMPTING)


@dataclass(frozen=True, slots=True)
class Member:
    """Who hands jobs over: groups, and by the accounting the accounts and QOS, the usual ones first.

    ``None``: the cluster keeps no accounts, and so enforces none.
    """

    name: str
    groups: frozenset[str]
    accounts: Sequence[str] | None = None
    qos: Sequence[str] | None = None
    is_owner: bool = False
    """Root and Slurm's own account, whose groups Slurm does not look at."""

    def with_options(self, options: Sequence[str], environ: Mapping[str, str]) -> Member:
        """The same with the account and QOS that sbatch takes of these options, or of this environment."""
        account = value_of(options, "--account", "-A") or environ.get("SBATCH_ACCOUNT", "")
        qos = value_of(options, "--qos", "-q") or environ.get("SBATCH_QOS", "")
        accounts, kinds = self.accounts, self.qos
        if account and accounts is not None:
            # The account that a job names is tried first, as Slurm does; the others stay for jobs that name
            # them.
            accounts = [account, *(one for one in accounts if one != account)]
        if qos and kinds is not None:
            kinds = [*qos.split(","), *(one for one in kinds if one not in qos.split(","))]
        return Member(self.name, self.groups, accounts, kinds, self.is_owner)


def read_partitions() -> dict[str, Partition]:
    """All partitions that this user sees, by name. Raises `SlurmError`."""
    output, _ = commands.run_command(["scontrol", "-o", "show", "partition"])
    found = [
        _parse_partition(parse_fields(line))
        for line in output.splitlines()
        if line.startswith("PartitionName=")
    ]
    return {one.name: one for one in found}


def _parse_partition(about: Mapping[str, str]) -> Partition:
    def split_words(name: str) -> tuple[str, ...]:
        text = about.get(name, "")
        return () if text in EVERYTHING else tuple(text.split(","))

    nodes = about.get("Nodes", "")
    return Partition(
        name=about["PartitionName"],
        is_default=about.get("Default") == "YES",
        nodes=frozenset() if nodes in UNKNOWN else frozenset(expand_hostlist(nodes)),
        tier=int(about.get("PriorityTier") or 1),
        preempt_mode=about.get("PreemptMode", "OFF"),
        state=about.get("State", "UP"),
        root_only=about.get("RootOnly") == "YES",
        groups=split_words("AllowGroups"),
        accounts=split_words("AllowAccounts"),
        denied_accounts=split_words("DenyAccounts"),
        qos=split_words("AllowQos"),
        denied_qos=split_words("DenyQos"),
    )


def read_member(settings: Mapping[str, str]) -> Member:
    """Who we are to Slurm; accounts from slurmdbd, where there is one and it answers."""
    name, uid = getpass.getuser(), os.getuid()
    groups = {group for gid in os.getgrouplist(name, os.getgid()) for group in _group_name(gid)}
    owner = uid == 0 or settings.get("SlurmUser", "").partition("(")[0] == name
    if not settings.get("AccountingStorageType", "").endswith("slurmdbd"):
        return Member(name, frozenset(groups), is_owner=owner)
    only = [f"user={name}", *([f"cluster={c}"] if (c := settings.get("ClusterName")) else [])]
    try:
        usual = commands.read_rows(["sacctmgr", "-nP", "show", "user", name, "format=DefaultAccount"], 1)
        held = commands.read_rows(
            ["sacctmgr", "-nP", "show", "assoc", *only, "format=Account,DefaultQOS,QOS"], 3
        )
    # Without the accounting database nothing is enforced here; Slurm still refuses what it does not allow.
    except SlurmError as error:
        _log.warning("which accounts and QOS may be used is not known: %s", error)
        return Member(name, frozenset(groups), is_owner=owner)
    first = [row[0] for row in usual if row[0]]
    # Stable: within the usual account, and within the others, Slurm's own order holds.
    held.sort(key=lambda row: row[0] not in first)
    accounts = list(dict.fromkeys([row[0] for row in held]))
    kinds: dict[str, None] = {}
    for _, default, all_of_it in held:
        its = [word for word in all_of_it.split(",") if word]
        kinds.update(dict.fromkeys([default] if default else its if len(its) == 1 else ["normal"]))
    for _, _, all_of_it in held:
        kinds.update(dict.fromkeys(word for word in all_of_it.split(",") if word))
    return Member(name, frozenset(groups), accounts, list(kinds), owner)


def preempting_qos(settings: Mapping[str, str]) -> dict[str, str]:
    """Each QOS whose jobs preempt running ones, with those whose jobs it preempts (sacctmgr(1): Preempt).

    Empty where QOS do not decide about preemption (PreemptType). Raises `SlurmError`.
    """
    if "qos" not in settings.get("PreemptType", ""):
        return {}
    found = commands.read_rows(["sacctmgr", "-nP", "show", "qos", "format=Name,Preempt,PreemptMode"], 3)
    return {name: preempts or name for name, preempts, mode in found if preempts or "within" in mode.lower()}


@dataclass(frozen=True, slots=True)
class UsualQos:
    """``option`` is what sbatch is given where a job names no QOS, empty for Slurm's own choice.

    ``harm`` has whose running jobs it would preempt, where the member has no other; empty: none.
    """

    option: str = ""
    harm: str = ""


def choose_qos(member: Member, preempting: Mapping[str, str]) -> UsualQos:
    """The first QOS of a member that preempts no other."""
    if not preempting or not member.qos or member.qos[0] not in preempting:
        return UsualQos()
    other = next((one for one in member.qos if one not in preempting), None)
    if other is not None:
        return UsualQos(f"--qos={other}")
    first = member.qos[0]
    return UsualQos(harm=f"its QOS {first} preempts running jobs of QOS {preempting[first]}")


def _group_name(gid: int) -> Iterable[str]:
    try:
        return (grp.getgrgid(gid).gr_name,)
    except KeyError:
        return ()


def why_closed(partition: Partition, member: Member, *, usual: bool) -> str:
    """Why the member's jobs may not go there; empty if they may.

    ``usual``: with the account and QOS that a job gets which names none; else with any of the member's.
    """
    if partition.state not in ("UP", "DOWN"):
        return f"it is {partition.state}"
    if partition.root_only and os.getuid() != 0:
        return "it is for root alone (RootOnly)"
    if partition.groups and not member.is_owner and member.groups.isdisjoint(partition.groups):
        return f"it is for the groups {', '.join(partition.groups)} (AllowGroups)"
    lists = (
        ("account", "Accounts", member.accounts, partition.accounts, partition.denied_accounts),
        ("QOS", "Qos", member.qos, partition.qos, partition.denied_qos),
    )
    for what, name, held, allowed, denied in lists:
        if held is None:
            continue
        # A job that names no account runs under the first one, so only that one counts there.
        mine = held[:1] if usual else held
        if allowed and not set(mine) & set(allowed):
            ours = ", ".join(mine) or "none"
            return f"it is for the {what} {' or '.join(allowed)} (Allow{name}), ours is {ours}"
        # An account is denied only where no list of allowed ones decides (slurm.conf(5): AllowAccounts goes
        # before).
        if not allowed and mine and set(mine) <= set(denied):
            return f"it is not for the {what} {', '.join(mine)} (Deny{name})"
    return ""


def preempted_by(partition: Partition, others: Iterable[Partition], settings: Mapping[str, str]) -> str:
    """Whose running jobs a job of the partition would preempt, in words; empty where none."""
    if "partition_prio" not in settings.get("PreemptType", ""):
        return ""
    lower = [
        one
        # Tiers only matter where partitions share nodes.
        for one in others
        if one.tier < partition.tier and one.can_lose_jobs() and one.nodes & partition.nodes
    ]
    if not lower:
        return ""
    names = ", ".join(f"{one.name} (tier {one.tier}, PreemptMode={one.preempt_mode})" for one in lower)
    return f"its tier {partition.tier} preempts running jobs of {names}"


@dataclass(frozen=True, slots=True)
class Choice:
    """``open``: where a guest puts jobs; ``closed``: only those that name it; else why they are left out."""

    open: tuple[str, ...]
    closed: tuple[str, ...]
    left_out: Mapping[str, str]


def choose_partitions(
    found: Mapping[str, Partition],
    member: Member,
    settings: Mapping[str, str],
    named: Collection[str],
    *,
    preempts: bool,
) -> Choice:
    """Those that are ``named``, and no others; else Slurm's default one, and others for jobs that name them.

    ``preempts``: also where that harms others.
    """
    opened: list[str] = []
    closed: list[str] = []
    left_out: dict[str, str] = {}
    for name, one in found.items():
        wanted = name in named if named else one.is_default
        why = why_closed(one, member, usual=False)
        if not why and not preempts:
            why = preempted_by(one, found.values(), settings)
            why += "; the executor's option preempts=true allows that" if why else ""
        if not why and wanted:
            why = why_closed(one, member, usual=True)
            if why and not named:  # a job may still name it, with an account that may
                closed.append(name)
        if why:
            left_out[name] = why
        elif wanted:
            opened.append(name)
        elif not named:
            closed.append(name)
    return Choice(tuple(opened), tuple(closed), left_out)
