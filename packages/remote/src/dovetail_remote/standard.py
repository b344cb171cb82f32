"""The functions of the Python array API standard (2025.12), as one table.

What a namespace offers, what a server carries out, and how many arrays a call gives: all of it is read from
here. Source: the standard's specification, data-apis.org/array-api/2025.12.
"""

from __future__ import annotations

import inspect
import operator
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from dovetail.records import dataclass

VERSION = "2025.12"

CONSTANTS: Mapping[str, float | None] = {
    "e": 2.718281828459045,
    "inf": float("inf"),
    "nan": float("nan"),
    "newaxis": None,
    "pi": 3.141592653589793,
}

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float32", "float64", "complex64", "complex128",
)  # fmt: skip

_UNARY = """
abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf
isnan log log10 log1p log2 logical_not negative positive real reciprocal round sign signbit sin sinh sqrt
square tan tanh trunc
"""

_BINARY = """
add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal
floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum
minimum multiply nextafter not_equal pow remainder subtract
"""

_CREATION = """
arange(start, /, stop=None, step=1, *, dtype=None, device=None)
empty(shape, *, dtype=None, device=None)
eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)
full(shape, fill_value, *, dtype=None, device=None)
linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True)
ones(shape, *, dtype=None, device=None)
zeros(shape, *, dtype=None, device=None)
fft.fftfreq(n, /, *, d=1.0, dtype=None, device=None)
fft.rfftfreq(n, /, *, d=1.0, dtype=None, device=None)
"""

