"""Schema of the history database, version by version.

A new database goes through every step, so that an upgraded one and a new one cannot differ. Raw runs are
rows of ``runs``; app, implementation, class and request are spelt out once in ``groups``, inputs once in
``keys``, users once in ``users``.
"""

from __future__ import annotations

import sqlite3

APPLICATION_ID = 0x4456544C
"""``PRAGMA application_id`` of a Dovetail history."""

_VERSION_1 = (
    "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    # AUTOINCREMENT: the id of a forgotten group never comes back, so a new one is never mistaken for it.
    """CREATE TABLE groups (
         id INTEGER PRIMARY KEY AUTOINCREMENT,
         app TEXT NOT NULL, implementation TEXT NOT NULL, kind TEXT NOT NULL, model TEXT NOT NULL,
         nodes INTEGER NOT NULL, cpus INTEGER NOT NULL, gpus REAL NOT NULL,
         UNIQUE (app, implementation, kind, model, nodes, cpus, gpus))""",
    """CREATE TABLE keys (
         id INTEGER PRIMARY KEY AUTOINCREMENT,
         group_id INTEGER NOT NULL REFERENCES groups (id),
         inputs TEXT NOT NULL,
         UNIQUE (group_id, inputs))""",
    """CREATE TABLE runs (
         id INTEGER PRIMARY KEY AUTOINCREMENT,
         group_id INTEGER NOT NULL, key_id INTEGER NOT NULL,
         uid UNIQUE,
         state INTEGER NOT NULL, seconds REAL NOT NULL, finished REAL NOT NULL, job TEXT, user_id INTEGER,
         walltime REAL, first_on_device INTEGER NOT NULL,
         cpu_time REAL, peak_memory INTEGER,
         sent REAL, sent_time REAL, received REAL, received_time REAL)""",
    "CREATE INDEX runs_of_group ON runs (group_id)",
)

# Welford's figures from raw runs, in two passes; only completed runs (state 0) count.
AVERAGE_ALL = (
    """UPDATE keys SET
         count = (SELECT count(*) FROM runs WHERE key_id = keys.id AND state = 0),
         failed = (SELECT count(*) FROM runs WHERE key_id = keys.id AND state <> 0),
         mean = (SELECT coalesce(avg(seconds), 0) FROM runs WHERE key_id = keys.id AND state = 0),
         minimum = (SELECT min(seconds) FROM runs WHERE key_id = keys.id AND state = 0),
         maximum = (SELECT max(seconds) FROM runs WHERE key_id = keys.id AND state = 0)
       WHERE {where}""",
    """UPDATE keys SET
         m2 = (SELECT coalesce(sum((seconds - keys.mean) * (seconds - keys.mean)), 0)
               FROM runs WHERE key_id = keys.id AND state = 0),
         (transfers, sent, sent_time, received, received_time) =
           (SELECT count(*), coalesce(avg(coalesce(sent, 0)), 0), coalesce(avg(coalesce(sent_time, 0)), 0),
                   coalesce(avg(coalesce(received, 0)), 0), coalesce(avg(coalesce(received_time, 0)), 0)
            FROM runs WHERE key_id = keys.id AND state = 0
              AND (sent IS NOT NULL OR received IS NOT NULL))
       WHERE {where}""",
    """UPDATE groups SET
         completed = (SELECT coalesce(sum(count), 0) FROM keys WHERE group_id = groups.id),
         failed = (SELECT coalesce(sum(failed), 0) FROM keys WHERE group_id = groups.id),
         changes = changes + 1
       WHERE {where_group}""",
)

# Version 1 had raw runs only; version 2 keeps the averages of Gregg 2011, Table 1, beside them.
_VERSION_2 = (
    *(
        f"ALTER TABLE keys ADD COLUMN {column}"
        for column in (
            "count INTEGER NOT NULL DEFAULT 0",
            "mean REAL NOT NULL DEFAULT 0",
            "minimum REAL",
            "maximum REAL",
            "m2 REAL NOT NULL DEFAULT 0",
            "transfers INTEGER NOT NULL DEFAULT 0",
            "sent REAL NOT NULL DEFAULT 0",
            "sent_time REAL NOT NULL DEFAULT 0",
            "received REAL NOT NULL DEFAULT 0",
            "received_time REAL NOT NULL DEFAULT 0",
            "failed INTEGER NOT NULL DEFAULT 0",
        )
    ),
    "ALTER TABLE groups ADD COLUMN completed INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE groups ADD COLUMN failed INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE groups ADD COLUMN changes INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX keys_of_group ON keys (group_id)",
    # Averaging needs the runs of each key: an index for the one pass, not for good.
    "CREATE INDEX runs_of_key ON runs (key_id)",
    *(statement.format(where="true", where_group="true") for statement in AVERAGE_ALL),
    "DROP INDEX runs_of_key",
)

# Version 3 keeps what jobs held of their devices.
_VERSION_3 = (
    "ALTER TABLE runs ADD COLUMN gpu_memory INTEGER",
    "ALTER TABLE runs ADD COLUMN gpu_use REAL",
)

# Version 4 keeps what ran beside a job on its device, as JSON.
_VERSION_4 = ("ALTER TABLE runs ADD COLUMN beside TEXT",)

_STEPS = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4)
SCHEMA_VERSION = len(_STEPS)


def create_or_migrate(connection: sqlite3.Connection, *, up_to: int = SCHEMA_VERSION) -> int:
    """Bring the database to version ``up_to``; returns the version it had.

    The caller holds the write lock: all steps commit together or not at all. Raises `sqlite3.Error`.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for step in _STEPS[version:up_to]:
        for statement in step:
            connection.execute(statement)
    if version < up_to:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {up_to}")
    return int(version)
