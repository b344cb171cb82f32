"""Make OpenCL work for the tests: PoCL from PyPI, or the system's where that is older than this CPU.

The PoCL that the wheel brings builds no program on a CPU that its LLVM does not know. Debian's newer one
(pocl-opencl-icd) does; the two do not share one process well, so the wheel's is then removed from this
environment. Without either, tests of OpenCL skip and say so. Prints one sentence if it changed anything.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ICD = Path("/etc/OpenCL/vendors/pocl.icd")
BUILD = """
import pyopencl as cl
source = "__kernel void nothing(__global int *a) { a[0] = 1; }"
for platform in cl.get_platforms():
    if "Portable" in platform.name:
        cl.Program(cl.Context(platform.get_devices()), source).build()
"""


def builds() -> bool:
    """Whether every PoCL here can build a program (asked in a process of its own: drivers crash)."""
    return subprocess.run([sys.executable, "-c", BUILD], capture_output=True, check=False).returncode == 0


def install_system_pocl() -> bool:
    """Install Debian's PoCL where that can be done without asking; whether it is there afterwards."""
    if not ICD.exists() and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": False}
        environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update"], env=environ, **quiet)  # type: ignore[call-overload]
        install = ["apt-get", "install", "-y", "--no-install-recommends", "pocl-opencl-icd"]
        subprocess.run(install, env=environ, **quiet)  # type: ignore[call-overload]
    return ICD.exists()


def main() -> None:
    """Try the wheel's PoCL, then the system's."""
    if builds():
        return
    if not install_system_pocl():
        print("OpenCL: the PoCL of the Python packages builds no program on this CPU; tests of it skip")
        return
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "uninstall", "-qy"]
    subprocess.run([*pip, "pocl-binary-distribution"], capture_output=True, check=False)
    works = "works" if builds() else "builds no program either"
    print(f"OpenCL: the wheel's PoCL is older than this CPU and was removed; the system's {works}")


if __name__ == "__main__":
    main()
