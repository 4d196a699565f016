# SPDX-License-Identifier: BSD-3-Clause
"""The most memory that tensors hold at once, as each device's allocator reports it.

loom's statistics say it. Of cpu, the profiler's record of every allocation and release is added
up. Both count from before the model is made, and neither sees what libraries allocate themselves.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

STEPS = 3

Make = Callable[[], Callable[[], Sequence[Tensor]]]


def measure(make: Make, device: str) -> int:
    gc.collect()
    return _of_cpu(make) if device == "cpu" else _of_loom(make)


def _run(make: Make) -> None:
    call = make()
    for _ in range(STEPS):
        call()


def _of_loom(make: Make) -> int:
    torch.loom.synchronize()
    before = torch.loom.memory_allocated()
    torch.loom.reset_peak_memory_stats()
    _run(make)
    torch.loom.synchronize()
    return torch.loom.max_memory_allocated() - before


def _of_cpu(make: Make) -> int:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        _run(make)
    results = profiler.profiler.kineto_results
    events = [event for event in results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak
