"""What a borrowed GPU costs: the constants of Equations 1 to 12 of Markthub 2015, each with unit and source.

The defaults are the paper's. ``dovetail bench-remote`` measures them on a user's own machines and writes
them as a file of this form, one table for each constant; the rate model of simulations reads it::

    measured = "2026-11-21, between n0 and n1"

    [remote_latency]
    value = 5.062e-05
    unit = "s"
    source = "Markthub 2015, section 2.2"

A file may give some of the constants; the others keep the paper's values.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, fields, replace
from functools import cache
from typing import Annotated, Any

from dovetail.errors import InputError
from dovetail.files.sentences import file_name
from dovetail.files.toml import read_toml, toml_value
from dovetail.records import dataclass

SECTION_2 = "Markthub 2015, section 2.2"
TABLE_1 = "Markthub 2015, Table 1"
TABLE_3 = "Markthub 2015, Table 3"


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant: its value with unit, what it means, the paper's symbol, and where the value is from."""

    name: str
    value: float
    unit: str
    symbol: str
    meaning: str
    source: str


def _constant_field(value: float, unit: str, symbol: str, meaning: str, source: str = TABLE_1) -> float:
    described = {"unit": unit, "symbol": symbol, "meaning": meaning, "source": source}
    return field(default=value, metadata=described)


@dataclass(frozen=True)
class RemoteCosts:
    """The constants as numbers, those of the paper where none are given. Seconds and bytes; GB is 1e9.

    ``sources`` has, for constants that are not the paper's, where they are from.
    """

    remote_latency: float = _constant_field(
        50.62e-6, "s", "rcuda_lat", "of a call to a remote GPU, without the network's", SECTION_2
    )
    remote_overhead: float = _constant_field(
        1.03, "1", "overhead_rcuda", "time of a transfer to a remote GPU, over the network's alone", SECTION_2
    )
    network_latency: float = _constant_field(1.2e-6, "s", "net_lat", "latency of the network", TABLE_3)
    network_bandwidth: float = _constant_field(7e9, "B/s", "net_bw", "bandwidth of a node's network", TABLE_3)
    gpu_latency: float = _constant_field(10e-6, "s", "gpu_lat", "time of a call to a local GPU", TABLE_3)
    gpu_bandwidth: float = _constant_field(7e9, "B/s", "gpu_bw", "bandwidth to a local GPU", TABLE_3)
    record_per_call: float = _constant_field(
        0.2825e-6, "s", "record_coef", "more for each call that is recorded"
    )
    record_constant: float = _constant_field(
        0.3437e-3, "s", "record_const", "once for a GPU that is recorded"
    )
    replay_per_call: float = _constant_field(
        1.031e-6, "s", "replay_coef", "of a recorded call, when it is moved"
    )
    replay_constant: float = _constant_field(1.243, "s", "replay_const", "once for each GPU that is moved")
    copy_bandwidth_per_byte: float = _constant_field(
        47.21e3, "1/s", "bw_coef", "bandwidth at which a region is moved, for each of its bytes"
    )
    copy_bandwidth: float = _constant_field(4.78e9, "B/s", "bw_max", "that bandwidth at most")
    sync_per_byte: float = _constant_field(
        0.057e-9, "s/B", "memsync_coef", "more for each byte that is moved"
    )
    sync_constant: float = _constant_field(0.0, "s", "memsync_const", "more for each region that is moved")
    helper_per_byte: float = _constant_field(
        0.687e-9, "s/B", "mhelper_coefd", "more for each byte once a process's second GPU has moved"
    )
    helper_per_call: float = _constant_field(9.983e-6, "s", "mhelper_coefc", "the same for each call")
    helper_constant: float = _constant_field(2.934e-3, "s", "mhelper_const", "the same, once")
    active_memory: float = _constant_field(
        6e9, "B", "data_size_i", "most bytes that a GPU holds when it is moved", "reading: its memory"
    )
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    def described_constants(self) -> list[Constant]:
        """The constants with their units, meanings and sources, in the order of `CONSTANTS`."""
        return [
            replace(paper, value=getattr(self, name), source=self.sources.get(name, paper.source))
            for name, paper in CONSTANTS.items()
        ]


#: The constants by name, with the paper's values.
CONSTANTS: Mapping[str, Constant] = {
    field.name: Constant(field.name, getattr(RemoteCosts, field.name), **field.metadata)
    for field in fields(RemoteCosts)
    if field.metadata
}


# -- the file ------------------------------------------------------------------------------------------

_POSITIVE = {"network_bandwidth", "gpu_bandwidth", "copy_bandwidth_per_byte", "copy_bandwidth"}
"""Constants that something is divided by."""


@cache
def remote_costs_file() -> Any:
    """The pydantic model of the file: a table a constant. Making it takes long, so it is made on demand."""
    from pydantic import BeforeValidator, Field, create_model

    from dovetail.files.fields import Entry, real_number

    def constant_field(constant: Constant) -> Any:
        # Divided by in the equations.
        positive = constant.name in _POSITIVE
        number = real_number(constant.unit, above_zero=positive)
        bound: dict[str, Any] = {"gt" if positive else "ge": 0}
        return create_model(
            f"Constant_{constant.name}",
            __base__=Entry,
            value=(
                Annotated[float, Field(**bound), BeforeValidator(number)],
                Field(description=constant.meaning),
            ),
            unit=(str, Field(description=f"{constant.unit}; nothing else", pattern=f"^{constant.unit}$")),
            source=(str, Field(description="where the value is from")),
        )

    definitions: Any = {
        "measured": (str, Field(default="", description="when and where")),
        **{
            name: (constant_field(constant) | None, Field(default=None, description=constant.meaning))
            for name, constant in CONSTANTS.items()
        },
    }
    return create_model(
        "RemoteCostsFile", __base__=Entry, __doc__="The constants of borrowed GPUs.", **definitions
    )


def read_remote_costs(path: str | os.PathLike[str]) -> RemoteCosts:
    """The constants of a file that ``dovetail bench-remote`` wrote, or a person.

    Raises `InputError`, which names the file and the constant.
    """
    source = file_name(path)
    data = read_toml(path, "the constants of borrowed GPUs, as dovetail bench-remote writes them")
    for name, entry in data.items():
        # The unit first, and by name: a value in other units is the likeliest mistake of an editor.
        if name in CONSTANTS and isinstance(entry, Mapping) and "unit" in entry:
            found, expected = entry["unit"], CONSTANTS[name].unit
            if found != expected:
                raise InputError(f"{name}, unit: found {found!r}, expected {expected!r}", where=source)
    from dovetail.files.fields import validate_data

    checked = validate_data(remote_costs_file(), data, source)
    given = {name: getattr(checked, name) for name in CONSTANTS if getattr(checked, name) is not None}
    return RemoteCosts(
        **{name: entry.value for name, entry in given.items()},
        sources={name: entry.source for name, entry in given.items()},
    )


def remote_costs_text(costs: RemoteCosts, measured: str) -> str:
    """The constants as the text of a file; `read_remote_costs` gives them back."""
    lines = [
        "# What a borrowed GPU costs (Equations 1 to 12 of Markthub 2015), as simulations take it.",
        f"measured = {toml_value(measured)}",
    ]
    for constant in costs.described_constants():
        lines += [
            "",
            f"[{constant.name}]  # {constant.meaning}",
            f"value = {constant.value!r}",
            f"unit = {toml_value(constant.unit)}",
            f"source = {toml_value(constant.source)}",
        ]
    return "\n".join(lines) + "\n"
