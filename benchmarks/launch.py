# SPDX-License-Identifier: BSD-3-Clause
"""What it costs to get work to a worker: commands of the core, and operators from Python.

The core's numbers come from its Google Benchmark program (cmake -DLOOM_BUILD_BENCH=ON).
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import torch
from measure import describe, duration, interleaved, seconds_per_call, table

SECONDS = 0.03
CORE_ROWS = {
    "submit_empty_command<1>": "submit an empty command (caller)",
    "start_latency/spinning_worker": "a spinning worker starts it",
    "start_latency/sleeping_worker": "a sleeping worker starts it",
}


def find_program(folder: Path | None) -> Path | None:
    root = Path(__file__).parents[1] / "build"
    found = sorted((folder or root).rglob("bench_queue"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def core_rows(program: Path) -> list[list[str]]:
    command = [str(program), "--benchmark_format=json", "--benchmark_filter=submit_empty|start_lat"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    rows = []
    for result in json.loads(output)["benchmarks"]:
        label = next((v for k, v in CORE_ROWS.items() if result["name"].startswith(k)), None)
        if label:
            median, p90 = (duration(result[key] * 1e-9) for key in ("median_ns", "p90_ns"))
            rows.append([label, median, p90])
    return rows


def operators(device: str) -> dict[str, Callable[[], object]]:
    x, y = torch.rand(4, 4, device=device), torch.rand(4, 4, device=device)
    return {
        "add": lambda: torch.add(x, y),
        "mul_": lambda: x.mul_(1.0),
        "mm": lambda: torch.mm(x, y),
        "sum": lambda: x.sum(),
        "softmax": lambda: torch.softmax(x, 1),
        "view": lambda: x.view(16),
        "empty": lambda: torch.empty_like(x),
    }


def operator_rows() -> list[list[str]]:
    cpu, loom = operators("cpu"), operators("loom")
    rows = []
    for name in cpu:
        times = interleaved(
            {
                "cpu": lambda name=name: seconds_per_call(cpu[name], lambda: None, 100, SECONDS),
                "caller": lambda name=name: host_cost(loom[name]),
                "waited": lambda name=name: seconds_per_call(
                    loom[name], torch.loom.synchronize, 1, SECONDS
                ),
            }
        )
        rows.append([name, *(duration(times[key]) for key in ("cpu", "caller", "waited"))])
    return rows


def host_cost(call: Callable[[], object]) -> float:
    """Seconds of the caller for a call that is not waited for, the worker being awake."""
    import statistics
    import time

    times = []
    for _ in range(50):
        start = time.perf_counter()
        for _ in range(100):
            call()
        times.append((time.perf_counter() - start) / 100)
        torch.loom.synchronize()
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, help="where the core's benchmarks are")
    program = find_program(parser.parse_args().build)
    describe("launching work")
    if program is None:
        print("  (the core's benchmarks are not built: cmake -DLOOM_BUILD_BENCH=ON)")
    else:
        table(["command", "median", "p90"], core_rows(program))
    print()
    header = ["operator on 4x4", "cpu", "loom, caller", "loom, one waited for"]
    table(header, operator_rows())


if __name__ == "__main__":
    main()
