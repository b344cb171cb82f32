"""How the site is made (`make docs`): Sphinx reads the pages as they lie here, and adds the references.

The pages stay plain Markdown that reads well in the repository. What Sphinx needs beyond that is added while
it reads: the tree of pages from the links of `index.md`, and the places of links that leave this folder.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_site"))

PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
project = "Dovetail"
author = "The Dovetail authors"
copyright = author  # noqa: A001 - as Sphinx calls it
release = version = PROJECT["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "_site", "reference/schemas/README.md"]
myst_heading_anchors = 6
myst_links_external_new_tab = False
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
default_role = "py:obj"  # `names` in docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_default_options = {"exclude-members": "__init__, __new__"}
highlight_language = "text"

html_theme = "furo"
html_title = f"Dovetail {release}"
html_copy_source = False
html_show_sphinx = False
html_static_path: list[str] = []
templates_path = ["_site/templates"]
html_context = {"versions": os.environ.get("DOVETAIL_SITE_VERSIONS", "").split()}
"""Versions whose sites lie beside this one (`tools/site.py`); each page links their start pages."""
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "versions.html",
        "sidebar/scroll-end.html",
    ]
}

LINK = re.compile(r"(!?\[[^\]]*\])\((?!https?:|mailto:|#)([^)\s]+)\)")
URLS = PROJECT.get("urls", {})
REPOSITORY = URLS.get("Source") or URLS.get("Repository") or "https://github.com/dovetail-scheduler/dovetail"
"""Where files lie that are no pages: examples, the licence."""


def setup(app: Any) -> None:
    """Make the references, then read."""
    app.connect("builder-inited", lambda app: _references())
    app.connect("source-read", _as_sphinx_has_it)


def _references() -> None:
    import reference

    reference.write(HERE / "generated")


def _as_sphinx_has_it(app: Any, page: str, source: list[str]) -> None:
    """A page with its tree (of `index`), and with links that lead somewhere from the site."""
    text = source[0]
    if page == "index":
        text += _tree(text)
    if page == "decisions/index":
        text += _toctree("", ["*"], "   :glob:\n   :maxdepth: 1\n")
    if page == "generated/commands":
        text += _toctree("", ["commands/*"], "   :glob:\n   :hidden:\n   :maxdepth: 1\n")
    source[0] = LINK.sub(lambda found: f"{found[1]}({_place(page, found[2])})", text)


def _place(page: str, link: str) -> str:
    """Where a link leads: a page, a file beside the pages, else the repository."""
    path, mark, anchor = link.partition("#")
    found = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    if found.startswith("..") or (HERE / found).is_dir():
        if (HERE / found / "index.md").exists():
            return posixpath.join(path, "index.md")
        there = posixpath.normpath(posixpath.join("docs", found))
        return f"{REPOSITORY}/blob/main/{there}"
    return path + mark + anchor


def _tree(text: str) -> str:
    """The pages that `index.md` links, under its headings in bold."""
    found = ""
    for part in re.split(r"^\*\*", text, flags=re.MULTILINE)[1:]:
        caption = part.partition("**")[0]
        pages = [link.removesuffix(".md") for _, link in LINK.findall(part) if link.endswith(".md")]
        pages = [page for page in dict.fromkeys(pages) if not page.startswith("..")]
        made = ("commands", "options", "http", "python")
        extra = [f"generated/{name}" for name in made] if caption == "Reference" else []
        found += _toctree(caption, [*pages, *extra], "   :hidden:\n   :maxdepth: 1\n")
    return found


def _toctree(caption: str, pages: list[str], options: str) -> str:
    named = f"   :caption: {caption}\n" if caption else ""
    listed = "".join(f"   {page}\n" for page in pages)
    return f"\n\n```{{eval-rst}}\n.. toctree::\n{named}{options}\n{listed}```\n"
