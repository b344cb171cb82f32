"""Write the tables of sbatch's options and variables into the page for people who come from Slurm.

The tables are made from `dovetail.spec.sbatch`:

    python tools/slurm_tables.py [PAGE]
"""

from __future__ import annotations

import sys
from pathlib import Path

from dovetail.spec.sbatch import INPUT_VARIABLES, SBATCH_OPTIONS, SBATCH_VARIABLES, ScriptOption

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "coming-from-slurm.md"
BEGIN, END = "<!-- tables of dovetail.spec.sbatch: begin -->", "<!-- tables of dovetail.spec.sbatch: end -->"


def names_of(option: ScriptOption) -> str:
    """``-c, --cpus-per-task``, with its aliases."""
    letters = [f"-{option.short}"] if option.short else []
    return ", ".join(
        f"`{name}`" for name in (*letters, f"--{option.name}", *(f"--{a}" for a in option.aliases))
    )


def tables() -> str:
    """The three tables as Markdown."""
    rows = ["| Option | Variable | Here | What becomes of it |", "|---|---|---|---|"]
    for option in SBATCH_OPTIONS:
        variables = ", ".join(f"`{name}`" for name in option.variables)
        meaning = option.meaning.replace("|", "\\|")
        rows.append(f"| {names_of(option)} | {variables} | {option.treatment} | {meaning} |")
    rows += ["", "| Variable of the submission | Here | What becomes of it |", "|---|---|---|"]
    rows += [f"| `{one.name}` | {one.treatment} | {one.meaning} |" for one in INPUT_VARIABLES]
    rows += ["", "| Variable of a job | Set | Value |", "|---|---|---|"]
    for one in SBATCH_VARIABLES:
        when = {"": "always", "never": "never"}.get(one.set_if, f"with {one.set_if}")
        rows.append(f"| `{one.name}` | {when} | {one.meaning} |")
    return "\n".join(rows)


def with_tables(page: str) -> str:
    """The page with the tables of today between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def main() -> None:
    """Rewrite the page that is given, or ours."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    path.write_text(with_tables(path.read_text()))


if __name__ == "__main__":
    main()
