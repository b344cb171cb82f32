"""The options of ``#DOVETAIL`` lines in batch scripts: those of ``dovetail submit``, in Dovetail's units.

Lines of sbatch are read by `dovetail.workloads.batch`.
"""

from __future__ import annotations

import argparse
import shlex
from functools import cache
from typing import NoReturn

from dovetail.errors import InputError
from dovetail.spec.jobs import JOB, PartialSpec, read_texts


class _Refusing(argparse.ArgumentParser):
    # argparse prints its usage and ends the process, which no reader of a file may do.
    def error(self, message: str) -> NoReturn:
        raise InputError(message)


# Made once: a list may name thousands of scripts.
@cache
def _line_parser() -> _Refusing:
    """The options that mean something in a line of a script."""
    # No abbreviations: a script would change its meaning when an option is added.
    parser = _Refusing(add_help=False, allow_abbrev=False, prog="")
    for option in JOB:
        names = option.lines.split()
        # `value` is empty for flags, which take no word in such a line.
        if names and option.value:
            many = option.kind is not None and option.kind.many
            parser.add_argument(*names, dest=option.name, action="append" if many else "store")
        elif names:
            parser.add_argument(*names, dest=option.name, action="store_const", const=True)
    return parser


def read_own_line(text: str, where: str) -> PartialSpec:
    """What follows ``#DOVETAIL`` in a line, as a part of a spec. Raises `InputError`, with ``where``."""
    try:
        # `comments`: what follows # on the line is for people.
        options, rest = _line_parser().parse_known_args(shlex.split(text, comments=True))
    except (InputError, ValueError) as error:
        raise InputError(str(error), where=where) from None
    if rest:
        raise InputError(f"found {rest[0]!r}, expected an option of 'dovetail submit'", where=where)
    return read_texts({key: value for key, value in vars(options).items() if value is not None}, where)
