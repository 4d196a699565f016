# SPDX-License-Identifier: BSD-3-Clause
"""What this machine can do at most: streams through memory, and products."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

BYTES = 256 << 20
STAGGER = 1_234_944
ROUNDS = 7
PRODUCT, SMALL_PRODUCT = 2048, 256
LONGEST_PRODUCT = 2.0  # seconds: without instructions for its dtype a large one takes minutes

# Loops that nothing but memory holds back. Stores that bypass the caches do not read the line
# they write.
SOURCE = r"""
#if defined(__AVX512F__) || defined(__AVX__)
#include <immintrin.h>
#define STREAM(to, value) _mm256_stream_ps(to, value)
#define LOAD(from) _mm256_load_ps(from)
#define ADD(x, y) _mm256_add_ps(x, y)
#define STORE(to, value) _mm256_store_ps(to, value)
#define ZERO _mm256_setzero_ps()
typedef __m256 vec;
#else
typedef float vec __attribute__((vector_size(32)));
#define STREAM(to, value) *(vec*)(to) = value
#define STORE STREAM
#define LOAD(from) *(const vec*)(from)
#define ADD(x, y) (x + y)
#define ZERO (vec){}
#endif
extern "C" {
void copy(float* to, const float* a, const float*, const float*, long n) {
  for (long i = 0; i < n; i += 8) STREAM(to + i, LOAD(a + i));
}
void add(float* to, const float* a, const float* b, const float*, long n) {
  for (long i = 0; i < n; i += 8) STREAM(to + i, ADD(LOAD(a + i), LOAD(b + i)));
}
void read(float* to, const float* a, const float* b, const float*, long n) {
  vec sum = ZERO, other = ZERO;
  for (long i = 0; i < n; i += 8) {
    sum = ADD(sum, LOAD(a + i));
    other = ADD(other, LOAD(b + i));
  }
  STORE(to, ADD(sum, other));
}
void update(float* p, float* m, float* v, const float* g, long n) {
  for (long i = 0; i < n; i += 8) {
    vec step = LOAD(g + i);
    STORE(m + i, ADD(LOAD(m + i), step));
    STORE(v + i, ADD(LOAD(v + i), step));
    STORE(p + i, ADD(LOAD(p + i), step));
  }
}
}
"""

# Bytes that move for each byte of an array.
STREAMS = {"copy": 2, "add": 3, "read": 2, "update": 7}


def cores() -> int:
    return len(os.sched_getaffinity(0))


def cache_bytes() -> int:
    """The size of the last cache that memory traffic has to leave behind; 0 if unknown."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    scale = {"K": 1 << 10, "M": 1 << 20}
    texts = [path.read_text().strip() for path in sizes]
    return max((int(text[:-1]) * scale.get(text[-1], 0) for text in texts), default=0)


def processor() -> str:
    """Name, family and model: some names are those of several generations."""
    names = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        names.setdefault(key.strip(), value.strip())
    if "cpu family" not in names:
        return names.get("model name", "unknown")
    return f"{names['model name']}, family {names['cpu family']} model {names['model']}"


def shortest(call: Callable[[], object]) -> float:
    """The shortest of some calls after one that warms up: a limit, not a typical time."""
    call()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def compile_library(source: str) -> ctypes.CDLL | None:
    """C++ code, compiled for this processor. None where there is no compiler."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        code, library = Path(folder, "code.cpp"), Path(folder, "code.so")
        code.write_text(source)
        flags = ["-O3", "-march=native", "-shared", "-fPIC"]
        done = subprocess.run([compiler, *flags, "-o", library, code], capture_output=True)
        return None if done.returncode else ctypes.CDLL(str(library))


def compile_streams() -> dict[str, Callable[..., object]] | None:
    """The loops of SOURCE: function(four addresses, elements). None where there is no compiler."""
    library = compile_library(SOURCE)
    if library is None:
        return None
    functions = {name: library[name] for name in STREAMS}
    for function in functions.values():
        function.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long]
        function.restype = None
    return functions


def huge_arrays(count: int, size: int = BYTES) -> list[torch.Tensor]:
    """Arrays in huge pages, all of them written: pages that are not would be one page of zeros.

    Their distance is no power of two: streams in step would meet in the same sets of the caches.
    """
    stride = size + STAGGER
    memory = mmap.mmap(-1, count * stride)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    everything = torch.frombuffer(memory, dtype=torch.float32).fill_(1.0)
    return list(everything.view(count, stride // 4)[:, : size // 4])


def run_on_threads(
    pool: ThreadPoolExecutor, function: Callable[..., object], pointers: list[int], share: int
) -> None:
    """Calls the function on every core, with each array's next `share` bytes."""
    cores_used = range(cores())
    calls = [pool.submit(function, *(p + i * share for p in pointers)) for i in cores_used]
    for call in calls:
        call.result()


class Update:
    """The stream `update` over so many bytes of traffic: what a step of Adam moves, and no more.
    Several passes go over the same memory.

    Raises:
        RuntimeError: there is no compiler.
    """

    def __init__(self, traffic: int, passes: int = 1) -> None:
        streams = compile_streams()
        if streams is None:
            raise RuntimeError("the streams need a C++ compiler (CXX)")
        self._passes = passes
        self._share = traffic // passes // STREAMS["update"] // cores() // 64 * 64
        self._arrays = huge_arrays(4, self._share * cores())
        self._pool = ThreadPoolExecutor(cores())
        self._function = streams["update"]

    def _update(self, *starts: int) -> None:
        self._function(*starts, self._share // 4)

    def __call__(self) -> list[torch.Tensor]:
        pointers = [array.data_ptr() for array in self._arrays]
        for _ in range(self._passes):
            run_on_threads(self._pool, self._update, pointers, self._share)
        return []


def bandwidths() -> dict[str, float]:
    """Bytes per second of the streams, each with a thread on every core."""
    threads = cores()
    arrays = huge_arrays(4)
    share = BYTES // threads // 64 * 64
    memcpy = ctypes.CDLL(None).memcpy
    memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    memcpy.restype = ctypes.c_void_p
    pointers = [array.data_ptr() for array in arrays]

    with ThreadPoolExecutor(threads) as pool:
        moved = share * threads

        def copy(to: int, source: int) -> None:
            memcpy(to, source, share)

        seconds = shortest(lambda: run_on_threads(pool, copy, pointers[:2], share))
        result = {"memcpy": 2 * moved / seconds}
        streams = compile_streams() or {}
        for name, function in streams.items():

            def stream(*starts: int, function: Callable[..., object] = function) -> None:
                function(*starts, share // 4)

            seconds = shortest(lambda stream=stream: run_on_threads(pool, stream, pointers, share))
            result[name] = STREAMS[name] * moved / seconds
    return result


def product_rates() -> dict[str, float]:
    """Floating-point operations per second of a large product on stock cpu."""
    result = {}
    for dtype in (torch.float32, torch.bfloat16):
        for size in (SMALL_PRODUCT, PRODUCT):
            a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
            seconds = shortest(lambda a=a, b=b: torch.mm(a, b))
            result[str(dtype).removeprefix("torch.")] = 2 * size**3 / seconds
            if seconds * (PRODUCT / size) ** 3 > LONGEST_PRODUCT:
                break
    return result


def measure() -> dict[str, dict[str, float]]:
    return {"bytes_per_second": bandwidths(), "flops": product_rates()}
