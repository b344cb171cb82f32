"""All arrays of a client as regions of memory, so that they can be put down elsewhere as they were.

Arrays that share memory share a region, so what is a view of what stays so, and in the same layout: sums and
products come out the same, bit by bit. Of a large array of which only a slice is left, only the slice is
taken ("active memory regions", Markthub 2015, section 3.1).

A snapshot is a manifest, which is JSON, and the bytes of its regions, one after the other::

    {"regions": [SIZE, …], "arrays": [[HANDLE, REGION, DTYPE, SHAPE, STRIDES, OFFSET, READONLY], …],
     "failures": [[HANDLE, FAILURE], …]}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from dovetail.records import dataclass
from dovetail_remote.backends.base import Backend, View
from dovetail_remote.failures import Failure
from dovetail_remote.standard import DTYPES
from dovetail_remote.wire import Kind, ProtocolError, frame_head

Fill = Callable[[memoryview], None]
"""Puts the next bytes of the regions into what it is given."""

_MOST_DIMENSIONS = 64
_CHUNK = 1 << 22
"""Bytes that are on their way from one server to another."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the bytes of a region are: some array in it, and the region's bounds."""

    value: Any
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is in a snapshot; handles and views by region."""

    regions: tuple[int, ...]
    arrays: tuple[tuple[int, int, View], ...]
    failures: tuple[tuple[int, Failure], ...]

    @property
    def size(self) -> int:
        """Bytes of all regions."""
        return sum(self.regions)

    def as_json(self) -> dict[str, Any]:
        """JSON-ready values; `parse_manifest` reads them."""
        return {
            "regions": list(self.regions),
            "arrays": [
                [handle, region, v.dtype, list(v.shape), list(v.strides), v.offset, v.readonly]
                for handle, region, v in self.arrays
            ],
            "failures": [[handle, failure.as_json()] for handle, failure in self.failures],
        }


def take_snapshot(
    backend: Backend, values: Mapping[int, Any], failures: Mapping[int, Failure]
) -> tuple[Manifest, list[Source]]:
    """What to take from where; linear in the number of arrays."""
    numbers: dict[object, int] = {}
    sources: list[Source] = []
    placed: list[tuple[int, int, View]] = []
    for handle, value in values.items():
        view, (key, _) = backend.view(value), backend.owner_of(value)
        low, high = view.byte_span()
        # Arrays without elements share nothing, even where a library gives them one address.
        key = key if high > low else (key, handle)  # no elements: a region of its own
        number = numbers.setdefault(key, len(sources))
        if number == len(sources):
            sources.append(Source(value, low, high))
        else:
            known = sources[number]
            # Views of one memory travel once, as the smallest region that covers them, and stay views.
            sources[number] = Source(known.value, min(low, known.low), max(high, known.high))
        placed.append((handle, number, view))
    arrays = tuple(
        (handle, number, View(v.dtype, v.shape, v.strides, v.offset - sources[number].low, v.readonly))
        for handle, number, v in placed
    )
    return Manifest(tuple(s.high - s.low for s in sources), arrays, tuple(failures.items())), sources


def load_snapshot(backend: Backend, manifest: Manifest, fill: Fill) -> dict[int, Any]:
    """The arrays of a snapshot on a device, by handle; ``fill`` is called once for each region.

    Raises `TypeError` where the device does not have one of the data types.
    """
    views: list[list[tuple[int, View]]] = [[] for _ in manifest.regions]
    for handle, region, view in manifest.arrays:
        if view.dtype not in backend.dtypes:
            raise TypeError(f"{backend.library} has no {view.dtype}")
        views[region].append((handle, view))
    values: dict[int, Any] = {}
    for size, inside in zip(manifest.regions, views, strict=True):
        memory: NDArray[np.uint8] = np.empty(size, dtype=np.uint8)
        fill(memory.data)
        built = backend.build(memory, [view for _, view in inside])
        values.update(zip([handle for handle, _ in inside], built, strict=True))
    return values


def region_reader(backend: Backend, sources: Sequence[Source]) -> Fill:
    """Reads the bytes of the regions one after the other, as many at a time as fit the caller's buffer."""
    left = [(source.value, source.low, source.high) for source in reversed(sources)]

    def fill_target(target: memoryview) -> None:
        while target.nbytes:
            value, low, high = left.pop()
            middle = min(high, low + target.nbytes)
            if middle > low:
                target[: middle - low] = backend.read(value, low, middle).data
                target = target[middle - low :]
            if middle < high:
                left.append((value, middle, high))

    return fill_target


def send_snapshot(manifest: Manifest, fill: Fill, send: Callable[[Any], None]) -> None:
    """A snapshot as a LOAD frame, a chunk at a time."""
    text = orjson.dumps(manifest.as_json())
    send(frame_head(Kind.LOAD, len(text), manifest.size) + text)
    buffer = memoryview(bytearray(min(_CHUNK, manifest.size)))
    for size in manifest.regions:
        for begin in range(0, size, _CHUNK):
            part = buffer[: min(_CHUNK, size - begin)]
            fill(part)
            send(part)


def parse_manifest(data: Any) -> Manifest:
    """A manifest from JSON, every view within its region. Raises `ProtocolError`."""
    try:
        regions = tuple(_check_whole_number(size) for size in data["regions"])
        arrays = tuple(_parse_array(entry, regions) for entry in data["arrays"])
        failures = tuple(
            (_check_whole_number(handle), Failure.parse_failure(found)) for handle, found in data["failures"]
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ProtocolError(f"a snapshot that is none ({error})") from error
    return Manifest(regions, arrays, failures)


def _parse_array(entry: Any, regions: tuple[int, ...]) -> tuple[int, int, View]:
    handle, region, dtype, shape, strides, offset, readonly = entry
    if dtype not in DTYPES or not len(shape) == len(strides) <= _MOST_DIMENSIONS:
        raise ValueError(f"an array of {dtype} in {len(shape)} dimensions")
    if any(type(stride) is not int for stride in strides):
        raise ValueError("strides")
    view = View(
        dtype,
        tuple(map(_check_whole_number, shape)),
        tuple(strides),
        _check_whole_number(offset),
        bool(readonly),
    )
    low, high = view.byte_span()
    if low < 0 or high > regions[_check_whole_number(region)]:
        raise ValueError("an array beyond its region")
    return _check_whole_number(handle), region, view


def _check_whole_number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} for a whole number")
    return value