_OTHERS = """
all(x, /, *, axis=None, keepdims=False)
any(x, /, *, axis=None, keepdims=False)
argmax(x, /, *, axis=None, keepdims=False)
argmin(x, /, *, axis=None, keepdims=False)
argsort(x, /, *, axis=-1, descending=False, stable=True)
astype(x, dtype, /, *, copy=True, device=None)  # view
broadcast_arrays(*arrays)  # stretch
broadcast_to(x, /, shape)  # stretch
clip(x, /, min=None, max=None)
concat(arrays, /, *, axis=0)
count_nonzero(x, /, *, axis=None, keepdims=False)
cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False)
cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False)
diff(x, /, *, axis=-1, n=1, prepend=None, append=None)
empty_like(x, /, *, dtype=None, device=None)
expand_dims(x, /, axis=0)  # view
flip(x, /, *, axis=None)  # view
full_like(x, /, fill_value, *, dtype=None, device=None)
isin(x1, x2, /, *, invert=False)
matmul(x1, x2, /)
matrix_transpose(x, /)  # view
max(x, /, *, axis=None, keepdims=False)
mean(x, /, *, axis=None, keepdims=False)
meshgrid(*arrays, indexing='xy')  # stretch
min(x, /, *, axis=None, keepdims=False)
moveaxis(x, source, destination, /)  # view
nonzero(x, /)  # sized-by-elements
ones_like(x, /, *, dtype=None, device=None)
permute_dims(x, /, axes)  # view
prod(x, /, *, axis=None, dtype=None, keepdims=False)
repeat(x, repeats, /, *, axis=None)  # sized-by-elements fails-for-elements
reshape(x, /, shape, *, copy=None)  # view
roll(x, /, shift, *, axis=None)
searchsorted(x1, x2, /, *, side='left', sorter=None)  # fails-for-elements
sort(x, /, *, axis=-1, descending=False, stable=True)
squeeze(x, /, axis)  # view
stack(arrays, /, *, axis=0)
std(x, /, *, axis=None, correction=0.0, keepdims=False)
sum(x, /, *, axis=None, dtype=None, keepdims=False)
take(x, indices, /, *, axis=None)  # fails-for-elements
take_along_axis(x, indices, /, *, axis=-1)  # fails-for-elements
tensordot(x1, x2, /, *, axes=2)
tile(x, repetitions, /)
tril(x, /, *, k=0)
triu(x, /, *, k=0)
unique_all(x, /) -> values indices inverse_indices counts  # sized-by-elements
unique_counts(x, /) -> values counts  # sized-by-elements
unique_inverse(x, /) -> values inverse_indices  # sized-by-elements
unique_values(x, /)  # sized-by-elements
unstack(x, /, *, axis=0)  # view
var(x, /, *, axis=None, correction=0.0, keepdims=False)
vecdot(x1, x2, /, *, axis=-1)
where(condition, x1, x2, /)
zeros_like(x, /, *, dtype=None, device=None)
linalg.cholesky(x, /, *, upper=False)  # fails-for-elements
linalg.cross(x1, x2, /, *, axis=-1)
linalg.det(x, /)  # fails-for-elements
linalg.diagonal(x, /, *, offset=0)  # stretch
linalg.eig(x, /) -> eigenvalues eigenvectors  # fails-for-elements
linalg.eigvals(x, /)  # fails-for-elements
linalg.eigh(x, /) -> eigenvalues eigenvectors  # fails-for-elements
linalg.eigvalsh(x, /)  # fails-for-elements
linalg.inv(x, /)  # fails-for-elements
linalg.matmul(x1, x2, /)
linalg.matrix_norm(x, /, *, keepdims=False, ord='fro')  # fails-for-elements
linalg.matrix_power(x, n, /)  # fails-for-elements
linalg.matrix_rank(x, /, *, rtol=None)  # fails-for-elements
linalg.matrix_transpose(x, /)  # view
linalg.outer(x1, x2, /)
linalg.pinv(x, /, *, rtol=None)  # fails-for-elements
linalg.qr(x, /, *, mode='reduced') -> Q R  # fails-for-elements
linalg.slogdet(x, /) -> sign logabsdet  # fails-for-elements
linalg.solve(x1, x2, /)  # fails-for-elements
linalg.svd(x, /, *, full_matrices=True) -> U S Vh  # fails-for-elements
linalg.svdvals(x, /)  # fails-for-elements
linalg.tensordot(x1, x2, /, *, axes=2)
linalg.trace(x, /, *, offset=0, dtype=None)
linalg.vecdot(x1, x2, /, *, axis=-1)
linalg.vector_norm(x, /, *, axis=None, keepdims=False, ord=2)
fft.fft(x, /, *, n=None, axis=-1, norm='backward')
fft.fftn(x, /, *, s=None, axes=None, norm='backward')
fft.fftshift(x, /, *, axes=None)
fft.hfft(x, /, *, n=None, axis=-1, norm='backward')
fft.ifft(x, /, *, n=None, axis=-1, norm='backward')
fft.ifftn(x, /, *, s=None, axes=None, norm='backward')
fft.ifftshift(x, /, *, axes=None)
fft.ihfft(x, /, *, n=None, axis=-1, norm='backward')
fft.irfft(x, /, *, n=None, axis=-1, norm='backward')
fft.irfftn(x, /, *, s=None, axes=None, norm='backward')
fft.rfft(x, /, *, n=None, axis=-1, norm='backward')
fft.rfftn(x, /, *, s=None, axes=None, norm='backward')
"""


@dataclass(frozen=True, slots=True)
class Function:
    """One function: its dotted name, its signature, and the class of its results if these have names.

    Of its ``properties`` there are ``elementwise``; ``sized-by-elements``, where shapes of results depend on
    the elements; ``fails-for-elements``, where some elements make it fail; ``view``, where the result may be
    one of the argument; and ``stretch``, where it may be a read-only one.
    """

    name: str
    signature: inspect.Signature
    results: type[tuple[Any, ...]] | None
    properties: frozenset[str] = frozenset()

    @property
    def is_elementwise(self) -> bool:
        """Whether each element of the result is computed of one element of each argument."""
        return "elementwise" in self.properties

    @property
    def keyword_names(self) -> frozenset[str]:
        """Names of the arguments that may be given by keyword."""
        kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return frozenset(p.name for p in self.signature.parameters.values() if p.kind in kinds)

    @property
    def most_positional(self) -> int:
        """How many arguments may be given by position."""
        parameters = self.signature.parameters.values()
        if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
            return MOST_ARGUMENTS
        return sum(p.kind is not inspect.Parameter.KEYWORD_ONLY for p in parameters)


MOST_ARGUMENTS = 64
"""Of functions that take any number; NumPy's own limit of dimensions and operands."""


