"""Trace tables (CSV) and accounting in JSON, told apart by what they hold.

``*.csv`` is read as the first format whose columns its header has: AAIC, Philly, openb pods, Eagle.
Tables separated by bars are ``sacct --parsable2``. Each mapping is stated in its reader's module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dovetail.errors import InputError
from dovetail.files.reading import lines
from dovetail.files.sentences import file_name, shown
from dovetail.files.tables import EMPTY_TABLE
from dovetail.model import Cluster, Workload
from dovetail.workloads import aaic, eagle, openb, philly, slurm_accounting

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
    columns = _columns(header)
    for required, reader in TABLES.values():
        if columns.issuperset(required):
            return reader(path, cluster, lenient=lenient)
    formats = ", ".join(TABLES)
    raise _unknown(path, header, columns, TABLES, f"those of {formats}, or sacct's")


def read_node_list(path: str | Path) -> Cluster:
    """The cluster of a node list, in the format that its header tells. Raises `InputError`."""
    header = _header(path)
    columns = _columns(header)
    for required, reader in NODE_LISTS.values():
        if columns.issuperset(required):
            return reader(path)
    raise _unknown(path, header, columns, NODE_LISTS, f"a node list of {', '.join(NODE_LISTS)}")


def _unknown(
    path: str | Path,
    header: str,
    columns: frozenset[str],
    known: Mapping[str, tuple[Sequence[str], object]],
    expected: str,
) -> InputError:
    """What to say of a header: the columns that are missing from the format that it nearly is."""
    where = file_name(path)
    if not header:
        return InputError(EMPTY_TABLE, where=where)
    near = max(known, key=lambda name: len(columns.intersection(known[name][0])) / len(known[name][0]))
    required = known[near][0]
    missing = [name for name in required if name not in columns]
    if 2 * len(missing) <= len(required):
        expected = f"also {', '.join(missing)}, as in those of {near}"
    return InputError(
        f"found the columns {shown(header, limit=80)}, expected {expected}", where=f"{where}: line 1"
    )


def _columns(header: str) -> frozenset[str]:
    return frozenset(cell.strip().strip('"') for cell in header.split(","))


def _header(path: str | Path) -> str:
    return next((line.strip() for line in lines(path, "a table") if line.strip()), "")
