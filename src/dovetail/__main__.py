"""``python -m dovetail``: the command, where its script is not on the path."""

from dovetail.cli.main import run_cli

run_cli()
