"""Fill in the figures of the documentation from the commands that print them.

``python tools/figures.py PAGE…`` runs each command that a page marks and rewrites what stands below it, up to
``<!-- /figures -->``. What was measured live is not marked. A mark is one of::

    <!-- figures: dovetail split --tasks 9 … -->                          what it prints
    <!-- figures: dovetail reproduce NAME … | TITLE -->                   the table whose title begins so
    <!-- figures: dovetail reproduce NAME … | TITLE | column; column -->  some of its columns
    <!-- figures: dovetail … | .key | head=field:.2f; head=a.b -->        a row an entry of a list in its JSON

The field ``test`` of a claim has the tests under tests/studies that hold it, by their marks ``holds(STUDY,
TEXT…)``: TEXT begins the claim's; without any a test holds all of the study.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import shlex
import subprocess
import sys
import tempfile
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MARKED = re.compile(r"(?s)(<!-- figures: (dovetail .*?) -->\n).*?(<!-- /figures -->)")
PART = re.compile(r'(?s)<h2>([^<]*)</h2><div class="wide">(.*?)</div>(?:<p class="note">(.*?)</p>)?')


@cache
def printed(command: str) -> str:
    """What a command prints."""
    words = [str(Path(sys.executable).with_name("dovetail")), *shlex.split(command)[1:]]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def written(command: str, ending: str, kept: Path) -> str:
    """A file of the folder that a study writes; one run makes all of them."""
    folder = kept / re.sub(r"[^\w.=-]+", "_", command)
    if not folder.exists():
        printed(f"{command} --quiet --out {shlex.quote(str(folder))}")
    return next(folder.glob(f"*{ending}")).read_text(encoding="utf-8")


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def of_page(command: str, title: str, columns: list[str], kept: Path) -> str:
    """The table of a study's page whose title begins with these words, and its note."""
    page = written(command, ".html", kept)
    parts = {unescape(name): (body, note) for name, body, note in PART.findall(page)}
    found = [name for name in parts if re.match(rf"{re.escape(title)}(?!\w)", name)]
    if len(found) != 1:
        raise SystemExit(f"{command}: found {found}, expected one title {title!r} of {', '.join(parts)}")
    body, note = parts[found[0]]
    lines = [
        [unescape(cell).strip() for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line)]
        for line in re.findall(r"<tr.*?</tr>", body, re.DOTALL)
    ]
    places = [lines[0].index(column) for column in columns] or list(range(len(lines[0])))
    head, *rows = [[line[i] for i in places] for line in lines]
    return table(head, rows) + (f"\n{unescape(note)}\n" if note else "")


def of_json(command: str, key: str, columns: list[str], kept: Path) -> str:
    """A row for each entry of a list in a command's JSON; what an entry lacks is an empty cell."""
    study = command.startswith("dovetail reproduce ")
    said = json.loads(written(command, ".json", kept) if study else printed(f"{command} --json"))
    heads, fields = zip(*(column.split("=", 1) for column in columns), strict=True)
    entries = said[key] if key else said
    return table(list(heads), [[_cell(said, entry, field) for field in fields] for entry in entries])


def _cell(said: dict[str, Any], entry: dict[str, Any], field: str) -> str:
    if field == "test":
        return "<br>".join(f"`{name}`" for name in holding(said["study"], entry["text"]))
    path, _, form = field.partition(":")
    value: Any = entry
    for name in path.split("."):
        value = None if value is None else value.get(name)
    return "" if value is None else ", ".join(value) if isinstance(value, list) else format(value, form)


@cache
def held() -> tuple[tuple[str, str, str], ...]:
    """Study, beginning of a claim's text and test, for each mark ``holds``."""
    found = []
    for path in sorted((ROOT / "tests" / "studies").glob("test_*.py")):
        tests = ast.parse(path.read_text(encoding="utf-8")).body
        for test in (made for made in tests if isinstance(made, ast.FunctionDef)):
            for mark in test.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.holds":
                    study, *texts = (ast.literal_eval(one) for one in mark.args)
                    found += [(study, text, f"{path.name}::{test.name}") for text in texts or [""]]
    return tuple(found)


def holding(study: str, text: str) -> list[str]:
    """The tests that hold a claim."""
    return [test for own, beginning, test in held() if own == study and text.startswith(beginning)]


def refreshed(text: str, kept: Path, only: str = "") -> str:
    """A page with what its marked commands give now; ``kept`` has what the studies among them wrote."""

    def anew(match: re.Match[str]) -> str:
        command, *rest = (part.strip() for part in " ".join(match[2].split()).split(" | "))
        if only not in command:
            return match[0]
        print(command, *rest[:1], file=sys.stderr)
        columns = [column.strip() for column in rest[1].split(";")] if rest[1:] else []
        if not rest:
            body = "".join(f"    {line}".rstrip() + "\n" for line in printed(command).splitlines())
        elif rest[0].startswith("."):
            body = of_json(command, rest[0][1:], columns, kept)
        else:
            body = of_page(command, rest[0], columns, kept)
        return f"{match[1]}\n{body}\n{match[3]}"

    return MARKED.sub(anew, text)


def main() -> None:
    """Rewrite the pages."""
    parser = argparse.ArgumentParser(description="Fill in the figures of pages from the commands they mark.")
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--only", default="", metavar="TEXT", help="Only commands with this text.")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="Keep what studies write, or use it.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for page in options.pages:
            text = page.read_text(encoding="utf-8")
            page.write_text(refreshed(text, options.keep or Path(folder), options.only), encoding="utf-8")


if __name__ == "__main__":
    main()
