"""Valid calls of every function of the array API standard, for hypothesis: arguments are NumPy arrays.

``CALLS[name]`` draws positional and keyword arguments that the standard allows, of every data type it allows
(``only`` narrows them), with special values and shapes of no elements among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dovetail_remote.standard import FUNCTIONS

Arguments = tuple[list[Any], dict[str, Any]]
Draw = Callable[..., Any]

BOOL = ("bool",)
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGER = SIGNED + UNSIGNED
REAL = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
FLOATING = REAL + COMPLEX
NUMERIC = INTEGER + FLOATING
ORDERED = INTEGER + REAL
EVERY = BOOL + NUMERIC

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
FULL_SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=1, max_side=4)
VECTORS = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
FULL_VECTORS = hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)


def elements(dtype: str, *, special: bool = True, least: float = -100, most: float = 100) -> Any:
    """Numbers of a type, of moderate size, with infinities and NaN if ``special``."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return st.booleans()
    if kind in "iu":
        info = np.iinfo(dtype)
        return st.integers(max(int(max(least, -(2**31))), info.min), min(int(min(most, 2**31)), info.max))
    width = 32 if dtype in ("float32", "complex64") else 64
    real = st.floats(np.float32(least).item(), np.float32(most).item(), width=width)
    real = real.map(lambda x: x if abs(x) > 1e-3 else math.copysign(0.0, x))
    if special:
        real = st.one_of(real, real, real, st.sampled_from([math.inf, -math.inf, math.nan, 0.0, -0.0, 1.0]))
    if kind == "c":
        return st.builds(complex, real, real)
    return real


@st.composite
def arrays(draw: Draw, dtypes: Sequence[str], shape: Any = SHAPES, **limits: Any) -> np.ndarray:
    """An array of one of the types."""
    dtype = draw(st.sampled_from(dtypes))
    wanted = shape if isinstance(shape, tuple) else draw(shape)
    return draw(hnp.arrays(dtype, wanted, elements=elements(dtype, **limits)))


@st.composite
def pairs(draw: Draw, dtypes: Sequence[str], **limits: Any) -> list[Any]:
    """Two arrays of one kind that broadcast, or an array and a number."""
    kind = draw(st.sampled_from(sorted({np.dtype(d).kind.replace("u", "i") for d in dtypes})))
    alike = [d for d in dtypes if np.dtype(d).kind.replace("u", "i") == kind]
    left = draw(st.sampled_from(alike))
    # The standard promotes signed with unsigned integers, but not uint64.
    right = draw(
        st.sampled_from(
            [d for d in alike if "uint64" not in (d, left) or np.dtype(left).kind == np.dtype(d).kind]
        )
    )
    shapes = draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=4, min_side=0))
    x, y = [
        draw(hnp.arrays(d, s, elements=elements(d, **limits)))
        for d, s in zip((left, right), shapes.input_shapes, strict=True)
    ]
    how = draw(st.sampled_from(["both", "both", "number"]))
    if how == "number" and kind != "c":
        number = draw(
            elements(left, **{**limits, "special": False, "most": min(100, limits.get("most", 100))})
        )
        return [x, {"b": bool, "i": int, "f": float}[kind](number)]
    return [x, y]


def unary(dtypes: Sequence[str], **limits: Any) -> Any:
    return arrays(dtypes, **limits).map(lambda x: ([x], {}))


def binary(dtypes: Sequence[str], **limits: Any) -> Any:
    return pairs(dtypes, **limits).map(lambda xy: (xy, {}))


def _keyword(draw: Draw, named: dict[str, Any], name: str, strategy: Any) -> None:
    if draw(st.booleans()):
        named[name] = draw(strategy)


def _axes(ndim: int) -> Any:
    one = st.integers(-ndim, ndim - 1) if ndim else st.nothing()
    several = (
        st.lists(st.integers(0, ndim - 1), unique=True, max_size=ndim).map(tuple) if ndim else st.nothing()
    )
    return st.one_of(st.none(), one, several)


def _axis(ndim: int) -> Any:
    return st.one_of(st.none(), st.integers(-ndim, ndim - 1)) if ndim else st.none()


