# SPDX-License-Identifier: BSD-3-Clause
"""A step of DDP over the suite's GPT: two ranks with a core each, on loom and on cpu with Gloo,
beside one process with two cores that has the whole batch. All in one run, by turns.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from workloads.models import MODELS

RANKS = 2
REPETITIONS = 5
STEPS = 1
"""In a repetition."""
TITLES = {
    "loom, 2 ranks": "loom, 2 ranks x 1 core",
    "cpu, 2 ranks": "cpu with Gloo, 2 ranks x 1 thread",
    "loom, alone": "loom, one process x 2 cores",
    "cpu, alone": "cpu, one process x 2 threads",
}


def make_step(device: str, dtype: torch.dtype, parallel: bool) -> Callable[[], Tensor]:
    """A step of training on this process's share of the batch."""
    torch.manual_seed(0)
    entry = MODELS["char-GPT"]
    model: nn.Module = entry.model().to(device)
    inputs, targets = (part.to(device) for part in entry.batch(entry.examples))
    if parallel:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        inputs, targets = (part.chunk(RANKS)[dist.get_rank()] for part in (inputs, targets))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss = functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def milliseconds(step: Callable[[], Tensor], device: str) -> float:
    start = time.perf_counter()
    losses = [step() for _ in range(STEPS)]
    if device == "loom":
        torch.accelerator.synchronize()
    del losses
    return (time.perf_counter() - start) / STEPS * 1e3


def live(number: int, store: str, turns: Any, results: Any) -> None:
    """A process: the ranks, and after them the one that is alone. Others sleep when it measures."""
    alone = number == RANKS
    torch.set_num_threads(2 if alone else 1)
    if not alone:
        dist.init_process_group(
            "cpu:gloo,loom:lccl", store=dist.FileStore(store, RANKS), rank=number, world_size=RANKS
        )
    for dtype in (torch.float32, torch.bfloat16):
        steps: dict[str, Callable[[], Tensor]] = {}
        for title in TITLES:
            if title.endswith("alone") == alone:
                steps[title] = make_step(title[:4].rstrip(","), dtype, not alone)
        for repetition in range(-1, REPETITIONS):
            for title in TITLES:
                turns.wait()
                if title in steps:
                    took = milliseconds(steps[title], title[:4].rstrip(","))
                    if repetition >= 0 and number != 1:
                        results.put((str(dtype)[6:], title, took))
    turns.wait()
    if not alone:
        dist.destroy_process_group()


def report() -> None:
    """Print the table."""
    context = torch.multiprocessing.get_context("spawn")
    turns, results = context.Barrier(RANKS + 1), context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for number in range(RANKS + 1):
            os.environ["LOOM_THREADS"] = "2" if number == RANKS else "1"
            os.environ["LOOM_DEVICES"] = "1"
            store = str(Path(folder) / "store")
            processes.append(context.Process(target=live, args=(number, store, turns, results)))
            processes[-1].start()
        times: dict[tuple[str, str], list[float]] = {}
        for _ in range(2 * len(TITLES) * REPETITIONS):
            dtype, title, took = results.get(timeout=600)
            times.setdefault((dtype, title), []).append(took)
        for process in processes:
            process.join()
    for dtype in ("float32", "bfloat16"):
        ours = statistics.median(times[dtype, "loom, 2 ranks"])
        for title, long_title in TITLES.items():
            middle = statistics.median(times[dtype, title])
            name = f"char-GPT step, {dtype}: {long_title}"
            print(f"{name:64} {middle:8.1f} ms {middle / ours:6.2f}")


if __name__ == "__main__":
    report()
