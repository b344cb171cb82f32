"""Calls that are sent ahead: what waits, what holds a program back, and where failures surface."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import waiting
from device_servers import Served, serving, start_program
from waiting import stop, until

import dovetail_remote
from dovetail.errors import DeviceError, DeviceLost, InputError
from dovetail.testing.builders import full
from dovetail_remote import Namespace
from dovetail_remote.connection import Watch

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("remote")]


@pytest.fixture
def xp(numpy_server: Served) -> Iterator[Namespace]:
    space = dovetail_remote.namespace(numpy_server.address())
    yield space
    space.device.close()


@pytest.fixture
def ahead(numpy_server: Served) -> Iterator[Namespace]:
    """Where every call is sent ahead, and failures surface later."""
    space = dovetail_remote.namespace(numpy_server.address(), errors="deferred")
    yield space
    space.device.close()


@contextmanager
def stopped(served: Served, device: int = 0) -> Iterator[None]:
    """The process of a device does nothing meanwhile."""
    pid = served.workers()[device]
    stop(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def line_here() -> int:
    return sys._getframe(1).f_lineno


# -- what waits ----------------------------------------------------------------------------------------


def test_calls_do_not_wait_for_the_server(ahead: Namespace, numpy_server: Served) -> None:
    xp = ahead
    x = xp.ones(1000)
    with stopped(numpy_server):
        y = xp.sum(xp.sin(x) ** 2 + xp.cos(x) ** 2)
        x += 1
        x[0] = 5
        parts = xp.linalg.qr(xp.eye(3))
        host = xp.asarray([1.0, 2.0])  # sent, not waited for
    assert float(y) == pytest.approx(1000)
    assert float(x[0]) == 5
    assert np.array_equal(np.abs(np.asarray(parts.R)), np.eye(3))
    assert float(host[1]) == 2


def test_shapes_are_learned(ahead: Namespace, numpy_server: Served) -> None:
    xp = ahead

    def pipeline(x: Any) -> list[Any]:
        y = xp.reshape(x + 1, (2, 3))
        z = xp.sum(y * 0.5, axis=0)
        return [y, z, xp.concat([z, z]), z[1:], xp.linalg.svd(y).S > 0]

    expected = [((2, 3), "float64"), ((3,), "float64"), ((6,), "float64"), ((2,), "float64")]
    x = xp.asarray(np.arange(6.0))
    first = pipeline(x)
    assert [(a.shape, a.dtype.name) for a in first[:4]] == expected  # asks
    with stopped(numpy_server):
        x2 = xp.asarray(np.ones(6))
        again = pipeline(x2)
        assert [(a.shape, a.dtype.name) for a in again[:4]] == expected  # knows
    assert again[4].shape == (2,)


def test_after_a_question_all_that_was_sent_ahead_is_known(ahead: Namespace, numpy_server: Served) -> None:
    xp = ahead
    x = xp.ones((2, 3))
    y = xp.sum(x, axis=0)
    xp.device.synchronize()
    with stopped(numpy_server):
        assert [(a.shape, a.dtype.name) for a in (x, y)] == [((2, 3), "float64"), ((3,), "float64")]


def test_shapes_of_numbers_that_json_lacks_are_learned(xp: Namespace) -> None:
    for value in (float("inf"), float("nan"), complex(0, float("inf")), complex(float("nan"), 1)):
        for shape in ((2,), (2, 3)):
            x = xp.full(shape, value)
            assert (x.shape, x.dtype) == (shape, np.full(shape, value).dtype)
            assert np.array_equal(np.asarray(x), np.full(shape, value), equal_nan=True)


@pytest.mark.parametrize("value", [2**64 - 1, 2**63 + 1, 2**53 + 1])
def test_large_numbers_keep_all_their_digits(xp: Namespace, value: int) -> None:
    """Python's lists of such numbers are floats to NumPy where nobody says what they are to be."""
    expected = np.asarray([value, 0], np.uint64)
    for x in (xp.asarray([value, 0], dtype=xp.uint64), xp.asarray((value, 0), dtype="uint64")):
        assert np.array_equal(np.asarray(x), expected)
    x = xp.zeros(2, dtype=xp.uint64)
    x[0] = value
    assert np.array_equal(np.asarray(x), expected)
    assert int(xp.full((), value, dtype=xp.uint64)) == value
    assert int((x + (value - 1))[1]) == value - 1
    with pytest.raises(OverflowError):
        xp.asarray([value * 2**12], dtype=xp.uint64)


