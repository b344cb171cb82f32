"""History as text: one run a line, as JSON (JSON Lines) or CSV, out and in.

JSON: ``{"app": "mm", "implementation": "gpu", "device": "gpu:T4", "inputs": {"n": 2048}, "seconds": 0.041}``.
CSV has the same names as its header; an input ``n`` is the column ``inputs.n``. ``app``, ``device`` and
``seconds`` must be there; `FIELDS` lists the others and their defaults. ``device`` is a kind, or
``KIND:MODEL``, or ``{"kind": …, "model": …}``.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dovetail.errors import InputError
from dovetail.history.base import check_run
from dovetail.history.companions import companions_form, companions_of
from dovetail.model import HOST_CPUS, WHOLE_POOL, Companions, DeviceClass, Run, State, Usage

FIELDS: Mapping[str, str] = {
    "app": "name of the app",
    "implementation": "name of the implementation; default: the device kind",
    "device": "device class: KIND or KIND:MODEL",
    "nodes": "nodes, default 1",
    "cpus": "CPUs per node; default: all (-1), beside a device the host's share (-2)",
    "gpus": "devices per node; default 1 on a device, else 0",
    "inputs": "numbers and words by name, default none",
    "seconds": "run time",
    "state": "default COMPLETED",
    "walltime": "limit in seconds",
    "when": "Unix time of its end, default 0",
    "uid": "unique name; a run whose uid is known is skipped; default: made from the line",
    "job": "job id",
    "user": "user",
    "first_on_device": "whether it paid for a cold start, default false",
    "cpu_time": "CPU seconds",
    "peak_memory": "bytes",
    "sent": "bytes to the device",
    "sent_time": "seconds",
    "received": "bytes from the device",
    "received_time": "seconds",
    "gpu_memory": "peak of a device's memory in bytes",
    "beside": "what ran beside it: seconds by app on its `device`, on `cores`; expected `alone`, `slowdown`",
    "gpu_use": "mean part of its devices' time that it used, from 0 to 1",
}
_USAGE = (
    *("cpu_time", "peak_memory", "sent", "sent_time", "received", "received_time"),
    *("gpu_memory", "gpu_use"),
)
_BYTES = ("peak_memory", "gpu_memory")
"""Of these the whole numbers."""
_MOST = 2**53
"""Whole numbers up to here are exact as JSON has them, and fit the database."""
_WORDS = ("app", "implementation", "uid", "job", "user")


def as_dict(run: Run) -> dict[str, Any]:
    """The JSON form; what has no value, or its default, is left out."""
    found: dict[str, Any] = {
        "app": run.app,
        "implementation": run.implementation,
        "device": str(run.device_class),
        "nodes": run.nodes,
        "cpus": run.cpus,
        "gpus": run.gpus,
        "inputs": dict(run.inputs),
        "seconds": run.seconds,
        "state": str(run.state),
        "when": run.when,
    }
    for name in ("uid", "job", "user", "walltime"):
        value = getattr(run, name)
        if value is not None and value != "":
            found[name] = value
    if run.first_on_device:
        found["first_on_device"] = True
    if run.beside is not None:
        found["beside"] = companions_form(run.beside)
    if run.usage is not None:
        for name in _USAGE:
            if getattr(run.usage, name) is not None:
                found[name] = getattr(run.usage, name)
    return found


def json_lines(runs: Iterable[Run]) -> Iterator[str]:
    """One JSON object a line."""
    return (json.dumps(as_dict(run), separators=(",", ":")) + "\n" for run in runs)


def csv_lines(runs: Iterable[Run], names: Iterable[str]) -> Iterator[str]:
    """A header and a line a run; ``names`` are the inputs that get a column."""
    columns = [name for name in FIELDS if name != "inputs"]
    inputs = sorted(names)
    writer: Any = csv.writer(_AsText(), lineterminator="\n")
    yield writer.writerow([*columns, *(f"inputs.{name}" for name in inputs)])
    for run in runs:
        row = as_dict(run)
        # A cell holds text: the object is written as JSON, which `_read_companions` reads back.
        if "beside" in row:
            row["beside"] = json.dumps(row["beside"], separators=(",", ":"))
        cells = (_input_cell(run.inputs[name]) if name in run.inputs else "" for name in inputs)
        yield writer.writerow([*(row.get(name, "") for name in columns), *cells])


class _AsText:
    """A file that gives back what it was to write."""

    def write(self, text: str) -> str:
        return text


def read_json_lines(lines: Iterable[str], where: str) -> Iterator[Run]:
    """Runs of a JSON Lines file; blank lines are skipped. Raises `InputError` with file and line."""
    seen: Counter[bytes] = Counter()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        here = f"{where}: line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"found no JSON ({error}), expected one run as an object", where=here) from error
        except RecursionError:
            raise InputError(
                "found JSON too deep to read, expected one run as an object", where=here
            ) from None
        if not isinstance(row, dict):
            raise InputError(f"found {type(row).__name__}, expected one run as an object", where=here)
        yield _read_run(row, here, seen)


def read_csv(lines: Iterable[str], where: str) -> Iterator[Run]:
    """Runs of a CSV file with a header. Raises `InputError` with file and line."""
    reader = csv.reader(lines, strict=True)
    seen: Counter[bytes] = Counter()
    header: list[str] | None = None
    try:
        for cells in reader:
            here = f"{where}: line {reader.line_num}"
            if header is None:
                header = _check_header([c if c.startswith("inputs.") else c.strip() for c in cells], here)
                continue
            if not any(cells):
                continue
            if len(cells) != len(header):
                raise InputError(f"found {len(cells)} fields, expected {len(header)}", where=here)
            yield _read_run(_csv_row(header, cells, here), here, seen)
    except csv.Error as error:
        raise InputError(f"found no CSV ({error})", where=f"{where}: line {reader.line_num}") from error
    if header is None:
        raise InputError("found an empty file, expected a header and runs", where=where)


def _check_header(names: list[str], here: str) -> list[str]:
    for name in names:
        if name not in FIELDS and not name.startswith("inputs."):
            raise InputError(
                f"found column {name!r}, expected {', '.join(FIELDS)} or inputs.NAME", where=here
            )
        if names.count(name) > 1:
            raise InputError(f"found column {name!r} twice", where=here)
    return names


def _csv_row(header: list[str], cells: list[str], here: str) -> dict[str, Any]:
    row: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    for name, cell in zip(header, cells, strict=True):
        if cell == "":
            continue
        if name == "inputs":
            try:
                inputs |= dict(json.loads(cell))
            except (ValueError, TypeError, RecursionError) as error:
                raise InputError(
                    f"found {cell[:100]!r}, expected a JSON object", where=f"{here}: inputs"
                ) from error
        elif name.startswith("inputs."):
            # Quotation marks keep a word such as "1e3" from being read as a number.
            quoted = len(cell) > 1 and cell[0] == cell[-1] == '"'
            inputs[name.removeprefix("inputs.")] = cell[1:-1] if quoted else _parse_cell(cell)
        else:
            plain = name in _WORDS or name in ("device", "state", "beside")
            row[name] = cell if plain else _parse_cell(cell)
    return row | {"inputs": inputs}


def _input_cell(value: float | str) -> float | str:
    """An input as a cell: a word that would be read as something else stands in quotation marks."""
    if not isinstance(value, str):
        return value
    plain = value != "" and _parse_cell(value) == value and value[0] != '"'
    return value if plain else f'"{value}"'


def _parse_cell(text: str) -> float | str | bool:
    """A number where the text is one, a truth value where it is one, else the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _read_run(row: Mapping[str, Any], here: str, seen: Counter[bytes]) -> Run:
    for name in row:
        if name not in FIELDS:
            raise InputError(f"found field {name!r}, expected {', '.join(FIELDS)}", where=here)
    for name in ("app", "device", "seconds"):
        if row.get(name) is None or row[name] == "":
            raise InputError(f"{name} is missing", where=here)
    for name in _WORDS:
        if not isinstance(row.get(name, ""), str | None):
            raise InputError(f"found {row[name]!r}, expected a word", where=f"{here}: {name}")
    device = _read_device(row["device"], f"{here}: device")
    on_cpu = device.kind == "cpu"
    usage = {name: _read_value(row, name, here, None) for name in _USAGE}
    for name in _BYTES:
        peak = usage[name]
        if peak is not None and peak > _MOST:
            raise InputError(f"found {peak:g}, expected at most {_MOST}", where=f"{here}: {name}")
    sizes = {name: int(peak) for name in _BYTES if (peak := usage[name]) is not None}
    run = Run(
        app=row["app"],
        implementation=row.get("implementation") or device.kind,
        device_class=device,
        nodes=_read_whole_number(row, "nodes", here, 1, least=1),
        cpus=_read_whole_number(row, "cpus", here, WHOLE_POOL if on_cpu else HOST_CPUS, least=HOST_CPUS),
        gpus=_read_value(row, "gpus", here, 0.0 if on_cpu else 1.0) or 0.0,
        inputs=_read_inputs(row.get("inputs") or {}, f"{here}: inputs"),
        seconds=_read_value(row, "seconds", here, None) or 0.0,
        state=_read_state(row.get("state", "COMPLETED"), f"{here}: state"),
        walltime=_read_value(row, "walltime", here, None),
        usage=Usage(**usage | sizes)  # type: ignore[arg-type]
        if any(value is not None for value in usage.values())
        else None,
        when=_read_value(row, "when", here, 0.0, signed=True) or 0.0,
        uid=row.get("uid") or _made_uid(row, seen),
        job=row.get("job") or "",
        user=row.get("user"),
        first_on_device=_read_truth_value(row.get("first_on_device", False), f"{here}: first_on_device"),
        beside=_read_companions(row.get("beside"), f"{here}: beside"),
    )
    try:
        # All text in one attempt: half a surrogate pair cannot be stored, wherever it stands.
        words = (value for value in run.inputs.values() if isinstance(value, str))
        "".join(
            (run.app, run.implementation, str(device), run.uid, run.job, run.user or "", *run.inputs, *words)
        ).encode()
    except UnicodeEncodeError:
        raise InputError("found half of a character, expected text", where=here) from None
    check_run(run)
    return run


