"""``python -m dovetail``: the command, where its script is not on the path."""

from dovetail.start import main

main()