@cache
def _read_signature(parameters: str) -> inspect.Signature:
    """Python itself reads it, once for all functions that have the same."""
    return inspect.signature(eval(f"lambda {parameters}: None"))


def _parse_function(line: str) -> Function:
    """``linalg.qr(x, /, *, mode='reduced') -> Q R  # fails-for-elements`` as a function."""
    stated, _, properties = line.partition("  # ")
    head, _, names = stated.partition(" -> ")
    name, _, parameters = head.partition("(")
    signature = _read_signature(parameters.removesuffix(")"))
    short = name.rpartition(".")[2]
    results = namedtuple(f"{short}_result", names.split()) if names else None
    return Function(name, signature, results, frozenset(properties.split()))


def _function_table() -> dict[str, Function]:
    views = ("imag", "positive", "real")
    lines = [f"{name}(x, /)  # elementwise{' view' * (name in views)}" for name in _UNARY.split()]
    lines += [f"{name}(x1, x2, /)  # elementwise" for name in _BINARY.split()]
    made = [_parse_function(line) for line in [*lines, *(_CREATION + _OTHERS).splitlines()] if line]
    return {function.name: function for function in made}


#: All functions that compute, by dotted name (``sum``, ``linalg.svd``, ``fft.fft``).
FUNCTIONS: Mapping[str, Function] = _function_table()

#: Those that make arrays from numbers alone.
CREATION = frozenset(line.partition("(")[0] for line in _CREATION.splitlines() if line)

# -- operators -----------------------------------------------------------------------------------------


def _parse_pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


_UNARY_METHODS = _parse_pairs("abs=abs invert=bitwise_invert neg=negative pos=positive")
_ARITHMETIC = _parse_pairs("""
add=add and=bitwise_and floordiv=floor_divide lshift=bitwise_left_shift matmul=matmul mod=remainder
mul=multiply or=bitwise_or pow=pow rshift=bitwise_right_shift sub=subtract truediv=divide xor=bitwise_xor
""")
_COMPARISONS = _parse_pairs("eq=equal ge=greater_equal gt=greater le=less_equal lt=less ne=not_equal")


def _exchange_arguments(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The function with its arguments exchanged."""
    return lambda x, y: function(y, x)


def _operator_functions(names: Iterable[str]) -> dict[str, Callable[..., Any]]:
    return {f"__{name}__": getattr(operator, f"__{name}__") for name in names}


UNARY_OPERATORS: Mapping[str, Callable[[Any], Any]] = _operator_functions(_UNARY_METHODS)
BINARY_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = _operator_functions([*_ARITHMETIC, *_COMPARISONS])
REFLECTED_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    f"__r{name}__": _exchange_arguments(getattr(operator, f"__{name}__")) for name in _ARITHMETIC
}
INPLACE_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = _operator_functions(
    [f"i{name}" for name in _ARITHMETIC]
)

#: Functions that do what operators do, by the name of the method.
OPERATOR_FUNCTIONS: Mapping[str, str] = {
    f"__{how}{method}__": name
    for how, table in (("", _UNARY_METHODS | _COMPARISONS), *[(how, _ARITHMETIC) for how in ("", "r", "i")])
    for method, name in table.items()
}


def operators_by(functions: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The operators that change nothing in place, by functions of the standard."""
    found = {
        method: functions[OPERATOR_FUNCTIONS[method]] for method in (*UNARY_OPERATORS, *BINARY_OPERATORS)
    }
    return found | {
        method: _exchange_arguments(functions[OPERATOR_FUNCTIONS[method]]) for method in REFLECTED_OPERATORS
    }


def with_operators(functions: Iterable[str]) -> frozenset[str]:
    """Names of functions, and of the operators that do the same."""
    names = frozenset(functions)
    return names.union(method for method, name in OPERATOR_FUNCTIONS.items() if name in names)


def functions_having(what: str) -> frozenset[str]:
    """The functions with a property, one of `Function.properties`."""
    return frozenset(f.name for f in FUNCTIONS.values() if what in f.properties)


#: What servers know by the name of the method.
OPERATORS: Mapping[str, Callable[..., Any]] = {
    **UNARY_OPERATORS,
    **BINARY_OPERATORS,
    **REFLECTED_OPERATORS,
    **INPLACE_OPERATORS,
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
}
