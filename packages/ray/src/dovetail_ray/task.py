"""What runs on a node of a Ray cluster: one command behind a fence. Standard library and Ray only.

Sent to the workers by value: they need no Dovetail. The worker starts a fence, a small process of its own,
which starts the command in a process group and adopts whatever that leaves behind; it ends all of it when it
gets the order, or when its worker is gone, as Ray's workers are when their node or their driver dies. So
nothing of a job outlives it.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from inspect import getsource
from typing import Any

from dovetail.process import channel, processes

FENCE = (
    getsource(channel)
    + getsource(processes).replace("from __future__ import annotations\n", "")
    + r"""
import json, os, select, signal, subprocess, sys, time

WATCH = 0.5  # seconds between looks at the memory of the command

def descendants(pid):
    children = {}
    for one in all_pids():
        try:
            children.setdefault(parent_of(one), []).append(one)
        except (OSError, ValueError, IndexError):
            continue
    found, todo = [], [pid]
    while todo:
        todo += children.get(current := todo.pop(), [])
        found += children.get(current, [])
    return found

def held(pid):
    # bytes in memory of a process and all that it has started; its threads' children count
    pages, todo = 0, [pid]
    while todo:
        place = f"/proc/{todo.pop()}"
        try:
            with open(f"{place}/statm") as file:
                pages += int(file.read().split()[1])
            for thread in os.listdir(f"{place}/task"):
                with open(f"{place}/task/{thread}/children") as file:
                    todo += map(int, file.read().split())
        except (OSError, ValueError, IndexError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")

def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass

become_subreaper()
os.setsid()
line = b""
while not line.endswith(b"\n"):
    data = os.read(0, 1 << 16)
    if not data:
        sys.exit()
    line += data
spec = json.loads(line)
began = time.time()
woken, waker = os.pipe()
os.set_blocking(waker, False)
signal.set_wakeup_fd(waker)
signal.signal(signal.SIGCHLD, lambda number, frame: None)
try:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    out = os.open(spec["files"][0], flags, 0o666)
    err = out if spec["files"][1] == spec["files"][0] else os.open(spec["files"][1], flags, 0o666)
    process = subprocess.Popen(spec["argv"], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                               cwd=spec["cwd"], env=spec["env"], process_group=0)
except OSError as error:
    what = spec["argv"][0] if error.filename is None else error.filename
    print(json.dumps({"from": began, "at": time.time(),
                      "error": f"program {what!r} cannot be started: {error.strerror}"}), flush=True)
    sys.exit()
stop = deadline = why = None
forced = False
peak, limit = 0, spec.get("memory")
while True:
    ended, status, used = os.wait4(process.pid, os.WNOHANG)
    if ended:
        break
    now = held(process.pid)
    peak = max(peak, now)
    if limit and now > limit and stop is None:
        stop, why, deadline = "memory", f"memory: its processes held {now} bytes, and may hold {limit}", 0.0
    left = WATCH if deadline is None else max(0.0, min(WATCH, deadline - time.monotonic()))
    ready, _, _ = select.select([0, woken] if stop is None else [woken], [], [], left)
    if woken in ready:
        os.read(woken, 4096)
    if 0 in ready:
        data = os.read(0, 4096)
        stop, grace = ("ordered", spec["grace"]) if data else ("gone", 0.0)
        deadline = time.monotonic() + grace
        if grace:
            signal_group(process.pid, signal.SIGTERM)
    if deadline is not None and time.monotonic() >= deadline:
        forced, deadline = stop == "ordered", None
        signal_group(process.pid, signal.SIGKILL)
        send(descendants(os.getpid()), signal.SIGKILL)
survivors = descendants(os.getpid())
while left := descendants(os.getpid()):
    send(left, signal.SIGKILL)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    time.sleep(0.01)
end = {"from": began, "at": time.time(), "status": status, "cpu": used.ru_utime + used.ru_stime,
       "rss": max(used.ru_maxrss * 1024, peak), "forced": forced, "survivors": bool(survivors)}
if why:
    end |= {"stop": "OUT_OF_MEMORY", "why": why}
try:
    print(json.dumps(end), flush=True)
except BrokenPipeError:
    pass
"""
)
MOST = 64 << 20
"""Bytes of output that are sent back where a node does not see the run folder."""
LOOK = 0.2
"""Seconds between two looks whether the task is to end."""
OURS = ("RAY_", "CUDA_", "ROCR_", "HIP_", "NVIDIA_", "HOSTNAME", "TMPDIR")
"""Variables of which the node's own value is kept."""


class Beacon:
    """An actor that shows that its node is alive."""

    def ping(self) -> bool:
        """As long as it answers."""
        return True


def run_command(spec: dict[str, Any]) -> dict[str, Any]:
    """Run one command behind a fence; its end record, with the output where the run folder is not seen.

    A `KeyboardInterrupt`, by which Ray cancels a task, ends the command first.
    """
    began = time.time()
    fault, env = _task_environment(spec)
    if fault:
        return {"from": began, "at": began, "error": fault}
    # Whether the node sees the run's folder: a marker with the run's id is there, or it is not.
    shared = os.path.exists(spec["marker"])
    folder = None if shared else tempfile.mkdtemp(prefix="dovetail-")
    files = spec["files"] if folder is None else [os.path.join(folder, name) for name in ("out", "err")]
    cwd = spec["cwd"] if os.path.isdir(spec["cwd"]) else os.path.expanduser("~")
    order = {"argv": spec["argv"], "files": files, "cwd": cwd, "env": env, "grace": spec["grace"]}
    order["memory"] = spec.get("memory")
    fence = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", FENCE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert fence.stdin is not None
    assert fence.stdout is not None
    fence.stdin.write(json.dumps(order).encode() + b"\n")
    fence.stdin.flush()
    try:
        line = _read_fence(fence)
    # Ray interrupts the task; the fence then has the grace to end what it holds.
    except KeyboardInterrupt:
        fence.stdin.write(b"stop\n")
        fence.stdin.flush()
        line = _read_fence(fence)
    fence.wait()
    end: dict[str, Any]
    end = json.loads(line) if line else {"from": began, "at": time.time(), "error": "its fence was killed"}
    if folder is not None:
        end["output"] = [_file_tail(path) for path in files]
    return end


def _read_fence(fence: subprocess.Popen[bytes]) -> bytes:
    """The fence's answer, looking up now and then so that an interrupt gets through."""
    assert fence.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        if select.select([fence.stdout], [], [], LOOK)[0]:
            data = os.read(fence.stdout.fileno(), 1 << 16)
            if not data:
                break
            line += data
    return line


def _task_environment(spec: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """What is wrong with the devices that Ray shows us, and the command's environment."""
    # Variables of the node itself (libraries, drivers, temporary folders) must not be those of the machine
    # that submits.
    node = {name: value for name, value in os.environ.items() if name.startswith(OURS)}
    env = {**os.environ, **spec["environ"], **node, **spec["env"]}
    if "visible" in spec:  # the run holds the node's GPUs itself
        return "", {**env, "CUDA_VISIBLE_DEVICES": spec["visible"]}
    seen = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
    if spec["gpus"] and len(seen) != spec["gpus"]:
        return f"Ray shows {len(seen)} GPUs in CUDA_VISIBLE_DEVICES, expected {spec['gpus']}", env
    env["CUDA_VISIBLE_DEVICES"] = ",".join(seen) if spec["gpus"] else ""
    return "", env


def _file_tail(path: str) -> str:
    """The end of a file, for JSON."""
    try:
        with open(path, "rb") as file:
            # The end of an output is what explains a failure; all of it could exceed what Ray sends.
            file.seek(max(0, os.fstat(file.fileno()).st_size - MOST))
            return base64.b64encode(file.read()).decode()
    except OSError:
        return ""
