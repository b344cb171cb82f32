"""The command, or a program, in a process forked from one which has loaded it: `make test` starts many.

Whatever a call does, it does in a process of its own, which ends as any other; only loading is done once.
`make test-all` starts every one anew, and so do, everywhere, the tests that start processes themselves.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import random
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
AT_START = ("PYTHON", "LD_", "MALLOC", "OPENBLAS", "OMP_", "NUMBA", "LC_", "LANG")
"""What a process reads of its environment when it starts: with others than ours it is started anew."""


ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""What the process that is ready has in its environment beside ours: it serves with these, and without."""


def can_serve(environment: Mapping[str, str]) -> bool:
    """Whether a process that has started in our environment can stand for one that starts in this."""

    def of_start(names: Mapping[str, str]) -> dict[str, str]:
        return {
            name: value
            for name, value in names.items()
            if name.startswith(AT_START) and ONE_THREAD.get(name) != value
        }

    return of_start(environment) == of_start(os.environ)


# -- where the tests are ---------------------------------------------------------------------------------


@cache
def _door() -> tuple[str, subprocess.Popen[bytes]]:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"\0dovetail-tests-{os.getpid()}-{time.monotonic_ns()}")
    listener.listen(64)
    number = listener.fileno()
    code = f"import sys; sys.path.insert(0, {str(HERE)!r}); from ready_command import serve; serve({number})"
    # Its streams are pipes as those of the commands that it becomes.
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", code],
        pass_fds=[number],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **ONE_THREAD},
    )
    name = listener.getsockname()
    listener.close()
    atexit.register(_close, process)
    return name, process


def _close(process: subprocess.Popen[bytes]) -> None:
    with process:  # which closes its streams, and waits
        process.kill()


class Started:
    """The command with its output in open files, and of `subprocess.Popen` what the tests need."""

    def __init__(
        self,
        arguments: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        out: int,
        err: int,
        program: str | None = None,
    ) -> None:
        self.args = list(arguments)
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(_door()[0])
        asked, nothing = os.memfd_create("asked"), os.open(os.devnull, os.O_RDONLY)
        try:
            os.write(asked, json.dumps([self.args, str(cwd), dict(environment), program]).encode())
            socket.send_fds(self._connection, [b"run"], [nothing, out, err, asked])
            self.pid = int(self._connection.recv(64))
        finally:
            os.close(asked)
            os.close(nothing)

    def wait(self, timeout: float | None = None) -> int:
        """The status that it ends with. Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = int(self._connection.recv(64))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
            self._connection.close()
        return self.returncode

    def poll(self) -> int | None:
        """The status, if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def send_signal(self, number: int) -> None:
        """Nothing, if it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Program(Started):
    """``python -c TEXT ARGUMENTS``, its output in pipes, and of `subprocess.Popen` what the tests need."""

    def __init__(self, text: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        self.stdout, self.stderr = open(out, encoding="utf-8"), open(err, encoding="utf-8")  # noqa: SIM115
        try:
            super().__init__(arguments, Path.cwd(), environment, out_end, err_end, text)
        finally:
            os.close(out_end)
            os.close(err_end)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """The rest of what it says, until it ends. Raises `subprocess.TimeoutExpired`."""
        if self.stdout.closed:
            return "", ""
        late = threading.Event()
        timer = threading.Timer(timeout or threading.TIMEOUT_MAX, lambda: (late.set(), self.kill()))
        timer.daemon = True
        timer.start()
        with self.stdout, self.stderr:
            said = self.stdout.read(), self.stderr.read()
        self.wait()
        timer.cancel()
        if late.is_set():
            raise subprocess.TimeoutExpired("a program", timeout or 0.0, said[0], said[1])
        return said


def run(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of the command with its output captured. Raises `subprocess.TimeoutExpired`."""
    until = time.monotonic() + timeout
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    try:
        started = Started(arguments, cwd, environment, out_end, err_end)
    finally:
        os.close(out_end)
        os.close(err_end)
    try:
        said = [text.decode() for text in _read((out, err), until)]
        status = started.wait(max(0.01, until - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired):
        started.kill()
        raise subprocess.TimeoutExpired(list(arguments), timeout) from None
    finally:
        os.close(out)
        os.close(err)
    return subprocess.CompletedProcess(list(arguments), status, *said)


def _read(pipes: Sequence[int], until: float) -> list[bytes]:
    """All that comes through the pipes. Raises `TimeoutError`."""
    found = {pipe: bytearray() for pipe in pipes}
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                found[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
    return [bytes(found[pipe]) for pipe in pipes]


# -- the process that has loaded the command ---------------------------------------------------------------


def serve(number: int) -> None:
    """Fork for each that knocks, until the tests have ended; in the fork, be the command."""
    import numba  # noqa: F401 - it takes as long as all the rest

    import dovetail
    from dovetail.cli import main
    from dovetail_remote import server

    for module in pkgutil.walk_packages(dovetail.__path__, "dovetail."):
        if (
            not module.name.startswith(("dovetail.testing", "dovetail.native"))
            and "__main__" not in module.name
        ):
            importlib.import_module(module.name)
    _probe_once()
    server.subprocess = _Forks()  # type: ignore[assignment]
    parent = os.getppid()
    tests = os.pidfd_open(parent)
    # What is here stays: a fork that looked through it would copy all of it, at its end at the latest.
    gc.collect()
    gc.freeze()
    listener = socket.socket(fileno=number)
    listener.settimeout(5.0)
    while os.getppid() == parent:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        finally:
            _reap()
        if os.fork() == 0:
            listener.close()
            program = _take(connection, tests)
            try:
                if program is None:
                    main.run_cli()
                else:
                    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
                    _leave(0)
            except SystemExit as left:
                _leave(left.code)
            except Exception:  # noqa: BLE001 - it is said as Python says it
                sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
                _leave(1)
        connection.close()


HARDWARE = ("CUDA", "NVIDIA", "ROCR", "HIP", "OCL", "OPENCL", "POCL", "PYOPENCL")
"""What drivers, and what looks for them, read of the environment."""


def _probe_once() -> None:
    """What drivers say of this machine is asked for once, where the environment is ours."""
    from dovetail.local import discovery

    def around() -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name.startswith(HARDWARE)}

    ours, probe, answers = around(), discovery.run_probes, {}

    def run_probes(scripts: Mapping[str, Sequence[str]], timeout: float) -> dict[str, dict[str, Any] | str]:
        if around() == ours:
            return {name: answers[name] for name in scripts}
        return probe(scripts, timeout)

    standard = {name: [str(discovery._SCRIPTS / script)] for name, script in discovery.PROBES.items()}
    answers.update(probe(standard, 200.0))
    discovery.run_probes = run_probes


class _Forks:
    """What a device server needs of `subprocess`: the process of a device is forked, too."""

    DEVNULL = subprocess.DEVNULL

    @staticmethod
    def Popen(  # noqa: N802 - as of `subprocess`
        command: Sequence[str], *, pass_fds: Sequence[int], stdin: int, stdout: Any
    ) -> _Forked:
        """``python -m dovetail_remote.worker FD PARENT``."""
        assert command[1:3] == ["-m", "dovetail_remote.worker"]
        pid = os.fork()
        if not pid:
            _be_worker(command[3:], pass_fds)
        return _Forked(pid)


class _Forked:
    """A child process."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, -1
        self._ended = False

    def poll(self) -> int | None:
        """The status that it has ended with, if it has."""
        return self.wait(os.WNOHANG)

    def wait(self, how: int = 0) -> int | None:
        """Its status, where it has ended."""
        if not self._ended:
            pid, status = os.waitpid(self.pid, how)
            if not pid:
                return None
            self.returncode, self._ended = os.waitstatus_to_exitcode(status), True
        return self.returncode

    def kill(self) -> None:
        """SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)


