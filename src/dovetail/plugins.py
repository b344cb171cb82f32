"""Finding policies, executors, workload readers and rate models: entry points, for built-ins too.

A policy is named ``NAME[?option=value&…]``; NAME is an entry point of ``dovetail.policies`` or
``path/to/file.py:ClassName``. Options are the fields of the policy's dataclass.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import math
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl

from dovetail.errors import InputError
from dovetail.interfaces import Planner, Policy

__all__ = [
    "LoadedPolicy",
    "PolicyInfo",
    "load_policy",
    "load_rates",
    "named",
    "obeys_priorities",
    "policies",
    "split_spec",
]


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy or planner ready to use; ``options`` are those that were given.

    ``source`` is ``path/to/file.py:ClassName`` for a policy from a file.
    """

    name: str
    policy: Policy | Planner
    options: Mapping[str, Any]
    source: str = ""

    @property
    def label(self) -> str:
        """Name (or source) and options as written on the command line."""
        name = self.source or self.name
        options = "&".join(f"{key}={value}" for key, value in self.options.items())
        return f"{name}?{options}" if options else name


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """What `dovetail policies` shows of one policy."""

    name: str
    summary: str
    paper: str
    kind: Literal["policy", "planner"]
    parameters: Mapping[str, str]
    priorities: bool


@cache
def _entries(group: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in sorted(entry_points(group=group), key=lambda e: e.name)}


def named(group: str, name: str, what: str) -> Any:
    """The object registered under a name in an entry-point group; raises `InputError` with near names."""
    known = _entries(group)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError(f"found {what} {name!r}, expected one of {', '.join(known)}{hint}")
    return known[name].load()


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """``NAME?a=1&b=2`` as name and options; raises `InputError` for an option without a value."""
    name, _, query = spec.partition("?")
    try:
        options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True)) if query else {}
    except ValueError:
        raise InputError(
            f"found {query!r} after '?', expected option=value pairs joined by '&'", where=spec
        ) from None
    return name, options


def load_policy(spec: str | Policy | Planner) -> LoadedPolicy:
    """A policy from its name with options, from a file, or as the object itself. Raises `InputError`."""
    if not isinstance(spec, str):
        if isinstance(spec, type) or not isinstance(spec, Policy | Planner):
            raise InputError(f"policy: found {spec!r}, expected a name, a policy or a planner")
        return LoadedPolicy(getattr(spec, "name", type(spec).__name__), spec, {})
    name, texts = split_spec(spec)
    source = ""
    if ".py:" in name:
        factory = _from_file(name)
        path, _, name = name.rpartition(":")
        source = f"{Path(path).absolute()}:{name}"
    else:
        factory = named("dovetail.policies", name, "policy")
    policy, options = _made(f"policy {name}", factory, texts)
    if not isinstance(policy, Policy | Planner):
        raise InputError("has neither decide(view) nor plan(view)", where=f"policy {name}")
    return LoadedPolicy(name, policy, options, source)


def _from_file(spec: str) -> Any:
    path_text, _, class_name = spec.rpartition(":")
    path = Path(path_text)
    if not path.is_file():
        raise InputError(f"found no file {path_text}, expected FILE.py:ClassName", where="policy")
    module_name = f"dovetail_user_{path.stem}"
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_name] = module  # dataclasses look their module up there
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"cannot be loaded: {type(error).__name__}: {error}", where=path_text) from error
    found = getattr(module, class_name, None)
    if found is None:
        raise InputError(f"has no class {class_name}", where=path_text)
    return found


def _fields(factory: Any) -> dict[str, dataclasses.Field[Any]]:
    if not dataclasses.is_dataclass(factory):
        return {}
    return {field.name: field for field in dataclasses.fields(factory) if field.init}


def _made(what: str, factory: Any, texts: Mapping[str, str]) -> tuple[Any, dict[str, Any]]:
    """The object with its options, which are returned too; raises `InputError` that begins with ``what``."""
    options = _options(what, factory, texts)
    try:
        return factory(**options), options
    except (TypeError, ValueError) as error:
        raise InputError(f"cannot be made: {error}", where=what) from error


def _options(what: str, factory: Any, texts: Mapping[str, str]) -> dict[str, Any]:
    fields = _fields(factory)
    hints = typing.get_type_hints(factory) if fields else {}
    options: dict[str, Any] = {}
    for key, text in texts.items():
        if key not in fields:
            expected = ", ".join(fields) if fields else "no options"
            raise InputError(f"found option {key!r}, expected {expected}", where=what)
        options[key] = _convert(hints[key], text, f"{what}: {key}")
    return options


def _convert(kind: Any, text: str, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin is Literal:
        allowed = typing.get_args(kind)
        if text not in allowed:
            raise InputError(f"found {text!r}, expected one of {', '.join(map(str, allowed))}", where=where)
        return text
    if origin in (typing.Union, types.UnionType):
        inner = [arg for arg in typing.get_args(kind) if arg is not type(None)]
        return _convert(inner[0], text, where)
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
            raise InputError(f"found {text!r}, expected true or false", where=where)
        return text.lower() in ("true", "1", "yes")
    if kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            expected = "a whole number" if kind is int else "a number"
            raise InputError(f"found {text!r}, expected {expected}", where=where)
        return number
    return text


def obeys_priorities(policy: object) -> bool:
    """Whether a policy, or its class, says with ``priorities = True`` that higher ones go first."""
    return bool(getattr(policy, "priorities", False))


def policies() -> list[PolicyInfo]:
    """All registered policies and planners, by name."""
    found: list[PolicyInfo] = []
    for name, entry in _entries("dovetail.policies").items():
        factory = entry.load()
        doc = (factory.__doc__ or "").strip().splitlines()
        hints = typing.get_type_hints(factory) if _fields(factory) else {}
        parameters = {key: _describe(hints[key], field.default) for key, field in _fields(factory).items()}
        kind: Literal["policy", "planner"] = "policy" if hasattr(factory, "decide") else "planner"
        paper, obeyed = getattr(factory, "paper", "") or "", obeys_priorities(factory)
        found.append(PolicyInfo(name, doc[0] if doc else "", paper, kind, parameters, obeyed))
    return found


def _describe(kind: Any, default: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return "|".join(str(arg) for arg in typing.get_args(kind)) + f" (default {default})"
    return f"{getattr(kind, '__name__', str(kind))} (default {default})"


def load_rates(spec: str) -> Any:
    """A rate model from ``NAME[?option=value]``; raises `InputError`."""
    name, texts = split_spec(spec)
    factory = named("dovetail.rates", name, "rate model")
    return _made(f"rate model {name}", factory, texts)[0]
