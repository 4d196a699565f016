# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of lccl, over shared memory, beside Gloo's on the loopback, in one run.

With --hosts, where a letter says on which one each rank is, those on different ones exchange
data over the loopback, too.

Ranks are processes of this host with a core each. Every size is run by turns; a figure is the
median over repetitions of the slowest rank's time for one operation, and of the processor time that
one operation took of a rank, threads of the transport included.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20)
OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
REPETITIONS = 7
SECONDS = 0.1
"""How long a repetition takes, about."""


def operation(name: str, elements: int, dtype: torch.dtype, device: str) -> Callable[[], Any]:
    """An operation on so many elements in all, of which every rank has or gets its share."""
    count = dist.get_world_size()
    share = elements // count
    whole = torch.ones(share * count, dtype=dtype, device=device)
    part = torch.ones(share, dtype=dtype, device=device)
    other = torch.ones_like(whole)
    return {
        "all_reduce": lambda: dist.all_reduce(whole, async_op=True),
        "reduce_scatter": lambda: dist.reduce_scatter_single(part, whole, async_op=True),
        "all_gather": lambda: dist.all_gather_single(whole, part, async_op=True),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, async_op=True),
    }[name]


def measure(run: Callable[[], Any], times: int, device: str) -> tuple[float, float]:
    """Seconds of one call, of the clock and of this process's threads."""
    dist.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(times):
        run().wait()
    if device == "loom":
        torch.accelerator.synchronize()
    return (time.perf_counter() - wall) / times, (time.process_time() - cpu) / times


def slowest(value: float) -> float:
    times = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return times.item()


def row(name: str, bytes_: int, dtype: torch.dtype) -> dict[str, tuple[float, float]]:
    elements = bytes_ // dtype.itemsize
    runs = {device: operation(name, elements, dtype, device) for device in ("cpu", "loom")}
    times = {}
    for device, run in runs.items():
        run().wait()
        once = slowest(measure(run, 3, device)[0])
        times[device] = max(1, min(1000, int(SECONDS / once)))
    results: dict[str, list[tuple[float, float]]] = {device: [] for device in runs}
    for _ in range(REPETITIONS):
        for device, run in runs.items():
            wall, cpu = measure(run, times[device], device)
            results[device].append((slowest(wall), slowest(cpu)))
    return {
        device: (
            statistics.median(wall for wall, _ in figures),
            statistics.median(cpu for _, cpu in figures),
        )
        for device, figures in results.items()
    }


def work(rank: int, count: int, store: str, arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    if arguments.hosts:
        os.environ["LOOM_HOST_ID"] = arguments.hosts[rank]
    dist.init_process_group(
        "cpu:gloo,loom:lccl", store=dist.FileStore(store, count), rank=rank, world_size=count
    )
    torch.accelerator.set_device_index(rank % torch.accelerator.device_count())
    if rank == 0:
        print(
            f"{'':32} {'gloo':>10} {'lccl':>10} {'':>6} {'gloo':>10} {'lccl':>10}\n"
            f"{'operation, bytes, ranks':32} {'us':>10} {'us':>10} {'ratio':>6}"
            f" {'cpu us':>10} {'cpu us':>10} {'ratio':>6}",
            flush=True,
        )
    for dtype in (torch.float32, torch.bfloat16):
        for name in arguments.operations:
            for size in arguments.sizes:
                figures = row(name, size, dtype)
                if rank != 0:
                    continue
                (gloo_wall, gloo_cpu), (wall, cpu) = figures["cpu"], figures["loom"]
                title = f"{name} {str(dtype)[6:]} {size >> 10} KiB x {count}"
                print(
                    f"{title:32} {gloo_wall * 1e6:10.1f} {wall * 1e6:10.1f} {gloo_wall / wall:6.2f}"
                    f" {gloo_cpu * 1e6:10.1f} {cpu * 1e6:10.1f} {gloo_cpu / cpu:6.2f}",
                    flush=True,
                )
    dist.destroy_process_group()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--hosts", default="")
    parser.add_argument(
        "--sizes", type=lambda text: [int(float(n)) for n in text.split(",")], default=SIZES
    )
    parser.add_argument("--operations", type=lambda text: text.split(","), default=list(OPERATIONS))
    arguments = parser.parse_args()
    arguments.ranks = len(arguments.hosts) or arguments.ranks
    os.environ["LOOM_DEVICES"] = str(arguments.ranks)
    os.environ["LOOM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        mp.spawn(work, (arguments.ranks, store, arguments), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
