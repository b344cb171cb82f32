"""Random programs of array calls, written against the standard so that they run on any namespace alike.

A program is a list of numbers; each decides one step, from what the step finds: a pool of arrays, of which it
takes some and adds some, by functions, operators, views, and changes in place (also through views).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Pool = list[Any]
MOST = 8
"""Arrays in the pool; a new one takes the place of an old one."""

_FLOATS = ("float32", "float64")


def fresh(xp: Any, rng: random.Random) -> Any:
    """A new array: one of the ways to make one."""
    shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(0, 3)))
    dtype = getattr(xp, rng.choice(("float32", "float64", "int32", "int64", "uint8")))
    size = 1
    for n in shape:
        size *= n
    start = rng.randint(0, 5)
    return xp.reshape(xp.astype(xp.arange(start, start + size), dtype), shape)


def _floating(xp: Any, x: Any) -> Any:
    return x if xp.isdtype(x.dtype, "real floating") else xp.astype(x, xp.float64)


def _unary(xp: Any, pool: Pool, rng: random.Random) -> Any:
    x = rng.choice(pool)
    name = rng.choice(("sin", "exp", "sqrt", "tanh", "log1p", "cos", "expm1", "floor", "square", "negative"))
    return getattr(xp, name)(_floating(xp, xp.tanh(_floating(xp, x)) if name in ("exp", "expm1") else x))


def _binary(xp: Any, pool: Pool, rng: random.Random) -> Any:
    x, y = _floating(xp, rng.choice(pool)), _floating(xp, rng.choice(pool))
    if x.shape != y.shape:
        y = xp.sum(y)
    name = rng.choice(("add", "subtract", "multiply", "maximum", "hypot", "atan2", "less", "divide"))
    return getattr(xp, name)(x, y)


def _operator(xp: Any, pool: Pool, rng: random.Random) -> Any:
    x = rng.choice(pool)
    if xp.isdtype(x.dtype, "bool"):
        return ~x
    number = rng.randint(1, 3)
    return rng.choice(
        (lambda: x + number, lambda: number - x, lambda: x * number, lambda: x**2, lambda: abs(x))
    )()


def _reduction(xp: Any, pool: Pool, rng: random.Random) -> Any:
    x = _floating(xp, rng.choice(pool))
    axis = rng.choice((None, *range(-x.ndim, x.ndim)))
    name = rng.choice(
        ("sum", "mean", "max", "min", "std", "prod", "argmax", "any") if x.size else ("sum", "all")
    )
    return getattr(xp, name)(x, axis=axis, keepdims=rng.random() < 0.5)


def _view(xp: Any, pool: Pool, rng: random.Random) -> Any:
    x = rng.choice(pool)
    if not x.ndim:
        return x[...]
    key = tuple(
        rng.choice((slice(None), slice(None, None, -1), slice(0, None, 2), slice(n - 1, None)))
        for n in x.shape
    )
    return x[key] if rng.random() < 0.7 else xp.permute_dims(x, tuple(reversed(range(x.ndim))))


def _shape(xp: Any, pool: Pool, rng: random.Random) -> Any:
    x = rng.choice(pool)
    name = rng.choice(("reshape", "expand_dims", "flip", "roll", "concat", "stack", "tile", "repeat"))
    if name == "reshape":
        return xp.reshape(x, (-1,)) if x.size else xp.reshape(x, (0,))
    if name == "expand_dims":
        return xp.expand_dims(x, axis=0) if x.ndim < 4 else x
    if name == "roll":
        return xp.roll(x, rng.randint(-3, 3))
    if name in ("concat", "stack"):
        flat = xp.reshape(x, (x.size,))
        return getattr(xp, name)([flat, flat])
    if x.size > 64:
        return xp.flip(x)
    return xp.tile(x, (2,)) if name == "tile" else xp.repeat(x, 2)


def _product(xp: Any, pool: Pool, rng: random.Random) -> Any:
    x = _floating(xp, rng.choice(pool))
    x = xp.reshape(x, (x.size, 1))[:6, :]
    name = rng.choice(("matmul", "outer", "qr", "solve", "svdvals", "fft"))
    square = xp.matmul(x, xp.matrix_transpose(x))
    if name == "matmul":
        return square
    if name == "outer":
        return xp.linalg.outer(x[:, 0], x[:, 0])
    if name == "fft":
        return xp.real(xp.fft.fft(x[:, 0])) if x.size else x
    bounded = xp.where(xp.isfinite(square), xp.tanh(square), xp.zeros_like(square)) + 8 * xp.eye(
        x.shape[0], dtype=x.dtype
    )
    if name == "qr":
        return xp.linalg.qr(bounded)[1]
    return xp.linalg.solve(bounded, x) if name == "solve" else xp.linalg.svdvals(bounded)


def _choice(xp: Any, pool: Pool, rng: random.Random) -> Any:
    x = _floating(xp, rng.choice(pool))
    name = rng.choice(("where", "sort", "mask", "take", "cumulative_sum", "unique_values", "nonzero"))
    flat = xp.reshape(x, (x.size,))
    if name == "where":
        return xp.where(x > 1, x, xp.zeros_like(x))
    if name == "mask":
        return x[xp.isfinite(x)]
    if name == "take":
        return xp.take(flat, xp.asarray([0, x.size - 1])) if x.size else x
    if name == "nonzero":
        return xp.nonzero(flat)[0]
    return getattr(xp, name)(flat)


def _in_place(xp: Any, pool: Pool, rng: random.Random) -> None:
    x = rng.choice(pool)
    if xp.isdtype(x.dtype, "bool"):
        x ^= True
    elif rng.random() < 0.5:
        x += 1
    else:
        x *= 2


def _assignment(xp: Any, pool: Pool, rng: random.Random) -> None:
    x = rng.choice(pool)
    value: Any = 3
    if xp.isdtype(x.dtype, "bool"):
        value = True
    if not x.ndim:
        x[...] = value
    elif x.shape[0] > 1 and rng.random() < 0.5:
        x[0, ...] = x[-1, ...]
    else:
        x[::2, ...] = value


_STEPS: tuple[Callable[[Any, Pool, random.Random], Any], ...] = (
    lambda xp, pool, rng: fresh(xp, rng),
    _unary, _binary, _binary, _operator, _operator, _reduction, _view, _view, _shape, _product, _choice,
    _in_place, _in_place, _assignment,
)  # fmt: skip


def step(xp: Any, pool: Pool, seed: int) -> None:
    """Carry out the step that ``seed`` decides on."""
    rng = random.Random(seed)
    made = rng.choice(_STEPS)(xp, pool, rng)
    if made is None:
        return
    made = xp.asarray(made)  # NumPy makes numbers of arrays of no dimension
    if len(pool) < MOST:
        pool.append(made)
    else:
        pool[rng.randrange(MOST)] = made


def smooth_step(xp: Any, pool: Pool, seed: int) -> None:
    """A step whose result changes little when its arguments do: other libraries round in their own ways."""
    rng = random.Random(seed)
    x, y = rng.choice(pool), rng.choice(pool)
    if x.shape != y.shape:
        y = xp.mean(y)
    flat = xp.reshape(x, (x.size,))
    column = xp.reshape(flat[:6], (-1, 1))
    axis = rng.choice((None, *range(-x.ndim, x.ndim)))
    made = rng.choice(
        (
            lambda: xp.sin(x) + xp.cos(y),
            lambda: xp.sqrt(xp.abs(x)) * y,
            lambda: xp.maximum(x, y) - 0.5 * xp.minimum(x, y),
            lambda: xp.hypot(x, y) / 2,
            lambda: xp.log1p(xp.abs(x)) - xp.expm1(-xp.abs(y)),
            lambda: xp.sum(x, axis=axis) / x.size,
            lambda: xp.mean(x, axis=axis, keepdims=True),
            lambda: xp.max(x, axis=axis) - xp.min(x, axis=axis),
            lambda: xp.std(x, axis=axis),
            lambda: xp.matmul(column, xp.matrix_transpose(column)),
            lambda: xp.linalg.outer(flat[:4], flat[:3]),
            lambda: xp.real(xp.fft.fft(flat)) / flat.size,
            lambda: xp.fft.irfft(xp.fft.rfft(flat), n=flat.size),
            lambda: xp.concat([flat, -flat]) if flat.size < 200 else flat,
            lambda: xp.permute_dims(x, tuple(reversed(range(x.ndim)))),
            lambda: xp.roll(xp.flip(x), 1),
            lambda: xp.where(x > 10, xp.zeros_like(x), x),
            lambda: flat[::2],
        )
    )()
    made = xp.tanh(made)
    if len(pool) < MOST:
        pool.append(made)
    else:
        pool[rng.randrange(MOST)] = made
