# SPDX-License-Identifier: BSD-3-Clause
"""What memory costs: an empty tensor made and dropped, and one that is also written."""

from __future__ import annotations

import resource
from collections.abc import Callable

import torch
from measure import describe, duration, interleaved, seconds_per_call, table

SECONDS = 0.05
SIZES = {"1 KB": 1 << 10, "64 KB": 1 << 16, "1 MB": 1 << 20, "16 MB": 1 << 24, "128 MB": 1 << 27}


def empty(size: int, device: str) -> Callable[[], object]:
    return lambda: torch.empty(size, dtype=torch.uint8, device=device)


def zeroed(size: int, device: str) -> Callable[[], object]:
    return lambda: torch.empty(size, dtype=torch.uint8, device=device).zero_()


def faults_per_call(call: Callable[[], object], finish: Callable[[], object]) -> float:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        call()
    finish()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 4


def rows(title: str, make: Callable[[int, str], Callable[[], object]]) -> list[list[str]]:
    finishes = {"cpu": lambda: None, "loom": torch.loom.synchronize}
    result = []
    for label, size in SIZES.items():
        calls = {device: (make(size, device), finish) for device, finish in finishes.items()}
        times = interleaved(
            {
                device: lambda call=call, finish=finish: seconds_per_call(call, finish, 10, SECONDS)
                for device, (call, finish) in calls.items()
            },
            rounds=7,
        )
        faults = [f"{faults_per_call(call, finish):.0f}" for call, finish in calls.values()]
        cells = [duration(times[device]) for device in finishes]
        ratio = f"{times['cpu'] / times['loom']:.2f}"
        result.append([f"{title}, {label}", *cells, ratio, ", ".join(faults)])
    return result


def main() -> None:
    describe("allocation, seconds per tensor (cpu / loom: more than 1 is faster than cpu)")
    header = ["tensor", "cpu", "loom", "cpu / loom", "page faults: cpu, loom"]
    table(header, rows("empty", empty) + rows("written", zeroed))


if __name__ == "__main__":
    main()