def test_shapes_that_depend_on_elements_are_not_learned(xp: Namespace) -> None:
    for elements in ([0.0, 1.0, 1.0], [0.0, 0.0, 1.0], [1.0, 2.0, 3.0]):
        x = xp.asarray(elements)
        host = np.asarray(elements)
        assert x[x > 0.5].shape == host[host > 0.5].shape
        assert xp.unique_values(x).shape == np.unique(host).shape
        assert xp.nonzero(x)[0].shape == host.nonzero()[0].shape
        assert xp.repeat(x, xp.astype(x, xp.int64)).shape == (int(host.sum()),)
        assert xp.full(2, True).dtype == np.dtype(bool)
        assert xp.full(2, 1.0).dtype == np.dtype(float)


def test_a_server_that_does_not_read_holds_the_program_back(ahead: Namespace, numpy_server: Served) -> None:
    xp = ahead
    x = xp.ones(8)
    made = [0]
    done = threading.Event()

    def calls() -> None:
        for _ in range(200_000):
            xp.add(x, x)
            made[0] += 1
        done.set()

    with stopped(numpy_server):
        thread = threading.Thread(target=calls)
        thread.start()
        until(lambda: made[0])
        before = -1
        while made[0] != before:  # until it makes none any more
            before = made[0]
            time.sleep(0.3)
        assert 0 < before < 100_000
        assert not done.is_set()
    thread.join(120)
    assert done.is_set()
    assert float(xp.sum(x)) == 8


def test_memory_of_arrays_that_died_comes_back_without_another_call(
    xp: Namespace, numpy_server: Served
) -> None:
    x = xp.zeros(1_000_000)
    xp.device.synchronize()
    until(lambda: numpy_server.status()[0]["bytes"] == 8_000_000)  # and of others nothing any more
    del x
    # The device of a busy machine may not answer at once.
    until(lambda: numpy_server.status()[0].get("bytes") == 0)


def test_temporaries_do_not_pile_up(xp: Namespace) -> None:
    """Arrays that die between two calls are given back before the second: a loop needs two of them."""
    x = xp.zeros(1_000_000)
    for _ in range(100):
        x = x + 1
    assert float(x[0]) == 100
    assert xp.device.link.memory() == 8_000_000


# -- failures where they happen -------------------------------------------------------------------------


def test_what_cannot_fail_does_not_wait(xp: Namespace, numpy_server: Served) -> None:
    x = xp.asarray(np.arange(6.0))
    y = xp.ones((2, 6))
    x += 1
    x[0] = 2.5
    _ = xp.sqrt(x * 2 + y), xp.sum(y, axis=0), x[1:]
    with stopped(numpy_server):
        for n in range(1, 6):
            x += n  # other numbers, other parts, other shapes: the same types
            x[n] = n / 2
            part = xp.sqrt(x[n:] * n + y[:, n:])
            assert part.shape == (2, 6 - n)
        totals = xp.sum(y, axis=0)
    assert float(x[5]) == 2.5
    assert np.array_equal(np.asarray(totals), np.full(6, 2.0))


