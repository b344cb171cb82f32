"""Groups of commands that are imported when they run, not when they are listed.

`dovetail devices`, the list of commands and their completion need not wait for solvers and charts.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from dovetail.cli.usage import read_plainly
from dovetail.errors import InputError
from dovetail.records import dataclass

if TYPE_CHECKING:  # commands of ours wait for no reader of metadata
    from importlib.metadata import EntryPoint


@dataclass(frozen=True, slots=True)
class Target:
    """A command before it is imported: ``load`` gives its function, or its `typer.Typer`.

    ``line`` is its text in the list of commands; where it is empty, the command itself is imported.
    """

    load: Callable[[], Any]
    line: Callable[[], str]


def own_target(spec: str, line: str) -> Target:
    """A command of our own, ``module:name``."""
    module, _, name = spec.partition(":")
    return Target(lambda: getattr(importlib.import_module(module), name), lambda: line)


@cache
def registered_targets(group: str) -> dict[str, Target]:
    """The commands that packages register under an entry-point group, by name."""
    from importlib.metadata import entry_points

    found = sorted(entry_points(group=group), key=lambda entry: entry.name)
    return {entry.name: Target(partial(_load_entry, entry), partial(_line_of, entry)) for entry in found}


def _line_of(entry: EntryPoint) -> str:
    """The first line of a command's docstring (or a group's ``help``), read from its source, not imported.

    Empty where it cannot be read so; then the command itself is imported.
    """
    try:
        # Read, not imported: the list of commands would otherwise load every package.
        spec = importlib.util.find_spec(entry.module)
        text = Path(spec.origin).read_text() if spec is not None and spec.origin else ""
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name == entry.attr:
                return (ast.get_docstring(node) or "").partition("\n")[0]
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                named = {getattr(target, "id", "") for target in node.targets}
                help_text = {word.arg: word.value for word in node.value.keywords}.get("help")
                if entry.attr in named and isinstance(help_text, ast.Constant):
                    return str(help_text.value)
    except (ImportError, OSError, ValueError, SyntaxError):
        pass  # what is broken fails with its own error when the command is used
    return ""


def _load_entry(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot be loaded from {entry.value}: {error}", where=entry.name) from error


class _Commands(Mapping[str, Any]):
    """All commands of a group by name, each made at its first use."""

    def __init__(self, group: type[LazyGroup]) -> None:
        self._group = group
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        # Made once, since typer resolves a command several times in one call.
        if name not in self._made:
            self._made[name] = _make_command(name, self._group.find_target(name).load())
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        try:
            self._group.find_target(str(name))
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._group.command_targets())

    def __len__(self) -> int:
        return len(self._group.command_targets())


def _make_command(name: str, found: Any) -> Any:
    """A function or a typer app as a command of that name."""
    holder = typer.Typer(rich_markup_mode=None, add_completion=False)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    command = typer.main.get_group(holder).commands[name]
    _speak_plainly(command)
    return command


_PLAIN = {"<str>": "TEXT", "<int>": "N", "<int range>": "N", "<float>": "NUMBER", "<float range>": "NUMBER"}
"""What Python calls a type, and what the help does."""


def _speak_plainly(command: Any) -> None:
    """Help names what is expected, not Python's types; of arguments their name is enough."""
    for inner in getattr(command, "commands", {}).values():
        _speak_plainly(inner)
    read_plainly(command)
    for parameter in command.params:
        word = parameter.display_type

        # Defaults bind the parameter of this turn; a plain closure would see the last one.
        def plain_word(
            ctx: Any, *, word: Any = word, names_itself: bool = parameter.metavar is not None
        ) -> str:
            text = str(word(ctx))
            return "" if names_itself else _PLAIN.get(text, text)

        parameter.display_type = plain_word


class LazyGroup(TyperGroup):
    """A group whose subclass lists its commands in `command_targets`."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands(type(self))  # type: ignore[assignment]  # nothing is ever added to it
        self._listing = False

    @classmethod
    def command_targets(cls) -> Mapping[str, Target]:
        """The commands by name, in the order of the help."""
        raise TypeError(f"{cls.__name__} lists no commands")

    @classmethod
    def help_sections(cls) -> Mapping[str, Sequence[str]]:
        """The commands by the title under which the help lists them."""
        return {"Commands": list(cls.command_targets())}

    @classmethod
    def find_target(cls, name: str) -> Target:
        """One of them; raises `KeyError`."""
        return cls.command_targets()[name]

    def list_commands(self, ctx: Any) -> list[str]:
        """Names, in the order of the help."""
        return list(self.command_targets())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command; while commands are only listed, its name and line."""
        if not self._listing or cmd_name not in self.commands:
            return super().get_command(ctx, cmd_name)
        line = self.find_target(cmd_name).line()
        if line:
            return TyperCommand(cmd_name, help=line)
        try:
            return super().get_command(ctx, cmd_name)
        except InputError as error:  # one broken package hides no other command
            return TyperCommand(cmd_name, help=str(error))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Their list in the help."""
        wide = max(map(len, self.list_commands(ctx)), default=0)
        # Each command's line is read from its source, as its module may take seconds to load.
        with self._only_listing():
            for title, names in self.help_sections().items():
                rows = [
                    (name.ljust(wide), self.get_command(ctx, name).get_short_help_str(66)) for name in names
                ]
                if rows:
                    with formatter.section(title):
                        formatter.write_dl(rows)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Names of commands that begin so."""
        with self._only_listing():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _only_listing(self) -> Iterator[None]:
        self._listing = True
        try:
            yield
        finally:
            self._listing = False
