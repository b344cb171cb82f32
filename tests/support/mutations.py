"""Files damaged in every way, each way by its number: the same number is the same damage for ever."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

Rng = np.random.Generator

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3.5, -0.5, 1e308, -1e308, 1e-320, 2**31, 2**53 - 1, 2**63, 10**400),
    *("", "x", "-1", "nan", "é", "\x00", "\x1b[2J", "a\nb", "{n}", "../x", "x" * 5000),
    *([], {}, [1], [[]], ["a"], [None], {"a": 1}, [[[[[[]]]]]], {"t": "end"}, ["submitted"], ["ended", "a"]),
)
WORDS = (
    "-1",
    "0",
    "1e400",
    "nan",
    "inf",
    "9" * 400,
    '"',
    "'",
    "[" * 1500,
    "{",
    "}",
    "]",
    ",",
    "=",
    "#",
    "\x00",
    "\\",
    "",
)


def bytes_damaged(data: bytes, rng: Rng) -> bytes:
    """Bits turned, pieces lost, doubled, zeroed, overwritten or cut off."""
    found = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        size = len(found)
        at = int(rng.integers(0, size + 1))
        length = int(min(size - at, rng.integers(1, 2 ** int(rng.integers(1, 13)))))
        match int(rng.integers(0, 7)):
            case 0 | 1 if at < size:
                found[at] ^= 1 << int(rng.integers(0, 8))
            case 2:
                del found[at : at + length]
            case 3:
                found[at:at] = found[at : at + length]
            case 4:
                found[at : at + length] = bytes(length)
            case 5:
                found[at : at + length] = rng.bytes(length)
            case _:
                del found[at:]
    return bytes(found)


def text_damaged(data: bytes, rng: Rng) -> bytes:
    """A word of the text becomes an odd one; or, one time in three, as bytes."""
    if rng.random() < 0.33:
        return bytes_damaged(data, rng)
    lines = data.split(b"\n")
    for _ in range(int(rng.integers(1, 4))):
        i = int(rng.integers(0, len(lines)))
        separators = [s for s in (b" ", b",", b"|", b"=", b":", b'"') if s in lines[i]] or [b" "]
        separator = separators[int(rng.integers(0, len(separators)))]
        words = lines[i].split(separator)
        words[int(rng.integers(0, len(words)))] = WORDS[int(rng.integers(0, len(WORDS)))].encode()
        lines[i] = separator.join(words)
        if rng.random() < 0.2:
            del lines[i : i + 1]
            lines = lines or [b""]
    return b"\n".join(lines)


def json_damaged(data: bytes, rng: Rng) -> bytes:
    """A value in one of the lines of JSON becomes an odd one, is lost or doubled; or as text."""
    if rng.random() < 0.25:
        return text_damaged(data, rng)
    lines = data.split(b"\n")
    for _ in range(int(rng.integers(1, 3))):
        whole = [i for i, line in enumerate(lines) if line.startswith((b"{", b"["))]
        if not whole:
            return text_damaged(data, rng)
        i = whole[int(rng.integers(0, len(whole)))]
        try:
            form = json.loads(lines[i])
        except ValueError:
            continue
        match int(rng.integers(0, 8)):
            case 0:
                del lines[i]
            case 1:
                lines.insert(i, lines[whole[int(rng.integers(0, len(whole)))]])
            case _:
                lines[i] = json.dumps(_changed(form, rng)).encode()
        lines = lines or [b""]
    return b"\n".join(lines)


def _changed(form: Any, rng: Rng) -> Any:
    """The form with one value, anywhere in it, changed."""
    spots: list[tuple[Any, Any]] = []

    def gather(value: Any) -> None:
        items = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, item in items:
            spots.append((value, key))
            gather(item)

    gather(form)
    if not spots or rng.random() < 0.02:
        return ODD[int(rng.integers(0, len(ODD)))]
    holder, key = spots[int(rng.integers(0, len(spots)))]
    if rng.random() < 0.2:
        del holder[key]
    elif rng.random() < 0.3:
        other, name = spots[int(rng.integers(0, len(spots)))]
        holder[key] = json.loads(json.dumps(other[name]))
    else:
        holder[key] = ODD[int(rng.integers(0, len(ODD)))]
    return form


Damage = Callable[[bytes, Rng], bytes]
