"""Whether a job has failed because its device had too little memory: by its last words.

A framework has words of its own for it, at the end of what it writes to standard error. A person's own
pattern is a regular expression in the job's environment, ``DOVETAIL_OUT_OF_MEMORY``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

PATTERN = "DOVETAIL_OUT_OF_MEMORY"
"""Name of the variable with a person's own pattern."""
TAIL = 16 << 10
"""Bytes at the end of standard error that are looked at."""
WORDS: Mapping[str, re.Pattern[str]] = {
    "torch": re.compile(
        r"(?:torch[\w.]*\.)?OutOfMemoryError: (?:CUDA|HIP|XPU) out of memory|CUDA out of memory\. Tried"
    ),
    "JAX": re.compile(r"RESOURCE_EXHAUSTED: (?:Out of memory|.*(?:allocat|out of memory))", re.IGNORECASE),
    "TensorFlow": re.compile(r"ResourceExhaustedError|OOM when allocating tensor"),
    "CuPy": re.compile(r"cupy[\w.]*\.OutOfMemoryError|OutOfMemoryError: Out of memory allocating"),
    "CUDA": re.compile(
        r"cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY"
        r"|CUDA(?: runtime| driver)? error[^\n]*out of memory"
        r"|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED",
        re.IGNORECASE,
    ),
    "HIP": re.compile(
        r"hipErrorOutOfMemory|hipErrorMemoryAllocation|HIP error[^\n]*out of memory", re.IGNORECASE
    ),
    "OpenCL": re.compile(r"CL_MEM_OBJECT_ALLOCATION_FAILURE|CL_OUT_OF_RESOURCES"),
}
"""Words of frameworks, most particular first."""


def last_words(path: str) -> str:
    """The end of what a job wrote there; empty where it cannot be read."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - TAIL))
            return file.read(TAIL).decode("utf-8", "replace")
    except OSError:
        return ""


def who_lacks_memory(text: str, own: str = "") -> str:
    """The framework whose words mean that its device has too little memory; empty where there is none.

    ``own`` is a further regular expression; one that is none counts as if it were not there.

    >>> who_lacks_memory("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
    'torch'
    >>> who_lacks_memory("arena exhausted", own="arena exhausted"), who_lacks_memory("segmentation fault")
    ('its own words', '')
    """
    if own:
        try:
            if re.search(own, text):
                return "its own words"
        except re.error:
            own = ""
    return next((name for name, pattern in WORDS.items() if pattern.search(text)), "")
