"""Rows of the history database as runs and averages, and the one way in which runs are added."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from dovetail.history.base import (
    Aggregate,
    Group,
    InputsKey,
    RequestKey,
    canonical_inputs,
    check_run,
    inputs_from_text,
    inputs_text,
    request_key,
)
from dovetail.history.companions import companions_from, companions_text
from dovetail.model import DeviceClass, Run, State, Usage

_STATES = (
    State.COMPLETED,
    State.FAILED,
    State.TIMEOUT,
    State.CANCELLED,
    State.NODE_FAIL,
    State.PENDING,
    State.RUNNING,
    State.OUT_OF_MEMORY,
)  # position = number in the database: append only
KILLED = _STATES.index(State.OUT_OF_MEMORY)
_STATE_NUMBER = {state: number for number, state in enumerate(_STATES)}

RUN_COLUMNS = (
    "runs.id, g.app, g.implementation, g.kind, g.model, g.nodes, g.cpus, g.gpus, keys.inputs, runs.seconds, "
    "runs.state, runs.walltime, runs.cpu_time, runs.peak_memory, runs.sent, runs.sent_time, runs.received, "
    "runs.received_time, runs.finished, runs.uid, runs.job, users.name, runs.first_on_device, "
    "runs.gpu_memory, runs.gpu_use, runs.beside"
)
RUN_TABLES = (
    "runs JOIN groups g ON g.id = runs.group_id JOIN keys ON keys.id = runs.key_id "
    "LEFT JOIN users ON users.id = runs.user_id"
)
_FIGURES = (
    *("count", "mean", "minimum", "maximum", "m2"),
    *("transfers", "sent", "sent_time", "received", "received_time", "failed"),
)
"""Averages of a key: the names of columns, and of the fields of `Aggregate`."""
_figures = attrgetter(*_FIGURES)
KEY_COLUMNS = ", ".join(f"keys.{name}" for name in ("inputs", *_FIGURES))
_UPDATE = f"UPDATE keys SET {', '.join(f'{name} = ?' for name in _FIGURES)} WHERE id = ?"
_USAGE = (
    *("cpu_time", "peak_memory", "sent", "sent_time", "received", "received_time"),
    *("gpu_memory", "gpu_use"),
)
_usage = attrgetter(*_USAGE)
_WRITTEN = (
    *("group_id", "key_id", "uid", "state", "seconds", "finished", "job", "user_id", "walltime"),
    *("first_on_device", *_USAGE, "beside"),
)
_INSERT = f"INSERT OR IGNORE INTO runs ({', '.join(_WRITTEN)}) VALUES ({', '.join('?' * len(_WRITTEN))})"
_Place = tuple[str, str, str, str, int, int, float]
_NO_USAGE = Usage()


_HEX = re.compile(r"[0-9a-f]{32}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_JOB_OF_SESSION = re.compile(r"[0-9a-f]{32}/", re.ASCII)


def pack_uid(uid: str) -> str | bytes | None:
    """A uid as it is stored: the hexadecimal part of a UUID, or of UUID/job, takes half the space.

    A mark keeps the forms apart: 16 bytes alone; ``-`` and 16 bytes; ``/``, 16 bytes and the job.

    >>> pack_uid("00112233445566778899aabbccddeeff/mm-1")[17:]
    b'mm-1'
    """
    if _JOB_OF_SESSION.match(uid):
        return b"/" + bytes.fromhex(uid[:32]) + uid[33:].encode()
    if _HEX.fullmatch(uid):
        return bytes.fromhex(uid)
    if _UUID.fullmatch(uid):
        return b"-" + bytes.fromhex(uid.replace("-", ""))
    return uid or None


def unpack_uid(stored: str | bytes | None) -> str:
    """Inverse of `pack_uid`."""
    if isinstance(stored, bytes):
        text = stored.hex()
        if stored[:1] == b"/" and len(stored) > 16:
            return f"{text[2:34]}/{stored[17:].decode()}"
        if len(stored) == 16:
            return text
        text = text[2:]
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    return stored or ""


class Writer:
    """Adds runs; ids and averages that it has looked up serve the next transactions too.

    It is only good while no other connection writes and no transaction of its own is rolled back: its owner
    throws it away then.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._groups: dict[_Place, int] = {}
        self._keys: dict[tuple[int, InputsKey], tuple[int, Aggregate]] = {}
        self._users: dict[str, int] = {}
        self._touched: dict[int, list[int]] = {}
        self._changed: dict[int, Aggregate] = {}
        self._new_groups: list[_Place] = []
        self._new_keys: list[tuple[int, InputsKey]] = []

    @property
    def size(self) -> int:
        """How many keys it remembers."""
        return len(self._keys)

    def add(self, run: Run) -> bool:
        """Insert one run; ``False`` if its uid was there. O(log n)."""
        check_run(run)
        group = self._id_of_group(run)
        key, aggregate = self._find_key(group, run)
        own = pack_uid(run.uid), _STATE_NUMBER[run.state], run.seconds, run.when, run.job or None
        more = self._id_of_user(run.user), run.walltime, int(run.first_on_device)
        beside = companions_text(run.beside)
        added = self._db.execute(_INSERT, (group, key, *own, *more, *_usage(run.usage or _NO_USAGE), beside))
        if not added.rowcount:
            # INSERT OR IGNORE: the uid decides, also where two processes record the same run.
            return False
        aggregate.add(run)
        self._changed[key] = aggregate
        self._touched.setdefault(group, [0, 0])[run.state is not State.COMPLETED] += 1
        return True

    def finish(self) -> frozenset[int]:
        """Write the averages before the transaction is committed; returns the ids of the changed groups.

        Keys and groups that were made for runs known already disappear again.
        """
        execute = self._db.execute
        # Averages of a key are written once per transaction, however many of its runs it brought.
        for key, aggregate in self._changed.items():
            figures = _figures(aggregate)
            # Then the least and the most are the mean: the database saves the space.
            if aggregate.count < 2:
                figures = (*figures[:2], None, None, *figures[4:])
            execute(_UPDATE, (*figures, key))
        for group, (completed, failed) in self._touched.items():
            execute(
                "UPDATE groups SET completed = completed + ?, failed = failed + ?, changes = changes + 1 "
                "WHERE id = ?",
                (completed, failed, group),
            )
        for place in self._new_keys:
            if self._keys[place][0] not in self._changed:
                execute("DELETE FROM keys WHERE id = ?", (self._keys.pop(place)[0],))
        for name in self._new_groups:
            if self._groups[name] not in self._touched:
                execute("DELETE FROM groups WHERE id = ?", (self._groups.pop(name),))
        touched = frozenset(self._touched)
        for made in (self._touched, self._changed, self._new_groups, self._new_keys):
            made.clear()
        return touched

    def _id_of_group(self, run: Run) -> int:
        place = (
            run.app,
            run.implementation,
            run.device_class.kind,
            run.device_class.model,
            *request_key(run),
        )
        found = self._groups.get(place)
        if found is None:
            row = self._db.execute(
                "SELECT id FROM groups WHERE app = ? AND implementation = ? AND kind = ? AND model = ? "
                "AND nodes = ? AND cpus = ? AND gpus = ?",
                place,
            ).fetchone()
            if row:
                found = int(row[0])
            else:
                found = self._insert_row(
                    "INSERT INTO groups (app, implementation, kind, model, nodes, cpus, gpus) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    place,
                )
                self._new_groups.append(place)
            self._groups[place] = found
        return found

    def _find_key(self, group: int, run: Run) -> tuple[int, Aggregate]:
        # Canonical, so that 2048 and 2048.0 are one key.
        inputs = canonical_inputs(run.inputs)
        found = self._keys.get((group, inputs))
        if found is None:
            text = inputs_text(inputs)
            row = self._db.execute(
                f"SELECT id, {KEY_COLUMNS} FROM keys WHERE group_id = ? AND inputs = ?", (group, text)
            ).fetchone()
            place = (run.app, run.implementation, run.device_class, request_key(run))
            if row:
                found = (row[0], aggregate_of(*place, row[1:]))
            else:
                key = self._insert_row("INSERT INTO keys (group_id, inputs) VALUES (?, ?)", (group, text))
                found = (key, Aggregate(*place, inputs))
                self._new_keys.append((group, inputs))
            self._keys[group, inputs] = found
        return found

    def _id_of_user(self, user: str | None) -> int | None:
        if user is None:
            return None
        if user not in self._users:
            row = self._db.execute("SELECT id FROM users WHERE name = ?", (user,)).fetchone()
            self._users[user] = (
                row[0] if row else self._insert_row("INSERT INTO users (name) VALUES (?)", (user,))
            )
        return self._users[user]

    def _insert_row(self, sql: str, values: Sequence[Any]) -> int:
        row = self._db.execute(sql, values).lastrowid
        assert row is not None
        return row