@st.composite
def reducing(
    draw: Draw, dtypes: Sequence[str], *, several: bool = True, full: bool = False, dtype: bool = False,
    keepdims: bool = True, correction: bool = False, **limits: Any,
) -> Arguments:  # fmt: skip
    x = draw(arrays(dtypes, FULL_SHAPES if full else SHAPES, **limits))
    named: dict[str, Any] = {}
    _keyword(draw, named, "axis", _axes(x.ndim) if several else _axis(x.ndim))
    if keepdims:
        _keyword(draw, named, "keepdims", st.booleans())
    if dtype and x.dtype.kind in "iu":
        _keyword(draw, named, "dtype", st.sampled_from([np.dtype("int64"), np.dtype("float64")]))
    if correction:
        _keyword(draw, named, "correction", st.sampled_from([0, 1, 0.5]))
    return [x], named


@st.composite
def cumulating(draw: Draw, dtypes: Sequence[str], **limits: Any) -> Arguments:
    x = draw(arrays(dtypes, VECTORS, **limits))
    named = {"axis": draw(st.integers(-x.ndim, x.ndim - 1))}
    _keyword(draw, named, "include_initial", st.booleans())
    return [x], named


@st.composite
def sorting(draw: Draw, full: bool = False) -> Arguments:
    x = draw(arrays(ORDERED, FULL_VECTORS if full else VECTORS))
    x = np.where(np.isnan(x), np.asarray(0, x.dtype), x)
    named: dict[str, Any] = {}
    _keyword(draw, named, "axis", st.integers(-x.ndim, x.ndim - 1))
    _keyword(draw, named, "descending", st.booleans())
    return [x], named


@st.composite
def matrices(
    draw: Draw, dtypes: Sequence[str] = FLOATING, *, square: bool = False, limit: float = 10
) -> np.ndarray:
    """A stack of matrices of moderate numbers."""
    stack = draw(hnp.array_shapes(min_dims=0, max_dims=1, min_side=1, max_side=2))
    n = draw(st.integers(1, 4))
    m = n if square else draw(st.integers(1, 4))
    return draw(arrays(dtypes, (*stack, m, n), special=False, least=-limit, most=limit))


def _regular(x: np.ndarray) -> np.ndarray:
    """Far from singular: its diagonal outweighs the rest."""
    n = x.shape[-1]
    return x + np.asarray(50 * n, x.dtype) * np.eye(n, dtype=x.dtype)


def _definite(x: np.ndarray) -> np.ndarray:
    """Hermitian and positive definite."""
    n = x.shape[-1]
    made = x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(n, dtype=x.dtype) * np.asarray(10, x.dtype)
    return made.astype(x.dtype)


@st.composite
def products(draw: Draw, dtypes: Sequence[str]) -> Arguments:
    """Arguments of matmul."""
    dtype = draw(st.sampled_from(dtypes))
    shapes = draw(
        hnp.mutually_broadcastable_shapes(signature=np.matmul.signature, max_dims=1, min_side=1, max_side=4)
    )
    return [draw(arrays([dtype], s, special=False, least=-9, most=9)) for s in shapes.input_shapes], {}


@st.composite
def multiplying(draw: Draw) -> Arguments:
    dtype = draw(st.sampled_from(NUMERIC))
    lengths = draw(st.tuples(st.integers(0, 4), st.integers(0, 4)))
    return [draw(arrays([dtype], (n,), special=False, least=-9, most=9)) for n in lengths], {}


@st.composite
def dotting(draw: Draw, dtypes: Sequence[str]) -> Arguments:
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(FULL_VECTORS)
    x, y = [draw(arrays([dtype], shape, special=False, least=-9, most=9)) for _ in range(2)]
    named: dict[str, Any] = {}
    _keyword(draw, named, "axis", st.integers(-len(shape), -1))
    return [x, y], named


