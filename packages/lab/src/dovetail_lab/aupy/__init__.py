"""Aupy 2013, co-scheduling algorithms for high-throughput workload execution: packs of moldable tasks."""
