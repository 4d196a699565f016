# SPDX-License-Identifier: BSD-3-Clause
"""Small networks on loom against stock cpu, where the caller's time counts as much as the kernels'.

A training step (gradients to None, forward, loss, backward, AdamW) and an inference of batches of 1
and 64, waited for, and the parts of the MLP's step: each waited for, so that their sum is more than
a step. `python benchmarks/small_networks.py tagger llama` for some networks.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence

import torch
from measure import SETTLE_SECONDS, describe, duration, interleaved, seconds_per_call, table
from small_models import NETWORKS, Network

SECONDS = 0.1
BATCHES = (1, 64)
MLP_BATCHES = (1, 8, 64)
PARTS = ("zero_grad", "forward", "loss", "backward", "optimizer")

Step = Callable[[], object]


def finish(device: str) -> None:
    if device == "loom":
        torch.accelerator.synchronize()


class Training:
    """A network on a device, and the parts of its step."""

    def __init__(self, network: Network, count: int, device: str) -> None:
        torch.manual_seed(0)
        self.model = network.model().to(device)
        if count == 1:
            # Batch norm over the batch alone has no variance of a single row.
            for layer in self.model.modules():
                if isinstance(layer, torch.nn.BatchNorm1d):
                    layer.eval()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.x, self.target = (each.to(device) for each in network.batch(count))
        self.loss_of = network.loss

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()

    def forward(self) -> None:
        self.result = self.model(self.x)

    def loss(self) -> None:
        self.value = self.loss_of(self.result, self.target)

    def backward(self) -> None:
        self.value.backward()

    def step(self) -> None:
        for part in PARTS[:-1]:
            getattr(self, part)()
        self.optimizer.step()


def training(network: Network, count: int, device: str) -> Step:
    run = Training(network, count, device)

    def step() -> torch.Tensor:
        run.step()
        return run.value

    return step


def inference(network: Network, count: int, device: str) -> Step:
    run = Training(network, count, device)
    run.model.eval()

    @torch.inference_mode()
    def step() -> object:
        return run.model(run.x)

    return step


def row(name: str, count: int) -> list[str]:
    cells = [name, str(count)]
    for make in (inference, training):
        steps = {device: make(NETWORKS[name], count, device) for device in ("cpu", "loom")}
        times = interleaved(
            {
                device: lambda step=step, device=device: seconds_per_call(
                    step, lambda: finish(device), 1, SECONDS, keep=True
                )
                for device, step in steps.items()
            }
        )
        ratio = times["cpu"] / times["loom"]
        cells += [duration(times["cpu"]), duration(times["loom"]), f"{ratio:.2f}"]
    return cells


def parts_of_a_step(run: Training, device: str) -> dict[str, float]:
    """The median seconds of each part, waited for."""
    times: dict[str, list[float]] = {part: [] for part in PARTS}
    deadline = time.perf_counter() + SECONDS
    while time.perf_counter() < deadline:
        for part in PARTS:
            call = run.optimizer.step if part == "optimizer" else getattr(run, part)
            start = time.perf_counter()
            call()
            finish(device)
            times[part].append(time.perf_counter() - start)
    return {part: statistics.median(each) for part, each in times.items()}


def parts_rows(network: Network) -> list[list[str]]:
    rows = []
    for count in MLP_BATCHES:
        runs = {device: Training(network, count, device) for device in ("cpu", "loom")}
        found: dict[str, list[dict[str, float]]] = {device: [] for device in runs}
        for _ in range(5):
            for device, run in runs.items():
                time.sleep(SETTLE_SECONDS)
                found[device].append(parts_of_a_step(run, device))
        for part in PARTS:
            cpu, loom = (
                statistics.median(each[part] for each in found[device])
                for device in ("cpu", "loom")
            )
            rows.append([part, str(count), duration(cpu), duration(loom), f"{cpu / loom:.2f}"])
    return rows


def chosen(words: Sequence[str]) -> list[str]:
    return [name for name in NETWORKS if not words or any(w in name.lower() for w in words)]


def main() -> None:
    names = chosen(sys.argv[1:])
    describe("Small networks (cpu / loom: more than 1 is faster than cpu)")
    header = ["network", "batch", "inference: cpu", "loom", "ratio"]
    header += ["training step: cpu", "loom", "ratio"]
    table(header, [row(name, count) for name in names for count in BATCHES])
    mlp = next(iter(NETWORKS))
    if mlp in names:
        print(f"\n  parts of a step of the {mlp}")
        table(["part", "batch", "cpu", "loom", "ratio"], parts_rows(NETWORKS[mlp]))


if __name__ == "__main__":
    main()
