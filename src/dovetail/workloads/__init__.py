"""Readers of jobs: job files, command lists, traces, published tables, synthetic."""
