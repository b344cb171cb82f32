"""Backends that run jobs for real."""
