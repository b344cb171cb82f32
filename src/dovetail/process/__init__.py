"""Processes of jobs: the supervisor that starts and outlives them, agents of nodes, spawn logs, channels."""
