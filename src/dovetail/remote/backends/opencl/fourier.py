"""Discrete Fourier transforms of any length, along any axes.

Lengths that are powers of two go by Stockham's self-sorting passes of radix 2, all others by Bluestein's
convolution of a power of two (Van Loan, "Computational Frameworks for the Fast Fourier Transform", 1992,
sections 1.7 and 4.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.remote.backends.opencl.elementwise import converted, elementwise
from dovetail.remote.backends.opencl.queue import C_TYPES, ClArray, Queue, strides_of
from dovetail.remote.backends.opencl.strided import copy, gathered

__all__ = ["Fourier"]


class Fourier:
    """The functions of the ``fft`` extension on one device; tables of roots are kept for each length."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._tables: dict[tuple[Any, ...], ClArray] = {}

    # -- the functions of the standard -----------------------------------------------------------------

    def fft(self, x: ClArray, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> ClArray:
        """Forward, of complex or real numbers."""
        return self._along(self._complex(x), n, axis, norm, forward=True)

    def ifft(self, x: ClArray, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> ClArray:
        """Backward."""
        return self._along(self._complex(x), n, axis, norm, forward=False)

    def fftn(self, x: ClArray, *, s: Any = None, axes: Any = None, norm: str = "backward") -> ClArray:
        """Forward, along several axes."""
        return self._several(self._complex(x), s, axes, norm, forward=True)

    def ifftn(self, x: ClArray, *, s: Any = None, axes: Any = None, norm: str = "backward") -> ClArray:
        """Backward, along several axes."""
        return self._several(self._complex(x), s, axes, norm, forward=False)

    def rfft(self, x: ClArray, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> ClArray:
        """Forward, of real numbers: the half that is not mirrored."""
        if x.dtype.kind == "c":
            raise TypeError(f"rfft() needs real numbers, found {x.dtype}")
        whole = self.fft(x, n=n, axis=axis, norm=norm)
        return self._first(whole, axis, whole.shape[axis] // 2 + 1)

    def irfft(self, x: ClArray, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> ClArray:
        """Backward, to real numbers."""
        n = 2 * (x.shape[axis] - 1) if n is None else n
        return elementwise(self._queue, "real", self.ifft(self._mirrored(x, n, axis), axis=axis, norm=norm))

    def rfftn(self, x: ClArray, *, s: Any = None, axes: Any = None, norm: str = "backward") -> ClArray:
        """Forward, of real numbers, along several axes: the last one halved."""
        over, lengths = self._axes(x, s, axes)
        half = self.rfft(x, n=lengths[-1], axis=over[-1], norm=norm)
        return self._several(half, lengths[:-1], over[:-1], norm, forward=True)

    def irfftn(self, x: ClArray, *, s: Any = None, axes: Any = None, norm: str = "backward") -> ClArray:
        """Backward, to real numbers, along several axes."""
        over, lengths = self._axes(x, s, axes)
        last = lengths[-1] if s is not None else 2 * (x.shape[over[-1]] - 1)
        rest = self._several(self._complex(x), lengths[:-1], over[:-1], norm, forward=False)
        return self.irfft(rest, n=last, axis=over[-1], norm=norm)

    def hfft(self, x: ClArray, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> ClArray:
        """Forward, of numbers whose other half is their mirror image."""
        n = 2 * (x.shape[axis] - 1) if n is None else n
        return elementwise(self._queue, "real", self.fft(self._mirrored(x, n, axis), axis=axis, norm=norm))

    def ihfft(self, x: ClArray, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> ClArray:
        """Backward, of real numbers: the half that is not mirrored."""
        if x.dtype.kind == "c":
            raise TypeError(f"ihfft() needs real numbers, found {x.dtype}")
        whole = self.ifft(x, n=n, axis=axis, norm=norm)
        return self._first(whole, axis, whole.shape[axis] // 2 + 1)

    # -- along axes ------------------------------------------------------------------------------------

    def _axes(self, x: ClArray, s: Any, axes: Any) -> tuple[list[int], list[int]]:
        if axes is None:
            axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
        over = [a % x.ndim for a in axes]
        return over, list(s) if s is not None else [x.shape[a] for a in over]

    def _several(self, x: ClArray, s: Any, axes: Any, norm: str, *, forward: bool) -> ClArray:
        over, lengths = self._axes(x, s, axes)
        for axis, n in zip(reversed(over), reversed(lengths), strict=True):
            x = self._along(x, n, axis, norm, forward=forward)
        return x

    def _along(self, x: ClArray, n: int | None, axis: int, norm: str, *, forward: bool) -> ClArray:
        """One axis, cut or filled up with zeros to ``n``."""
        if not x.ndim:
            raise ValueError("a transform needs at least one dimension")
        axis %= x.ndim
        n = x.shape[axis] if n is None else n
        if n < 1:
            raise ValueError(f"found {n} points, expected at least 1")
        order = [a for a in range(x.ndim) if a != axis] + [axis]
        own = strides_of(x.shape)
        have = min(n, x.shape[axis])
        shape = [x.shape[a] for a in order[:-1]]
        lines = self._zeros([*shape, n], x.dtype) if have < n else self._queue.empty([*shape, n], x.dtype)
        to = strides_of(lines.shape)
        copy(self._queue, [*shape, have], lines, (0, to), x, (0, [own[a] for a in order]))
        done = self._lines(lines.reshaped((lines.size // n, n)), forward=forward)
        factors = {"backward": 1.0 if forward else 1 / n, "forward": 1 / n if forward else 1.0}
        factor = 1 / math.sqrt(n) if norm == "ortho" else factors[norm]
        if factor != 1.0:
            done = elementwise(self._queue, "multiply", done, factor)
        back = [order.index(a) for a in range(x.ndim)]
        return gathered(self._queue, done, [lines.shape[k] for k in back], (0, [to[k] for k in back]))

    def _complex(self, x: ClArray) -> ClArray:
        if x.dtype.kind == "c":
            return x
        if x.dtype.kind != "f":
            raise TypeError(f"a transform needs floating-point numbers, found {x.dtype}")
        return converted(self._queue, x, np.dtype(f"complex{16 * x.itemsize}"))

    def _zeros(self, shape: Sequence[int], dtype: np.dtype[Any]) -> ClArray:
        made = self._queue.empty(shape, dtype)
        zero = "(V)(0)" if dtype.kind != "c" else "(V)(0, 0)"
        kernel = self._queue.build(
            ("zeros", dtype.name),
            f"typedef {C_TYPES[dtype.name]} V; __kernel void run(__global V *y) "
            f"{{ y[get_global_id(0)] = {zero}; }}",
        )
        self._queue.launch(kernel, (made.size,), [made])
        return made

    def _first(self, x: ClArray, axis: int, count: int) -> ClArray:
        shape = list(x.shape)
        shape[axis] = count
        return gathered(self._queue, x, shape, (0, strides_of(x.shape)))

    def _mirrored(self, x: ClArray, n: int, axis: int) -> ClArray:
        """All ``n`` values of a line from its first half: the other is its conjugate, backwards."""
        x = self._complex(x)
        if n < 1:
            raise ValueError(f"found {n} points, expected at least 1")
        axis %= x.ndim
        shape = list(x.shape)
        half = n // 2 + 1
        have, shape[axis] = min(half, x.shape[axis]), n
        made = self._zeros(shape, x.dtype)
        own, to = strides_of(x.shape), strides_of(shape)
        part = list(x.shape)
        part[axis] = have
        copy(self._queue, part, made, (0, to), x, (0, own))
        conjugate = elementwise(self._queue, "conj", x)
        mirrored = min(have - 1, n - half)  # values 1, 2, … of the given half, at n - 1, n - 2, …
        part[axis] = mirrored
        turned = [-s if a == axis else s for a, s in enumerate(to)]
        copy(self._queue, part, made, ((n - 1) * to[axis], turned), conjugate, (own[axis], own))
        return self._with_real_ends(made, n, axis)

    def _with_real_ends(self, x: ClArray, n: int, axis: int) -> ClArray:
        """The value at 0, and in the middle of an even number, is its own mirror image: it is real."""
        for k in (0, n // 2) if n % 2 == 0 else (0,):
            own = strides_of(x.shape)
            shape = list(x.shape)
            shape[axis] = 1
            pattern = (k * own[axis], own)
            ends = gathered(self._queue, x, shape, pattern)
            real = converted(self._queue, elementwise(self._queue, "real", ends), x.dtype)
            copy(self._queue, shape, x, pattern, real, (0, strides_of(shape)))
        return x

    # -- lines of one length ---------------------------------------------------------------------------

    def _lines(self, x: ClArray, *, forward: bool) -> ClArray:
        """Every row of a matrix, without a factor; the matrix may be overwritten."""
        count, n = x.shape
        if n & (n - 1) == 0:
            return self._stockham(x, forward=forward)
        length = 1 << (2 * n - 2).bit_length()
        chirp, spectrum = self._chirp(n, length, x.dtype, forward=forward)
        padded = self._zeros((count, length), x.dtype)
        product = elementwise(self._queue, "multiply", x, chirp)
        copy(self._queue, (count, n), padded, (0, (length, 1)), product, (0, (n, 1)))
        there = elementwise(self._queue, "multiply", self._stockham(padded, forward=True), spectrum)
        back = self._stockham(there, forward=False)
        cut = gathered(self._queue, back, (count, n), (0, (length, 1)))
        return elementwise(self._queue, "multiply", cut, chirp)

    def _stockham(self, x: ClArray, *, forward: bool) -> ClArray:
        count, n = x.shape
        if n == 1 or not count:
            return x
        roots = self._roots(n, x.dtype, forward=forward)
        kernel = self._queue.build(
            ("stockham", x.dtype.name),
            f"""
typedef {C_TYPES[x.dtype.name]} T;
__kernel void run(__global T *restrict y, __global const T *restrict x, __global const T *restrict roots,
                  const ulong n, const ulong stride)
{{
    const ulong i = get_global_id(0), q = i & (stride - 1), p = i / stride;
    x += get_global_id(1) * n;
    y += get_global_id(1) * n + q + 2 * stride * p;
    const T a = x[i], b = x[i + n / 2], w = roots[p * stride], d = a - b;
    y[0] = a + b;
    y[stride] = (T)(d.x * w.x - d.y * w.y, d.x * w.y + d.y * w.x);
}}""",
        )
        spare = self._queue.empty(x.shape, x.dtype)
        stride = 1
        while stride < n:
            sizes = (np.uint64(n), np.uint64(stride))
            self._queue.launch(kernel, (n // 2, count), [spare, x, roots, *sizes])
            x, spare, stride = spare, x, 2 * stride
        return x

    def _roots(self, n: int, dtype: np.dtype[Any], *, forward: bool) -> ClArray:
        key = ("roots", n, dtype.name, forward)
        if key not in self._tables:
            turn = -2j if forward else 2j
            self._keep(key, np.exp(turn * np.pi / n * np.arange(n // 2)).astype(dtype))
        return self._tables[key]

    def _chirp(self, n: int, length: int, dtype: np.dtype[Any], *, forward: bool) -> tuple[ClArray, ClArray]:
        """Bluestein's factors, and the spectrum of his filter."""
        key = ("chirp", n, dtype.name, forward)
        if key not in self._tables:
            # Squares modulo 2n as integers: a float would lose their low digits, and with them the phase.
            squares = np.arange(n, dtype=np.int64) ** 2 % (2 * n)
            chirp = np.exp((-1j if forward else 1j) * np.pi / n * squares)
            filter_ = np.zeros(length, dtype=np.complex128)
            filter_[:n] = chirp.conj()
            filter_[length - n + 1 :] = filter_[n - 1 : 0 : -1]
            spectrum = np.fft.fft(filter_) / length
            self._keep(("spectrum", *key[1:]), spectrum.astype(dtype))
            self._keep(key, chirp.astype(dtype))
        return self._tables[key], self._tables[("spectrum", *key[1:])]

    def _keep(self, key: tuple[Any, ...], table: np.ndarray[Any, Any]) -> None:
        if len(self._tables) >= 64:
            self._tables.clear()
        self._tables[key] = self._queue.upload(table)
