"""Pages that are made from the program itself: its commands, its HTTP API, its Python modules.

Run by Sphinx (`conf.py`); also by hand: ``python docs/_site/reference.py FOLDER``. With ``--glossary`` for a
folder it adds what the glossary lacks.
"""

from __future__ import annotations

import inspect
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import typer.main
from typer._click.core import Context  # the classes that typer brings (docs/decisions/004)

MODULES = {
    "dovetail": "What a script needs.",
    "dovetail.errors": "What is raised.",
    "dovetail.interfaces": "What a plugin implements: policies, models, executors, readers.",
    "dovetail.model": "The words that all parts share: jobs, clusters, decisions, events, results.",
    "dovetail.testing.invariants": "The checker that every schedule of the tests passes.",
    "dovetail.testing.conformance": "Suites that a plugin passes: subclass one in your tests.",
}
"""Modules of the Python reference, and what each is for."""


def write(folder: Path) -> None:
    """Write all pages into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {**commands(), "options": options(), "http": http(), "python": python()}
    for old in sorted({*folder.rglob("*.md")} - {folder / f"{name}.md" for name in pages}):
        old.unlink()  # a command that has gone leaves no page
    for name, page in pages.items():
        path = folder / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != page:  # else everything is made anew
            path.write_text(page, encoding="utf-8")


def walk(command: Any, context: Any) -> Iterator[tuple[Any, Any]]:
    """A command and all below it, each with its context, in the order of the help."""
    yield command, context
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        below = command.get_command(context, name)
        yield from walk(below, Context(below, info_name=name, parent=context))


def whole() -> tuple[Any, Any]:
    """The command ``dovetail`` and its context."""
    from dovetail.cli.main import app

    command = typer.main.get_command(app)
    return command, Context(cast(Any, command), info_name="dovetail")


def commands() -> dict[str, str]:
    """The reference of the command line: a page for each command, and one that lists them."""
    pages: dict[str, list[str]] = {}
    rows = []
    for command, context in walk(*whole()):
        if context.parent is None or command.hidden:
            continue
        name = context.command_path.split(" ")[1]
        pages.setdefault(f"commands/{name}", []).append(_section(command, context))
        if context.command_path.count(" ") == 1:
            first = _cell(_prose(command.help).partition("\n\n")[0])
            rows.append(f"| [{context.command_path}](commands/{name}.md) | {first} |\n")
    listed = (
        "# Every command\n\nWhat each command does; its page has its options, as `--help` shows them.\n\n"
        f"    $ dovetail run --help\n\n| command | |\n|---|---|\n{''.join(rows)}"
    )
    return {"commands": listed} | {name: "\n".join(parts) for name, parts in pages.items()}


def _section(command: Any, context: Any) -> str:
    """A command (or one below it): what it does, how it is typed, its options and examples."""
    from dovetail.cli.examples import EXAMPLES

    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    depth = context.command_path.count(" ")
    about = re.sub(r"^ +", "    ", _prose(command.help), flags=re.MULTILINE)
    parts = [f"{'#' * depth} {context.command_path}\n\n{about}\n\n    {usage}\n"]
    rows = [row for row in (_row(one, context) for one in command.params) if row]
    if rows:
        parts.append("| option | |\n|---|---|\n" + "\n".join(rows) + "\n")
    examples = EXAMPLES.get(command.name, ()) if depth == 1 else ()
    if examples:
        lines = "\n".join(f"$ {one}" for one in examples).split("\n")
        parts.append("Examples:\n\n" + "\n".join(f"    {line}" for line in lines) + "\n")
    return "\n".join(parts)


def options() -> str:
    """The options of a job, and how each is spelt where it may be said."""
    from dovetail.spec.jobs import JOB
    from dovetail.workloads.jobfile_schema import AppEntry, ImplementationEntry

    entries = {"[[app]]": AppEntry, "[[app.implementation]]": ImplementationEntry}
    rows = []
    for option in JOB:
        files = [f"[[job]] {option.file}"] if option.file else []
        files += [table for table, entry in entries.items() if option.file in entry.model_fields]
        taken = [name for name in ("run", "submit") if name in option.commands]
        spelt = " ".join(option.spellings) if taken else ""
        spelt += f" ({taken[0]} alone)" if len(taken) == 1 else ""
        python = option.http if option.python else ""
        cells = (option.name, spelt, option.lines, option.http, python, " ".join(files))
        ends = ("" if one is None else f"{one:,}" for one in (option.least, option.most))
        limits = " to ".join(end for end in ends if end)
        shown = " | ".join(f"`{cell}`" if cell else "" for cell in cells)
        limits = f"more than {limits}" if option.above else limits
        rows.append(f"| {shown} | {option.value_unit} | {limits} | {_cell(option.about or option.help)} |\n")
    return (
        "# Every option of a job\n\nOne specification has all that a job may have; this page, the commands, "
        "the lines of scripts, job files, the HTTP form and their schemas are made from it.\n\n"
        "    $ dovetail submit --help\n\n"
        "| option | `dovetail run`, `submit` | `#DOVETAIL`, `#SBATCH` | HTTP | `Client` | job file | unit "
        "| limits | |\n" + "|---|---|---|---|---|---|---|---|---|\n" + "".join(rows)
    )


def _row(parameter: Any, context: Any) -> str:
    record = parameter.get_help_record(context)
    bar = "\\|"
    return (
        ""
        if record is None or "--help" in parameter.opts
        else f"| `{record[0].replace('|', bar)}` | {_cell(record[1])} |"
    )


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").replace("*", "\\*")


def _prose(text: str | None) -> str:
    return (text or "").replace("``", "`").strip()


def http() -> str:
    """The reference of the service's HTTP API, from its own description (OpenAPI)."""
    from dovetail.service.core import Service
    from dovetail.service.gate import Sessions
    from dovetail.service.routes import application
    from dovetail.service.tokens import Tokens

    with tempfile.TemporaryDirectory() as folder:
        tokens = Tokens(Path(folder) / "tokens.json")
        described = application(cast("Service", None), Sessions(tokens), tokens).openapi()
    parts = [
        "# Every route of the HTTP API\n\nWhat the service's own description says (`GET /openapi.json`). "
        "[The HTTP API](../reference/service-api.md) says what it means. To fetch the description:\n\n"
        "    $ curl --unix-socket SOCKET http://localhost/openapi.json\n"
    ]
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            parts.append(
                f"## {method.upper()} {path}\n\n{_prose(route.get('description') or route['summary'])}\n"
            )
            given = {one["name"]: one["schema"] | one for one in route.get("parameters", ())}
            if given:
                parts.append(f"In the path or the query:\n\n{_fields({'properties': given})}")
            bodies = route.get("requestBody", {}).get("content", {}).values()
            parts += [f"The body:\n\n{_fields(body['schema'])}" for body in bodies]
    parts.append("## What bodies hold\n")
    for name, schema in described["components"]["schemas"].items():
        parts.append(f"### {name}\n\n{_prose(schema.get('description'))}\n\n{_fields(schema)}")
    return "\n".join(parts)


