"""Finding policies, executors, workload readers, rate and runtime models: entry points, for built-ins too.

A policy is named ``NAME[?option=value&…]``; NAME is an entry point of ``dovetail.policies`` or
``path/to/file.py:ClassName``. Options are the fields of the policy's dataclass. So is a runtime model, whose
entry points are ``dovetail.runtimes`` and which is made with a history.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import sys
import types
import typing
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from dovetail.errors import InputError
from dovetail.extras import need_distribution, needing_extra
from dovetail.files.sentences import suggest_closest
from dovetail.files.specs import split_spec
from dovetail.records import dataclass

if TYPE_CHECKING:  # a list of names waits for none of them
    from importlib.metadata import EntryPoint

    from dovetail.interfaces import Backend, History, Planner, Policy, RuntimeModel


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
    def policy_label(self) -> str:
        """Name (or source) and options as written on the command line."""
        name = self.source or self.name
        options = "&".join(f"{key}={value}" for key, value in self.options.items())
        return f"{name}?{options}" if options else name


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """What `dovetail policies` shows of one policy."""

    name: str
    summary: str
    paper: str
    kind: Literal["policy", "planner"]
    parameters: Mapping[str, str]
    priorities: bool


# Cached: reading the metadata of all that is installed takes 15 to 50 ms.
@cache
def registered_entries(group: str) -> dict[str, EntryPoint]:
    """What is registered under an entry-point group, by name."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in sorted(entry_points(group=group), key=lambda e: e.name)}


_USUAL = {
    ("dovetail.policies", "conservative"): "dovetail.policies.conservative:Conservative",
    ("dovetail.policies", "easy"): "dovetail.policies.easy:Easy",
    ("dovetail.policies", "fcfs"): "dovetail.policies.fcfs:Fcfs",
    ("dovetail.policies", "history"): "dovetail.policies.history:History",
    ("dovetail.executors", "local"): "dovetail.local.executor:Local",
    ("dovetail.workloads", "swf"): "dovetail.workloads.swf:read_swf",
}
"""What most commands take: found without a look at all that is installed, which takes 15 to 50 ms."""


def is_usual(group: str, name: str) -> bool:
    """Whether what is registered under a name is known without a look at all that is installed."""
    return (group, name) in _USUAL


def load_named(group: str, name: str, what: str) -> Any:
    """The object registered under a name in an entry-point group; raises `InputError` with near names."""
    # By name, so that the usual policy is imported without reading any metadata.
    if is_usual(group, name):
        module, _, attribute = _USUAL[group, name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    known = registered_entries(group)
    if name not in known:
        # Before "not found": a name of one of our own distributions deserves the command that installs it.
        need_distribution(group, name, what)
        if name.endswith(".py"):
            raise InputError(f"found the file {name}, expected a class of it: {name}:CLASS", where=what)
        raise InputError(f"found {what} {name!r}{suggest_closest(name, known)}")
    with needing_extra(f"{what} {name}"):
        return known[name].load()


USER_MODULE = "dovetail_user_"
"""What the modules of users' own files are called, before the file's name."""


def load_policy(spec: str | Policy | Planner) -> LoadedPolicy:
    """A policy from its name with options, from a file, or as the object itself. Raises `InputError`."""
    from dovetail.interfaces import Planner, Policy

    # Both protocols are checked by their methods: a class of one's own needs no base class. A class, not an
    # instance, has these methods as well, hence the first test.
    if not isinstance(spec, str):
        if isinstance(spec, type) or not isinstance(spec, Policy | Planner):
            raise InputError(f"policy: found {spec!r}, expected a name, a policy or a planner")
        return LoadedPolicy(getattr(spec, "name", type(spec).__name__), spec, {})
    name, texts = split_spec(spec)
    source, place = "", ""
    if ".py:" in name:
        factory = _from_file(name, "policy")
        path, _, name = name.rpartition(":")
        source, place = f"{Path(path).absolute()}:{name}", f"{path}: "
    else:
        factory = load_named("dovetail.policies", name, "policy")
    policy, options = _make_object(f"policy {name}", factory, texts)
    if not isinstance(policy, Policy | Planner):
        raise InputError("has neither decide(view) nor plan(view)", where=f"{place}policy {name}")
    return LoadedPolicy(name, policy, options, source)


def _from_file(spec: str, what: str) -> Any:
    path_text, _, class_name = spec.rpartition(":")
    path = Path(path_text)
    if not path.is_file():
        raise InputError(f"found no file {path_text}, expected FILE.py:ClassName", where=what)
    module_name = f"{USER_MODULE}{path.stem}"
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_name] = module  # dataclasses look their module up there
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        # Whatever the file raises is its author's to mend: one sentence, and with `--debug` the traceback.
        raise InputError(f"cannot be loaded: {type(error).__name__}: {error}", where=path_text) from error
    found = getattr(module, class_name, None)
    if found is None:
        own = [name for name, one in vars(module).items() if getattr(one, "__module__", "") == module_name]
        there = suggest_closest(class_name, own) if own else ""
        raise InputError(f"found no class {class_name!r}{there}", where=path_text)
    return found


