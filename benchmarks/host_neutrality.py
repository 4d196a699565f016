# SPDX-License-Identifier: BSD-3-Clause
"""What the use of loom costs cpu code of the same process: nothing, if these columns agree.

A process times cpu products, uses loom (products, random numbers, copies, several streams), and
times them again. A reference process does the same without loom in between. Both kinds take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

SIZES = (64, 1024)
PROCESSES = 5
SECONDS = 0.4


def time_products() -> list[float]:
    """Median seconds of a product of each size."""
    import torch

    result = []
    for size in SIZES:
        a, b = torch.rand(size, size), torch.rand(size, size)
        for _ in range(10):
            torch.mm(a, b)
        times = []
        deadline = time.perf_counter() + SECONDS
        while time.perf_counter() < deadline:
            start = time.perf_counter()
            torch.mm(a, b)
            times.append(time.perf_counter() - start)
        result.append(statistics.median(times))
    return result


def use_loom() -> None:
    import torch

    for stream in (torch.loom.Stream(), torch.loom.current_stream()):
        with torch.loom.stream(stream):
            a = torch.randn(512, 512, device="loom")
            for _ in range(20):
                a = torch.softmax(torch.relu(a @ a), 1) + torch.rand_like(a)
            torch.linalg.svdvals(a[:64, :64])
            a.cpu()
    torch.loom.synchronize()


def child(loom: bool) -> None:
    import torch_loom  # noqa: F401

    before = time_products()
    use_loom() if loom else time.sleep(0.3)
    print(json.dumps([before, time_products()]))


def run(kind: str) -> list[list[float]]:
    command = [sys.executable, __file__, "--child", kind]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", choices=["loom", "reference"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child == "loom")
        return
    from measure import describe, duration, table

    describe("a cpu product before and after, in a process that uses loom and in one that does not")
    runs: dict[str, list[list[list[float]]]] = {"loom": [], "reference": []}
    for _ in range(PROCESSES):
        for kind in runs:
            runs[kind].append(run(kind))
    rows = []
    for kind in ("reference", "loom"):
        for i, size in enumerate(SIZES):
            before, after = (statistics.median(r[when][i] for r in runs[kind]) for when in (0, 1))
            label = "uses loom" if kind == "loom" else "does not"
            rows.append(
                [
                    f"{size}x{size}",
                    label,
                    duration(before),
                    duration(after),
                    f"{after / before:.2f}",
                ]
            )
    table(["cpu product", "process", "before", "after", "after / before"], rows)


if __name__ == "__main__":
    main()
