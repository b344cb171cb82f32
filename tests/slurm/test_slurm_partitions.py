"""What scontrol and sacctmgr have said of partitions and users, as recorded; what a guest may use by that."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dovetail_slurm import commands as slurm_commands
from dovetail_slurm.commands import SlurmError
from dovetail_slurm.partitions import (
    Member,
    UsualQos,
    choose_partitions,
    choose_qos,
    preempted_by,
    preempting_qos,
    read_member,
    read_partitions,
    why_closed,
)

LINE = (
    "PartitionName={name} AllowGroups={groups} {accounts} {qos} AllocNodes=ALL Default={default} QoS=N/A "
    "DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED "
    "MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes={nodes} PriorityJobFactor=1 "
    "PriorityTier={tier} RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode={mode} "
    "State={state} TotalCPUs=12 TotalNodes=3 SelectTypeParameters=NONE JobDefaults=(null)\n"
)
USUAL = {
    "groups": "ALL",
    "accounts": "AllowAccounts=ALL",
    "qos": "AllowQos=ALL",
    "default": "NO",
    "nodes": "n[0-2]",
    "tier": "1",
    "mode": "REQUEUE",
    "state": "UP",
}
CLUSTER = [
    {"name": "low", "default": "YES"},
    {"name": "hi", "tier": "10"},
    {"name": "apart", "tier": "10", "nodes": "n[7-9]"},
    {"name": "firm", "tier": "5", "mode": "OFF", "nodes": "n[7-9]"},
    {"name": "grouped", "groups": "wheel,chem", "nodes": "m1"},
    {"name": "theirs", "accounts": "AllowAccounts=chem,bio", "nodes": "m2"},
    {"name": "denied", "accounts": "DenyAccounts=lab", "nodes": "m3"},
    {"name": "gold", "qos": "AllowQos=gold", "nodes": "m4"},
    {"name": "shut", "state": "INACTIVE", "nodes": "m5"},
]
SETTINGS = {"PreemptType": "preempt/partition_prio", "ClusterName": "c", "AccountingStorageType": "none"}
ME = Member("me", frozenset({"users"}), ["lab", "open"], ["normal", "gold"])


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "".join(LINE.format(**{**USUAL, **one}) for one in CLUSTER)

    def call(argv: Sequence[str], **_: object) -> tuple[str, str]:
        if argv[0] == "scontrol":
            return said, ""
        if "user" in argv:
            return "lab\n", ""
        if "assoc" in argv:
            return "open||gold,normal\nlab||normal\n", ""
        raise SlurmError("not recorded")

    monkeypatch.setattr(slurm_commands, "run_command", call)


def test_the_default_is_open_others_are_closed_and_the_rest_is_left_out_with_a_reason() -> None:
    choice = choose_partitions(read_partitions(), ME, SETTINGS, [], preempts=False)
    assert choice.open == ("low",)
    # for jobs that name them, denied with another account than the usual one, gold with --qos=gold
    assert choice.closed == ("apart", "firm", "denied", "gold")
    assert choice.left_out == {
        "hi": "its tier 10 preempts running jobs of low (tier 1, PreemptMode=REQUEUE); the executor's option "
        "preempts=true allows that",
        "grouped": "it is for the groups wheel, chem (AllowGroups)",
        "theirs": "it is for the account chem or bio (AllowAccounts), ours is lab, open",
        "shut": "it is INACTIVE",
    }


def test_what_is_named_is_all_that_is_used() -> None:
    found = read_partitions()
    named = choose_partitions(found, ME, SETTINGS, ["apart", "hi", "gold"], preempts=False)
    assert (named.open, named.closed) == (("apart",), ())
    assert "preempts running jobs" in named.left_out["hi"]
    assert named.left_out["gold"] == "it is for the QOS gold (AllowQos), ours is normal"
    golden = ME.with_options(["--qos=gold"], {})
    assert choose_partitions(found, golden, SETTINGS, ["gold"], preempts=False).open == ("gold",)
    assert choose_partitions(found, ME, SETTINGS, ["hi"], preempts=True).open == ("hi",)


def test_a_tier_preempts_only_what_can_lose_jobs_on_the_same_nodes_and_where_slurm_is_set_so() -> None:
    found = read_partitions()
    assert preempted_by(found["hi"], found.values(), SETTINGS)
    assert not preempted_by(found["apart"], found.values(), SETTINGS)
    assert not preempted_by(found["low"], found.values(), SETTINGS)
    assert not preempted_by(found["hi"], found.values(), {"PreemptType": "preempt/none"})


def test_an_account_that_is_denied_and_groups_that_do_not_hold_for_the_owner() -> None:
    found = read_partitions()
    assert why_closed(found["denied"], ME, usual=True) == "it is not for the account lab (DenyAccounts)"
    assert not why_closed(found["denied"], ME, usual=False)
    other = ME.with_options(["-A", "open"], {})
    assert not why_closed(found["denied"], other, usual=True)
    assert not why_closed(found["denied"], ME.with_options([], {"SBATCH_ACCOUNT": "open"}), usual=True)
    assert not why_closed(found["grouped"], Member("root", frozenset(), is_owner=True), usual=True)
    assert not why_closed(found["grouped"], Member("me", frozenset({"chem"})), usual=True)
    assert not why_closed(found["theirs"], Member("me", frozenset()), usual=True)  # nobody keeps accounts


def test_accounts_and_qos_come_from_the_accounting_the_usual_ones_first() -> None:
    member = read_member({**SETTINGS, "AccountingStorageType": "accounting_storage/slurmdbd"})
    assert member.accounts == ["lab", "open"]
    assert member.qos is not None
    assert list(member.qos) == ["normal", "gold"]
    assert read_member(SETTINGS).accounts is None


@pytest.mark.parametrize(
    ("qos", "expected"),
    [
        (None, UsualQos()),
        (["low", "hi"], UsualQos()),
        (["hi", "low"], UsualQos("--qos=low")),
        (["hi"], UsualQos(harm="its QOS hi preempts running jobs of QOS low,normal")),
    ],
)
def test_jobs_that_name_no_qos_get_one_that_preempts_nobody(
    qos: list[str] | None, expected: UsualQos
) -> None:
    member = Member("ada", frozenset(), ["lab"], qos)
    assert choose_qos(member, {"hi": "low,normal"}) == expected
    assert choose_qos(member, {}) == UsualQos()


def test_qos_preempt_where_the_cluster_has_it_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["low", "", "cluster"], ["hi", "low", "cluster"], ["self", "", "cluster,within"]]
    monkeypatch.setattr(slurm_commands, "read_rows", lambda argv, count: rows)
    assert preempting_qos({"PreemptType": "preempt/qos"}) == {"hi": "low", "self": "self"}
    assert preempting_qos({"PreemptType": "preempt/partition_prio"}) == {}
