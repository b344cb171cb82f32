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
WORDS: Mapping[str, str] = {
    "torch": (
        r"Error: (?:CUDA|HIP|XPU) out of memory|(?:CUDA|HIP|XPU) out of memory\. Tried"
        r"|Allocation on device \d+ would exceed allowed memory"
    ),
    "vLLM": (
        r"No available memory for the cache blocks|is less than desired GPU memory utilization"
        r"|larger than the available KV cache memory"
        r"|larger than the maximum number of tokens that can be stored in KV cache"
    ),
    "Paddle": r"Out of memory error on GPU \d",
    "TensorFlow": (r"(?i)ResourceExhaustedError:[^\n]*(?:allocat|out of memory)|OOM when allocating tensor"),
    "JAX": (r"(?i)RESOURCE[_ ]EXHAUSTED: [^\n]*(?:allocat|out of memory)"),
    "CuPy": (r"(?i)cupy[\w.]*\.OutOfMemoryError|out of memory (?:allocating|to allocate) [\d,]+ bytes \("),
    "Julia": r"Out of GPU memory|OutOfGPUMemoryError",
    "llama.cpp": (
        r"(?:unable|failed) to allocate (?:compute )?(?:CUDA|ROCm|Vulkan|SYCL|MUSA)\d+ (?:\w+ )?buffer"
    ),
    "ONNX Runtime": r"BFCArena[^\n]*Failed to allocate memory for requested buffer",
    "TensorRT": r"Error Code 2: OutOfMemory",
    "HIP": (
        r"(?i)hipErrorOutOfMemory|hipErrorMemoryAllocation|(?:HIP|ROCm)(?: runtime)? error[^\n]*out of memory"
        r"|hipMalloc\w*[^\n]*out of memory|HSA_STATUS_ERROR_OUT_OF_RESOURCES"
    ),
    "CUDA": (
        r"(?i)cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY"
        r"|CUDA(?: runtime| driver)? (?:error|failure)[^\n]*out of memory"
        r"|(?:cudaMalloc|cuMemAlloc)\w*[^\n]*out of memory|Triton Error \[CUDA\]: out of memory"
        r"|GPUassert: out of memory"
        r"|CU(?:BLAS|DNN|SPARSE|SOLVER)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED|cuFFT failed to allocate"
    ),
    "Vulkan": r"VK_ERROR_OUT_OF_DEVICE_MEMORY|ErrorOutOfDeviceMemory",
    "SYCL": r"(?:ZE_RESULT|UR_RESULT|PI)_ERROR_OUT_OF_DEVICE_MEMORY",
    "OpenCL": r"MEM_OBJECT_ALLOCATION_FAILURE|\b(?:CL_)?OUT_OF_RESOURCES\b",
}
"""Words of frameworks, most particular first; compiled where a job has failed, which few runs need."""
_PASSING = (
    # A level below an error: of logging, of glog (W1128 …), of TensorFlow (: W core/…), of TensorRT ([W]).
    # NCCL has no other level.
    r"(?:^|[\s\[(|])(?:[A-Z]?[a-z]*[Ww]arning|(?<!NCCL )WARN(?:ING)?|INFO|DEBUG)(?=[\s\]):|]|$)"
    r"|^[IW]\d{4} |: [IW] |\[[IW]\]"
    # What goes on by itself. TensorFlow requests less and less until it gets it.
    r"|\b(?i:retrying|trying again|will retry|skipping|recover\w*|fall(?:s|ing)? back|ignor(?:ed|ing))\b"
    r"|failed to allocate [^\n]* from device:"
    # Memory of the host.
    r"|device:CPU:\d"
)
"""On the line of such words: they mean no end of the program, or another memory."""
_MISTAKE = (
    r"(?:\[rank\d+\]: )?(?:(?:Assertion|Attribute|FileNotFound|Import|Index|Key|ModuleNotFound|Name"
    r"|Permission|Syntax|Type|UnboundLocal|ZeroDivision)Error|KeyboardInterrupt)\b"
)
"""Errors of Python that want of memory does not raise."""
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")


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

    ``own`` is a further regular expression; one that is none counts as if it were not there. Words of a
    warning, of an error that the program caught, or about memory of the host do not count.

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
    return next((name for name, pattern in WORDS.items() if _ends_by(pattern, text)), "")


def _ends_by(pattern: str, text: str) -> bool:
    """Whether such words stand there as the end of the program."""
    return any(
        not re.search(_PASSING, _line_at(text, found.start())) and not _has_gone_on(text[found.end() :])
        for found in re.finditer(pattern, text)
    )


def _line_at(text: str, place: int) -> str:
    end = text.find("\n", place)
    return text[text.rfind("\n", 0, place) + 1 : len(text) if end < 0 else end]


def _has_gone_on(rest: str) -> bool:
    """Whether the program caught the error, and ended later by a mistake of its own."""
    if "Traceback (most recent call last):" not in rest or any(words in rest for words in _CHAINED):
        return False
    lines = [line for line in rest.splitlines() if line.strip()]
    return re.match(_MISTAKE, lines[-1]) is not None
