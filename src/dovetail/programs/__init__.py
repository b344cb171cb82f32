"""Which program a command runs, beneath interpreters, wrappers and shell words."""
