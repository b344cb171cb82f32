"""Packs of moldable tasks (Aupy 2013), and what beats them: one algorithm per file, over arrays.

Everywhere ``times`` is float64 of shape ``(n, p)``: ``times[i, j - 1]`` is the seconds of task ``i`` on
``j`` processors.  ``dovetail_lab.packing.registry.solve`` runs an algorithm by its name.
"""

from pathlib import Path

from dovetail_lab.stale import forget_stale

forget_stale(Path(__file__).parent)
