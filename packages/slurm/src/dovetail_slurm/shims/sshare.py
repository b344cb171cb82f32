"""``sshare``: fair shares, where the service keeps them; this user's line else."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail_slurm.shims.jobs import account_name, user_names
from dovetail_slurm.shims.options import Given, Options, Wrong, has_option, last_value, listed_values
from dovetail_slurm.shims.sacctmgr import format_line
from dovetail_slurm.shims.service import Service

OPTIONS = Options(
    "sshare",
    "accounts=A all!a .clusters=M format=o help! helpformat!e .json! long!l .local! noheader!n .partition!m "
    "parsable!p parsable2!P users=u Users!U usage! verbose!v version!V",
)
COLUMNS = {
    "Account": -20,
    "User": 10,
    "RawShares": 10,
    "NormShares": 11,
    "RawUsage": 11,
    "EffectvUsage": 13,
    "FairShare": 10,
    "Cluster": 10,
    "Partition": 12,
    "LevelFS": 10,
    "NormUsage": 11,
    "GrpTRESMins": 30,
    "TRESRunMins": 30,
    "ID": 6,
}
USUAL = "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare"


def run(words: list[str], place: str) -> int:
    """Print shares; exit status 1 for what is wrong."""
    given, rest = OPTIONS.read(words)
    if has_option(given, "help", "usage"):
        print(f"Usage: sshare [OPTION]\n{' '.join(OPTIONS.values)}")
        return 0
    if rest:
        raise Wrong(f"sshare: error: Unrecognized option: {rest[0]}")
    if has_option(given, "helpformat"):
        print(" ".join(COLUMNS))
        return 0
    names, widths = [], []
    for part in (last_value(given, "format") or USUAL).split(","):
        key, percent, width = part.strip().lower().partition("%")
        found = next((one for one in COLUMNS if one.lower().startswith(key)), None) if key else None
        if found is None or (percent and not width.lstrip("-").isdecimal()):
            raise Wrong(f'sshare: error: Invalid field requested: "{part}"')
        names.append(found)
        widths.append(int(width) if percent else COLUMNS[found])
    rows = _share_rows(given, Service("sshare", place))
    parsed = "P" if has_option(given, "parsable2") else "p" if has_option(given, "parsable") else ""
    if not has_option(given, "noheader"):
        print(format_line(names, widths, parsed))
        if not parsed:
            print(" ".join("-" * abs(width) for width in widths) + " ")
    for row in rows:
        print(format_line([row.get(one, "") for one in names], widths, parsed))
    return 0


def _share_rows(given: Sequence[Given], service: Service) -> list[dict[str, str]]:
    fair = service.get("/api/v1/info")["fair"]
    users = [] if fair is None else fair["users"]
    total = sum(one["share"] for one in users) or 1.0
    used = sum(one["used"] for one in users) or 1.0
    found = [
        {
            "User": one["user"],
            "RawShares": f"{one['share']:g}",
            "NormShares": f"{one['share'] / total:f}",
            "RawUsage": f"{one['used']:.0f}",
            "EffectvUsage": f"{one['used'] / used:f}",
            "FairShare": f"{2 ** -((one['used'] / used) / (one['share'] / total)):f}",
            "Cluster": "dovetail",
        }
        for one in users
    ]
    if not any(row["User"] == account_name() for row in found):
        found.append({"User": account_name(), "RawShares": "1", "RawUsage": "0", "Cluster": "dovetail"})
    if has_option(given, "all"):
        return found
    wanted = user_names(listed_values(given, "users")) or [account_name()]
    return [row for row in found if row["User"] in wanted]
