# SPDX-License-Identifier: BSD-3-Clause
"""What it costs to get work to a worker: commands of the core, and operators from Python.

The core's numbers come from its Google Benchmark program (cmake -DLOOM_BUILD_BENCH=ON).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch
from measure import describe, duration, interleaved, seconds_per_call, table
from torch.nn import functional as F  # noqa: N812

SECONDS = 0.03
LINKS = 1000
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


def operators(device: str, gradients: bool) -> dict[str, Callable[[], object]]:
    """Calls on 8x8 matrices, whose kernels take no time to speak of."""
    x, y, weight = (torch.rand(8, 8, device=device) for _ in range(3))
    bias = torch.rand(8, device=device)
    if gradients:
        for tensor in (x, y, weight, bias):
            tensor.requires_grad_()
    calls = {
        "add": lambda: torch.add(x, y),
        "mul by a scalar": lambda: x * 0.5,
        "relu": lambda: torch.relu(x),
        "mm": lambda: torch.mm(x, y),
        "linear": lambda: F.linear(x, weight, bias),
        "layer_norm": lambda: F.layer_norm(x, (8,), weight[0], bias),
    }
    if not gradients:
        calls |= {
            "sum": lambda: x.sum(),
            "softmax": lambda: torch.softmax(x, 1),
            "mul_": lambda: x.mul_(1.0),
            "view": lambda: x.view(64),
            "empty_like": lambda: torch.empty_like(x),
        }
    return calls


def operator_rows(gradients: bool) -> list[list[str]]:
    cpu, loom = operators("cpu", gradients), operators("loom", gradients)
    rows = []
    for name in cpu:
        times = interleaved(
            {
                "cpu": lambda name=name: seconds_per_call(cpu[name], lambda: None, 100, SECONDS),
                "caller": lambda name=name: host_cost(loom[name]),
                "waited": lambda name=name: seconds_per_call(
                    loom[name], torch.loom.synchronize, 1, SECONDS
                ),
            },
            rounds=9,
        )
        ratio = f"{times['caller'] / times['cpu']:.2f}"
        label = f"{name}, autograd" if gradients else name
        cells = [duration(times[key]) for key in ("cpu", "caller", "waited")]
        rows.append([label, *cells[:2], ratio, cells[2]])
    return rows


def chain_rows() -> list[list[str]]:
    """A thousand operators, each of which needs the one before, until the last has run."""

    def chain(device: str, finish: Callable[[], object]) -> Callable[[], float]:
        x, y = torch.zeros(8, 8, device=device), torch.rand(8, 8, device=device)

        def run() -> object:
            z = x
            for _ in range(LINKS):
                z = z + y
            return z

        return lambda: seconds_per_call(run, finish, 1, 10 * SECONDS)

    times = interleaved(
        {"cpu": chain("cpu", lambda: None), "loom": chain("loom", torch.loom.synchronize)}, rounds=9
    )
    ratio = f"{times['loom'] / times['cpu']:.2f}"
    return [[f"{LINKS} adds in a chain", duration(times["cpu"]), duration(times["loom"]), ratio]]


def host_cost(call: Callable[[], object]) -> float:
    """Seconds of the caller for a call that is not waited for, the worker being awake."""
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
    header = ["operator on 8x8", "cpu", "loom, caller", "caller / cpu", "loom, one waited for"]
    table(header, operator_rows(gradients=False) + operator_rows(gradients=True))
    print()
    table(["until finished", "cpu", "loom", "loom / cpu"], chain_rows())


if __name__ == "__main__":
    main()