@st.composite
def tensordotting(draw: Draw, dtypes: Sequence[str]) -> Arguments:
    dtype = draw(st.sampled_from(dtypes))
    common = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=3))
    left, right = [draw(hnp.array_shapes(min_dims=0, max_dims=1, min_side=1, max_side=3)) for _ in range(2)]
    x = draw(arrays([dtype], left + common, special=False, least=-9, most=9))
    y = draw(arrays([dtype], common + right, special=False, least=-9, most=9))
    axes: Any = len(common)
    if draw(st.booleans()):
        axes = (tuple(range(len(left), x.ndim)), tuple(range(len(common))))
    return [x, y], {"axes": axes}


@st.composite
def transforming(
    draw: Draw, dtypes: Sequence[str], *, several: bool = False, mirrored: bool = False
) -> Arguments:
    x = draw(arrays(dtypes, FULL_VECTORS, special=False))
    named: dict[str, Any] = {}
    axes = draw(st.lists(st.integers(0, x.ndim - 1), unique=True, min_size=1, max_size=x.ndim))
    if several:
        if draw(st.booleans()) or mirrored:
            named["axes"] = axes
            if draw(st.booleans()) or mirrored:
                named["s"] = [draw(st.integers(2, 6)) for _ in axes]
    else:
        named["axis"] = axes[0]
        if mirrored or draw(st.booleans()):
            named["n"] = draw(st.integers(2, 7))
    _keyword(draw, named, "norm", st.sampled_from(["backward", "ortho", "forward"]))
    return [x], named


@st.composite
def shifting(draw: Draw) -> Arguments:
    x = draw(arrays(FLOATING, FULL_VECTORS))
    named: dict[str, Any] = {}
    _keyword(draw, named, "axes", st.one_of(st.integers(-x.ndim, x.ndim - 1), st.just(tuple(range(x.ndim)))))
    return [x], named


def _sized(*names: str) -> Any:
    """Of functions that make arrays of a shape."""

    @st.composite
    def strategy(draw: Draw) -> Arguments:
        shape = draw(st.one_of(SHAPES, st.integers(0, 5)))
        named: dict[str, Any] = {}
        arguments: list[Any] = [shape]
        dtype = draw(st.sampled_from(EVERY))
        if "fill" in names:
            value = draw(elements(dtype))
            arguments.append(value)
        if "fill" not in names or draw(st.booleans()):
            named["dtype"] = np.dtype(dtype)
        if "fill" not in names and draw(st.booleans()):
            named.clear()
        return arguments, named

    return strategy()


@st.composite
def alike(draw: Draw, *, fill: bool = False) -> Arguments:
    x = draw(arrays(EVERY))
    named: dict[str, Any] = {}
    dtype = x.dtype.name
    if draw(st.booleans()):
        dtype = draw(st.sampled_from(EVERY))
        named["dtype"] = np.dtype(dtype)
    return [x, draw(elements(dtype))] if fill else [x], named


@st.composite
def aranging(draw: Draw) -> Arguments:
    start, stop = draw(st.integers(-10, 10)), draw(st.integers(-10, 10))
    step = draw(st.integers(1, 4)) * (1 if stop >= start else -1)
    form = draw(
        st.sampled_from([[stop], [start, stop], [start, stop, step], [float(start), stop + 0.5, 0.25 * step]])
    )
    named: dict[str, Any] = {}
    _keyword(draw, named, "dtype", st.sampled_from([np.dtype("float64"), np.dtype("float32")]))
    return form, named


@st.composite
def linspacing(draw: Draw) -> Arguments:
    named: dict[str, Any] = {}
    _keyword(draw, named, "dtype", st.sampled_from([np.dtype("float64"), np.dtype("float32")]))
    _keyword(draw, named, "endpoint", st.booleans())
    start, stop = [draw(st.floats(-100, 100, width=32)) for _ in range(2)]
    return [start, stop, draw(st.integers(0, 9))], named


@st.composite
def eyeing(draw: Draw) -> Arguments:
    named: dict[str, Any] = {}
    _keyword(draw, named, "k", st.integers(-4, 4))
    _keyword(draw, named, "dtype", st.sampled_from([np.dtype(d) for d in EVERY]))
    return [draw(st.integers(0, 4)), *draw(st.sampled_from([[], [None], [3], [0]]))], named


