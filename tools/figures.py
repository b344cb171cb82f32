"""Fill in the figures of the documentation from the commands that print them.

``python tools/figures.py PAGE…`` runs each command that a page marks and rewrites what stands below it, up to
``<!-- /figures -->``. What studies measure live (``--live``) is taken from tools/measured; ``--measure`` has
them run anew, on a machine and in an allocation as the page describes. A mark is one of::

    <!-- figures: dovetail split --tasks 9 … -->                          what it prints
    <!-- figures: dovetail reproduce NAME … | TITLE -->                   the table whose title begins so
    <!-- figures: dovetail reproduce NAME … | TITLE | column; column -->  some of its columns
    <!-- figures: dovetail … | .key | head=field:.2f; head=a.b -->        a row an entry of a list in its JSON

Fields of a claim beside those of its JSON: ``test`` has the tests under tests/studies that hold it, by their
marks ``holds(STUDY, TEXT…)``: TEXT begins the claim's; without any a test holds all of the study.
``reproduces`` is its verdict in words, ``command`` the study's, ``seconds`` what its run took: CPU seconds,
of live runs seconds of the clock; ``from`` what our figure is from.

Below a table of claims stands what it rests on, as two digests: of the study's own modules and data (comments
do not count; of a live table those that run and judge it), and of the schedules that the paper's workload
gets from its policies. ``--check`` names the tables of which one is not today's, with exit status 1.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from contextlib import suppress
from datetime import date
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import dovetail
from dovetail.process.channel import become_subreaper

ROOT = Path(__file__).resolve().parents[1]
LAB = ROOT / "packages" / "lab" / "src"
PLAYED: dict[str, tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...]] = {
    "gregg": (
        (
            "published:gregg-table2",
            {"cluster": "1x1cpu+1gpu"},
            ("history", "best-device", "gpu-only", "cpu-only", "history-guarded"),
        ),
    ),
    "ravi-single": (
        (
            "published:ravi-single",
            {"cluster": "1x8cpu+1gpu"},
            ("brr", "brr-dynamic", "asjf", "rsa", "rsc"),
        ),
    ),
    "ravi-multi": (
        (
            "published:ravi-multi",
            {"cluster": "16x8cpu+1gpu"},
            ("torque", "mct", "torque-plan", "fms", "fms-type", "fms-nodes", "fms-order"),
        ),
    ),
    "markthub": (("published:markthub?jobs=250", {}, ("fcfs", "rq", "mrq")),),
}
"""Workload, options and policies of `dovetail simulate`."""
PLAYED_SEEDS = range(1, 4)
SPLIT = {
    "shirahata": tuple(
        "dovetail split --tasks 4000 --cpu-slots 14 --gpu-slots 2 --cpu-time 77.4 --gpu-time 9.17 "
        f"--nodes {nodes} --json"
        for nodes in (1, 64)
    )
}
MEASURED = ROOT / "tools" / "measured"
LINGERS = 10.0
"""Seconds that a study's workers may take to end after it."""
LIVE = " --live"
SECONDS, RESTS = "seconds.txt", "rests.txt"
KEPT = (("seconds", SECONDS), ("rests", RESTS))
REPRODUCES = {
    "yes": "reproduces",
    "in direction only": "in direction only",
    "no": "does not",
    "open": "open",
    "not in the paper": "not in the paper",
}
CLAIMS = re.compile(
    r"(?s)<!-- figures: (dovetail reproduce (\S+)[^|]*?) \| \.claims \|.*?test=test -->\n(.*?)<!-- /figures"
)
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
    folder = kept / file_name(command)
    if not folder.exists():
        others, before = _children(), _used_by_children()
        printed(f"{command} --quiet --out {shlex.quote(str(folder))}")
        _wait_for_others(others)
        used = _used_by_children() - before
        (folder / SECONDS).write_text(f"{used:.0f} CPU\n", encoding="ascii")
        (folder / RESTS).write_text(f"{resting(command)}\n", encoding="ascii")
    return next(folder.glob(f"*{ending}")).read_text(encoding="utf-8")


