"""What a set-up needs of the system, found out by doing it: a C compiler that links, a kernel that runs.

    python3 tools/needs.py compiler     at first: the package's C and PoCL's kernels need it
    .venv/bin/python tools/needs.py     afterwards: is the C compiled, does an OpenCL kernel run?

As root on Debian what lacks is installed; elsewhere one line names the command that installs it, and the
set-up goes on: Dovetail is complete without either, tests of them skip, and the demo takes two devices
without OpenCL.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

COMPILER = ("gcc", "libc6-dev")
POCL = ("pocl-opencl-icd",)
"""Debian's packages."""
PROGRAM = "#include <math.h>\nint main(int n, char **words) { return (int)sin(n - 1.0); }\n"


def say(line: str) -> None:
    """One line of the set-up."""
    print(f"setup: {line}", flush=True)


def install(*packages: str) -> bool:
    """Install packages of Debian where that can be done without asking; whether it came to its end."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    say(f"installing {' '.join(packages)}")
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["apt-get", *words], env=environ, capture_output=True, text=True, check=False)

    run("update", "-q")  # without it, what is known of packages may do
    done = run("install", "-qy", "--no-install-recommends", *packages)
    if done.returncode:
        say(f"apt-get: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    return done.returncode == 0


def command(*packages: str) -> str:
    """What a person types instead."""
    return f"apt-get install -y {' '.join(packages)}"


def compiles() -> bool:
    """Whether a program in C can be compiled, linked and run here."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        source, made = os.path.join(folder, "a.c"), os.path.join(folder, "a")
        with open(source, "w", encoding="ascii") as file:
            file.write(PROGRAM)
        words = [compiler, source, "-o", made, "-lm"]
        return not subprocess.run(words, capture_output=True, check=False).returncode and not (
            subprocess.run([made], check=False).returncode
        )


def need_compiler() -> None:
    """Have a C compiler, or name the command that brings one."""
    if not compiles() and not (install(*COMPILER) and compiles()):
        say(f"no C compiler works here: searches are slower, PoCL links no kernel: {command(*COMPILER)}")


def kernel_problem() -> str:
    """Why no kernel of OpenCL runs here; empty if one does."""
    from dovetail.local.discovery import take_inventory

    found = take_inventory(120.0, ("opencl",))
    if any(not device.broken for device in found.devices):
        return ""
    return "; ".join([*(device.note for device in found.devices), *(probe.reason for probe in found.missing)])


def need_opencl() -> None:
    """Have a PoCL that works: the wheel's, else Debian's, which knows newer CPUs.

    The two do not share one process well, so the wheel's is then removed from this environment.
    """
    problem = kernel_problem()
    if problem and install(*POCL):
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "uninstall", "-qy"]
        subprocess.run([*pip, "pocl-binary-distribution"], capture_output=True, check=False)
        problem = kernel_problem()
        if not problem:
            say("the PoCL of the Python packages does not work here and was removed; the system's does")
    if problem:
        say(f"OpenCL: {problem}; its tests skip ({command(*COMPILER, *POCL)})")


def need_native() -> None:
    """Say where the package's own C was not compiled."""
    from dovetail.native.library import load_library

    if load_library() is None:
        say("the package's C is not compiled: large simulations and searches are slower")


def main(words: Sequence[str]) -> None:
    """What can be found out before the installation, or after it."""
    if list(words) == ["compiler"]:
        need_compiler()
    else:
        need_native()
        need_opencl()


if __name__ == "__main__":
    main(sys.argv[1:])
