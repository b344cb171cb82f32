"""The first lines of the command: an interrupt wherever nothing else takes it ends it quietly."""

import sys


def main() -> None:
    """Load the command line, and leave with its exit status; 130 where Ctrl-C comes before it is loaded."""
    try:
        from dovetail.cli.main import run_cli

        # Within the block, since commands read their words, and load what that needs, before they begin.
        run_cli()
    except KeyboardInterrupt:
        sys.exit(130)
