"""The variables that a job takes along from its submission: ``--export`` and ``--export-file``."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

ALWAYS = ("SLURM_", "SPANK_")
"""Variables that always go along, by the beginning of their names."""
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


def exported_environment(environ: Mapping[str, str], export: str) -> dict[str, str]:
    """What of ``environ`` a job gets: ``ALL``, ``NONE``, ``NIL``, or names and ``NAME=VALUE``, in order.

    Without ``ALL`` it also gets the few variables of a plain login (`login_variables`): no program finds
    anything without a PATH.

    >>> exported_environment({"A": "1", "B": "2"}, "ALL,B=3,C=4")
    {'A': '1', 'B': '3', 'C': '4'}
    """
    if export.upper() == "ALL":
        return dict(environ)
    found = {} if _all_in(export) else login_variables()
    found |= {name: value for name, value in environ.items() if name.startswith(ALWAYS)}
    if export.upper() in ("NONE", "NIL"):
        return found
    for part in split_list(export):
        name, equals, value = part.partition("=")
        if part.upper() == "ALL":
            found |= environ
        elif equals:
            found[name] = value
        elif name in environ:
            found[name] = environ[name]
    return found


def _all_in(export: str) -> bool:
    return any(part.upper() == "ALL" for part in split_list(export))


def is_plain(export: str) -> bool:
    """Whether the environment of the submission is left behind."""
    return not _all_in(export)


def split_list(text: str) -> list[str]:
    """The parts between commas that stand in no quotes; single quotes around a value are left out.

    >>> split_list("A,B='x,y'")
    ['A', 'B=x,y']
    """
    parts, quoted = [""], False
    for character in text:
        if character == "'":
            quoted = not quoted
        elif character == "," and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part]


def login_variables() -> dict[str, str]:
    """HOME, USER, LOGNAME, SHELL and PATH of the user of this process, as a login begins with them."""
    entry = pwd.getpwuid(os.getuid())
    return {
        "HOME": entry.pw_dir,
        "USER": entry.pw_name,
        "LOGNAME": entry.pw_name,
        "SHELL": entry.pw_shell or "/bin/sh",
        "PATH": PATH,
    }


def read_export_file(path: str) -> dict[str, str]:
    """``NAME=VALUE``, each followed by a null character. Raises `OSError`, `ValueError`."""
    if path.isdecimal():
        raise ValueError(f"found the descriptor {path}, expected the path of a file")
    found = {}
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    for part in text.split("\0"):
        name, equals, value = part.strip("\n").partition("=")
        if name and not equals:
            raise ValueError(f"found {name[:40]!r}, expected NAME=VALUE with null characters between them")
        if name:
            found[name] = value
    return found