def _fields(schema: Mapping[str, Any]) -> str:
    rows = [
        f"| `{field}` | {_kind(one)} | {_cell(one.get('description', ''))} |\n"
        for field, one in schema.get("properties", {}).items()
    ]
    return "| field | type | |\n|---|---|---|\n" + "".join(rows) if rows else f"{_kind(schema)}.\n"


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def python() -> str:
    """The reference of the Python modules: directives that Sphinx fills with the docstrings."""
    parts = [
        "# Every name of the Python API\n\nWhat the docstrings say. For use, with output, see "
        "[Python and notebooks](../reference/python.md). In an interpreter:\n\n"
        '    $ python -c "import dovetail; help(dovetail.simulate)"\n'
    ]
    shown: set[int] = set()
    for name, about in MODULES.items():
        module = __import__(name, fromlist=["__all__"])
        parts.append(f"## {name}\n\n{about}\n")
        for one in sorted(module.__all__, key=str.lower):
            made = getattr(module, one)
            kind = "autoclass" if isinstance(made, type) else "autofunction" if callable(made) else "autodata"
            members = "   :members:\n" if kind == "autoclass" else ""
            members += "   :no-index:\n" if id(made) in shown else ""  # under its first name alone
            shown.add(id(made))
            parts.append(f"```{{eval-rst}}\n.. {kind}:: {name}.{one}\n{members}```\n")
    return "\n".join(parts)


def glossary(page: str) -> str:
    """The glossary with a row for every name of the model and the interfaces; rows that are there stay."""
    for module in ("dovetail.model", "dovetail.interfaces"):
        made = __import__(module, fromlist=["__all__"])
        head, table, rest = re.split(
            rf"(?<=\(`{module}`\))(.*?\n\| --- \| --- \|\n)", page, maxsplit=1, flags=re.DOTALL
        )
        body, gap, after = rest.partition("\n\n")
        rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", body, re.MULTILINE))
        names = [one for one in made.__all__ if isinstance(getattr(made, one), type) and one not in PLAIN]
        lines = (inspect.getdoc(getattr(made, one)) or "" for one in names)
        said = {one: _cell(line.partition("\n")[0]) for one, line in zip(names, lines, strict=True)}
        found = [f"| `{one}` | {rows.get(one, said[one])} |" for one in sorted(names)]
        page = head + table + "\n".join(found) + gap + after
    return page if page.endswith("\n") else page + "\n"


PLAIN = ("JobId", "Seconds")
"""Names of plain types, of which the glossary tells in a sentence."""

if __name__ == "__main__":
    if sys.argv[1:] == ["--glossary"]:
        path = Path(__file__).parents[1] / "glossary.md"
        path.write_text(glossary(path.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        write(Path(sys.argv[1]))
