"""Searches over arrays, in plain Python: the specification of what `dovetail.native` does compiled."""
