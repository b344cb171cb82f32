"""Slurm's commands: what they get and print, also where they take their time."""

from __future__ import annotations

from dovetail_slurm import commands


def test_a_slow_command_has_its_input_once() -> None:
    """A controller that is busy lets sbatch wait for longer than the pause between two looks."""
    assert commands.run_command(["sh", "-c", "sleep 1.1; cat"], stdin="#!/bin/sh\ntrue\n") == (
        "#!/bin/sh\ntrue\n",
        "",
    )