def _used_by_children() -> float:
    """CPU seconds of all that this process has started, or adopted, and that has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _children() -> set[int]:
    found = (path.read_text(encoding="ascii").split() for path in Path("/proc/self/task").glob("*/children"))
    return {int(pid) for one in found for pid in one}


def _wait_for_others(known: set[int]) -> None:
    """Wait for children that have come since: a study's workers and their server outlive it by a moment."""
    deadline = time.monotonic() + LINGERS
    while (left := _children() - known) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)


def file_name(command: str) -> str:
    """The command as the name of a file."""
    return re.sub(r"[^\w.=-]+", "_", command)


def measure(command: str, kept: Path) -> None:
    """Run a live study, and keep what it found of its claims."""
    began = time.monotonic()
    found = json.loads(written(command, ".json", kept))
    about = {
        "command": command,
        "study": found["study"],
        "measured": date.today().isoformat(),
        "seconds": f"{time.monotonic() - began:.0f} clock",
        "rests": written(command, RESTS, kept).strip(),
        # It judges its study's simulated claims too, which stand in a table of their own.
        "claims": [claim for claim in found["claims"] if claim["text"].startswith("Live")],
    }
    MEASURED.mkdir(exist_ok=True)
    path = MEASURED / f"{file_name(command)}.json"
    path.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


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
    answer: Any
    if LIVE in command:
        answer = json.loads((MEASURED / f"{file_name(command)}.json").read_text(encoding="utf-8"))
    else:
        answer = json.loads(written(command, ".json", kept) if study else printed(f"{command} --json"))
        if study:
            about = {name: written(command, file, kept).strip() for name, file in KEPT}
            answer |= {"command": command, **about}
    heads, fields = zip(*(column.split("=", 1) for column in columns), strict=True)
    entries = answer[key] if key else answer
    body = table(list(heads), [[_cell(answer, entry, field) for field in fields] for entry in entries])
    # The digests of when it ran: what is kept may be of before a change.
    when = f"Measured on {answer['measured']}.\n\n" if "measured" in answer else ""
    return f"{body}\n{when}{answer['rests']}\n" if study and "test" in fields else body


def _cell(answer: dict[str, Any], entry: dict[str, Any], field: str) -> str:
    if field == "test":
        return "<br>".join(f"`{name}`" for name in holding(answer["study"], entry["text"]))
    if field == "from":  # the words of the page for what our figure is from
        return {"printed": "stored"}.get(entry["basis"], str(entry["basis"]))
    if field == "reproduces":
        return REPRODUCES[entry["verdict"]]
    if field == "command":
        return f"`{answer['command']}`"
    if field == "seconds":
        return str(answer["seconds"])
    path, _, form = field.partition(":")
    value: Any = entry
    for name in path.split("."):
        value = None if value is None else value.get(name)
    return "" if value is None else ", ".join(value) if isinstance(value, list) else format(value, form)


# --- what a table rests on ----------------------------------------------------------------------------------


def resting(command: str) -> str:
    """The line below a study's table of claims."""
    study = command.split()[2]
    return f"<!-- rests on: {own_digest(study, live=LIVE in command)} {schedules_digest(study)} -->"


