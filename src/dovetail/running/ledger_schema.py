"""The tables of the ledger.

Times are seconds since the epoch. Attempts that were followed by another one are rows of their own. An app,
and what jobs start in (folder, environment), is written once however many jobs share it. ``unrecorded`` holds
runs that have ended and are not known to be in the history yet.
"""

from __future__ import annotations

VERSION = 2

TABLES = """
CREATE TABLE app (
    number INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    doc BLOB NOT NULL
);
CREATE TABLE job (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    app INTEGER NOT NULL REFERENCES app,
    doc BLOB NOT NULL,
    name TEXT,
    user TEXT,
    state TEXT NOT NULL,
    held TEXT,
    attempt INTEGER NOT NULL DEFAULT 0,
    implementation TEXT,
    allocation BLOB,
    nodes TEXT,
    devices TEXT,
    submitted REAL NOT NULL,
    started REAL,
    ended REAL,
    predicted REAL,
    exit_code INTEGER,
    detail TEXT,
    launch INTEGER REFERENCES launch,
    batch INTEGER,
    number INTEGER,
    element INTEGER,
    asked TEXT
);
CREATE INDEX job_open ON job (seq) WHERE state IN ('PENDING', 'RUNNING');
CREATE INDEX job_ended ON job (ended) WHERE ended IS NOT NULL;
CREATE INDEX job_number ON job (number) WHERE number IS NOT NULL;
CREATE INDEX job_batch ON job (batch) WHERE batch IS NOT NULL;
CREATE INDEX job_name ON job (name) WHERE name IS NOT NULL;
CREATE TABLE attempt (
    seq INTEGER NOT NULL REFERENCES job,
    attempt INTEGER NOT NULL,
    state TEXT NOT NULL,
    implementation TEXT,
    nodes TEXT,
    devices TEXT,
    started REAL,
    ended REAL,
    exit_code INTEGER,
    detail TEXT,
    PRIMARY KEY (seq, attempt)
) WITHOUT ROWID;
CREATE TABLE launch (
    number INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    doc BLOB NOT NULL
);
CREATE TABLE node (number INTEGER PRIMARY KEY, doc BLOB NOT NULL);
CREATE TABLE unrecorded (
    uid TEXT PRIMARY KEY,
    doc BLOB NOT NULL
) WITHOUT ROWID;
"""
"""``node`` holds those that were new, beyond those with which the run began. ``number`` and ``element`` are
a service's id of a job, ``batch`` the first number that was submitted with it, ``asked`` what its user
wants of it while it runs."""
