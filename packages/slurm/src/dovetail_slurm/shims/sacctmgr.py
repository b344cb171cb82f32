"""``sacctmgr``: questions about accounts, of which a service has none; what would change one is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dovetail_slurm.shims.columns import fit_text
from dovetail_slurm.shims.jobs import account_name
from dovetail_slurm.shims.options import Options, Wrong, has_option

OPTIONS = Options(
    "sacctmgr",
    "associations!s help!h immediate!i noheader!n oneliner!o parsable!p parsable2!P quiet!Q readonly!r "
    "usage! verbose!v version!V .json! .yaml!",
)
CLUSTER = "dovetail"


class Entity(NamedTuple):
    """What can be listed: its columns with their widths (a minus: at the left), and the usual ones."""

    columns: str
    usual: str


ENTITIES: Mapping[str, Entity] = {
    "account": Entity("Account:10 Descr:20 Org:20 Cluster:10 User:10", "Account Descr Org"),
    "association": Entity(
        "Cluster:10 Account:10 User:10 Partition:10 Share:9 Priority:10 GrpJobs:7 GrpTRES:13 GrpSubmit:9 "
        "GrpWall:11 GrpTRESMins:13 MaxJobs:7 MaxTRES:13 MaxTRESPerNode:14 MaxSubmit:9 MaxWall:11 "
        "MaxTRESMins:13 QOS:20 DefaultQOS:9 GrpTRESRunMin:13",
        "Cluster Account User Partition Share Priority GrpJobs GrpTRES GrpSubmit GrpWall GrpTRESMins MaxJobs "
        "MaxTRES MaxTRESPerNode MaxSubmit MaxWall MaxTRESMins QOS DefaultQOS GrpTRESRunMin",
    ),
    "cluster": Entity(
        "Cluster:10 ControlHost:15 ControlPort:12 RPC:5 Share:9 GrpJobs:7 GrpTRES:13 GrpSubmit:9 MaxJobs:7 "
        "MaxTRES:13 MaxSubmit:9 MaxWall:11 QOS:20 DefaultQOS:9",
        "Cluster ControlHost ControlPort RPC Share GrpJobs GrpTRES GrpSubmit MaxJobs MaxTRES MaxSubmit "
        "MaxWall QOS DefaultQOS",
    ),
    "qos": Entity("Name:10 Priority:10 MaxWall:11 Description:20 Flags:40", "Name Priority"),
    "tres": Entity("Type:8 Name:15 ID:6", "Type Name ID"),
    "user": Entity(
        "User:10 DefaultAccount:10 AdminLevel:9 Cluster:10 Account:10 Partition:10 Share:9 Priority:10 "
        "MaxJobs:7 MaxNodes:8 MaxCPUs:8 MaxSubmit:9 MaxWall:11 MaxCPUMins:11 QOS:20 DefaultQOS:9",
        "User DefaultAccount AdminLevel",
    ),
}
_WITH = (
    "User DefaultAccount AdminLevel Cluster Account Partition Share Priority MaxJobs MaxNodes MaxCPUs "
    "MaxSubmit MaxWall MaxCPUMins QOS DefaultQOS"
)
HEADERS = {"DefaultAccount": "Def Acct", "AdminLevel": "Admin", "DefaultQOS": "Def QOS"}
READS = ("list", "show")
CHANGES = (
    "add",
    "archive",
    "clear",
    "create",
    "delete",
    "dump",
    "load",
    "modify",
    "reconfigure",
    "remove",
    "update",
)


def run(words: list[str], place: str) -> int:
    """Print what is there; exit status 1 for what is wrong, or would change something."""
    given, rest = OPTIONS.read(words)
    if has_option(given, "help", "usage"):
        print(f"sacctmgr [<OPTION>] [<COMMAND>]\n{' '.join(OPTIONS.values)}")
        return 0
    if not rest:
        raise Wrong("sacctmgr: error: found no command, expected show or list")
    action = rest[0].lower()
    if action not in READS:
        if any(one.startswith(action) for one in CHANGES):
            raise Wrong(f" {rest[0]}: Dovetail keeps no accounts, so there is nothing to change")
        raise Wrong(f"invalid keyword: {rest[0]}")
    if len(rest) < 2:
        raise Wrong(" No option given.  Valid options are Account, Association, Cluster, QOS, TRES or User")
    text = rest[1].lower()
    near = [name for name in ENTITIES if name.startswith(text.rstrip("s") or text) or f"{name}s" == text]
    if text in ("assoc", "associations"):
        near = ["association"]
    if len(near) != 1:
        raise Wrong(f"invalid keyword: {rest[1]}")
    columns, values, headers = _requested_table(
        near[0], rest[2:], associations=has_option(given, "associations")
    )
    parsed = "P" if has_option(given, "parsable2") else "p" if has_option(given, "parsable") else ""
    if not has_option(given, "noheader"):
        print(format_line(headers, columns, parsed))
        if not parsed:
            print(" ".join("-" * abs(width) for width in columns) + " ")
    for row in values:
        print(format_line(row, columns, parsed))
    return 0


def _requested_table(
    name: str, words: Sequence[str], *, associations: bool
) -> tuple[list[int], list[list[str]], list[str]]:
    """Widths, rows and headers."""
    entity = ENTITIES[name]
    known = {
        one.lower(): (one, int(width)) for one, _, width in (c.partition(":") for c in entity.columns.split())
    }
    wanted = _WITH.split() if name == "user" and associations else entity.usual.split()
    conditions: dict[str, list[str]] = {}
    bare: list[str] = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            if key.lower() in (
                "withassoc",
                "withcoord",
                "withdeleted",
                "where",
                "tree",
                "wopinfo",
                "wolimits",
            ):
                continue
            bare += [one for one in key.split(",") if one]
        elif key.lower() == "format":
            wanted = [part for part in value.split(",") if part]
        else:
            conditions.setdefault(key.lower(), []).extend(one for one in value.split(",") if one)
    if bare:
        conditions.setdefault({"qos": "name", "association": "account"}.get(name, name), []).extend(bare)
    widths, names = [], []
    for part in wanted:
        key, percent, width = part.lower().partition("%")
        found = known.get(key) or next((one for at, one in known.items() if at.startswith(key)), None)
        if found is None or (percent and not width.lstrip("-").isdecimal()):
            raise Wrong(f" Unknown field '{part}'")
        names.append(found[0])
        widths.append(int(width) if percent else found[1])
    rows = [
        row
        for row in _entity_rows(name)
        if all(_matches_filter(row, key, some) for key, some in conditions.items())
    ]
    return (
        widths,
        [[row.get(one, "") for one in names] for row in rows],
        [HEADERS.get(one, one) for one in names],
    )


def _matches_filter(row: Mapping[str, str], key: str, some: Sequence[str]) -> bool:
    value = next((text for name, text in row.items() if name.lower().startswith(key.rstrip("s"))), None)
    return value is None or value in some


def _entity_rows(name: str) -> list[dict[str, str]]:
    """What there is: this user without an account, one cluster, one quality of service."""
    association = {"Cluster": CLUSTER, "Account": "", "User": account_name(), "Share": "1", "QOS": "normal"}
    if name == "user":
        return [{**association, "AdminLevel": "None", "DefaultAccount": ""}]
    if name == "association":
        return [association]
    if name == "cluster":
        return [{"Cluster": CLUSTER, "Share": "1", "QOS": "normal"}]
    if name == "qos":
        return [{"Name": "normal", "Priority": "0"}]
    if name == "tres":
        return [
            {"Type": one, "ID": str(at)}
            for at, one in enumerate(("cpu", "mem", "energy", "node", "billing"), 1)
        ]
    return []


def format_line(values: Sequence[str], widths: Sequence[int], parsed: str) -> str:
    """A line of columns, or of values between bars."""
    if parsed:
        return "|".join(values) + ("|" if parsed == "p" else "")
    cells = []
    for value, width in zip(values, widths, strict=True):
        wide = abs(width)
        text = value if len(value) <= wide else value[: wide - 1] + "+"
        cells.append(fit_text(text, wide, right=width > 0))
    return " ".join(cells) + " "