def _option_fields(factory: Any) -> dict[str, dataclasses.Field[Any]]:
    if not dataclasses.is_dataclass(factory):
        return {}
    return {field.name: field for field in dataclasses.fields(factory) if field.init}


def _make_object(
    what: str, factory: Any, texts: Mapping[str, str], *given: Any
) -> tuple[Any, dict[str, Any]]:
    """The object with its options, which are returned too; ``given`` are its first parameters.

    Raises `InputError` that begins with ``what``.
    """
    options = _read_options(what, factory, texts, len(given))
    try:
        with needing_extra(what):
            return factory(*given, **options), options
    except (TypeError, ValueError) as error:
        raise InputError(f"cannot be made: {error}", where=what) from error


def _read_options(what: str, factory: Any, texts: Mapping[str, str], given: int) -> dict[str, Any]:
    # The first `given` fields are positional (a history): they cannot be options.
    fields = dict(list(_option_fields(factory).items())[given:])
    hints = typing.get_type_hints(factory) if fields else {}
    options: dict[str, Any] = {}
    for key, text in texts.items():
        if key not in fields:
            expected = ", ".join(fields) if fields else "no options"
            raise InputError(f"found option {key!r}, expected {expected}", where=what)
        options[key] = _convert_option(hints[key], text, f"{what}: {key}")
    return options


