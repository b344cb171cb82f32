"""Dovetail beneath programs that people have; each module needs the one that it is named after."""
