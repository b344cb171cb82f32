"""A function with an implementation for each kind of worker, and how it travels to one."""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import os
import sys
from collections.abc import Callable
from typing import Any, overload

import cloudpickle

from dovetail.errors import InputError
from dovetail.mapping.wire import dump_object

CPU = "cpu"
GPU = "gpu"
_INSTEAD = {"opencl": GPU}
"""Kinds that use another kind's implementation where they have none of their own."""


class Function:
    """A function that a map can run on workers of several kinds.

    Called as it stands it runs its CPU implementation (or the only one that there is). ``name`` is what the
    history knows it by. All implementations take the same arguments and give the same result.
    """

    __qualname__: str

    def __init__(self, implementation: Callable[..., Any], kind: str = CPU, name: str | None = None) -> None:
        self.implementations: dict[str, Callable[..., Any]] = {kind: implementation}
        self.name = name or identity_of(implementation)
        functools.update_wrapper(self, implementation)

    def on(self, kind: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: the implementation for workers of this kind (``gpu``, ``opencl``, …)."""

        def register_implementation(implementation: Callable[..., Any]) -> Callable[..., Any]:
            self.implementations[kind] = implementation
            return implementation

        return register_implementation

    def gpu(self, implementation: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the implementation for GPU workers, and for OpenCL ones that have none of their own."""
        return self.on(GPU)(implementation)

    def opencl(self, implementation: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the implementation for workers of the kind ``opencl``."""
        return self.on("opencl")(implementation)

    def implementation(self, kind: str) -> Callable[..., Any] | None:
        """What a worker of this kind runs, or ``None``."""
        return self.implementations.get(kind) or self.implementations.get(_INSTEAD.get(kind, kind))

    def needed_implementation(self, kind: str) -> Callable[..., Any]:
        """What a worker of this kind runs. Raises `InputError` if there is nothing."""
        found = self.implementation(kind)
        if found is None:
            raise InputError(
                f"{self.name or repr(self)} has no implementation for {kind}, expected one "
                f"(found {', '.join(self.implementations)})",
                where="workers",
            )
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the CPU implementation here."""
        found = self.implementations.get(CPU) or next(iter(self.implementations.values()))
        return found(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<dovetail function {self.name} for {', '.join(self.implementations)}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """By name where another process can import it, else with its implementations."""
        if _is_importable(self):
            return self.__qualname__
        return _made_again, (self.name, self.implementations)


def _made_again(name: str, implementations: dict[str, Callable[..., Any]]) -> Function:
    kind, first = next(iter(implementations.items()))
    made = Function(first, kind, name)
    made.implementations.update(implementations)
    return made


@overload
def function(implementation: Callable[..., Any], /) -> Function: ...


@overload
def function(*, name: str | None = None) -> Callable[[Callable[..., Any]], Function]: ...


def function(
    implementation: Callable[..., Any] | None = None, /, *, name: str | None = None
) -> Function | Callable[[Callable[..., Any]], Function]:
    """Decorator: make a function one that `dovetail.map` can run on several kinds of workers.

        @dovetail.function
        def assign(points): ...            # CPU
        @assign.gpu
        def _(points): ...                 # GPU

    ``name`` is what the history knows it by; by default module and name, or the script's file and name.
    """
    if implementation is None:
        return lambda given: Function(given, name=name)
    return Function(implementation, name=name)


def as_function(given: Any) -> Function:
    """A `Function`, or a plain callable as one for CPUs. Raises `InputError`."""
    if isinstance(given, Function):
        return given
    if not callable(given):
        raise InputError(f"found {given!r}, expected a function", where="map")
    return Function(given)


def identity_of(implementation: Callable[..., Any]) -> str:
    """What the history calls a function: ``module.name``, ``script.py:name``; empty for nameless ones."""
    while isinstance(implementation, functools.partial):
        implementation = implementation.func
    qualname = getattr(implementation, "__qualname__", "")
    module = getattr(implementation, "__module__", "") or ""
    if not qualname or "<lambda>" in qualname:
        return ""
    qualname = qualname.replace("<locals>.", "")
    if module == "__main__":
        script = getattr(sys.modules["__main__"], "__file__", None) or "notebook"
        return "" if script.startswith("<") else f"{os.path.basename(script)}:{qualname}"
    return f"{module}.{qualname}"


# -- how a function travels ----------------------------------------------------------------------------


class Reference:
    """The implementation for one kind of a function that the worker imports by name."""

    def __init__(self, module: str, qualname: str, kind: str) -> None:
        self.module, self.qualname, self.kind = module, qualname, kind

    def load(self) -> Callable[..., Any]:
        """Import it. Raises what the import raises."""
        found = _find_attribute(importlib.import_module(self.module), self.qualname)
        implementation = found.implementation(self.kind)
        assert implementation is not None
        return implementation  # type: ignore[no-any-return]


def ship_implementation(given: Function, kind: str) -> bytes:
    """A pickle of what a worker of this kind runs: a `Reference`, or the implementation by value.

    Raises `InputError` where it cannot be pickled.
    """
    implementation = given.needed_implementation(kind)
    thing: Any = implementation
    if _is_importable(given):
        thing = Reference(given.__module__, given.__qualname__, kind)
    unknown = _unknown_module(implementation)
    # Registered for this one pickle: to the rest of the program the module stays importable.
    if unknown is not None:
        cloudpickle.register_pickle_by_value(unknown)
    try:
        shipped: bytes = dump_object(thing)
        return shipped
    except Exception as error:
        raise InputError(
            f"{given.name or given!r} cannot be sent to a worker: {type(error).__name__}: {error}",
            where="map",
        ) from error
    finally:
        if unknown is not None:
            cloudpickle.unregister_pickle_by_value(unknown)


def _is_importable(given: Function) -> bool:
    """Whether another process that imports the module finds this very function in it."""
    module = getattr(given, "__module__", None)
    if not isinstance(module, str) or module == "__main__" or not _on_path(module):
        return False
    return _find_attribute(sys.modules.get(module), getattr(given, "__qualname__", "")) is given


def _find_attribute(holder: Any, qualname: str) -> Any:
    for part in qualname.split("."):
        holder = getattr(holder, part, None)
    return holder


def _on_path(module: str) -> bool:
    """Whether the top package of a module is found on ``sys.path`` (or built in), and not only loaded."""
    top = module.partition(".")[0]
    return top in sys.builtin_module_names or _is_module_found(top, tuple(sys.path))


@functools.lru_cache(256)
def _is_module_found(top: str, path: tuple[str, ...]) -> bool:
    return importlib.machinery.PathFinder.find_spec(top, list(path)) is not None


def imported_alike(implementation: Callable[..., Any]) -> bool:
    """Whether a worker that imports a plain function by its name gets this very one."""
    module = getattr(implementation, "__module__", None)
    if not isinstance(module, str) or module == "__main__" or not _on_path(module):
        return False
    return _find_attribute(sys.modules.get(module), implementation.__qualname__) is implementation


def _unknown_module(implementation: Callable[..., Any]) -> Any:
    """The module of a function that workers cannot import: it must travel by value; else ``None``."""
    module = getattr(implementation, "__module__", None)
    if not isinstance(module, str) or module == "__main__" or _on_path(module):
        return None
    return sys.modules.get(module)
