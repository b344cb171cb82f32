"""Trace tables (CSV) and accounting in JSON, told apart by what they hold.

``*.csv`` is read as the first format whose columns its header has: AAIC, Philly, openb pods, Eagle.
Tables separated by bars are ``sacct --parsable2``. Each mapping is stated in its reader's module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dovetail.errors import InputError
from dovetail.model import Cluster, Workload
from dovetail.model.files import file_name
from dovetail.workloads import aaic, eagle, openb, philly, slurm_accounting
from dovetail.workloads.textfile import read_text, shown

__all__ = ["TABLES", "read_node_list", "read_table"]

Reader = Callable[..., Workload]

TABLES: Mapping[str, tuple[Sequence[str], Reader]] = {
    "aaic": (aaic.COLUMNS, aaic.read_aaic),
    "eagle": (eagle.COLUMNS, eagle.read_eagle),
    "openb": (openb.COLUMNS, openb.read_openb),
    "philly": (philly.COLUMNS, philly.read_philly),
}
NODE_LISTS: Mapping[str, tuple[Sequence[str], Callable[[str | Path], Cluster]]] = {
    "aaic": (aaic.NODE_COLUMNS, aaic.read_aaic_nodes),
    "openb": (openb.NODE_COLUMNS, openb.read_openb_nodes),
    "philly": (("machine_id", "gpus"), philly.read_philly_machines),
}


def read_table(path: str | Path, cluster: Cluster | None = None, *, lenient: bool = False) -> Workload:
    """Jobs of a table, in the format that its header tells. Raises `InputError`."""
    header = _header(path)
    if header[:1] in ("{", "["):
        return slurm_accounting.read_sacct_json(path, cluster, lenient=lenient)
    if "|" in header:
        return slurm_accounting.read_sacct_parsable(path, cluster, lenient=lenient)
    columns = {cell.strip() for cell in header.split(",")}
    for required, reader in TABLES.values():
        if columns.issuperset(required):
            return reader(path, cluster, lenient=lenient)
    raise InputError(
        f"found the columns {shown(header, limit=80)}, expected those of {', '.join(TABLES)}, or sacct's",
        where=f"{file_name(path)}: line 1",
    )


def read_node_list(path: str | Path) -> Cluster:
    """The cluster of a node list, in the format that its header tells. Raises `InputError`."""
    header = _header(path)
    columns = {cell.strip() for cell in header.split(",")}
    for required, reader in NODE_LISTS.values():
        if columns.issuperset(required):
            return reader(path)
    raise InputError(
        f"found the columns {shown(header, limit=80)}, expected a node list of {', '.join(NODE_LISTS)}",
        where=f"{file_name(path)}: line 1",
    )


def _header(path: str | Path) -> str:
    return next((line.strip() for line in read_text(path).splitlines() if line.strip()), "")
