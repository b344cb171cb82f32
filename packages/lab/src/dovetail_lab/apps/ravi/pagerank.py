"""PageRank: how often a random reader is on each page of a web.

Source: L. Page, S. Brin, R. Motwani, T. Winograd, "The PageRank citation ranking: bringing order to the web"
(1999); pages without links lead anywhere (A. Langville, C. Meyer, Google's PageRank and Beyond, chapter 4).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up
from dovetail_lab.apps.ravi.sweeps import Part, Sweeps

LINKS = 8
"""That lead to each page."""
DAMPING = 0.85

SOURCE = """
__kernel void pull(__global const int8 *restrict links, __global const float *restrict given,
                   __global float *restrict found)
{
    const size_t i = get_global_id(0);
    const int8 from = links[i];
    found[i] = ((given[from.s0] + given[from.s1]) + (given[from.s2] + given[from.s3]))
             + ((given[from.s4] + given[from.s5]) + (given[from.s6] + given[from.s7]));
}
"""


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """``(n, 8)`` int32: which pages link to each page; few pages have most of the links."""
    return ((n * rng.random((n, LINKS)) ** 3).astype(np.int32),)


def _initial_state(links: Array) -> Array:
    """The rank of each page, and 1 over its number of links, 0 where it has none; ``(2, n)``."""
    n = links.shape[0]
    leaving = np.bincount(links.reshape(-1), minlength=n)
    return np.stack([np.full(n, 1 / n), np.where(leaving > 0, 1 / np.maximum(leaving, 1), 0)])


def _rank_per_link(state: Array) -> Array:
    return np.asarray(state[0] * state[1], np.float32)


def _sweep_on_host(state: Array, sweep: int, part: Part) -> Array:
    """What the pages of a part get from those that link to them; O(n)."""
    return np.asarray(np.take(_rank_per_link(state), part[0]).sum(axis=1, dtype=np.float32), np.float64)


def _load_part(device: OpenCL, part: Part) -> Any:
    (links,) = part
    pages = links.shape[0]
    items = round_up(pages, 64)
    return device.upload_array(links, (items, LINKS)), device.allocate_buffer(items, dtype=np.float32), pages


def _sweep_on_device(device: OpenCL, state: Array, sweep: int, loaded: Any) -> Array:
    links, found, pages = loaded
    kernel = device.kernel(SOURCE, "pull")
    given = device.upload_array(_rank_per_link(state))
    device.launch(kernel, (round_up(pages, 64),), device.group(kernel, 64), links, given, found)
    return device.download_array(found, (pages,), np.float32).astype(np.float64)


def _update_state(state: Array, total: Array, n: int) -> Array:
    ranks, each = state
    lost = ranks[each == 0].sum()
    return np.stack([(1 - DAMPING) / n + DAMPING * (total + lost / n), each])


SWEEPS = Sweeps(_initial_state, _sweep_on_host, _load_part, _sweep_on_device, _update_state, joined=True)
cpu, opencl, both = SWEEPS.cpu, SWEEPS.opencl, SWEEPS.both