def _be_worker(arguments: Sequence[str], kept: Sequence[int]) -> None:
    """Be the process of a device, with no file open but its own; never return."""
    try:
        from dovetail_remote import worker

        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd > 2 and fd not in kept:
                with contextlib.suppress(OSError):  # the folder itself
                    os.close(fd)
        status = worker.main(list(arguments))
    except BaseException:  # noqa: BLE001 - it is said, and must not go on as the server
        traceback.print_exc()
        os._exit(1)
    os._exit(status)


def _leave(status: object) -> None:
    """End as Python does, without taking apart all that was loaded, which takes longer than most commands."""
    threading._shutdown()  # type: ignore[attr-defined]  # which waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else status is not None)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _wait_for_end(pid: int, tests: int) -> None:
    """Until a process has ended; it is killed where the tests, a file of a process, end before it."""
    ends = os.pidfd_open(pid)
    if tests in select.select([ends, tests], [], [])[0]:
        signal.pidfd_send_signal(ends, signal.SIGKILL)
    os.close(ends)


def _take(connection: socket.socket, tests: int) -> str | None:
    """Return in a process that is as if it had just been started; what it ends with is told by its parent.

    The text of the program that it is to be, None where it is the command.
    """
    _, fds, _, _ = socket.recv_fds(connection, 16, 4)
    pid = os.fork()
    if pid:
        connection.send(str(pid).encode())
        for fd in fds:
            os.close(fd)
        _wait_for_end(pid, tests)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        connection.send(str(status).encode())
        os._exit(0)
    connection.close()
    os.close(tests)
    arguments, cwd, environment, program = json.loads(os.pread(fds[3], os.fstat(fds[3]).st_size, 0))
    for place in range(3):
        os.dup2(fds[place], place)
    for fd in fds:
        os.close(fd)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    random.seed()
    sys.argv = ["-c", *arguments]
    sys.path.remove(str(HERE))
    found: str | None = program
    return found
