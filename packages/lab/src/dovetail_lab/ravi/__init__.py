"""Ravi 2012, scheduling concurrent applications on a cluster of CPU-GPU nodes."""
