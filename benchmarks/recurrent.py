# SPDX-License-Identifier: BSD-3-Clause
"""LSTMs on loom against stock cpu: one call waited for, without and with its gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from measure import describe, duration, interleaved, seconds_per_call, table

SECONDS = 0.05

# Features and units, layers, steps, batch.
CASES = [
    (256, 2, 64, 1),
    (256, 2, 64, 16),
    (64, 1, 64, 32),
    (128, 2, 64, 8),
    (512, 1, 32, 64),
    (1024, 1, 16, 1),
]


def inference(layer: torch.nn.LSTM, x: torch.Tensor) -> Callable[[], object]:
    @torch.no_grad()
    def run() -> None:
        layer(x)

    return run


def training(layer: torch.nn.LSTM, x: torch.Tensor) -> Callable[[], object]:
    def run() -> None:
        output, _ = layer(x)
        output.backward(torch.ones_like(output))

    return run


def row(case: tuple[int, int, int, int]) -> list[str]:
    width, layers, steps, batch = case
    layer = torch.nn.LSTM(width, width, num_layers=layers)
    twin = copy.deepcopy(layer).to("loom")
    x = torch.randn(steps, batch, width)
    y = x.to("loom")
    cells = [str(number) for number in case]
    for make in (inference, training):
        on_cpu, on_loom = make(layer, x), make(twin, y)
        times = interleaved(
            {
                "cpu": lambda f=on_cpu: seconds_per_call(f, lambda: None, 1, SECONDS),
                "loom": lambda f=on_loom: seconds_per_call(f, torch.loom.synchronize, 1, SECONDS),
            }
        )
        ratio = times["cpu"] / times["loom"]
        cells += [duration(times["cpu"]), duration(times["loom"]), f"{ratio:.2f}"]
    return cells


def main() -> None:
    describe("LSTMs (cpu / loom: more than 1 is faster than cpu)")
    header = ["units", "layers", "steps", "batch", "inference: cpu", "loom", "ratio"]
    header += ["with gradients: cpu", "loom", "ratio"]
    table(header, [row(case) for case in CASES])


if __name__ == "__main__":
    main()
