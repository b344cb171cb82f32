"""Links lead somewhere, what pages show can be typed, and the site is made of all pages."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dovetail_command import run_command
from shown_commands import blocks, shown

from dovetail.cli import examples
from dovetail.cli.main import _Dovetail, status_of
from dovetail.testing.builders import full

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in DOCS.rglob("*.md") if not page.is_relative_to(DOCS / "generated")),
]
READ = [page for page in PAGES if not page.is_relative_to(DOCS / "decisions")]
EXAMPLES = sorted((ROOT / "examples").rglob("*.md"))
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links, as forges make them."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"(?ms)^```.*?^```", "", page.read_text()), flags=re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head) for head in heads]
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in plain}


def test_the_readme_works_in_a_clone_and_on_an_index(tmp_path: Path) -> None:
    """Its links lead to our files; in what is built they are absolute; it is one screen."""
    page = (ROOT / "README.md").read_text()
    source = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    ours = [path for path, _ in LINK.findall(page)]
    assert len(ours) > 5
    assert len(page.splitlines()) <= 60
    build = [sys.executable, "-m", "hatchling", "metadata"]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    built = json.loads(done.stdout)["readme"]["text"]
    assert not LINK.findall(built)
    assert set(ours) == set(re.findall(rf"\]\({source}/(?:blob|raw)/main/([^)\s]+)\)", built))


def of(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


@of(PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    for place, anchor in LINK.findall(page.read_text()):
        target = page.parent / place if place else page
        assert target.exists(), place
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{place}#{anchor}"


@of([page for page in READ if page.name != "index.md"])
def test_a_page_opens_with_what_it_is_for_and_something_to_copy(page: Path) -> None:
    opening = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[0]
    heading, _, said = opening.partition("\n")
    assert heading.startswith("# ")
    assert said.strip()[0].isupper() or said.strip()[0] in "*`["
    assert blocks(opening), "no block of code before the second heading"


def test_every_page_is_in_the_index() -> None:
    """From it Sphinx makes the tree of the site."""
    linked = {place for place, _ in LINK.findall((DOCS / "index.md").read_text())}
    pages = {str(page.relative_to(DOCS)) for page in READ if page.is_relative_to(DOCS)}
    assert pages - {"index.md"} <= linked


@pytest.fixture(scope="module")
def reference() -> Any:
    spec = importlib.util.spec_from_file_location("reference", DOCS / "_site" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parsed(reference: Any, words: list[str]) -> None:
    """Read a command line as the command does; raises what it says of a wrong one."""
    command, context = reference.whole()
    while True:
        _, rest, _ = command.make_parser(context).parse_args(list(words))
        if not hasattr(command, "list_commands") or not rest:
            return
        name, *words = rest
        assert command.get_command(context, name) is not None, f"no command {name}"
        command = command.get_command(context, name)
        context = reference.Context(command, info_name=name, parent=context)


@of([*PAGES, *EXAMPLES])
def test_every_command_that_a_page_shows_can_be_typed(page: Path, reference: Any) -> None:
    for words in shown(page):
        parsed(reference, words)


def test_commands_are_found_and_wrong_ones_refused(reference: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Say `dovetail runs`.\n\n    $ dovetail queue --json | jq .  # all\n\n```\ndovetail info\n```\n"
    )
    assert sorted(shown(page)) == [["info"], ["queue", "--json"], ["runs"]]
    for wrong in (["quue"], ["queue", "--jsn"], ["history", "lst"]):
        with pytest.raises(Exception, match=r"no command|No such option|--json"):
            parsed(reference, wrong)


@pytest.mark.parametrize("name", sorted({*_Dovetail.own, *examples.EXAMPLES}))
def test_the_examples_of_a_commands_help_can_be_typed(
    name: str, reference: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert status_of([name, "--help"]) == 0
    shown_there = capsys.readouterr().out.splitlines()
    for line in examples.EXAMPLES[name]:
        assert {f"    {part}" for part in line.split("\n")} <= set(shown_there)
        assert line.startswith(f"dovetail {name}")
        words = shlex.split(line.replace("\\\n", " "))[1:]
        parsed(reference, words[: words.index("--")] if "--" in words else words)


def test_the_references_have_everything(reference: Any) -> None:
    pages, routes, names = reference.commands(), reference.http(), reference.python()
    assert "| `walltime` |" in reference.options()
    for command, context in reference.walk(*reference.whole()):
        if context.parent is not None and not command.hidden:
            page = f"commands/{context.command_path.split()[1]}"
            assert f"# {context.command_path}\n" in pages[page]
            assert f"({page}.md)" in pages["commands"]
    assert "`--policy NAME[?OPTION=VALUE]`" in pages["commands/simulate"]
    assert "## POST /api/v1/jobs" in routes
    assert "dovetail.simulate" in names


def sample() -> Iterator[tuple[str, ...]]:
    """Commands in the blocks and texts of all pages that run in `stranger`, and end by themselves."""
    alone = {"devices", "explain", "history list", "policies", "replay last", "runs"}
    able = {"compare", "simulate", "split"}
    here = ("commands.txt", "jobs.toml", "trace.swf.gz", "last", "published:", "synthetic:", "--tasks")
    elsewhere = ("--executor", "service:", "mine.py", "newest.py", "…")  # tests of their own run these
    for page in READ:
        for words in shown(page):
            line = " ".join(words)
            known = line in alone or (line.split(" ")[0] in able and "".join(words[1:2]).startswith(here))
            if known and not any(part in line for part in elsewhere):
                yield tuple(words)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder with the files that pages speak of, after a first run."""
    folder = tmp_path_factory.mktemp("stranger")
    command = "python train.py --device {device} --rows 1e6\n"
    (folder / "commands.txt").write_text(command * 2)
    (folder / "train.py").write_text("pass\n")
    (folder / "jobs.toml").write_text(
        '[[app]]\nname = "x"\nimplementation = [{ name = "cpu" }, { name = "gpu" }]\n'
        '[[job]]\napp = "x"\ntimes = { cpu = 3.0, gpu = 1.0 }\n'
    )
    log = "".join(f"{i} {i * 60} 0 50 1 -1 -1 1 60 -1 1 1 1 1 1 1 -1 -1\n" for i in range(1, 40))
    (folder / "trace.swf.gz").write_bytes(gzip.compress(log.encode()))
    (folder / "shortest.py").write_bytes((ROOT / "examples" / "policy" / "shortest.py").read_bytes())
    (folder / "cluster.toml").write_text('[[node]]\nname = "n[0-3]"\ncpus = 4\ngpus = 1\n')
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = run_command(["run", "commands.txt"], folder, environment)
    assert done.returncode == 0, done.stderr
    return folder, environment