def own_digest(study: str, *, live: bool = False) -> str:
    """Of the modules of the lab that a study imports, and of the data beside them.

    ``live``: only of those that run its live part and judge it, which know nothing of the simulated claims.
    """
    where = tomllib.loads((LAB.parent / "pyproject.toml").read_text(encoding="utf-8"))
    entry = where["project"]["entry-points"]["dovetail.studies"][study].partition(":")[0]
    if live:
        entry = f"{entry.rpartition('.')[0]}.live_claims"
        assert (LAB / Path(*entry.split("."))).with_suffix(".py").exists(), entry
    waiting, seen = [entry], dict[str, Path]()
    while waiting:
        name = waiting.pop()
        path = LAB / Path(*name.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if name in seen or not path.exists():
            continue
        seen[name] = path
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            waiting += [one for one in found if one.startswith("dovetail_lab")]
    data = sorted((LAB / "dovetail_lab" / "data").iterdir())
    return _digest([*(seen[name] for name in sorted(seen)), *data])


@cache
def schedules_digest(study: str) -> str:
    """Of the schedules that the paper's own workload gets from its policies, seed by seed, and of its splits.

    What a study is run on is the library: a change there counts where it changes one of these.
    """
    found = hashlib.blake2b(digest_size=6)
    for workload, options, policies in PLAYED.get(study, ()):
        for policy in policies:
            for seed in PLAYED_SEEDS:
                report = dovetail.simulate(workload, policy=policy, seed=seed, **options)
                for one in report.result.records:
                    nodes = () if one.allocation is None else tuple(one.allocation.nodes)
                    what = one.implementation and one.implementation.name
                    found.update(repr((one.job.id, what, one.start, one.end, nodes)).encode())
    for words in SPLIT.get(study, ()):
        found.update(printed(words).encode())
    return found.hexdigest()


class _SplitImports(ast.NodeTransformer):
    """Each name by itself: where the library keeps it, and beside which others, is no matter of a study."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.ImportFrom] | ast.ImportFrom:
        """The names of a module of the library, a line each."""
        if not (node.module or "").startswith("dovetail."):
            return node
        return [ast.ImportFrom("dovetail", [name], 0) for name in node.names]


def _digest(paths: list[Path]) -> str:
    found = hashlib.blake2b(digest_size=6)
    for path in paths:
        text = path.read_bytes()
        if path.suffix == ".py":  # what it does, whatever its comments and layout
            tree = ast.parse(text)
            tree = _SplitImports().visit(tree)
            for node in ast.walk(tree):
                body = getattr(node, "body", None)
                if not isinstance(body, list) or not body or not isinstance(body[0], ast.Expr):
                    continue
                if isinstance(body[0].value, ast.Constant) and isinstance(body[0].value.value, str):
                    body[0] = ast.Pass()
            # A name that moves to another module moves its line among the imports, too.
            tree.body.sort(key=lambda node: ast.unparse(node) if isinstance(node, ast.ImportFrom) else "~")
            text = ast.unparse(tree).encode()
        found.update(path.name.encode() + b"\0" + text + b"\0")
    return found.hexdigest()


def stale_tables(text: str, *, own: bool = False) -> list[str]:
    """The commands of the tables of claims that rest on something else than today; ``own``: of the study."""
    found = []
    for match in CLAIMS.finditer(text):
        study, line = match[2], re.search(r"<!-- rests on: (\w+) (\w+) -->", match[3])
        today = own_digest(study, live=LIVE in match[1]), "" if own else schedules_digest(study)
        if line is None or line[1] != today[0] or (not own and line[2] != today[1]):
            found.append(" ".join(match[1].split()))
    return found


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
    live = text.startswith("Live")
    return [
        test
        for own, beginning, test in held()
        if own == study and text.startswith(beginning) and (beginning or not live)
    ]


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
    parser.add_argument("--check", action="store_true", help="Only name the tables that are not of today.")
    parser.add_argument("--measure", action="store_true", help="Run what was measured live anew.")
    options = parser.parse_args()
    become_subreaper()  # a study's workers are children of a server, and would be adopted by init
    if options.check:
        stale = [one for page in options.pages for one in stale_tables(page.read_text(encoding="utf-8"))]
        print(*(f"rests on something else than today: {one}" for one in stale), sep="\n")
        sys.exit(bool(stale))
    with tempfile.TemporaryDirectory() as folder:
        for page in options.pages:
            text = page.read_text(encoding="utf-8")
            commands = {" ".join(match[2].split()).partition(" | ")[0] for match in MARKED.finditer(text)}
            for command in sorted(commands) if options.measure else ():
                if LIVE in command and options.only in command:
                    measure(command, options.keep or Path(folder))
            page.write_text(refreshed(text, options.keep or Path(folder), options.only), encoding="utf-8")


if __name__ == "__main__":
    main()
