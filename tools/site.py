"""Build the site of each released version and of the working tree, side by side: `make site`.

Each version is built by its own `docs/conf.py` from its own tag, in a worktree that is removed again; the
start page leads to the newest. No server is needed: the versions link each other by relative paths.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)")
NEXT = "next"
"""The folder of the working tree's site."""


def list_releases(tags: str) -> list[str]:
    """Versions of the tags `vX.Y.Z` in git's output, newest first; other tags are no releases."""
    found = [match for tag in tags.split() if (match := RELEASE.fullmatch(tag))]
    ordered = sorted(found, key=lambda match: tuple(map(int, match.groups())), reverse=True)
    return [match[0].removeprefix("v") for match in ordered]


def build_version(tree: Path, out: Path, versions: list[str]) -> None:
    """Build one version's pages from its tree; a warning is an error."""
    subprocess.run(
        [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "-b", "html", "docs", str(out)],
        cwd=tree,
        env={**os.environ, "DOVETAIL_SITE_VERSIONS": " ".join(versions)},
        check=True,
    )


def write_start_page(out: Path, newest: str) -> None:
    """Write a page that leads to the newest version's start page."""
    target = f"{newest}/index.html"
    (out / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>Dovetail</title>'
        f'<meta http-equiv="refresh" content="0; url={target}"><a href="{target}">{newest}</a>\n',
        encoding="utf-8",
    )


def main() -> None:
    """Build everything into a folder, by default `build/versions`."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "versions").resolve()
    tags = subprocess.run(["git", "tag"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    releases = list_releases(tags)
    versions = [NEXT, *releases]
    out.mkdir(parents=True, exist_ok=True)
    build_version(ROOT, out / NEXT, versions)
    for release in releases:
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "tree"
            subprocess.run(
                ["git", "worktree", "add", "-q", "--detach", tree, f"v{release}"], cwd=ROOT, check=True
            )
            try:
                build_version(tree, out / release, versions)
            finally:
                subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
    write_start_page(out, versions[1] if releases else NEXT)
    print(out / "index.html")


if __name__ == "__main__":
    main()
