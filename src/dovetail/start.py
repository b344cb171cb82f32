"""The first lines of the command: an interrupt while modules are being loaded ends it quietly."""

import sys


def main() -> None:
    """Load the command line, and leave with its exit status; 130 where Ctrl-C comes before it is loaded."""
    try:
        from dovetail.cli.main import run_cli
    except KeyboardInterrupt:
        sys.exit(130)
    run_cli()