@pytest.mark.parametrize(
    "call",
    [
        lambda xp, x: xp.linalg.cholesky(-xp.eye(3)),
        lambda xp, x: xp.linalg.inv(xp.zeros((2, 2))),
        lambda xp, x: xp.linalg.eigvals(xp.full((2, 2), xp.nan)),
        lambda xp, x: xp.take(x, xp.asarray([7])),
        lambda xp, x: x[xp.asarray([7])],
        lambda xp, x: x[7],
        lambda xp, x: x.__setitem__(7, 1),
        lambda xp, x: x.__setitem__(xp.asarray([7]), 1),
        lambda xp, x: x.__setitem__(slice(0, 2), xp.ones(3)),
        lambda xp, x: xp.asarray([2, 3]) ** xp.asarray([-1, 2]),
        lambda xp, x: xp.zeros(2, dtype=xp.uint8) + 300,
        lambda xp, x: xp.zeros(2, dtype=xp.int8).__setitem__(0, float("nan")),
        lambda xp, x: x + xp.ones(4),
        lambda xp, x: xp.reshape(x, (7,)),
        lambda xp, x: xp.repeat(x, xp.asarray([-1] * 6)),
        lambda xp, x: x.__setitem__(0, 1j),
    ],
)
def test_a_program_that_catches_an_error_goes_on_as_with_the_library(xp: Namespace, call: Any) -> None:
    """Once the same call has been made in good order, and the types are known."""
    x = xp.asarray(np.arange(6.0))
    _ = xp.asarray([2, 3]) ** xp.asarray([1, 2]), xp.zeros(2, dtype=xp.uint8) + 3, x + xp.ones(6), x[5]
    x[5] = 1.0
    x[0:2] = xp.ones(2)
    _ = (
        xp.linalg.cholesky(xp.eye(3)),
        xp.linalg.inv(xp.eye(2)),
        xp.take(x, xp.asarray([1])),
        x[xp.asarray([1])],
    )
    local = dovetail_remote.namespace("local:numpy")
    with pytest.raises((ValueError, TypeError, LookupError, ArithmeticError)) as expected:
        call(local, local.arange(6.0))
    with pytest.raises(expected.type):
        call(xp, x)
    assert float(x[3]) == 3  # nothing is left that another question would raise


def test_bounds_of_slices_may_be_arrays(xp: Namespace) -> None:
    """The device is asked for them before the call is under way."""
    for space in (xp, dovetail_remote.namespace("local:numpy")):
        x = space.arange(6.0)
        two, four = space.asarray(2), space.asarray(4)
        assert np.array_equal(np.asarray(x[two:four]), [2, 3])
        assert np.array_equal(np.asarray(space.reshape(x, (2, 3))[..., :two]), [[0, 1], [3, 4]])
        x[:two] = 9
        assert np.array_equal(np.asarray(x[:: np.int64(2)]), [9, 2, 4])
        with pytest.raises(TypeError, match="whole numbers"):
            _ = x[: space.asarray(1.5)]


