"""The first lines of the command: an interrupt wherever nothing else takes it ends it quietly."""

import os
import sys

from dovetail.files.garbage import no_collections


def open_standard_streams() -> None:
    """Open the null device where standard input, output or error is closed.

    Else a database would get that number, and what is written to standard error would go into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            # It stays open as long as the process, as those that Python opens itself.
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def main() -> None:
    """Load the command line, and leave with its exit status; 130 where Ctrl-C comes before it is loaded."""
    open_standard_streams()
    try:
        with no_collections():  # what modules make stays; to search it takes a tenth of the time of loading
            from dovetail.cli.main import run_cli

        # Within the block, since commands read their words, and load what that needs, before they begin.
        run_cli()
    except KeyboardInterrupt:
        sys.exit(130)
