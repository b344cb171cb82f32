"""Element-wise functions: an expression in C for each kind of number, put into one kind of kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dovetail_remote.backends.opencl.queue import C_TYPES, ClArray, Queue
from dovetail_remote.backends.opencl.strided import (
    broadcast_strides,
    index_arguments,
    index_code,
    index_values,
    merge_patterns,
)


class NoExpression(Exception):  # noqa: N818 - the host computes instead, no fault
    """There is no expression for these types."""


# What each function computes from a and b (of the promoted type T), by the kind of T: b(ool), i(nt), u(int),
# f(loat), c(omplex). Kinds that share an expression are written together.
_PROMOTED: Mapping[str, Mapping[str, str]] = {
    "add": {"b": "a | b", "iufc": "a + b"},
    "bitwise_and": {"biu": "a & b"},
    "bitwise_left_shift": {"iu": "b < 0 || b >= BITS ? 0 : a << b"},
    "bitwise_or": {"biu": "a | b"},
    "bitwise_right_shift": {"iu": "b < 0 || b >= BITS ? (a < 0 ? (T)-1 : 0) : a >> b"},
    "bitwise_xor": {"biu": "a ^ b"},
    "floor_divide": {"i": "int_divide(a, b)", "u": "b == 0 ? 0 : a / b", "f": "float_divide(a, b)"},
    "maximum": {"biu": "a > b ? a : b", "f": "a != a ? a : b != b ? b : a > b ? a : b"},
    "minimum": {"biu": "a < b ? a : b", "f": "a != a ? a : b != b ? b : a < b ? a : b"},
    "multiply": {"b": "a & b", "iuf": "a * b", "c": "c_multiply(a, b)"},
    "pow": {"iu": "int_power(a, b)", "f": "pow(a, b)"},
    "remainder": {"i": "int_remainder(a, b)", "u": "b == 0 ? 0 : a % b", "f": "float_remainder(a, b)"},
    "subtract": {"iufc": "a - b"},
    "abs": {"bu": "a", "i": "a < 0 ? -a : a", "f": "fabs(a)"},
    "bitwise_invert": {"b": "!a", "iu": "~a"},
    "ceil": {"biu": "a", "f": "ceil(a)"},
    "conj": {"iuf": "a", "c": "(T)(a.x, -a.y)"},
    "floor": {"biu": "a", "f": "floor(a)"},
    "negative": {"iufc": "-a"},
    "positive": {"iufc": "a"},
    "round": {"iu": "a", "f": "rint(a)", "c": "(T)(rint(a.x), rint(a.y))"},
    "sign": {"u": "a > 0", "i": "(a > 0) - (a < 0)", "f": "a != a ? a : (T)((a > 0) - (a < 0))"},
    "square": {"iuf": "a * a", "c": "c_multiply(a, a)"},
    "trunc": {"biu": "a", "f": "trunc(a)"},
}
# The same, of functions that make floating-point numbers of integers.
_FLOATING: Mapping[str, Mapping[str, str]] = {
    "atan2": {"f": "atan2(a, b)"},
    "copysign": {"f": "copysign(a, b)"},
    "divide": {"f": "a / b", "c": "c_divide(a, b)"},
    "hypot": {"f": "hypot(a, b)"},
    "logaddexp": {"f": "log_add(a, b)"},
    "nextafter": {"f": "nextafter(a, b)"},
    "reciprocal": {"f": "1 / a", "c": "c_divide((T)(1, 0), a)"},
    **{
        name: {"f": f"{name}(a)"}
        for name in (
            "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log10",
            "log1p", "log2", "sin", "sinh", "sqrt", "tan", "tanh",
        )
    },
}  # fmt: skip
# Functions that make booleans.
_BOOLEAN: Mapping[str, Mapping[str, str]] = {
    "equal": {"biuf": "a == b", "c": "a.x == b.x && a.y == b.y"},
    "greater": {"biuf": "a > b"},
    "greater_equal": {"biuf": "a >= b"},
    "less": {"biuf": "a < b"},
    "less_equal": {"biuf": "a <= b"},
    "not_equal": {"biuf": "a != b", "c": "a.x != b.x || a.y != b.y"},
    "isfinite": {"biu": "1", "f": "isfinite(a)", "c": "isfinite(a.x) && isfinite(a.y)"},
    "isinf": {"biu": "0", "f": "isinf(a)", "c": "isinf(a.x) || isinf(a.y)"},
    "isnan": {"biu": "0", "f": "isnan(a)", "c": "isnan(a.x) || isnan(a.y)"},
    "logical_and": {"biuf": "a != 0 && b != 0"},
    "logical_not": {"biuf": "a == 0"},
    "logical_or": {"biuf": "a != 0 || b != 0"},
    "logical_xor": {"biuf": "(a != 0) != (b != 0)"},
    "signbit": {"f": "signbit(a)"},
}
# Functions that make the real type of a complex one.
_REAL: Mapping[str, Mapping[str, str]] = {
    "abs": {"c": "hypot(a.x, a.y)"},
    "imag": {"c": "a.y"},
    "real": {"c": "a.x", "biuf": "a"},
}


#: Rule of the result's type, and expression, by function and kind.
EXPRESSIONS: dict[str, dict[str, tuple[str, str]]] = {}
for _rule, _tables in (
    ("promoted", _PROMOTED),
    ("floating", _FLOATING),
    ("boolean", _BOOLEAN),
    ("real", _REAL),
):
    for _name, _table in _tables.items():
        _codes = {_kind: (_rule, _code) for _kinds, _code in _table.items() for _kind in _kinds}
        EXPRESSIONS.setdefault(_name, {}).update(_codes)


def type_prelude(dtype: np.dtype[Any]) -> str:
    """Helpers in C for a type ``T``."""
    name = C_TYPES[dtype.name]
    lines = ["#pragma OPENCL FP_CONTRACT OFF", f"typedef {name} T;", f"#define BITS {8 * dtype.itemsize}"]
    if dtype.kind in "iu":
        lines.append(_INTEGER)
    elif dtype.kind == "f":
        lines.append(_FLOAT)
    elif dtype.kind == "c":
        lines.append(f"typedef {name.removesuffix('2')} R;")
        lines.append(_COMPLEX)
    return "\n".join(lines)


_INTEGER = """
T int_divide(T a, T b)
{
    if (b == 0) return 0;
    if (b == (T)-1 && (T)-1 < 0) return -a;
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
T int_remainder(T a, T b)
{
    if (b == 0 || (b == (T)-1 && (T)-1 < 0)) return 0;
    const T r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
T int_power(T a, T b)
{
    T p = 1;
    for (; b > 0; b >>= 1, a *= a)
        if (b & 1) p *= a;
    return p;
}
"""
# Python's rules: the remainder has the sign of the divisor, and the quotient goes with it.
_FLOAT = """
T float_remainder(T a, T b)
{
    const T r = fmod(a, b);
    if (r == 0) return copysign((T)0, b);
    return (r < 0) != (b < 0) ? r + b : r;
}
T log_add(T a, T b)
{
    if (a != a || b != b) return a + b;
    return a == b ? a + log((T)2) : fmax(a, b) + log1p(exp(-fabs(a - b)));
}
T float_divide(T a, T b)
{
    if (b == 0) return a / b;
    const T r = fmod(a, b);
    const T q = (a - r) / b - (r != 0 && (r < 0) != (b < 0));
    if (q == 0) return copysign((T)0, a / b);
    const T f = floor(q);
    return q - f > (T)1 / 2 ? f + 1 : f;
}
"""
# The quotient by Smith's method, which does not overflow where the result does not.
_COMPLEX = """
T c_multiply(T a, T b) { return (T)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
T c_divide(T a, T b)
{
    if (fabs(b.x) >= fabs(b.y)) {
        if (b.x == 0 && b.y == 0) return (T)(a.x / fabs(b.x), a.y / fabs(b.x));
        const R q = b.y / b.x, s = 1 / (b.x + b.y * q);
        return (T)((a.x + a.y * q) * s, (a.y - a.x * q) * s);
    }
    const R q = b.x / b.y, s = 1 / (b.y + b.x * q);
    return (T)((a.x * q + a.y) * s, (a.y * q - a.x) * s);
}
"""


def load_as(value: str, of: np.dtype[Any], to: np.dtype[Any]) -> str:
    """C code for a value of one type as another."""
    if of == to:
        return value
    if to.kind == "c":
        return (
            f"convert_{C_TYPES[to.name]}({value})" if of.kind == "c" else f"({C_TYPES[to.name]})({value}, 0)"
        )
    if to.kind == "b":
        return f"({value}.x != 0 || {value}.y != 0)" if of.kind == "c" else f"({value} != 0)"
    if of.kind == "c":
        raise TypeError(f"{of} numbers are not made {to}: their imaginary parts would be lost")
    return f"(({C_TYPES[to.name]}){value})"


def scalar_argument(value: Any, dtype: np.dtype[Any]) -> np.generic:
    """A number of Python as a kernel's argument. Raises `OverflowError`, `TypeError`."""
    if dtype.kind == "b":
        return np.uint8(bool(value))
    made: np.generic = dtype.type(value)
    return made


def apply_code(
    queue: Queue,
    key: Any,
    code: str,
    inputs: Sequence[ClArray | bool | int | float | complex],
    types: Sequence[np.dtype[Any]],
    result: np.dtype[Any],
    *,
    helpers: np.dtype[Any] | None = None,
) -> ClArray:
    """A new array of ``code`` over the elements of ``inputs``, which are broadcast and named a, b, c, …

    Args:
        queue: the device.
        key: identifies ``code``.
        code: an expression in C.
        inputs: arrays and numbers, at least one array.
        types: what each input is in the expression.
        result: the type of the expression's value.
        helpers: the type T for which `type_prelude` is needed.
    """
    arrays = [x for x in inputs if isinstance(x, ClArray)]
    shape = np.broadcast_shapes(*[x.shape for x in arrays])
    made = queue.empty(shape, result)
    names = "abcd"[: len(inputs)]
    held = [n for n, x in zip(names, inputs, strict=True) if isinstance(x, ClArray)]
    kept, strides = merge_patterns(shape, [broadcast_strides(x, shape) for x in arrays])
    plain = len(kept) <= 1 and all(s in ([], [0], [1]) for s in strides)
    forms = tuple(x.dtype.name if isinstance(x, ClArray) else "" for x in inputs)
    steps = tuple(s[0] if s else 0 for s in strides) if plain else ()
    full = (key, forms, tuple(t.name for t in types), result.name, steps, len(kept))
    kernel = queue.kernels.get(full)
    if kernel is None:
        reads, declared = [], []
        offsets = iter([f"{step} * i" for step in steps] if plain else [f"at_{n}" for n in held])
        for n, x, t in zip(names, inputs, types, strict=True):
            c = C_TYPES[t.name]
            if isinstance(x, ClArray):
                declared.append(f"__global const {C_TYPES[x.dtype.name]} *x_{n}")
                reads.append(f"const {c} {n} = {load_as(f'x_{n}[{next(offsets)}]', x.dtype, t)};")
            else:
                declared.append(f"const {c} {n}")
        index = "" if plain else index_code(len(kept), held)
        more = "" if plain else ", " + index_arguments(len(kept), held)
        body = "\n    ".join(reads)
        kernel = queue.build(
            full,
            f"""{type_prelude(helpers) if helpers is not None else ""}
__kernel void run(__global {C_TYPES[result.name]} *y, {", ".join(declared)}{more})
{{
    const ulong i = get_global_id(0);
    {index}
    {body}
    y[i] = {code};
}}""",
        )
    given = [
        x if isinstance(x, ClArray) else scalar_argument(x, t) for x, t in zip(inputs, types, strict=True)
    ]
    values = [] if plain else index_values(kept, [(0, s) for s in strides])
    queue.launch(kernel, (made.size,), [made, *given, *values])
    return made


def apply_expression(queue: Queue, name: str, *inputs: Any) -> ClArray:
    """One of the functions of `EXPRESSIONS`. Raises `NoExpression` for types that have no expression."""
    arrays = [x for x in inputs if isinstance(x, ClArray)]
    if not arrays:
        raise TypeError(f"{name}() needs an array, found none")
    promoted = np.result_type(*[x.dtype if isinstance(x, ClArray) else x for x in inputs])
    table = EXPRESSIONS[name]
    if promoted.kind not in table and promoted.kind in "biu" and "f" in table:
        promoted = queue.real
    if promoted.kind not in table:
        raise NoExpression(f"{name} of {promoted}")
    rule, code = table[promoted.kind]
    result = promoted
    if rule == "boolean":
        result = np.dtype("bool")
    elif rule == "real" and promoted.kind == "c":
        result = np.dtype(f"float{4 * promoted.itemsize}")
    return apply_code(queue, name, code, inputs, [promoted] * len(inputs), result, helpers=promoted)


def convert_elements(queue: Queue, x: ClArray, dtype: np.dtype[Any], *, copy: bool = True) -> ClArray:
    """The elements as another type."""
    if x.dtype == dtype and not copy:
        return x
    return apply_code(queue, "convert", "a", [x], [dtype], dtype)


def where(queue: Queue, condition: ClArray, x1: Any, x2: Any) -> ClArray:
    """Elements of one or the other, which may be numbers."""
    dtype = np.result_type(*[v.dtype if isinstance(v, ClArray) else v for v in (x1, x2)])
    return apply_code(
        queue, "where", "a ? b : c", [condition, x1, x2], [np.dtype("bool"), dtype, dtype], dtype
    )


def clip(queue: Queue, x: ClArray, min: Any = None, max: Any = None) -> ClArray:  # noqa: A002 - the standard's
    """No smaller and no larger than these."""
    clipped = x if min is None else apply_expression(queue, "maximum", x, min)
    clipped = clipped if max is None else apply_expression(queue, "minimum", clipped, max)
    return convert_elements(queue, clipped, clipped.dtype) if clipped is x else clipped
