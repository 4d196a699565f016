# SPDX-License-Identifier: BSD-3-Clause
"""Cross entropy, forward and backward: loom's one operator against the composite, and cpu.

The composite is what PyTorch makes of the loss where a backend has no kernel of its own, run on
loom: log_softmax, then nll_loss.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from measure import describe, duration, interleaved, seconds_per_call, table
from torch import nn

SECONDS = 0.3
SHAPES = ((32, 10), (1024, 1000), (2048, 8192), (512, 50257))


def step(rows: int, classes: int, device: str, autocast: bool, composite: bool) -> Callable:
    dtype = torch.bfloat16 if autocast else torch.float32
    logits = torch.randn(rows, classes, device=device, dtype=dtype, requires_grad=True)
    target = torch.randint(0, classes, (rows,)).to(device)

    def loss() -> torch.Tensor:
        if composite:
            return nn.functional.nll_loss(nn.functional.log_softmax(logits, 1), target)
        return nn.functional.cross_entropy(logits, target)

    def call() -> None:
        logits.grad = None
        with torch.autocast(device, dtype=torch.bfloat16, enabled=autocast):
            value = loss()
        value.backward()

    return call


def main() -> None:
    describe("cross entropy, forward and backward (more than 1: loom's operator is faster)")
    rows = []
    for autocast in (False, True):
        for shape in SHAPES:

            def variant(device: str, composite: bool, finish: Callable) -> Callable[[], float]:
                call = step(*shape, device, autocast, composite)  # noqa: B023
                return lambda: seconds_per_call(call, finish, 1, SECONDS)

            times = interleaved(
                {
                    "cpu": variant("cpu", False, lambda: None),
                    "composite": variant("loom", True, torch.loom.synchronize),
                    "loom": variant("loom", False, torch.loom.synchronize),
                }
            )
            rows.append(
                [
                    f"{shape[0]} x {shape[1]}",
                    "bf16 autocast" if autocast else "float32",
                    *(duration(times[name]) for name in ("cpu", "composite", "loom")),
                    f"{times['composite'] / times['loom']:.2f}",
                    f"{times['cpu'] / times['loom']:.2f}",
                ]
            )
    table(["logits", "dtype", "cpu", "composite", "loom", "composite / loom", "cpu / loom"], rows)


if __name__ == "__main__":
    main()
