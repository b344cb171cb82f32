"""Builders, invariant checkers and conformance suites, for these tests and for plugins."""
