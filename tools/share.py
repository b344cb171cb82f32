"""Man pages and shell completions, made from the commands themselves.

    python tools/share.py [FOLDER]        # default: build/share, from where wheels take them

`make dist` has it do so before it builds.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer import completion

from dovetail import __version__
from dovetail.cli.completing import VARIABLE
from dovetail.cli.examples import EXAMPLES
from dovetail.cli.main import _whole_command

EXIT_STATUS = (
    "0 all well; 1 some job failed; 2 the input or the use was wrong; 3 an internal error; 130 interrupted."
)
SHELLS = {
    "bash": "bash-completion/completions/dovetail",
    "zsh": "zsh/site-functions/_dovetail",
    "fish": "fish/vendor_completions.d/dovetail.fish",
}


def escaped(text: str) -> str:
    """Text as roff takes it: no line of it is a request, hyphens stay hyphens."""
    lines = text.replace("\\", "\\\\").replace("-", "\\-").split("\n")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in lines)


def page(command: Any, words: list[str]) -> str:
    """The man page of a command; of a group with a list of its commands."""
    context = command.make_context(words[-1], [], resilient_parsing=True)
    title = "-".join(words)
    text = (command.help or "").replace("\b", "").strip()
    first, _, rest = text.partition("\n")
    usage = " ".join([*words, *command.collect_usage_pieces(context)])
    parts = [
        f'.TH "{title.upper()}" 1 "" "Dovetail {__version__}" "Dovetail"',
        ".SH NAME",
        f"{escaped(title)} \\- {escaped(first.rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {escaped(usage)}",
        ".SH DESCRIPTION",
        escaped(text if rest else first),
    ]
    records = [one for one in (param.get_help_record(context) for param in command.params) if one]
    if records:
        parts.append(".SH OPTIONS")
        for names, about in records:
            parts += [".TP", f".B {escaped(names)}", escaped(" ".join(about.split()))]
    examples = EXAMPLES.get(words[-1], ()) if len(words) == 2 else ()
    if examples:
        parts += [".SH EXAMPLES", ".nf", *map(escaped, examples), ".fi"]
    commands = getattr(command, "commands", {})
    if commands:
        parts.append(".SH COMMANDS")
        for name in commands:
            parts += [".TP", f".B {escaped(name)}", escaped(commands[name].get_short_help_str(200))]
    return "\n".join([*parts, ".SH EXIT STATUS", EXIT_STATUS]) + "\n"


def pages() -> Iterator[tuple[str, str]]:
    """(file name, text) of each page: ``dovetail.1``, and one for each command of ours."""
    whole = _whole_command()
    own = {name: whole.commands[name] for name in type(whole).own}
    top = page(_only(whole, own), ["dovetail"])
    yield "dovetail.1", top
    for name, command in own.items():
        yield f"dovetail-{name}.1", page(command, ["dovetail", name])


def _only(whole: Any, own: dict[str, Any]) -> Any:
    """The group without what other packages add here."""
    whole.commands = own
    return whole


def write(folder: Path) -> None:
    """Everything, anew."""
    manual = folder / "man" / "man1"
    shutil.rmtree(folder / "man", ignore_errors=True)
    manual.mkdir(parents=True)
    for name, text in pages():
        (manual / name).write_text(text)
    for shell, place in SHELLS.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script(shell))


def script(shell: str) -> str:
    """What a shell has to read so that it completes ``dovetail``."""
    return (
        str(completion.get_completion_script(prog_name="dovetail", complete_var=VARIABLE, shell=shell)) + "\n"
    )


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "build/share"))