def _made_uid(row: Mapping[str, Any], seen: Counter[bytes]) -> str:
    """A uid from a line's content and how often the file has held it: a second import adds nothing."""
    text = json.dumps(row, sort_keys=True, default=str).encode()
    digest = hashlib.blake2b(text, digest_size=16).digest()
    seen[digest] += 1
    return hashlib.blake2b(text + b"#%d" % seen[digest], digest_size=16).hexdigest()


def _read_device(found: Any, here: str) -> DeviceClass:
    kind: Any = None
    model: Any = ""
    if isinstance(found, str):
        kind, _, model = found.partition(":")
    elif isinstance(found, dict) and set(found) <= {"kind", "model"}:
        kind, model = found.get("kind"), found.get("model") or ""
    if isinstance(kind, str) and kind and isinstance(model, str):
        return DeviceClass(kind, model)
    expected = "KIND, KIND:MODEL or an object with kind and model"
    raise InputError(f"found {found!r}, expected {expected}", where=here)


def _read_value(
    row: Mapping[str, Any], name: str, here: str, default: float | None, *, signed: bool = False
) -> float | None:
    found = row.get(name)
    if found is None:
        return default
    if isinstance(found, bool) or not isinstance(found, int | float) or not _is_finite(found):
        raise InputError(f"found {found!r}, expected a finite number", where=f"{here}: {name}")
    if found < 0 and not signed:
        raise InputError(f"found {found!r}, expected a number of at least 0", where=f"{here}: {name}")
    return float(found)