@st.composite
def frequencies(draw: Draw) -> Arguments:
    named: dict[str, Any] = {}
    _keyword(draw, named, "d", st.sampled_from([0.5, 2.0, 3.5]))
    return [draw(st.integers(1, 9))], named


@st.composite
def with_axis(draw: Draw, *, full: bool = False, dtypes: Sequence[str] = EVERY) -> Arguments:
    x = draw(arrays(dtypes, FULL_VECTORS if full else VECTORS))
    named: dict[str, Any] = {}
    _keyword(draw, named, "axis", st.integers(-x.ndim, x.ndim - 1))
    return [x], named


@st.composite
def triangles(draw: Draw) -> Arguments:
    x = draw(arrays(EVERY, hnp.array_shapes(min_dims=2, max_dims=3, min_side=0, max_side=4)))
    named: dict[str, Any] = {}
    _keyword(draw, named, "k", st.integers(-4, 4))
    return [x], named


@st.composite
def joining(draw: Draw, *, same: bool = False) -> Arguments:
    dtype = draw(st.sampled_from(EVERY))
    shape = list(draw(FULL_VECTORS))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        if not same:
            shape[axis] = draw(st.integers(0, 3))
        parts.append(draw(arrays([dtype], tuple(shape))))
    if same:
        axis = draw(st.integers(-len(shape) - 1, len(shape)))
    elif draw(st.booleans()):
        return [parts], {"axis": None}
    return [parts], {"axis": axis}


@st.composite
def broadcasting(draw: Draw) -> Arguments:
    shapes = draw(
        hnp.mutually_broadcastable_shapes(num_shapes=draw(st.integers(1, 3)), max_dims=3, max_side=3)
    )
    return [draw(arrays(EVERY, s)) for s in shapes.input_shapes], {}


@st.composite
def stretching(draw: Draw) -> Arguments:
    shapes = draw(hnp.mutually_broadcastable_shapes(num_shapes=1, base_shape=draw(FULL_SHAPES), max_dims=3))
    shape = shapes.input_shapes[0]
    return [draw(arrays(EVERY, shape)), np.broadcast_shapes(shape, shapes.result_shape)], {}


@st.composite
def reshaping(draw: Draw) -> Arguments:
    x = draw(arrays(EVERY, SHAPES))
    ways = [(x.size,), (-1,), x.shape[::-1], (1, *x.shape), (x.size, 1)]
    shape = draw(st.sampled_from([w for w in ways if x.size or -1 not in w]))
    named: dict[str, Any] = {}
    _keyword(draw, named, "copy", st.sampled_from([None, True]))
    return [x, shape], named


@st.composite
def rolling(draw: Draw) -> Arguments:
    x = draw(arrays(EVERY, VECTORS))
    if draw(st.booleans()):
        return [x, draw(st.integers(-5, 5))], {"axis": draw(_axis(x.ndim))}
    axes = draw(st.lists(st.integers(0, x.ndim - 1), unique=True, min_size=1, max_size=x.ndim))
    return [x, tuple(draw(st.integers(-5, 5)) for _ in axes)], {"axis": tuple(axes)}


@st.composite
def permuting(draw: Draw) -> Arguments:
    x = draw(arrays(EVERY))
    return [x, tuple(draw(st.permutations(range(x.ndim))))], {}


@st.composite
def moving(draw: Draw) -> Arguments:
    x = draw(arrays(EVERY, VECTORS))
    axis = st.integers(-x.ndim, x.ndim - 1)
    return [x, draw(axis), draw(axis)], {}


@st.composite
def repeating(draw: Draw) -> Arguments:
    x = draw(arrays(EVERY, FULL_VECTORS))
    axis = draw(_axis(x.ndim))
    count = x.size if axis is None else x.shape[axis]
    times = draw(st.one_of(st.integers(0, 3), arrays(["int64"], (count,), least=0, most=3)))
    return [x, times], {"axis": axis}


