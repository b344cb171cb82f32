"""Running the real command in a process of its own, with a state folder of its own."""

from dovetail_command import dovetail, environment, state

__all__ = ["dovetail", "environment", "state"]
