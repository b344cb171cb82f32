"""The decision core, and what drives it: simulation, this machine, a journal."""