@st.composite
def squeezing(draw: Draw) -> Arguments:
    x = draw(arrays(EVERY, FULL_VECTORS))
    axis = draw(st.integers(0, x.ndim))
    made = np.expand_dims(x, axis)
    return [made, draw(st.sampled_from([axis, axis - made.ndim, (axis,)]))], {}


@st.composite
def taking(draw: Draw, *, along: bool = False) -> Arguments:
    x = draw(arrays(EVERY, FULL_VECTORS))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    n = x.shape[axis]
    if along:
        shape = list(x.shape)
        shape[axis] = draw(st.integers(1, 4))
        return [x, draw(arrays(["int64"], tuple(shape), least=0, most=n - 1))], {"axis": axis}
    return [x, draw(arrays(["int64"], (draw(st.integers(0, 4)),), least=0, most=n - 1))], {"axis": axis}


@st.composite
def searching(draw: Draw) -> Arguments:
    dtype = draw(st.sampled_from(ORDERED))
    x = np.sort(draw(arrays([dtype], (draw(st.integers(0, 6)),), special=False)))
    named: dict[str, Any] = {}
    _keyword(draw, named, "side", st.sampled_from(["left", "right"]))
    return [x, draw(arrays([dtype], VECTORS, special=False))], named


@st.composite
def choosing(draw: Draw) -> Arguments:
    shapes = draw(hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, max_side=3)).input_shapes
    dtype = draw(st.sampled_from(EVERY))
    return [draw(arrays(BOOL, shapes[0])), *[draw(arrays([dtype], s)) for s in shapes[1:]]], {}


@st.composite
def clipping(draw: Draw) -> Arguments:
    x = draw(arrays(ORDERED))
    dtype = x.dtype.name
    low, high = sorted(draw(elements(dtype, special=False)) for _ in range(2))
    named: dict[str, Any] = {}
    _keyword(draw, named, "min", st.just(low))
    _keyword(draw, named, "max", st.just(high))
    return [x], named


@st.composite
def converting(draw: Draw) -> Arguments:
    x = draw(arrays(EVERY, special=False, least=0, most=100))
    targets = [d for d in EVERY if x.dtype.kind != "c" or d in COMPLEX]
    named: dict[str, Any] = {}
    _keyword(draw, named, "copy", st.booleans())
    return [x, np.dtype(draw(st.sampled_from(targets)))], named


@st.composite
def differencing(draw: Draw) -> Arguments:
    x = draw(arrays(NUMERIC, VECTORS))
    named: dict[str, Any] = {"axis": draw(st.integers(-x.ndim, x.ndim - 1))}
    _keyword(draw, named, "n", st.integers(0, 2))
    for name in ("prepend", "append"):
        if draw(st.booleans()):
            shape = list(x.shape)
            shape[named["axis"]] = 1
            named[name] = draw(arrays([x.dtype.name], tuple(shape)))
    return [x], named


@st.composite
def tiling(draw: Draw) -> Arguments:
    return [draw(arrays(EVERY)), tuple(draw(st.lists(st.integers(0, 2), max_size=4)))], {}


@st.composite
def meshing(draw: Draw) -> Arguments:
    dtype = draw(st.sampled_from(NUMERIC))
    count = draw(st.integers(1, 3))
    named: dict[str, Any] = {}
    _keyword(draw, named, "indexing", st.sampled_from(["xy", "ij"]))
    return [draw(arrays([dtype], (draw(st.integers(0, 3)),))) for _ in range(count)], named


@st.composite
def crossing(draw: Draw) -> Arguments:
    dtype = draw(st.sampled_from(FLOATING))
    stack = draw(hnp.array_shapes(min_dims=0, max_dims=1, min_side=1, max_side=3))
    return [draw(arrays([dtype], (*stack, 3), special=False, least=-9, most=9)) for _ in range(2)], {}


@st.composite
def on_matrices(
    draw: Draw, prepared: Callable[[np.ndarray], np.ndarray] | None = None, dtypes: Sequence[str] = FLOATING,
    *, square: bool = False, **keywords: Any,
) -> Arguments:  # fmt: skip
    x = draw(matrices(dtypes, square=square or prepared is not None))
    named: dict[str, Any] = {}
    for name, strategy in keywords.items():
        _keyword(draw, named, name, strategy)
    return [prepared(x) if prepared else x], named