@pytest.mark.skipif(not full(1, 0), reason="runs what all pages show: `make test-all`")
@pytest.mark.parametrize("words", list(dict.fromkeys(sample())), ids=shlex.join)
def test_what_pages_show_runs(stranger: tuple[Path, dict[str, str]], words: tuple[str, ...]) -> None:
    folder, environment = stranger
    done = run_command(words, folder, environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not full(1, 0), reason="builds the site: `make test-all`")
def test_the_site_is_made_without_a_warning_and_a_wrong_link_ends_it(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="`make docs` installs what the site needs")
    pytest.importorskip("myst_parser", reason="`make docs` installs what the site needs")

    def build(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
        where = ["-d", str(tmp_path / "trees"), "-b", "html", str(DOCS), str(tmp_path / "site")]
        return subprocess.run(
            [*command, *where, *more], capture_output=True, text=True, check=False, timeout=250,
            env={**os.environ, "DOVETAIL_SITE_VERSIONS": "0.0.9 0.1.0"},
        )  # fmt: skip

    done = build()
    assert (done.returncode, done.stderr) == (0, "")
    for page in (
        "index",
        "generated/commands",
        "generated/commands/submit",
        "generated/options",
        "generated/http",
        "generated/python",
        "search",
        "decisions/index",
    ):
        assert (tmp_path / "site" / f"{page}.html").exists()
    python = (tmp_path / "site" / "generated" / "python.html").read_text()
    assert "Simulate a workload under a policy." in python
    assert (
        "../../../0.0.9/index.html"
        in (tmp_path / "site" / "generated" / "commands" / "submit.html").read_text()
    )
    assert "--walltime" in (tmp_path / "site" / "searchindex.js").read_text()
    generated = DOCS / "generated" / "wrong.md"
    generated.write_text("---\norphan: true\n---\n# Wrong\n\n[nowhere](../nowhere.md)\n")
    try:
        assert build().returncode != 0
    finally:
        generated.unlink()


@pytest.mark.parametrize(
    ("tags", "versions"),
    [
        ("v0.9.0\nv0.10.0\nv0.10.0rc1\nnightly\n", ["0.10.0", "0.9.0"]),
        ("", []),
    ],
)
def test_releases_are_versions_of_the_site_newest_first(
    tags: str, versions: list[str], tmp_path: Path
) -> None:
    spec = importlib.util.spec_from_file_location("site_tool", ROOT / "tools" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.list_releases(tags) == versions
    newest = versions[0] if versions else "next"
    module.write_start_page(tmp_path, newest)
    assert f'url={newest}/index.html"' in (tmp_path / "index.html").read_text()


def test_the_glossary_has_every_name_of_interfaces_and_model(reference: Any) -> None:
    page = (DOCS / "glossary.md").read_text()
    assert reference.glossary(page) == page, "python docs/_site/reference.py --glossary adds what is missing"
    without = "".join(line for line in page.splitlines(True) if "| `Allocation` |" not in line)
    assert "| `Allocation` | Parts of disjoint" in reference.glossary(without)