# -- a server that says nothing ------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silence is short here: what a client does then is what it does after seconds."""
    monkeypatch.setattr("dovetail_remote.connection.SILENCE", 0.2)
    monkeypatch.setattr("dovetail_remote.connection.SIGN_OF_LIFE", 1.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("whole", [False, True])
def test_a_frozen_server_is_lost(tmp_path: Path, whole: bool) -> None:
    """The process of the device, or the server with it: who waits, or sends, hears of it."""
    with serving(tmp_path, "numpy") as served:
        reader, writer = (dovetail_remote.namespace(served.address()) for _ in range(2))
        x = reader.ones(3)
        pids = served.workers() + ([served.process.pid] if whole else [])
        for pid in pids:
            stop(pid)
        try:
            with pytest.raises(DeviceLost, match=r"does not answer|is stopped"):
                float(x[0])
            with pytest.raises(DeviceLost, match=r"does not answer|is stopped"):
                writer.asarray(np.ones(1 << 20))
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


@pytest.mark.usefixtures("impatient")
def test_a_server_that_computes_is_not_lost(xp: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    silent = Watch.check_silence
    monkeypatch.setattr(Watch, "check_silence", lambda watch: asked.append(silent(watch)))
    with contextlib.closing(dovetail_remote.namespace(str(xp.device)).device) as device:
        space = Namespace([device])
        size = 300
        while len(asked) < 3:
            assert space.linalg.eigvals(space.eye(size) + 1e-3).shape == (size,)
            size += size // 2
        assert float(space.ones(())) == 1


# -- failures ------------------------------------------------------------------------------------------


def test_failures_surface_at_the_next_question_with_their_line(ahead: Namespace) -> None:
    xp = ahead
    x = xp.ones(6)
    wrong = xp.reshape(x, (4, 4))
    line = line_here() - 1
    later = xp.sum(wrong + 1)
    fine = xp.sum(x)
    with pytest.raises(ValueError, match=rf"reshape.*{Path(__file__).name}, line {line}, in test_failures"):
        float(fine)
    assert float(fine) == 6  # heard of once
    with pytest.raises(ValueError, match=f"line {line}"):
        float(later)  # has no value, for the same reason, whenever it is asked for


def test_every_kind_of_failure_is_the_exception_of_the_library(xp: Namespace) -> None:
    x = xp.ones((2, 3))
    singular = xp.zeros((2, 2))
    for call, kind in (
        (lambda: x[5, 0], IndexError),
        (lambda: xp.sum(x, axis=7), np.exceptions.AxisError),
        (lambda: xp.linalg.inv(singular), np.linalg.LinAlgError),
        (lambda: xp.sum(x, axes=1), TypeError),
        (lambda: x & x, TypeError),
        (lambda: xp.add(x, 1, 2), TypeError),
        (lambda: xp.full(2, "text"), TypeError),
        (lambda: xp.astype(xp.ones(1, dtype=xp.int8), xp.int8) + 1000, OverflowError),
        (lambda: xp.zeros((1 << 20, 1 << 20)), MemoryError),
    ):
        with pytest.raises(kind, match="called at"):
            call()
        xp.device.synchronize()  # heard of once


def test_a_failure_in_place_leaves_the_array_as_it_was(xp: Namespace) -> None:
    x = xp.ones(3, dtype=xp.int64)
    with pytest.raises(TypeError, match="__iadd__"):
        x += xp.ones(3)  # floats do not fit
    with pytest.raises(IndexError, match="__setitem__"):
        x[7] = 1
    assert np.array_equal(np.asarray(x), [1, 1, 1])


def test_failures_are_kept_when_the_work_moves(ahead: Namespace, numpy_server: Served) -> None:
    xp = ahead
    x = xp.ones(6)
    wrong = xp.reshape(x, (4, 4))
    line = line_here() - 1
    xp.device.migrate(numpy_server.address(1))
    xp.device.migrate("local:numpy")
    with pytest.raises(ValueError, match=f"line {line}"):
        xp.device.synchronize()
    with pytest.raises(ValueError, match=f"line {line}"):
        float(wrong[0, 0])
    assert float(xp.sum(x)) == 6


def test_arrays_of_other_devices_are_refused_at_once(xp: Namespace, numpy_server: Served) -> None:
    local = dovetail_remote.namespace("local:numpy")
    here, there = local.ones(3), xp.ones(3)
    for call in (lambda: here + there, lambda: there + here, lambda: xp.add(there, here)):
        with pytest.raises(ValueError, match=r"to_device moves arrays"):
            call()
    assert float(xp.sum(there + here.to_device(xp.device))) == 6
    assert float(local.sum(here + there.to_device(local.device))) == 6


def test_several_devices_in_one_namespace(numpy_server: Served) -> None:
    xp = dovetail_remote.namespace(numpy_server.address(0), numpy_server.address(1), "local:numpy")
    first, second, third = xp.__array_namespace_info__().devices()
    a, b, c = (xp.ones(3, device=device) for device in (first, second, third))
    assert (a.device, b.device, c.device) == (first, second, third)
    assert float(xp.sum(a + b.to_device(first) + c.to_device(first))) == 9
    assert xp.zeros_like(a, device=second).device is second
    assert xp.asarray(a, device=third).device is third
    for device in (first, second):
        device.close()


# -- the process ---------------------------------------------------------------------------------------


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    process = start_program(script, **environment)
    said = process.communicate(timeout=120)
    assert process.returncode is not None
    return subprocess.CompletedProcess([script], process.returncode, *said)


def test_failures_that_nobody_asked_about_are_said_at_the_end(numpy_server: Served) -> None:
    done = run(
        f"""
import dovetail_remote
xp = dovetail_remote.namespace({numpy_server.address()!r}, errors="deferred")
x = xp.reshape(xp.ones(6), (4, 4))
print("end")
"""
    )
    assert done.stdout == "end\n"
    assert done.stderr.startswith(
        "dovetail: cannot reshape array of size 6 into shape (4,4) (reshape, called at"
    )
    assert done.stderr.count("\n") == 1


def test_devices_are_named_by_the_environment(numpy_server: Served) -> None:
    addresses = f"{numpy_server.address(1)} local:numpy"
    script = "import dovetail_remote as r; print(*r.namespace().devices)"
    assert run(script, DOVETAIL_DEVICE_ADDRESSES=addresses).stdout.split() == addresses.split()


def test_a_fork_does_not_speak_for_its_parent(numpy_server: Served) -> None:
    done = run(
        f"""
import os, warnings, dovetail_remote
from dovetail.errors import DeviceLost
warnings.simplefilter("ignore")
xp = dovetail_remote.namespace({numpy_server.address()!r})
x = xp.ones(3)
if os.fork() == 0:
    try:
        float(xp.sum(x))
    except DeviceLost as error:
        print(error, flush=True)
        os._exit(0)
os.wait()
print(float(xp.sum(x)))
"""
    )
    said, value = done.stdout.splitlines()
    assert said.endswith("the device belongs to the process that opened it, not to a fork")
    assert value == "3.0"
    assert not done.stderr


def test_an_interrupted_question_loses_the_device_and_says_so(numpy_server: Served) -> None:
    """Half an answer has been read: nobody can go on from there."""
    pid = numpy_server.workers()[0]
    script = f"""
import os, signal, sys, threading, time, dovetail_remote
from dovetail.errors import DeviceLost
sys.path.append({str(Path(waiting.__file__).parent)!r})
from waiting import stop
xp = dovetail_remote.namespace({numpy_server.address()!r})
x = xp.ones(3)
xp.device.synchronize()
stop({pid})

def waits_for_an_answer(frame):
    return frame is not None and (frame.f_code.co_name == "receive_into" or waits_for_an_answer(frame.f_back))

def interrupt():
    while not waits_for_an_answer(sys._current_frames()[threading.main_thread().ident]):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    float(xp.sum(x))
except KeyboardInterrupt:
    os.kill({pid}, signal.SIGCONT)
    try:
        float(xp.sum(x))
    except DeviceLost as error:
        print(error)
"""
    try:
        done = run(script)
    finally:  # the other tests use this device too
        os.kill(pid, signal.SIGCONT)
    assert done.stdout.endswith("given up in the middle of a call; its arrays are lost\n")
    assert not done.stderr
    address = repr(numpy_server.address())
    with_log = script.replace(f"({address})", f"({address}, replay=True)")
    again = with_log.replace("        float(xp.sum(x))\n", "        print(float(xp.sum(x)))\n")
    assert run(again).stdout == "3.0\n"  # from the log


def test_interrupted_local_calls_leave_everything_in_order() -> None:
    script = """
import _thread, random, signal, threading, time, dovetail_remote
xp = dovetail_remote.namespace("local:numpy")
x = xp.ones(8)
stop = time.monotonic() + 60
interrupts, armed, finished = 0, False, []
def heard(number, frame):
    global armed
    if armed:  # one at a time: not while the one before is dealt with
        armed = False
        raise KeyboardInterrupt
signal.signal(signal.SIGINT, heard)
def interrupt():
    while interrupts < 21 and time.monotonic() < stop:
        time.sleep(random.uniform(0, 0.002))
        _thread.interrupt_main()
    finished.append(True)
thread = threading.Thread(target=interrupt)
thread.start()
while not finished:
    try:
        while not finished:
            armed = True
            xp.add(x, 1)
        armed = False
    except KeyboardInterrupt:
        interrupts += 1
assert interrupts >= 21, interrupts
assert all(value is not None for value in xp.device.link.values.values())
xp.device.migrate("local:numpy")
print(float(xp.sum(x)))
"""
    done = run(script)
    assert done.stdout == "8.0\n", done.stderr


def test_what_a_program_forgets_is_given_back(numpy_server: Served) -> None:
    """A namespace without a name any more: its connection, its thread and its memory go with it."""
    before = threading.active_count()
    for _ in range(5):
        space = dovetail_remote.namespace(numpy_server.address())
        kept = space.zeros(1000)
        space.device.synchronize()
        del space, kept
    # The thread that sends what lingers may hold the link at this moment, so once is not enough.
    until(lambda: gc.collect() >= 0 and threading.active_count() <= before)
    # The device of a busy machine may not answer at once.
    until(lambda: numpy_server.status()[0].get("bytes") == 0)


def test_a_server_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"no device server answers there \(no such file or directory\)"):
        dovetail_remote.namespace(f"unix:{tmp_path}/nothing.sock")
    for wrong in ("nowhere", "tcp:host", "tcp:host:99999", "unix:", "local:"):
        with pytest.raises(InputError, match=r"expected local:BACKEND|expected HOST:PORT"):
            dovetail_remote.namespace(wrong)
    with pytest.raises(InputError, match="expected numpy, torch"):
        dovetail_remote.namespace("local:abacus")


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "array_api_compat.torch", raising=False)
    sentence = "device 'torch' is not there: torch is not installed: pip install torch"
    with pytest.raises(InputError, match=f"^{sentence}$"):
        dovetail_remote.namespace("local:torch")