def _is_finite(found: float) -> bool:
    try:
        return math.isfinite(found)
    except OverflowError:
        # A JSON integer beyond any float.
        return False


def _read_whole_number(row: Mapping[str, Any], name: str, here: str, default: int, *, least: int) -> int:
    found = _read_value(row, name, here, default, signed=True)
    if found is None or found != int(found) or not least <= found <= _MOST:
        raise InputError(
            f"found {row[name]!r}, expected a whole number from {least} to {_MOST}", where=f"{here}: {name}"
        )
    return int(found)


def _read_inputs(found: Any, here: str) -> dict[str, float | str]:
    if not isinstance(found, dict):
        raise InputError(f"found {found!r}, expected an object of numbers and words", where=here)
    inputs: dict[str, float | str] = {}
    for name, value in found.items():
        if isinstance(value, bool):
            inputs[name] = str(value).lower()
        elif isinstance(value, str):
            inputs[name] = value
        elif isinstance(value, int | float) and _is_finite(value):
            inputs[name] = float(value)
        else:
            raise InputError(f"found {value!r}, expected a finite number or a word", where=f"{here}.{name}")
    return inputs


def _read_state(found: Any, here: str) -> State:
    try:
        return State(found)
    except ValueError:
        raise InputError(f"found {found!r}, expected {', '.join(State)}", where=here) from None


def _read_companions(found: Any, here: str) -> Companions | None:
    """What ran beside it: an object, or as CSV has it the text of one."""
    try:
        form = json.loads(found) if isinstance(found, str) else found
        return None if form is None else companions_of(form)
    except (ValueError, RecursionError) as error:
        raise InputError(f"found {str(found)[:100]!r}, {error}", where=here) from None


def _read_truth_value(found: Any, here: str) -> bool:
    if isinstance(found, bool) or found in (0, 1):
        return bool(found)
    raise InputError(f"found {found!r}, expected true or false", where=here)