def _convert_option(kind: Any, text: str, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin is Literal:
        allowed = typing.get_args(kind)
        if text not in allowed:
            raise InputError(f"found {text!r}, expected one of {', '.join(map(str, allowed))}", where=where)
        return text
    # `X | None`: a text can give no `None`, so only the other type is tried.
    if origin in (typing.Union, types.UnionType):
        inner = [arg for arg in typing.get_args(kind) if arg is not type(None)]
        return _convert_option(inner[0], text, where)
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
            raise InputError(f"found {text!r}, expected true or false", where=where)
        return text.lower() in ("true", "1", "yes")
    # `float` takes "nan" and "inf", which no option means.
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


def hold_moves(policy: Policy | Planner) -> Policy | Planner:
    """The policy where a move takes time, as it does live: what moves holds its source until then.

    One that has an option ``held`` is given it, so that it decides by what is free while work moves.
    """
    made: Any = policy
    held: Policy | Planner = (
        dataclasses.replace(made, held=True) if "held" in _option_fields(type(made)) else made
    )
    return held


def needs_priorities(policy: object) -> bool:
    """Whether jobs must come before a policy by rank, so that of equal ones the higher starts no later.

    So it is of all that do not obey priorities, and of those that obey them on each unit alone.
    """
    from dovetail.interfaces import traits_of

    traits = traits_of(policy)
    return not traits.priorities or traits.priorities_by_unit


LISTED = Path(__file__).with_name("policies") / "listed.json"
"""The description of our own policies, so that a list of them loads none (`make schemas` writes it)."""


def list_policies(*, loading: bool = False) -> list[PolicyInfo]:
    """All registered policies and planners, by name; with ``loading`` each is loaded, also our own."""
    listed = {} if loading else json.loads(LISTED.read_text())
    return [
        # From the file for our own: a list that imports every policy is slow. The rest are plugins.
        PolicyInfo(**listed[name])
        if name in listed and entry.value.startswith("dovetail.policies.")
        else _policy_info(name, entry.load())
        for name, entry in registered_entries("dovetail.policies").items()
    ]


def _policy_info(name: str, factory: Any) -> PolicyInfo:
    from dovetail.interfaces import traits_of

    doc = (factory.__doc__ or "").strip().splitlines()
    hints = typing.get_type_hints(factory) if _option_fields(factory) else {}
    parameters = {
        key: _describe_parameter(hints[key], field.default) for key, field in _option_fields(factory).items()
    }
    kind: Literal["policy", "planner"] = "policy" if hasattr(factory, "decide") else "planner"
    paper, obeyed = getattr(factory, "paper", "") or "", traits_of(factory).priorities
    return PolicyInfo(name, doc[0] if doc else "", paper, kind, parameters, obeyed)


def _describe_parameter(kind: Any, default: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return "|".join(str(arg) for arg in typing.get_args(kind)) + f" (default {default})"
    kinds = [one for one in typing.get_args(kind) or (kind,) if one is not type(None)]
    word = "|".join(_WORDS.get(one, getattr(one, "__name__", str(one))) for one in kinds)
    return f"{word} (default {'none' if default is None else str(default).lower() or 'empty'})"


_WORDS = {bool: "true|false", int: "N", float: "NUMBER", str: "TEXT"}
"""What people write where Python expects these types."""


def load_rates(spec: str) -> Any:
    """A rate model from ``NAME[?option=value]``; raises `InputError`."""
    name, texts = split_spec(spec)
    factory = load_named("dovetail.rates", name, "rate model")
    return _make_object(f"rate model {name}", factory, texts)[0]


def load_runtime_model(spec: str, history: History) -> RuntimeModel:
    """A runtime model over a history, from ``NAME[?option=value]`` or ``path/to/file.py:ClassName``.

    Its class is called with the history, then with the options, which are the further fields of a dataclass.
    Raises `InputError` for what cannot be made, or has no ``predict``, ``runs`` and ``version``.
    """
    name, texts = split_spec(spec)
    if ".py:" in name:
        factory = _from_file(name, "--model")
    else:
        factory = load_named("dovetail.runtimes", name, "runtime model")
    model = _make_object(f"model {name}", factory, texts, history)[0]
    # Not `isinstance`: the message names what is missing.
    missing = [word for word in ("predict", "runs", "version") if not hasattr(model, word)]
    if missing:
        raise InputError(f"has no {' and no '.join(missing)}", where=f"model {name}")
    return cast("RuntimeModel", model)


def named_backend(spec: str) -> Backend:
    """A backend from ``NAME[?option=value]``; raises `InputError`."""
    name, texts = split_spec(spec)
    factory = load_named("dovetail.executors", name, "executor")
    from dovetail.interfaces import Backend

    backend = _make_object(f"executor {name}", factory, texts)[0]
    if not isinstance(backend, Backend):
        raise InputError("has no discover() or open()", where=f"executor {name}")
    return backend


def policy_for(backend: Backend, policy: T | str, *, cut_walltimes: bool = False) -> T | str:
    """The requested policy; where that is the default one, the backend's own, if it has one.

    With ``cut_walltimes`` jobs request from an outside scheduler the time that they are known to need. Raises
    `InputError` where there is none.
    """
    # The default policy is for one machine; a backend with a scheduler behind it has a policy that hands
    # over.
    own = getattr(backend, "policy", "")
    if own and policy == "history":
        policy = own
    if not cut_walltimes:
        return policy
    if not isinstance(policy, str) or not own or policy.partition("?")[0] != own:
        raise InputError(
            f"found policy {policy}, expected earliest-completion on executor slurm-queue: only jobs that "
            "another scheduler queues request a walltime from it",
            where="cut walltimes",
        )
    return f"{policy}{'&' if '?' in policy else '?'}cut=true"