def _check_numbers(needed: Sequence[Any], others: Sequence[Any] = ()) -> None:
    """SQLite returns whatever a damaged page holds, of whatever type; ``others`` may be missing."""
    for value in (*needed, *(other for other in others if other is not None)):
        if not isinstance(value, int | float) or not -math.inf < value < math.inf:
            raise ValueError(f"found {value!r}, expected a number")


def _check_words(words: Sequence[Any]) -> None:
    """Names are text; a damaged cell may hold bytes."""
    if not all(isinstance(word, str) for word in words):
        raise ValueError(f"found the names {list(words)!r}, expected text")


def aggregate_of(
    app: str, implementation: str, device: DeviceClass, request: RequestKey, row: Sequence[Any]
) -> Aggregate:
    """The averages of one row of `KEY_COLUMNS`. Raises `ValueError` and the like for what cannot be one."""
    _check_numbers((*row[1:3], *row[5:]), row[3:5])
    inputs, (count, mean, minimum, maximum) = inputs_from_text(row[0]), row[1:5]
    # Left out by the writer where there is one run, or none: then they are the mean.
    if minimum is None:
        minimum, maximum = (mean, mean) if count else (math.inf, 0.0)
    return Aggregate(
        app, implementation, device, request, inputs, count, mean, minimum, maximum, row[5], *row[6:]
    )


