"""FFT: the discrete Fourier transform of a complex single-precision signal of any length."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

GROUP = 64

# Stockham's self-sorting transform, radix 4 with one pass of radix 2 where the exponent is odd (Van Loan,
# "Computational Frameworks for the Fast Fourier Transform", 1992, section 1.7).  After passes of total radix
# `stride`, item i handles element q of the blocks p.  Roots of unity come from two short tables, since one
# long table would be as large as the signal:  w^k = coarse[k / 1024] * fine[k % 1024].
# Chirp kernels are Bluestein's: a transform of any length as a convolution of a power of two.
SOURCE = """
float2 times(const float2 a, const float2 b)
{
    return (float2)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

float2 root(__global const float2 *restrict fine, __global const float2 *restrict coarse, const uint k)
{
    return times(coarse[k >> 10], fine[k & 1023]);
}

__kernel void radix2(__global const float2 *restrict x, __global float2 *restrict y,
                     __global const float2 *restrict fine, __global const float2 *restrict coarse,
                     const uint length, const uint log_stride)
{
    const uint i = get_global_id(0), quarter = length / 2;
    if (i >= quarter)
        return;
    const uint stride = 1u << log_stride, q = i & (stride - 1), p = i >> log_stride;
    const float2 a = x[i], b = x[i + quarter];
    y[q + stride * (2 * p)] = a + b;
    y[q + stride * (2 * p + 1)] = times(a - b, root(fine, coarse, p << log_stride));
}

__kernel void radix4(__global const float2 *restrict x, __global float2 *restrict y,
                     __global const float2 *restrict fine, __global const float2 *restrict coarse,
                     const uint length, const uint log_stride)
{
    const uint i = get_global_id(0), quarter = length / 4;
    if (i >= quarter)
        return;
    const uint stride = 1u << log_stride, q = i & (stride - 1), p = i >> log_stride;
    const float2 a = x[i], b = x[i + quarter], c = x[i + 2 * quarter], d = x[i + 3 * quarter];
    const float2 w1 = root(fine, coarse, p << log_stride), w2 = times(w1, w1), w3 = times(w1, w2);
    const float2 even = a + c, odd = a - c, sum = b + d;
    const float2 turned = (float2)(b.y - d.y, d.x - b.x);
    __global float2 *restrict out = y + q + stride * (4 * p);
    out[0] = even + sum;
    out[stride] = times(odd + turned, w1);
    out[2 * stride] = times(even - sum, w2);
    out[3 * stride] = times(odd - turned, w3);
}

__kernel void chirp_in(__global const float2 *restrict x, __global const float2 *restrict chirp,
                       __global float2 *restrict y, const uint n)
{
    const uint i = get_global_id(0);
    if (i < n)
        y[i] = times(x[i], chirp[i]);
}

__kernel void convolve(__global const float2 *restrict x, __global const float2 *restrict filter,
                       __global float2 *restrict y, const uint length)
{
    const uint i = get_global_id(0);
    if (i >= length)
        return;
    const float2 product = times(x[i], filter[i]);
    y[i] = (float2)(product.x, -product.y);
}

__kernel void chirp_out(__global const float2 *restrict x, __global const float2 *restrict chirp,
                        __global float2 *restrict y, const uint n, const float scale)
{
    const uint i = get_global_id(0);
    if (i < n)
        y[i] = times((float2)(x[i].x, -x[i].y) * scale, chirp[i]);
}
"""


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """``n`` complex64 numbers, real and imaginary parts uniform in [0, 1)."""
    return (rng.random(2 * n, dtype=np.float32).view(np.complex64),)


def cpu(x: Array) -> Array:
    """The transform by NumPy (pocketfft); O(n log n)."""
    if not x.size:
        return x.copy()
    return np.asarray(np.fft.fft(x).astype(np.complex64, copy=False))


def array_api(xp: Any, x: Any) -> Any:
    """The transform by the ``fft`` extension of the array API."""
    return xp.fft.fft(x) if x.shape[0] else x


class _Transform:
    """Transforms of one power-of-two length on one device."""

    def __init__(self, device: OpenCL, length: int) -> None:
        self._device = device
        self._length = length
        step = -2j * np.pi / length
        fine = np.exp(step * np.arange(1024)).astype(np.complex64)
        coarse = np.exp(step * 1024 * np.arange(length // 1024 + 1)).astype(np.complex64)
        self._fine, self._coarse = device.upload_array(fine), device.upload_array(coarse)
        self._radix = {2: device.kernel(SOURCE, "radix2"), 4: device.kernel(SOURCE, "radix4")}

    def __call__(self, data: Any, spare: Any) -> tuple[Any, Any]:
        """Transform ``data``; return the buffer that holds the result, and the other one."""
        exponent = self._length.bit_length() - 1
        done = 0
        while done < exponent:
            radix = 2 if (exponent - done) % 2 else 4
            kernel = self._radix[radix]
            group = self._device.group(kernel, GROUP)
            items = round_up(self._length // radix, GROUP)
            sizes = np.uint32(self._length), np.uint32(done)
            self._device.launch(kernel, (items,), group, data, spare, self._fine, self._coarse, *sizes)
            data, spare = spare, data
            done += radix // 2
        return data, spare


def opencl(device: OpenCL, x: Array) -> Array:
    """Stockham passes for a power of two; Bluestein's convolution for every other length."""
    n = x.size
    if n & (n - 1) == 0:
        data = device.upload_array(x)
        if n > 1:
            data, _ = _Transform(device, n)(data, device.allocate_buffer(n, dtype=np.complex64))
        return device.download_array(data, (n,), np.complex64)
    return _transform_bluestein(device, x)


def _transform_bluestein(device: OpenCL, x: Array) -> Array:
    n = x.size
    length = 1 << (2 * n - 2).bit_length()
    # The square is taken modulo 2n as an integer: a float would lose its low digits, and with them the phase.
    squares = np.arange(n, dtype=np.int64) ** 2 % (2 * n)
    chirp = np.exp(-1j * np.pi / n * squares).astype(np.complex64)
    filter_ = np.zeros(length, dtype=np.complex64)
    filter_[:n] = chirp.conj()
    filter_[length - n + 1 :] = filter_[n - 1 : 0 : -1]
    transform = _Transform(device, length)
    items, whole = round_up(n, GROUP), round_up(length, GROUP)

    signal, turns = device.upload_array(x), device.upload_array(chirp)
    spectrum, spare = transform(
        device.upload_array(filter_), device.allocate_buffer(length, dtype=np.complex64)
    )
    data = device.upload_array(np.zeros(0, dtype=np.complex64), (length,))
    kernel = device.kernel(SOURCE, "chirp_in")
    device.launch(kernel, (items,), device.group(kernel, GROUP), signal, turns, data, np.uint32(n))
    data, spare = transform(data, spare)
    kernel = device.kernel(SOURCE, "convolve")
    device.launch(kernel, (whole,), device.group(kernel, GROUP), data, spectrum, spare, np.uint32(length))
    data, spare = transform(spare, data)
    kernel = device.kernel(SOURCE, "chirp_out")
    scale = np.float32(1 / length)
    group = device.group(kernel, GROUP)
    device.launch(kernel, (items,), group, data, turns, spare, np.uint32(n), scale)
    return device.download_array(spare, (n,), np.complex64)
