"""Devices of other nodes for jobs: who has which, and how it moves home."""
