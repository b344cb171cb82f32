"""A made-up carrier under the name of Lupine: server, client library, and a program that knows CUDA only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["SUPPORT", "build_library", "carrying_environment"]

SUPPORT = Path(__file__).parent / "carrier"
PROGRAM = '''
"""Knows CUDA and nothing of Dovetail: bytes to each borrowed device and back, so many times."""
import ctypes, json, os, sys, time

steps, out = int(sys.argv[1]), sys.argv[2]
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuMemcpyHtoD_v2.argtypes = [ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t]
cuda.cuMemcpyDtoH_v2.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_size_t]
if cuda.cuInit(0):
    sys.exit("no server")
count = ctypes.c_int()
cuda.cuDeviceGetCount(ctypes.byref(count))
names = []
for d in range(count.value):
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, 256, d)
    names.append(name.value.decode())
open(out + ".began", "w").close()
for k in range(steps):
    for d, name in enumerate(names):
        if name.startswith("own"):
            continue
        cuda.cuCtxSetCurrent(ctypes.c_void_p(d + 1))
        address, data, back = ctypes.c_uint64(), bytes([k % 256]) * 1000, ctypes.create_string_buffer(1000)
        if cuda.cuMemAlloc_v2(ctypes.byref(address), 1000) or cuda.cuMemcpyHtoD_v2(address, data, 1000):
            sys.exit("the server is gone")
        if cuda.cuMemcpyDtoH_v2(back, address, 1000) or back.raw != data:
            sys.exit("other bytes came back")
    time.sleep(0.02)
for _ in range(3000 if out == "long.json" else 0):  # on a busy machine the wide one may begin late
    if os.path.exists("wide.json.began"):
        break
    time.sleep(0.02)
said = {n: os.environ.get(n) for n in ("LUPINE_SERVER", "LUPINE_DISABLE_LOCAL", "CUDA_VISIBLE_DEVICES")}
with open(out, "w") as file:
    json.dump({"names": names, **said}, file)
'''


def build_library(folder: Path) -> Path:
    """The folder, with the client library in it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler is here, for a client library")
    out = folder / "libcuda.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(out), str(SUPPORT / "libcuda.c")],
        check=True,
    )
    return folder


def carrying_environment(folder: Path, library: Path) -> dict[str, str]:
    """Write the program and the server into a folder; the variables of a Dovetail that lends through it."""
    (folder / "program.py").write_text(PROGRAM)
    (folder / "bin").mkdir()
    server = folder / "bin" / "lupine_driver_server"
    server.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SUPPORT / "server.py"}" "$@"\n')
    server.chmod(0o755)
    (folder / "driver").mkdir()  # what a node with a GPU has of its own
    shutil.copy(library / "libcuda.so.1", folder / "driver")
    return {
        "PATH": f"{server.parent}{os.pathsep}{os.environ['PATH']}",
        "LUPINE_LIBDIR": str(library),
        "LD_LIBRARY_PATH": str(folder / "driver"),
    }
