"""How a job's process is started, and the error text where that fails. Standard library only."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
from typing import TYPE_CHECKING, Any

from dovetail.files.shortage import lack_of
from dovetail.process.cgroups import Group, Groups
from dovetail.process.children import Setup, encode_variables

if TYPE_CHECKING:
    from collections.abc import Mapping

EMPTY: dict[str, str] = {}
RESET = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGXCPU,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
)
"""Signals that Python or our parent may ignore; jobs get the default back."""


class SpawnError(Exception):
    """The job could not be started; the text is the sentence for its user."""


class NoResourcesError(SpawnError):
    """The job could not be started for want of what may be there again soon; the text names it."""


class Starter:
    """Starts one process at a time; a child inherits our folder, cores and cgroup, so we take them on."""

    def __init__(self) -> None:
        self.cores = os.sched_getaffinity(0)
        self.at: list[int] | None = None  # whose cores we have taken on
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.inherited: dict[int, int] = {}  # descriptors of ours that the next one gets, by its numbers
        self.born = 0  # pid of the process that was started last, 0 where that failed

    def take_cores(self, cores: list[int] | None) -> None:
        """Take on these cores only, or have all of ours again; a job's start reports cores that are gone."""
        if self.at is not cores:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, self.cores if cores is None else cores)
                self.at = cores

    def spawn_job(self, job: dict[str, Any], setup: Setup, groups: Groups) -> tuple[int, Group | None]:
        """posix_spawn with the job's folder, files, cores and cgroup. Raises `SpawnError`."""
        self.born = 0
        environ = setup.environ.copy()
        environ[b"DOVETAIL_JOB"] = os.fsencode(job["job"])
        environ[b"DOVETAIL_UID"] = os.fsencode(job["uid"])
        environ.update(encode_variables(job.get("vars", EMPTY)))
        files: list[int] = []
        made: list[str] = []
        before = None if setup.umask is None else os.umask(setup.umask)
        try:
            enter_folder(setup.folder)
            read = job.get("stdin")
            if read is not None:
                files.append(open_input(read))
            for path in job["files"]:
                opened = files if read is None else files[1:]
                chosen, append = job.get("chosen", False), job.get("append", False)
                files.append(open_output(path, opened, job["files"], chosen, append))
                made.append(path)
            program = find_program(job["argv"][0], setup.path)
            streams = (self.null, *files) if read is None else files
            actions = [(os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate(streams)]
            actions += [(os.POSIX_SPAWN_DUP2, fd, n) for n, fd in self.inherited.items()]
            if setup.cores and self.at is not setup.cores:
                pin_to_cores(setup.cores)
                self.at = setup.cores
            elif not setup.cores:
                self.take_cores(None)
            group = groups.enter_group(job.get("memory"))
            own = () if setup.limits is None else take_on(setup.limits)
            try:
                self.born = os.posix_spawn(
                    program,
                    job["argv"],
                    environ,
                    file_actions=actions,
                    setsid=True,
                    setsigmask=(),
                    setsigdef=RESET,
                )
            except (OSError, ValueError) as error:
                lack = lack_of(error)
                if (
                    lack
                    and not {resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_DATA}
                    & dict(own).keys()
                ):
                    raise NoResourcesError(lack) from error
                raise SpawnError(spawn_failure(job["argv"][0], program, error)) from error
            finally:
                for number, limit in own:
                    resource.setrlimit(number, limit)
                if group is not None:
                    groups.leave(group)
                    if not self.born:
                        groups.give_back(group)
            return self.born, group
        except NoResourcesError:
            # It is to be started again, with new ones.
            if not job.get("chosen", False):
                for path in made:
                    with contextlib.suppress(OSError):
                        os.unlink(path)
            raise
        finally:
            if before is not None:
                os.umask(before)
            for fd in files:
                # The job's own writes will fail with it.
                with contextlib.suppress(OSError):
                    os.close(fd)


def take_on(limits: Mapping[str, int]) -> list[tuple[int, tuple[int, int]]]:
    """Take on these soft limits, as far as our hard ones allow, so that the child has them from the start.

    Returns what was changed, as it was. Raises `SpawnError`, with nothing changed.
    """
    changed: list[tuple[int, tuple[int, int]]] = []
    # We may have used more than the child may.
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    try:
        for name, soft in limits.items():
            number = getattr(resource, f"RLIMIT_{name}", None)
            if number is None:
                continue
            own = resource.getrlimit(number)
            beyond = own[1] != resource.RLIM_INFINITY and not 0 <= soft <= own[1]
            wanted = own[1] if beyond else soft
            if wanted != own[0]:
                resource.setrlimit(number, (wanted, own[1]))
                changed.append((number, own))
    except (OSError, ValueError) as error:
        for number, own in changed:
            resource.setrlimit(number, own)
        raise SpawnError(f"its limits cannot be set: {error}") from error
    return changed


def open_input(path: str) -> int:
    """Open what a job reads."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise SpawnError(f"its input file {path!r} cannot be opened: {error.strerror}") from error


def open_output(path: str, opened: list[int], paths: list[str], chosen: bool, append: bool = False) -> int:
    """Create a file for a job's output, readable by its owner only; one that the user ``chose`` may be there.

    Standard error may share the file of standard output. With ``append`` what is there already stays.
    """
    if opened and path == paths[0]:
        return os.dup(opened[0])
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    flags |= (os.O_APPEND if append else os.O_TRUNC) if chosen else os.O_EXCL | os.O_NOFOLLOW
    try:
        try:
            return os.open(path, flags, 0o666 if chosen else 0o600)
        except FileNotFoundError:
            if chosen:
                raise
        make_again(os.path.dirname(path))
        return os.open(path, flags, 0o600)
    except OSError as error:
        lack = lack_of(error, path)
        # A disk, or a quota, that its user has chosen is in no other's way.
        if lack and not (chosen and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)):
            raise NoResourcesError(f"{path}: {lack}") from error
        raise SpawnError(f"its output file {path!r} cannot be created: {error.strerror}") from error


def make_again(folder: str) -> None:
    """Make a folder of outputs anew that was there once, and the one around it; not the run's own."""
    try:
        os.mkdir(folder, 0o700)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.dirname(folder), 0o700)
        os.mkdir(folder, 0o700)


def enter_folder(folder: str) -> None:
    """Make the job's working folder ours, so that the child inherits it."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise SpawnError(f"its working folder {folder!r} cannot be entered: {error.strerror}") from error


def pin_to_cores(cores: list[int]) -> None:
    """Give ourselves the job's cores, so that the child has them from its first instruction."""
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        raise SpawnError(f"it cannot be pinned to cores {cores}: {error.strerror}") from error


def find_program(name: str, path: str) -> str:
    """The program's file as a shell would find it; a name with a slash counts from the working folder."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        candidate = os.path.join(folder or ".", name)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise SpawnError(f"program {name!r} was not found in PATH")


def spawn_failure(name: str, program: str, error: OSError | ValueError) -> str:
    """The sentence for a program that cannot be started."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ENOENT:
        if os.path.exists(program):
            return f"program {name!r} cannot be started: the interpreter that it names does not exist"
        return f"program {name!r} does not exist"
    if number == errno.EACCES:
        return f"program {name!r} is not executable"
    if number == errno.ENOEXEC:
        return f"program {name!r} is neither a binary for this machine nor a script that begins with #!"
    return f"program {name!r} cannot be started: {error.strerror if isinstance(error, OSError) else error}"