@st.composite
def solving(draw: Draw) -> Arguments:
    x = _regular(draw(matrices(square=True)))
    shape = draw(st.sampled_from([(x.shape[-1],), (x.shape[-1], 2)]))
    if len(shape) == 1 and x.ndim > 2:
        shape = (x.shape[-1], 1)
    return [x, draw(arrays([x.dtype.name], shape, special=False))], {}


@st.composite
def normed(draw: Draw) -> Arguments:
    x = draw(arrays(FLOATING, FULL_VECTORS, special=False, least=-9, most=9))
    named: dict[str, Any] = {}
    _keyword(draw, named, "axis", _axis(x.ndim))
    _keyword(draw, named, "keepdims", st.booleans())
    _keyword(draw, named, "ord", st.sampled_from([0, 1, 2, 3.5, math.inf, -math.inf]))
    return [x], named


_UNIQUE = arrays(EVERY, VECTORS).map(lambda x: ([np.where(np.isnan(x), np.asarray(0, x.dtype), x)], {}))
_FLOAT_ONLY = """
acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 reciprocal sin sinh sqrt tan tanh
"""
_PRODUCT_TYPES = NUMERIC

CALLS: dict[str, Any] = {
    **{name: unary(FLOATING) for name in _FLOAT_ONLY.split()},
    **{name: unary(NUMERIC) for name in ("abs", "conj", "negative", "positive", "real", "sign", "square")},
    **{name: unary(NUMERIC) for name in ("isfinite", "isinf", "isnan", "round")},
    **{name: unary(ORDERED) for name in ("ceil", "floor", "trunc")},
    "bitwise_invert": unary(BOOL + INTEGER),
    "imag": unary(COMPLEX),
    "logical_not": unary(BOOL),
    "signbit": unary(REAL),
    **{name: binary(NUMERIC) for name in ("add", "multiply", "subtract")},
    **{name: binary(EVERY) for name in ("equal", "not_equal")},
    **{name: binary(ORDERED) for name in ("greater", "greater_equal", "less", "less_equal")},
    **{name: binary(ORDERED) for name in ("maximum", "minimum")},
    **{name: binary(BOOL + INTEGER) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    **{name: binary(BOOL) for name in ("logical_and", "logical_or", "logical_xor")},
    **{name: binary(REAL) for name in ("atan2", "copysign", "hypot", "logaddexp", "nextafter")},
    **{name: binary(INTEGER, least=0, most=7) for name in ("bitwise_left_shift", "bitwise_right_shift")},
    "divide": binary(FLOATING),
    **{name: binary(ORDERED, least=1, most=100) for name in ("floor_divide", "remainder")},
    "pow": binary(INTEGER + REAL, least=0, most=4),
    "arange": aranging(),
    "empty": _sized(),
    "eye": eyeing(),
    "full": _sized("fill"),
    "linspace": linspacing(),
    "ones": _sized(),
    "zeros": _sized(),
    "fft.fftfreq": frequencies(),
    "fft.rfftfreq": frequencies(),
    "all": reducing(EVERY),
    "any": reducing(EVERY),
    "argmax": reducing(ORDERED, several=False, full=True),
    "argmin": reducing(ORDERED, several=False, full=True),
    "argsort": sorting(),
    "sort": sorting(),
    "astype": converting(),
    "broadcast_arrays": broadcasting(),
    "broadcast_to": stretching(),
    "clip": clipping(),
    "concat": joining(),
    "stack": joining(same=True),
    "count_nonzero": reducing(EVERY),
    "cumulative_prod": cumulating(NUMERIC, special=False, least=-2, most=2),
    "cumulative_sum": cumulating(NUMERIC, special=False),
    "diff": differencing(),
    "empty_like": alike(),
    "ones_like": alike(),
    "zeros_like": alike(),
    "full_like": alike(fill=True),
    "expand_dims": arrays(EVERY).flatmap(
        lambda x: st.integers(-x.ndim - 1, x.ndim).map(lambda a: ([x], {"axis": a}))
    ),
    "flip": arrays(EVERY).flatmap(lambda x: _axes(x.ndim).map(lambda a: ([x], {"axis": a}))),
    "matmul": products(_PRODUCT_TYPES),
    "matrix_transpose": on_matrices(),
    "max": reducing(ORDERED, full=True),
    "min": reducing(ORDERED, full=True),
    "mean": reducing(FLOATING, full=True),
    "meshgrid": meshing(),
    "moveaxis": moving(),
    "nonzero": arrays(EVERY, VECTORS).map(lambda x: ([x], {})),
    "permute_dims": permuting(),
    "prod": reducing(NUMERIC, dtype=True, special=False, least=-2, most=2),
    "repeat": repeating(),
    "reshape": reshaping(),
    "roll": rolling(),
    "searchsorted": searching(),
    "squeeze": squeezing(),
    "std": reducing(REAL, full=True, correction=True),
    "sum": reducing(NUMERIC, dtype=True),
    "take": taking(),
    "take_along_axis": taking(along=True),
    "tensordot": tensordotting(_PRODUCT_TYPES),
    "tile": tiling(),
    "tril": triangles(),
    "triu": triangles(),
    **dict.fromkeys(("unique_all", "unique_counts", "unique_inverse", "unique_values"), _UNIQUE),
    "isin": binary(INTEGER),
    "unstack": with_axis(),
    "var": reducing(REAL, full=True, correction=True),
    "vecdot": dotting(_PRODUCT_TYPES),
    "where": choosing(),
    "linalg.cholesky": on_matrices(_definite, upper=st.booleans()),
    "linalg.cross": crossing(),
    "linalg.det": on_matrices(square=True),
    "linalg.diagonal": on_matrices(offset=st.integers(-2, 2)),
    "linalg.eig": on_matrices(_regular),
    "linalg.eigh": on_matrices(_definite),
    "linalg.eigvals": on_matrices(_regular),
    "linalg.eigvalsh": on_matrices(_definite),
    "linalg.inv": on_matrices(_regular),
    "linalg.matmul": products(_PRODUCT_TYPES),
    "linalg.matrix_norm": on_matrices(
        keepdims=st.booleans(), ord=st.sampled_from(["fro", "nuc", 1, 2, -1, math.inf])
    ),
    "linalg.matrix_power": st.tuples(matrices(square=True, limit=2), st.integers(0, 4)).map(
        lambda given: (list(given), {})
    ),
    "linalg.matrix_rank": on_matrices(rtol=st.sampled_from([1e-3, 0.1])),
    "linalg.matrix_transpose": on_matrices(),
    "linalg.outer": multiplying(),
    "linalg.pinv": on_matrices(rtol=st.sampled_from([1e-3])),
    "linalg.qr": on_matrices(mode=st.sampled_from(["reduced", "complete"])),
    "linalg.slogdet": on_matrices(_regular),
    "linalg.solve": solving(),
    "linalg.svd": on_matrices(full_matrices=st.booleans()),
    "linalg.svdvals": on_matrices(),
    "linalg.tensordot": tensordotting(_PRODUCT_TYPES),
    "linalg.trace": on_matrices(offset=st.integers(-2, 2)),
    "linalg.vecdot": dotting(_PRODUCT_TYPES),
    "linalg.vector_norm": normed(),
    **{f"fft.{name}": transforming(FLOATING) for name in ("fft", "ifft")},
    **{f"fft.{name}": transforming(FLOATING, several=True) for name in ("fftn", "ifftn")},
    **{f"fft.{name}": transforming(REAL) for name in ("rfft", "ihfft")},
    "fft.rfftn": transforming(REAL, several=True),
    **{f"fft.{name}": transforming(COMPLEX, mirrored=True) for name in ("irfft", "hfft")},
    "fft.irfftn": transforming(COMPLEX, several=True, mirrored=True),
    "fft.fftshift": shifting(),
    "fft.ifftshift": shifting(),
}  # fmt: skip

assert CALLS.keys() == FUNCTIONS.keys(), CALLS.keys() ^ FUNCTIONS.keys()
