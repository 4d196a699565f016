# SPDX-License-Identifier: BSD-3-Clause
"""Copies of 256 MB against libc's memcpy on the same memory with the same number of threads."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from measure import cores, describe, interleaved, seconds_per_call, table

BYTES = 256 << 20
SECONDS = 0.3

_memcpy = ctypes.CDLL(None).memcpy  # a foreign call: Python's lock is released while it runs
_memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_memcpy.restype = ctypes.c_void_p


ISOLATED = os.environ.get("LOOM_MEMORY") == "isolated"


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Memory that memcpy may touch: the tensor's, unless it is device memory in isolated mode."""
    return pageable() if ISOLATED and tensor.device.type == "loom" else tensor


def memcpy_on_threads(
    to: torch.Tensor, come: torch.Tensor, threads: int, pool: ThreadPoolExecutor
) -> None:
    share = BYTES // threads
    write, read = to.data_ptr(), come.data_ptr()
    done = [
        pool.submit(_memcpy, write + i * share, read + i * share, share) for i in range(threads)
    ]
    for each in done:
        each.result()


def pageable() -> torch.Tensor:
    return torch.ones(BYTES, dtype=torch.uint8)


def pinned() -> torch.Tensor:
    return torch.ones(BYTES, dtype=torch.uint8).pin_memory()


def device() -> torch.Tensor:
    return torch.ones(BYTES, dtype=torch.uint8, device="loom")


Make = Callable[[], torch.Tensor]
CASES: dict[str, tuple[Make, Make, bool]] = {
    "loom to loom": (device, device, False),
    "host to loom": (device, pageable, False),
    "loom to host": (pageable, device, False),
    "pinned to loom, non_blocking": (device, pinned, True),
    "loom to pinned, non_blocking": (pinned, device, True),
}


def measure(name: str, threads: int, pool: ThreadPoolExecutor) -> list[str]:
    make_to, make_from, non_blocking = CASES[name]
    to, come = make_to(), make_from()
    torch.loom.synchronize()
    memcpy_to, memcpy_from = on_host(to), on_host(come)
    variants: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "memcpy": (
            lambda: memcpy_on_threads(memcpy_to, memcpy_from, threads, pool),
            lambda: None,
        ),
        "loom": (
            lambda: to.copy_(come, non_blocking=non_blocking),
            torch.loom.synchronize,
        ),
    }
    times = interleaved(
        {
            key: lambda call=call, finish=finish: seconds_per_call(call, finish, 1, SECONDS)
            for key, (call, finish) in variants.items()
        }
    )
    speed = {key: BYTES / 1e9 / value for key, value in times.items()}
    ratio = speed["loom"] / speed["memcpy"]
    return [name, f"{speed['memcpy']:.1f}", f"{speed['loom']:.1f}", f"{ratio:.2f}"]


def main() -> None:
    threads = cores()
    describe(f"copies of {BYTES >> 20} MB, GB/s; memcpy on the same memory with {threads} threads")
    with ThreadPoolExecutor(threads) as pool:
        table(
            ["copy", "memcpy", "loom", "loom / memcpy"],
            [measure(name, threads, pool) for name in CASES],
        )


if __name__ == "__main__":
    main()
