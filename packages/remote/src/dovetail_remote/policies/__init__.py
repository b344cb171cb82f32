"""Policies that borrow devices of other nodes (Markthub 2015)."""
