"""Files of the jobs' output: readable names in the run folder, or where the user wants them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dovetail.files.shortage import NoPlaceError
from dovetail.model import Job, JobId
from dovetail.process.spawn_log import SpawnLog

_UNFIT = re.compile(r"[^\w.+=@,-]+")
MOST = 100
RESERVED = frozenset({"journal", "ledger", "run", "spawn", "supervisor"})
"""Names of a run's own files, without their endings."""


def endless_paths(folder: str, job: JobId, attempt: int) -> tuple[str, str]:
    """Where an endless run keeps the output of one attempt of a job: ``output/12/12345.out`` and ``.err``."""
    number = job.split("_")[0]
    bucket = str(int(number) // 1000) if number.isdecimal() else "other"
    name = f"{folder}/output/{bucket}/{job}" + (f".{attempt}" if attempt > 1 else "")
    return f"{name}.out", f"{name}.err"


class Outputs:
    """Names of output files, each given once; nothing that is there already is written to.

    ``a b/c`` becomes ``a_b_c.out``; a name that is taken gets ``-2``, ``-3`` …, another attempt ``.2``. With
    ``endless``, ids are names already, lie in ``output/`` in folders of a thousand, and none is remembered.
    """

    def __init__(self, folder: Path, *, endless: bool = False) -> None:
        self._folder = str(folder)
        self._endless = endless
        self._taken: set[str] = set(RESERVED)
        self._next: dict[str, int] = {}
        self.paths: dict[JobId, tuple[str, str]] = {}

    def of(self, job: Job, attempt: int, cwd: str, node: str = "") -> tuple[tuple[str, str], bool]:
        """Paths for standard output and error, and whether the user chose them (then they may be there)."""
        out, err = (None, None) if job.launch is None else job.launch.files(job, cwd, node)
        # Also where only standard output is.
        chosen = err is not None
        if out is None or err is None:
            ours = (
                self._bucketed_paths(job.id, attempt) if self._endless else self._fresh_paths(job.id, attempt)
            )
            out, err = out or ours[0], err or ours[1]
        files = out, err
        if not self._endless:
            self.paths[job.id] = files
        return files, chosen

    def give_back(self, job: JobId) -> None:
        """The job has not begun after all: its names may be given again."""
        files = self.paths.pop(job, None)
        if files is not None:
            self._taken.discard(os.path.splitext(os.path.basename(files[0]))[0])

    def own_paths(self, job: JobId, attempt: int) -> tuple[str, str]:
        """The names that we give an attempt, in a folder that is there, whatever its user has chosen."""
        return self._bucketed_paths(job, attempt) if self._endless else self._fresh_paths(job, attempt)

    def link(self, job: JobId, before: int, attempt: int) -> None:
        """A further attempt goes on writing where the one before did."""
        if not self._endless:
            return
        for old, new in zip(
            endless_paths(self._folder, job, before), endless_paths(self._folder, job, attempt), strict=True
        ):
            if _is_there(old) and not _is_there(new):
                os.link(old, new)

    def _bucketed_paths(self, job: JobId, attempt: int) -> tuple[str, str]:
        out, err = endless_paths(self._folder, job, attempt)
        bucket = os.path.dirname(out)
        for path in (out, err):
            # Of another queue that once was in this folder: no output is lost.
            if _is_there(path):
                os.rename(path, f"{path}.{os.urandom(4).hex()}.old")
        if not os.path.isdir(bucket):
            try:
                os.makedirs(bucket, mode=0o700, exist_ok=True)
            except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
                above = os.path.dirname(bucket)
                place = bucket if os.path.isdir(above) else above
                if not _is_there(place):  # a link to nothing is in the way, too
                    raise
                raise NoPlaceError(place) from error
        return out, err

    def _fresh_paths(self, job: JobId, attempt: int) -> tuple[str, str]:
        plain = (
            _UNFIT.sub("_", job).lstrip(".-").encode("utf-8", "replace")[:MOST].decode("utf-8", "ignore")
            or "job"
        )
        if attempt > 1:
            plain = f"{plain}.{attempt}"
        name = plain
        while name in self._taken or self._is_taken(name):
            self._next[plain] = self._next.get(plain, 1) + 1
            name = f"{plain}-{self._next[plain]}"
        self._taken.add(name)
        return self._path_of(name, "out"), self._path_of(name, "err")

    def _is_taken(self, name: str) -> bool:
        return _is_there(self._path_of(name, "out")) or _is_there(self._path_of(name, "err"))

    def _path_of(self, name: str, ending: str) -> str:
        return f"{self._folder}/{name}.{ending}"

    def take_up_names(self, log: SpawnLog) -> None:
        """Take up the names of an earlier Dovetail."""
        if self._endless:
            return
        for intent in log.intents.values():
            out, err = intent["files"]
            self.paths[intent["job"]] = out, err


def _is_there(path: str) -> bool:
    """`os.path.lexists`, without an exception inside: mostly it is not there, and that costs a third."""
    return os.access(path, os.F_OK, follow_symlinks=False)
