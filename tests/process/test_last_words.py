"""Last words of programs: which mean that a device had too little memory, and which do not.

The words are those of messages that people report of these programs, cut down to what is recognised.
"""

from __future__ import annotations

import pytest

from dovetail.process.device_memory import WORDS, who_lacks_memory

LACKS = [
    ("torch", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 192.00 MiB (GPU 0;"),
    ("torch", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 16.00 GiB."),
    ("torch", "RuntimeError: CUDA out of memory. Tried to allocate 92.00 MiB (GPU 0;"),
    ("torch", "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB."),
    ("torch", "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)"),
    ("torch", "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 8.00 GiB"),
    ("CUDA", "torch.AcceleratorError: CUDA error: out of memory"),
    ("CUDA", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ("vLLM", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"),
    ("vLLM", "ValueError: Free memory on device (5/79 GiB) is less than desired GPU memory utilization (0.9"),
    ("vLLM", "ERROR 10-25 13:08:43 [core.py:708] ValueError: No available memory for the cache blocks. "),
    ("vLLM", "ValueError: 8.0 GiB KV cache is needed, which is larger than the available KV cache memory"),
    ("Paddle", "ResourceExhaustedError: \n\nOut of memory error on GPU 0. Cannot allocate 98 MB"),
    ("TensorFlow", "errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[128]"),
    ("TensorFlow", "ResourceExhaustedError: Graph execution error:\n\nOOM when allocating tensor"),
    ("TensorFlow", "ResourceExhaustedError: failed to allocate memory [Op:AddV2]"),
    ("JAX", "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate"),
    ("JAX", "XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 2.99GiB"),
    ("JAX", "RuntimeError: Resource exhausted: Out of memory while trying to allocate 24 bytes."),
    ("CuPy", "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 25,600,000 bytes (allocated"),
    ("CuPy", "OutOfMemoryError: out of memory to allocate 1200000000 bytes (total 7204800000 bytes)"),
    ("Julia", "ERROR: LoadError: Out of GPU memory trying to allocate 4.000 GiB"),
    ("CUDA", "ERROR: LoadError: CUDA error: out of memory (code #2, ERROR_OUT_OF_MEMORY)"),
    ("CUDA", "ERROR: LoadError: cudnnFindConvolutionForwardAlgorithm: 2: CUDNN_STATUS_ALLOC_FAILED"),
    ("CUDA", "CUFFTError(code 2, cuFFT failed to allocate GPU or CPU memory)"),
    ("CUDA", "alloc_buffer: allocating 144.00 MiB on device 4: cudaMalloc failed: out of memory"),
    ("llama.cpp", "llama_model_load: error loading model: unable to allocate CUDA0 buffer"),
    ("llama.cpp", "ggml_gallocr_reserve_n: failed to allocate ROCm1 buffer of size 150995968"),
    ("CUDA", "CUDA error 2 at ggml-cuda.cu:359: out of memory"),
    ("Vulkan", "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory"),
    ("CUDA", "[11:41:11] pooled_storage_manager.h:108: cudaMalloc failed: out of memory"),
    ("CUDA", "MXNetError: cudaMalloc retry failed: out of memory"),
    ("CUDA", "VM:392:494 [2] enqueue.cc:43 NCCL WARN Cuda failure 'out of memory'"),
    ("CUDA", "RuntimeError: Triton Error [CUDA]: out of memory"),
    ("CUDA", "CUDA error at main.cu:31 code=2(cudaErrorMemoryAllocation) \"cudaMalloc(&x, n)\""),
    ("CUDA", "GPUassert: out of memory main.cu 31"),
    ("CUDA", "CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY"),
    ("CUDA", "terminate called after throwing an instance of 'std::bad_alloc' cudaErrorMemoryAllocation"),
    ("CUDA", "[ERROR] ../rtSafe/safeRuntime.cpp (25) - Cuda Error in allocate: 2 (out of memory)"),
    ("TensorRT", "[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::145] Error Code 2: OutOfMemory (no"),
    ("ONNX Runtime", "BFCArena::AllocateRawInternal(size_t) Failed to allocate memory for requested buffer"),
    ("HIP", "error: 'hipErrorOutOfMemory'(2) at square.cpp:76"),
    ("HIP", "ERROR: HIPError(code hipErrorOutOfMemory, out of memory)"),
    ("HIP", "ROCm error: out of memory"),
    ("OpenCL", "OpenCL error: CL_MEM_OBJECT_ALLOCATION_FAILURE"),
    ("OpenCL", "pyopencl._cl.MemoryError: clEnqueueNDRangeKernel failed: MEM_OBJECT_ALLOCATION_FAILURE"),
    ("SYCL", "Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"),
]  # fmt: skip
CAUGHT = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'


@pytest.mark.parametrize(("who", "words"), LACKS)
def test_words_of_want_of_memory(who: str, words: str) -> None:
    after = '\nTraceback (most recent call last):\n  File "run", line 8\nChildFailedError: train.py FAILED\n'
    for text in (words, f"step 3\n{words}\n", f"{words}\n[bt] (0) libmxnet.so(+0x28965c)\n", words + after):
        assert who_lacks_memory(text) == who


def test_every_framework_of_the_list_is_tested() -> None:
    assert {who for who, _ in LACKS} == set(WORDS)


@pytest.mark.parametrize(
    "words",
    [
        "retrying without OOM",
        "set --batch 4 if you see CUDA out of memory",
        "WARNING: CUDA out of memory. Tried to allocate 2.00 GiB; batch of 64 becomes 32",
        "2026-11-28 12:00:00 | WARNING | train | RuntimeError: CUDA out of memory. Tried to allocate 2 GiB",
        "trainer.py:3: UserWarning: CUDA out of memory. Tried to allocate 2.00 GiB",
        "INFO:root:CUDA out of memory. Tried to allocate 2.00 GiB",
        "CUDA out of memory. Tried to allocate 2.00 GiB. Retrying with half the batch",
        "caught RuntimeError: CUDA out of memory, skipping batch",
        "12:00: E stream_executor/cuda/cuda_driver.cc:924] failed to allocate 2.44G (2617515264 bytes) from "
        "device: CUDA_ERROR_OUT_OF_MEMORY",
        "12:00: W core/common_runtime/bfc_allocator.cc:246] Allocator (GPU_0_bfc) ran out of memory "
        "trying to allocate 2.20GiB",
        "12:00: W core/framework/op_kernel.cc:1763] Resource exhausted: OOM when allocating tensor",
        "W1128 12:00:00.000000 7 x.cc:3] CUDA error: out of memory",
        "[TRT] [W] Requested amount of GPU memory (17179869184 bytes) could not be allocated.",
        "ResourceExhaustedError: OOM when allocating tensor with shape[16] on /device:CPU:0 by allocator cpu",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: /tmp/x; No space left on device",
        "grpc RESOURCE_EXHAUSTED: Received message larger than max (5 vs. 4)",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 65538",
        "RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory",
        "ggml_cuda_host_malloc: failed to allocate 1900.00 MiB of pinned memory: invalid argument",
        "CL_OUT_OF_HOST_MEMORY",
        "java.lang.OutOfMemoryError: Java heap space",
        "CUDA error: an illegal memory access was encountered",
        "Segmentation fault (core dumped)",
    ],
)  # fmt: skip
def test_words_that_mean_something_else(words: str) -> None:
    assert who_lacks_memory(f"step 3\n{words}\n") == ""


def test_an_error_that_was_caught_is_not_the_end() -> None:
    """By its chain it is the cause all the same, and a launcher's own error says nothing of its programs."""
    mistake = f"{TRACEBACK}KeyError: 'loss'\n"
    assert who_lacks_memory(f"{CAUGHT}\nstep 4\n{mistake}") == ""
    assert who_lacks_memory(f"{CAUGHT}\nstep 4\nloss: KeyError: 'loss'\n") == "torch"
    chain = "\nDuring handling of the above exception, another exception occurred:\n\n"
    assert who_lacks_memory(f"{TRACEBACK}{CAUGHT}\n{chain}{mistake}") == "torch"
    launcher = f"{TRACEBACK}torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    assert who_lacks_memory(f"{TRACEBACK}{CAUGHT}\n{launcher}") == "torch"
    assert who_lacks_memory(f"{mistake}step 4\n{TRACEBACK}{CAUGHT}\n") == "torch"


def test_a_persons_own_pattern_counts_wherever_it_is_found() -> None:
    assert who_lacks_memory("WARNING: arena 3 exhausted", own="arena .* exhausted") == "its own words"
    assert who_lacks_memory(CAUGHT, own="arena (") == "torch"