def test_a_lost_server_is_one_sentence(tmp_path: Path) -> None:
    with serving(tmp_path, "numpy") as served:
        xp = dovetail_remote.namespace(served.address())
        x = xp.ones(3)
        xp.device.synchronize()
        os.kill(served.workers()[0], signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(
                DeviceLost, match=r"^unix:.*: the device server is gone \(.*\), and with it"
            ) as caught:
                float(xp.sum(x))
            assert "\n" not in str(caught.value)


def test_a_lost_server_is_rebuilt_from_the_log(tmp_path: Path) -> None:
    with serving(tmp_path, "numpy", "numpy") as served:
        spares = (served.address(1),)
        xp = dovetail_remote.namespace(served.address(0), replay=True, spares=spares, errors="deferred")
        x = xp.arange(6.0)
        view = x[::2]
        wrong = xp.reshape(x, (4, 4))
        with pytest.raises(ValueError, match="reshape"):
            xp.device.synchronize()  # heard of, and not once more after the rebuilding
        rounds = full(3, 1)
        for _ in range(rounds):
            os.kill(served.workers()[0], signal.SIGKILL)
            view += 1
            x[0] = float(x[0]) + 10
            os.kill(served.workers()[1], signal.SIGKILL)
            xp.device.synchronize()
        assert np.array_equal(np.asarray(x), [11 * rounds, 1, 2 + rounds, 3, 4 + rounds, 5])
        assert np.array_equal(np.asarray(view), [11 * rounds, 2 + rounds, 4 + rounds])
        with pytest.raises(ValueError, match="reshape"):
            float(wrong[0, 0])
        xp.device.close()


def test_the_log_is_shortened_and_still_rebuilds(tmp_path: Path) -> None:
    with serving(tmp_path, "numpy") as served:
        xp = dovetail_remote.namespace(served.address(0), replay=True)
        log = xp.device.link.log
        log.limit = log._least = 100_000
        x = xp.zeros(1000)
        for k in range(3000):
            x = x + xp.asarray(np.full(1000, 1.0)) if k % 10 == 0 else x + 0
        assert log.size < 400_000
        os.kill(served.workers()[0], signal.SIGKILL)
        assert float(xp.sum(x)) == 300 * 1000
        xp.device.close()


def test_where_it_cannot_be_rebuilt_the_sentence_says_so(tmp_path: Path) -> None:
    with serving(tmp_path, "numpy") as served:
        device = dovetail_remote.Device(served.address(), replay=True, patience=0.3)
        xp = Namespace([device])
        x = xp.ones(3)
        xp.device.synchronize()
        served.process.kill()
        served.process.wait()
        with pytest.raises(DeviceLost, match=r"could not be rebuilt in 0.3 s"):
            float(xp.sum(x))