def group_of(row: Sequence[Any]) -> Group:
    """The group of a row of app, implementation, kind, model, nodes, cpus, gpus, completed, failed."""
    _check_words(row[:4])
    _check_numbers(row[4:9])
    return Group(row[0], row[1], DeviceClass(row[2], row[3]), (row[4], row[5], row[6]), row[7], row[8])


def run_of(row: Sequence[Any]) -> Run:
    """The run of one row of `RUN_COLUMNS`. Raises `ValueError` and the like for what cannot be one."""
    _check_numbers((row[0], *row[5:8], row[9], row[18]), (*row[11:18], *row[23:25]))
    _check_words((*row[1:5], *(word for word in (*row[20:22], row[25]) if word is not None)))
    used = (*row[12:18], None, *row[23:25])
    usage = None if all(value is None for value in used) else Usage(*used)
    return Run(
        app=row[1],
        implementation=row[2],
        device_class=DeviceClass(row[3], row[4]),
        nodes=row[5],
        cpus=row[6],
        gpus=row[7],
        inputs=dict(inputs_from_text(row[8])),
        seconds=row[9],
        state=_STATES[row[10]],
        walltime=row[11],
        usage=usage,
        when=row[18],
        uid=unpack_uid(row[19]),
        job=row[20] or "",
        user=row[21],
        first_on_device=bool(row[22]),
        beside=companions_from(row[25]),
    )
