"""Molecular dynamics: argon-like atoms on a disturbed lattice, each with the 124 neighbours of its list.

Source: L. Verlet, "Computer 'experiments' on classical fluids. I", Physical Review 159 (1967): Lennard-Jones
forces, neighbour lists, positions and velocities in turn. Units: the potential's length and depth, the mass.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dovetail.errors import InputError
from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

SPACING = 1.2
STEP = 0.002
REACH = 2
"""Neighbours of an atom are those up to so many places away along each axis: 5^3 - 1 of them."""

SOURCE = (
    f"""
#define STEP {STEP}f
"""
    + """
__kernel void force(__global const float4 *restrict place, __global const int *restrict neighbours,
                    __global float4 *restrict forces, const uint count, const float side)
{
    const size_t i = get_global_id(0), n = get_global_size(0);
    const float4 here = place[i];
    float4 sum = (float4)(0.0f);
    for (uint j = 0; j < count; j++) {
        float4 away = place[neighbours[j * n + i]] - here;
        away -= side * rint(away / side);
        const float inverse = 1.0f / dot(away, away), sixth = inverse * inverse * inverse;
        sum -= (48.0f * sixth * sixth - 24.0f * sixth) * inverse * away;
    }
    forces[i] = sum;
}

__kernel void kick(__global const float4 *restrict forces, __global float4 *restrict speed)
{
    const size_t i = get_global_id(0);
    speed[i] += 0.5f * STEP * forces[i];
}

__kernel void drift(__global const float4 *restrict speed, __global float4 *restrict place)
{
    const size_t i = get_global_id(0);
    place[i] += STEP * speed[i];
}
"""
)


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """Places and speeds, ``(3, n^3)`` float32, lists ``(124, n^3)``, the side of the periodic box.

    A side of less than 5 atoms would make an atom its own neighbour.
    """
    if n < 2 * REACH + 1:
        raise InputError(f"the lattice has a side of {n}, expected at least {2 * REACH + 1}")
    lattice = np.indices((n, n, n)).reshape(3, -1)
    place = (SPACING * lattice + rng.uniform(-0.05, 0.05, lattice.shape)).astype(np.float32)
    speed = rng.normal(0, 0.5, lattice.shape).astype(np.float32)
    offsets = [o for o in itertools.product(range(-REACH, REACH + 1), repeat=3) if any(o)]
    x, y, z = ((axis + np.array(offsets).T[d][:, None]) % n for d, axis in enumerate(lattice))
    return place, speed, ((x * n + y) * n + z).astype(np.int32), np.array([n * SPACING], np.float32)


def atom_forces(xp: Any, place: Any, neighbours: Any, side: Any) -> Any:
    """The force on each atom, ``(3, atoms)``; pairs take the nearest image. O(124 atoms)."""
    total = xp.zeros_like(place)
    for j in range(neighbours.shape[0]):
        away = xp.take(place, neighbours[j, :], axis=1)
        away -= place
        away -= side * xp.round(away / side)
        inverse = 1 / xp.sum(away * away, axis=0)
        sixth = inverse * inverse * inverse
        away *= (48 * sixth * sixth - 24 * sixth) * inverse
        total -= away
    return total


def array_api(xp: Any, place: Any, speed: Any, neighbours: Any, side: Any, iterations: int = 1) -> Any:
    """Velocity Verlet: half a kick, a drift, half a kick, so many times."""
    place, speed = place + 0 * speed, speed + 0 * place
    force = atom_forces(xp, place, neighbours, side)
    for _ in range(iterations):
        speed += 0.5 * STEP * force
        place += STEP * speed
        force = atom_forces(xp, place, neighbours, side)
        speed += 0.5 * STEP * force
    return xp.stack((place, speed))


def cpu(place: Array, speed: Array, neighbours: Array, side: Array, iterations: int = 1) -> Array:
    """Places and speeds after so many steps, ``(2, 3, atoms)``; the same in NumPy."""
    return np.asarray(array_api(np, place, speed, neighbours, side, iterations))


def opencl(
    device: OpenCL, place: Array, speed: Array, neighbours: Array, side: Array, iterations: int = 1
) -> Array:
    """One work-item per atom, its place and speed as four numbers, the last one 0."""
    atoms = place.shape[1]
    items = (round_up(atoms, 64),)

    def upload_as_four(rows: Array) -> Any:
        made = np.zeros((items[0], 4), np.float32)
        made[:atoms, :3] = rows.T
        return device.upload_array(made)

    force, kick, drift = (device.kernel(SOURCE, name) for name in ("force", "kick", "drift"))
    group = device.group(force, 64)
    where, moving = upload_as_four(place), upload_as_four(speed)
    # The padding's neighbours are atoms as good as any: its forces are never read.
    lists = device.upload_array(neighbours, (neighbours.shape[0], *items))
    acting = device.allocate_buffer(items[0], 4, dtype=np.float32)
    sizes = np.uint32(neighbours.shape[0]), np.float32(side[0])
    device.launch(force, items, group, where, lists, acting, *sizes)
    for _ in range(iterations):
        device.launch(kick, items, group, acting, moving)
        device.launch(drift, items, group, moving, where)
        device.launch(force, items, group, where, lists, acting, *sizes)
        device.launch(kick, items, group, acting, moving)
    found = [device.download_array(one, (items[0], 4), np.float32)[:atoms, :3].T for one in (where, moving)]
    return np.stack(found)
