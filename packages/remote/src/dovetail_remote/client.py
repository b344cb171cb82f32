"""A device with a server: calls that cannot fail are sent ahead, and only questions wait.

Whatever may fail, for the elements or because it is not known yet to fit the types and shapes, is
waited for, so that a program sees each error where it would see it with the library itself; unless it has
chosen deferred errors. `dovetail_remote.shapes` knows what cannot fail.

A call is added to a batch, and the batch is sent when the server has been sent nothing for a while, when it
has grown, when the program waits for a result, or after a millisecond by a thread of its own. So a program
that makes calls now and then has each carried out at once, and one that makes many pays for a system call
only once in a while. What holds a program back is the socket: a server that does not read fills it, and the
next batch waits.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from dovetail.errors import DeviceError, DeviceLost
from dovetail_remote.array import Array
from dovetail_remote.connection import ServerHello, watch_server
from dovetail_remote.encoding import encode_value
from dovetail_remote.failures import FailedError, Failure
from dovetail_remote.link import NOTHING, Owner, make_array, next_handle, on_present_link
from dovetail_remote.replay import ReplayLog
from dovetail_remote.shapes import LARGE, SURE, UNKNOWN, Shapes
from dovetail_remote.snapshot import Fill, Manifest, parse_manifest, send_snapshot
from dovetail_remote.spares import BlockPool
from dovetail_remote.wire import MOST_JSON, Channel, Kind, ProtocolError, frame_head

BATCH = 32
"""Calls that are sent together at most."""
QUIET = 2e-4
"""Seconds after which a call is sent at once."""
LINGER = 1e-3
"""Seconds that a call waits for others at most, about."""
IDLE = 0.25
"""Seconds until arrays that died are given back where no call follows."""
PARTING = 5.0
"""Seconds that a server has to give everything back, until we leave all the same."""


class RemoteLink:
    """Calls of one device, to a server.

    Raises (from any method) `DeviceLost` where the server is gone and there is no log to rebuild from.
    """

    def __init__(
        self,
        device: Owner,
        address: str,
        channel: Channel,
        welcome: ServerHello,
        log: ReplayLog | None = None,
    ) -> None:
        self.device = device
        self.lock = device.lock
        self.address = address
        self.retired = False
        self.library, self.device_name = welcome.library, welcome.device_name
        self.default_dtypes: Mapping[str, str] = welcome.default_dtypes
        self.dtypes = welcome.dtypes
        self.quota = welcome.quota
        self.unheard: deque[Failure] = deque()
        self.lost: str | None = None
        self.log = log
        self._channel = channel
        self._sites = device.sites
        self._freed: deque[int] = device.freed
        self._pending: list[Any] = []
        self._sent = 0.0
        self._surfaced = 0  # failures of calls in the log that the server has already reported
        self._present = False  # until then, what the device frees is not ours
        self._asked = True
        self._deferred = device.deferred
        self._shapes = Shapes(divides=not self.library.startswith("torch"))
        self._spares = BlockPool()
        self._wake = threading.Event()
        self._handle_of = self._handle
        watch_server(self._channel, address, device.token)
        name = "dovetail-courier"
        threading.Thread(
            target=_send_lingering, args=(weakref.ref(self), self._wake), name=name, daemon=True
        ).start()

    @property
    def release(self) -> Callable[[int, None], Any]:
        """Notes the handle; it is given back with the next batch."""
        append = self._freed.append
        return lambda handle, _: append(handle)

    # Every method here looks at `retired` with the lock held: a migration sets it before it takes the arrays,
    # so a call that finds it unset still reaches the old server before the snapshot does.

    # -- calls -----------------------------------------------------------------------------------------
    # Arguments are encoded before the lock is taken: making them may need an answer of the device.

    def call(self, name: str, arguments: Sequence[Any], named: Mapping[str, Any] = NOTHING) -> Array:
        """Add it to the batch, and wait unless it cannot fail."""
        if not self.retired:
            device, handle_of = self.device, self._handle_of
            encoded = [
                a._handle if type(a) is Array and a._device is device else encode_value(a, handle_of)
                for a in arguments
            ]
            keywords = (
                {key: encode_value(value, handle_of) for key, value in named.items()} if named else None
            )
            with self.lock:
                if not self.retired:
                    handle = next_handle()
                    certainty = self._shapes.expect_call(handle, name, encoded, keywords)
                    # The frame of the program, for the failure's message: taken here, since a failure arrives
                    # much later.
                    site = self._sites.number(sys._getframe(1))
                    self._add_call([name, handle, site, encoded, keywords, certainty == UNKNOWN])
                    result = make_array(device, handle)
                    if certainty != SURE and not self._deferred:
                        self._await_calls()
                    return result
        return self.device.present_link().call(name, arguments, named)

    def call_many(
        self, name: str, arguments: Sequence[Any], named: Mapping[str, Any], count: int
    ) -> list[Array]:
        """Add it to the batch, and wait."""
        encoded, keywords = self._encode_arguments(arguments, named)
        with self.lock:
            if not self.retired:
                handles = [next_handle() for _ in range(count)]
                self._add_call(
                    [name, handles, self._sites.number(sys._getframe(1)), encoded, keywords, False]
                )
                results = [make_array(self.device, handle) for handle in handles]
                if self._shapes.is_view(name, encoded):
                    self._shapes.readonly.update(handles)
                if not self._deferred:
                    self._await_calls()
                return results
        return self.device.present_link().call_many(name, arguments, named, count)

    def change(self, name: str, array: Array, *arguments: Any) -> None:
        """Add it to the batch, and wait unless it cannot fail."""
        encoded, _ = self._encode_arguments((array, *arguments), NOTHING)
        with self.lock:
            if not self.retired:
                out = None if name == "__setitem__" else array._handle
                certainty, key = self._shapes.expect_change(name, encoded)
                self._add_call([name, out, self._sites.number(sys._getframe(1)), encoded, None, False])
                if certainty != SURE and not self._deferred:
                    self._await_calls()
                    self._shapes.changed(encoded[0], key)
                return
        self.device.present_link().change(name, array, *arguments)

    @on_present_link
    def kernel(self, handle: int, source: str, name: str) -> None:
        """Add it to the batch, and wait for the compiler."""
        self._add_call(["kernel", handle, self._sites.number(sys._getframe(1)), [source, name], None, False])
        if not self._deferred:
            self._await_calls()

    def launch(self, handle: int, grid: Any, block: Any, shared: int, arguments: Sequence[Any]) -> None:
        """Add it to the batch, and wait the first time that a kernel has such arguments."""
        given = encode_value(list(arguments), self._handle_of)
        extents = [encode_value(extent, self._handle_of) for extent in (grid, block, shared)]
        with self.lock:
            if not self.retired:
                site = self._sites.number(sys._getframe(1))
                self._add_call(["launch", None, site, [handle, *extents, given], None, False])
                if not self._deferred and self._shapes.is_new([handle, *extents, given]):
                    self._await_calls()
                return
        self.device.present_link().launch(handle, grid, block, shared, arguments)

    @on_present_link
    def put(self, array: NDArray[Any]) -> Array:
        """Send it now: the program may change it as soon as this returns."""
        if array.dtype.name not in self.dtypes:
            raise TypeError(f"{self.library} has no {array.dtype}")
        # In C order and native byte order: the bytes go over the wire as they lie, without another copy.
        sent = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
        handle = next_handle()
        shape = array.shape
        site = self._sites.number(sys._getframe(1))
        text = orjson.dumps([handle, array.dtype.name, shape, site])
        self._shapes.known[handle] = (array.dtype.name, shape)
        head = frame_head(Kind.PUT, len(text), sent.nbytes) + text
        raw = sent.reshape(-1).data.cast("B") if sent.size else b""
        self._transmit_parts(b"".join([*self._pending_frames(), head]), raw)
        result = make_array(self.device, handle)
        if sent.nbytes >= LARGE and not self._deferred:
            self._await_calls()
        return result

    def adopt_array(self, array: NDArray[Any]) -> None:
        """The server is another process, which cannot have it."""

    def in_place(self, array: Array) -> None:
        """They are in the server's process."""

    # -- questions -------------------------------------------------------------------------------------

    @on_present_link
    def fetch(self, array: Array) -> NDArray[Any]:
        """Fetch the elements; waits for them."""

        def read_elements(reply: Any, size: int) -> NDArray[Any] | MemoryError:
            try:
                elements = self._spares.empty(None, tuple(reply["shape"]), reply["dtype"])
            # The frame must be read to its end even so, or the next answer would begin in its middle.
            except MemoryError as error:
                self._channel.skip(size)
                return error
            if elements.nbytes != size:
                raise ProtocolError(f"{size} bytes for an array of {elements.nbytes}")
            if size:
                self._channel.receive_into(elements.reshape(-1).data.cast("B"))
            return elements

        found = self._fetch_answer(Kind.FETCH, {"array": self._own_handle(array)}, read_elements)
        if isinstance(found, MemoryError):
            raise found
        fetched: NDArray[Any] = found
        return fetched

    @on_present_link
    def describe_array(self, array: Array) -> tuple[str, tuple[int, ...]]:
        """Type and shape: what is known, else the server's answer, for which this waits."""
        handle = self._own_handle(array)
        known = self._shapes.known.get(handle)
        if known is None:
            dtype, shape = self._fetch_answer(Kind.SYNC, {"describe": handle})["described"]
            known = self._shapes.known[handle] = (str(dtype), tuple(shape))
        return known

    @on_present_link
    def synchronize(self) -> None:
        """Wait until all calls are carried out; raises what failed."""
        self._fetch_answer(Kind.SYNC, {"wait": True})

    @on_present_link
    def memory(self) -> int:
        """Bytes that the arrays take on the server."""
        return int(self._fetch_answer(Kind.SYNC, {})["used"])

    @on_present_link
    def send_probe(self, data: bytes) -> None:
        """Send bytes that are thrown away, and wait until they are."""
        self._flush_batch()
        self._guard_action(lambda: self._channel.send_all(frame_head(Kind.PROBE, 0, len(data)), data))
        self._fetch_answer(Kind.SYNC, {})

    # -- moving; with the lock held --------------------------------------------------------------------

    def await_quiet(self) -> None:
        """Nothing to do: calls take the lock."""

    def take(self) -> tuple[Manifest, Fill, Callable[[], None]]:
        """Fetch all arrays, after all calls; failures that were not raised yet are kept."""
        self._settle_calls()
        left = 0

        def begin_snapshot(reply: Any, size: int) -> Manifest:
            nonlocal left
            manifest = parse_manifest(reply)
            if manifest.size != size:
                raise ProtocolError(f"{size} bytes for a snapshot of {manifest.size}")
            left = size
            return manifest

        def fill_region(target: memoryview) -> None:
            nonlocal left
            try:
                self._guard_action(lambda: self._channel.receive_into(target))
            except _RebuiltError:
                left = 0
                raise DeviceError(f"{self.address}: was lost, and rebuilt from its log") from None
            left -= target.nbytes

        def end_snapshot() -> None:
            if left:
                self._guard_action(lambda: self._channel.skip(left))

        return self._send_question(Kind.DUMP, {}, begin_snapshot), fill_region, end_snapshot

    def give(self, manifest: Manifest, fill: Fill) -> None:
        """Send all arrays, and wait until they are there. Raises `DeviceError` where the server refuses."""
        send_snapshot(manifest, fill, self._transmit_parts)
        self._shapes.known.update((handle, (v.dtype, v.shape)) for handle, _, v in manifest.arrays)
        self._shapes.readonly.update(handle for handle, _, v in manifest.arrays if v.readonly)
        try:
            # The snapshot is only there when the server has answered: it may refuse it for want of memory.
            self._send_question(Kind.SYNC, {"wait": True})
        except FailedError as refused:
            raise DeviceError(f"{self.address}: {refused.failure.message}") from None

    def note_ready(self) -> None:
        """From now on the server has all that the device holds."""
        self._present = True
        if self.log is not None:
            self.log.finish()

    def close(self) -> None:
        """Leave the server, and wait a little until it has given everything back."""
        self.retired = True
        if self.lost is None:
            # A server that is already gone frees everything itself, as it does for any client that vanishes.
            with contextlib.suppress(OSError, ProtocolError):  # then it gives it back by itself
                self._channel.connection.settimeout(PARTING)
                self._channel.send_frame(Kind.LEAVE, b"")
                self._channel.receive_frame()
        self._channel.close()
        self._wake.set()
        if self.log is not None:
            self.log.close()

    def finish(self) -> None:
        """Fetch the failures of calls, unless every call has been answered."""
        if not self._asked and self.lost is None and not self.retired:
            self.synchronize()

    def note_fork(self) -> None:
        """The connection is the parent's alone."""
        self._abandon_server(
            f"{self.address}: the device belongs to the process that opened it, not to a fork"
        )

    # -- calls, inside; with the lock held -------------------------------------------------------------

    def _abandon_server(self, why: str) -> None:
        """Use the server no more, for this reason."""
        self.lost = why
        self._channel.close()

    def _encode_arguments(
        self, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any] | None]:
        encoded = [encode_value(argument, self._handle_of) for argument in arguments]
        return encoded, {key: encode_value(value, self._handle_of) for key, value in named.items()} or None

    def _await_calls(self) -> None:
        """Wait until the calls so far are carried out; raises the oldest failure, of one of them."""
        self._fetch_answer(Kind.SYNC, {})

    def _add_call(self, call: list[Any]) -> None:
        if self.lost is not None:
            raise DeviceLost(self.lost)
        # Before the call, so that the memory of arrays that died is free for its result. Not before
        # `note_ready`:
        # until then these handles belong to the link that is being left.
        if self._freed and self._present:
            self._give_back()
        pending = self._pending
        pending.append(call)
        self._asked = False
        now = time.perf_counter()
        # The first call after a pause goes out at once, for a short answer time; a dense run of calls waits
        # to be batched. The courier thread sends the rest, so that no call lingers when the program stops
        # calling.
        if len(pending) >= BATCH or now - self._sent > QUIET:
            self._flush_batch()
        elif not self._wake.is_set():
            self._wake.set()

    def _give_back(self) -> None:
        """Arrays that died before the next call, so that their memory is free for it."""
        freed, drop = self._freed, self._shapes.drop_array
        handles = []
        while freed:
            handle = freed.popleft()
            handles.append(handle)
            drop(handle)
        self._pending.append(handles)

    def _pending_frames(self) -> list[bytes]:
        """What is pending, as frames."""
        if self._freed and self._present:
            self._give_back()
        calls, self._pending = self._pending, []
        if not calls:
            return []
        text = orjson.dumps(calls)
        texts = [text]
        if len(text) > MOST_JSON:
            texts = []
            for call in calls:
                text = orjson.dumps([call])
                if len(text) <= MOST_JSON:
                    texts.append(text)
                else:
                    self._refuse_call(call, len(text))
        return [frame_head(Kind.CALLS, len(text)) + text for text in texts]

    def _refuse_call(self, call: list[Any], size: int) -> None:
        message = f"the arguments take {size} bytes, expected at most {MOST_JSON}"
        self.unheard.append(Failure("ValueError", message, call[0], call[2]))

    def _flush_batch(self) -> None:
        frames = self._pending_frames()
        if frames:
            self._transmit_parts(b"".join(frames))

    def _transmit_parts(self, *parts: Any) -> None:
        """Send parts of frames that change something on the server; the log has them too."""
        if self.lost is not None:
            raise DeviceLost(self.lost)
        log = self.log
        if log is not None:
            # Logged before it is sent: if sending fails half-way, the replay must hold it.
            for part in parts:
                log.write(part)
        with contextlib.suppress(_RebuiltError):  # from the log, in which the parts are
            self._guard_action(lambda: self._channel.send_all(*parts))
        self._sent = time.perf_counter()
        if log is not None and log.complete and log.size > log.limit:
            self._shorten_log(log)

    def send_what_lingers(self) -> bool:
        """Send what is pending; whether there will ever be more."""
        with self.lock:
            if self.retired or self.lost is not None:
                return False
            if self._pending or (self._freed and self._present):
                try:
                    self._flush_batch()
                except DeviceLost:
                    return False  # noted in `lost`; the next call raises it
            return True

    # -- questions, inside; with the lock held ---------------------------------------------------------

    def _fetch_answer(
        self, kind: Kind, question: dict[str, Any], read: Callable[[Any, int], Any] | None = None
    ) -> Any:
        """The answer to a question of the program; raises the oldest failure that was not raised before."""
        before = self._pending_frames()
        # Failures come out oldest first, as the library itself would have raised them; what is pending is
        # sent all the same, since the program goes on after the exception.
        if self.unheard:
            failure = self.unheard.popleft()
            self._transmit_parts(*before)
        else:
            try:
                return self._send_question(kind, question, read, before)
            except FailedError as found:
                failure = found.failure
        raise failure.exception(self._sites.where(failure.site))

    def _settle_calls(self) -> None:
        """All calls carried out, and failures kept for the program's next question."""
        while True:
            try:
                self._send_question(Kind.SYNC, {"wait": True}, before=self._pending_frames())
                return
            except FailedError as found:
                self.unheard.append(found.failure)

    def _send_question(
        self,
        kind: Kind,
        question: dict[str, Any],
        read: Callable[[Any, int], Any] | None = None,
        before: Sequence[bytes] = (),
    ) -> Any:
        """Send frames and a question, and wait for the answer. Raises `FailedError`."""
        if self.lost is not None:
            raise DeviceLost(self.lost)
        if self.log is not None:
            for frame in before:
                self.log.write(frame)
        try:
            found = self._guard_action(lambda: self._exchange_frames(kind, question, read, before))
        except _RebuiltError:  # from the log, in which the frames are
            return self._send_question(kind, question, read)
        if isinstance(found, FailedError):
            raise found
        return found

    def _exchange_frames(
        self,
        kind: Kind,
        question: dict[str, Any],
        read: Callable[[Any, int], Any] | None,
        before: Sequence[bytes],
    ) -> Any:
        self._channel.send_frame(kind, orjson.dumps(question), before=before)
        self._sent = time.perf_counter()
        answer, reply, size = self._channel.receive_frame(most=1 << 31)
        if answer == Kind.REFUSED:
            raise ProtocolError(str(reply))
        if answer not in (Kind.REPLY, Kind.ERROR) or not isinstance(reply, dict):
            raise ProtocolError(f"a frame {answer} for an answer")
        self._shapes.learn_results(reply.pop("told", ()))
        self._asked = True
        if answer == Kind.ERROR:
            self._surfaced += bool(reply["unheard"])
            return FailedError(Failure.parse_failure(reply["failure"]))
        return reply if read is None else read(reply, size)

    def _guard_action(self, action: Callable[[], Any]) -> Any:
        """Whatever fails on the way to the server means that the server is lost, or rebuilt.

        Raises `DeviceLost`, `_RebuiltError`.
        """
        with ExitStack() as undo:
            # Also for Ctrl-C in the middle of a frame: the stream would be out of step from then on.
            undo.callback(self._break_off)
            try:
                answer, reason = action(), None
            except (OSError, ProtocolError, ValueError, LookupError, TypeError) as error:
                self._channel.close()
                answer, reason = None, str(error) or type(error).__name__
            undo.pop_all()
        if reason is None:
            return answer
        if self.log is not None and self.log.complete:
            self._rebuild_server(self.log, reason)
            raise _RebuiltError
        self.lost = f"{self.address}: the device server is gone ({reason}), and with it the arrays it had"
        raise DeviceLost(self.lost)

    def _break_off(self) -> None:
        """Half a frame was sent or read: the connection is of no use, but a complete log can be replayed."""
        if self.log is not None and self.log.complete:
            self._channel.close()
        else:
            self._abandon_server(f"{self.address}: given up in the middle of a call; its arrays are lost")

    # -- record and replay -----------------------------------------------------------------------------

    def _rebuild_server(self, log: ReplayLog, reason: str) -> None:
        """Another server, or the same one started again, with all that was logged. Raises `DeviceLost`."""
        last = reason
        until = time.monotonic() + self.device.patience
        while True:
            # The same address first: a server that was only started again keeps its place and its token.
            for address in (self.address, *self.device.spares):
                try:
                    self._replay_calls(log, address)
                except (OSError, ProtocolError, DeviceError, ValueError, LookupError) as error:
                    last = str(error)
                    continue
                self.address = address
                return
            if time.monotonic() > until:
                break
            time.sleep(0.1)
        self.lost = (
            f"{self.address}: the device server is gone ({reason}), and could not be rebuilt in "
            f"{self.device.patience:g} s ({last})"
        )
        self.log = None
        log.close()
        raise DeviceLost(self.lost)

    def _replay_calls(self, log: ReplayLog, address: str) -> None:
        self._channel.close()
        self._channel, welcome = self.device.open_channel(address)
        watch_server(self._channel, address, self.device.token)
        if not welcome.dtypes >= self.dtypes:
            raise DeviceError(f"{address}: {welcome.library} lacks data types that {self.library} has")
        for piece in log.iterate_frames():
            self._channel.send_all(piece)
        # The replay repeats old failures too: those that were raised before are not raised again.
        received = self._surfaced
        for _ in range(received):
            self._exchange_frames(Kind.SYNC, {"wait": True}, None, ())
        self._surfaced = received

    def _shorten_log(self, log: ReplayLog) -> None:
        """A snapshot takes the place of the calls that led to it."""
        manifest, fill, end = self.take()
        # After the snapshot the server's numbering of old failures starts anew.
        log.start_over()
        self._surfaced = 0
        # Kernels are no arrays, so the snapshot lacks them: the log compiles them before anything uses them.
        for call in self.device.kernel_calls():
            text = orjson.dumps([call])
            log.write(frame_head(Kind.CALLS, len(text)) + text)
        send_snapshot(manifest, fill, log.write)
        end()
        log.finish()

    def _own_handle(self, array: Array) -> int:
        if array._device is not self.device:
            raise self.device.foreign_error(array)
        return array._handle

    def _handle(self, value: Any) -> int | None:
        return self._own_handle(value) if type(value) is Array else None


def _send_lingering(found: weakref.ref[RemoteLink], wake: threading.Event) -> None:
    """Send what lingers, as long as its link exists: the life of a thread."""
    while True:
        if wake.wait(IDLE):
            wake.clear()
            time.sleep(LINGER)
        link = found()
        if link is None or not link.send_what_lingers():
            return
        del link  # a reference held here would keep the link alive while this thread waits


class _RebuiltError(Exception):
    """The server was lost, and another one has all that it had."""
