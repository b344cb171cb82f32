"""Where every shim begins: its module, and what becomes of errors."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

from dovetail_slurm.shims.options import Wrong, write_complaint

COMMANDS = ("sbatch", "srun", "scancel", "squeue", "sacct", "scontrol", "sinfo", "sacctmgr", "sshare")
VERSION = "slurm 22.05.8"
"""Of which the forms are; some programs look at it."""


def main(command: str, service: str = "") -> NoReturn:
    """Run a command with this process's words, and end with its status."""
    # A tenth of a call's time: dataclasses imports it, for classes without a docstring alone.
    sys.modules.setdefault("inspect", _Later("inspect"))
    sys.exit(status_of(command, service, sys.argv[1:]))


class _Later(ModuleType):
    """Stands for a module until something of it is used: what imports it is not held up."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def status_of(command: str, service: str, words: list[str]) -> int:
    """Run a command; its exit status."""
    from dovetail_slurm.shims.service import Refused

    try:
        if words[:1] in (["--version"], ["-V"]):
            print(VERSION)
            return 0
        found = import_module(f"dovetail_slurm.shims.{command}").run(words, service)
        sys.stdout.flush()
        return int(found)
    except Wrong as error:
        sys.stdout.flush()
        write_complaint(*error.lines)
        return _status_of_error(command, error.status)
    except Refused as error:
        write_complaint(f"{command}: error: {error.text}")
        return _status_of_error(command, 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _status_of_error(command: str, status: int) -> int:
    """That of ``SLURM_EXIT_ERROR`` where sbatch or srun could not do it; wrong options keep their own."""
    given = os.environ.get("SLURM_EXIT_ERROR", "")
    if command not in ("sbatch", "srun") or status != 1 or not (given.isascii() and given.isdecimal()):
        return status
    return int(given[-9:]) % 256 or status
