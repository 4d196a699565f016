# SPDX-License-Identifier: BSD-3-Clause
"""AdamW over the parameters of a transformer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from workloads.workload import Call, Workload, Wrap

# Millions of parameters: width, layers, rows of the embedding.
SHAPES = {10: (512, 3, 1000), 100: (768, 12, 19500)}

# Reads parameter, gradient and both moments; writes all but the gradient.
BYTES_PER_PARAMETER = 7 * 4


def parameter_shapes(millions: int) -> list[tuple[int, ...]]:
    width, layers, rows = SHAPES[millions]
    layer = [
        *((n * width, width) for n in (3, 1, 4)),
        (width, 4 * width),
        *((n * width,) for n in (3, 1, 4, 1, 1, 1, 1, 1)),
    ]
    return [(rows, width), *(layer * layers)]


def parameter_count(millions: int) -> int:
    return sum(torch.Size(shape).numel() for shape in parameter_shapes(millions))


# In training the host is ahead when the optimiser's turn comes: steps that are queued show the
# device's share.
QUEUED_STEPS = 4


def maker(millions: int, fused: bool, steps: int = 1) -> Callable[[str, Wrap], Call]:
    def make(device: str, wrap: Wrap) -> Call:
        parameters = []
        for shape in parameter_shapes(millions):
            parameter = torch.nn.Parameter(torch.randn(shape).to(device))
            parameter.grad = torch.randn(shape).to(device)
            parameters.append(parameter)
        optimizer = torch.optim.AdamW(parameters, fused=True if fused else None)
        step = wrap(optimizer.step)

        def call() -> Sequence[Tensor]:
            for _ in range(steps):
                step()
            return [parameter.detach() for parameter in parameters]

        return call

    return make


def workloads() -> list[Workload]:
    def workload(millions: int, fused: bool, steps: int = 1) -> Workload:
        name = f"AdamW{', fused' if fused else ''}, {millions}M parameters"
        return Workload(
            "optimizer",
            name if steps == 1 else f"{name}, {steps} steps",
            maker(millions, fused, steps),
            bytes=BYTES_PER_PARAMETER * parameter_count(millions) * steps,
            passes=steps,
            quick=millions == 10 and steps == 1,
        )

    both = (False, True)
    return [
        *(workload(10, fused) for fused in both),
        *(workload(10, fused, QUEUED_STEPS) for fused in both),
        *(workload(100, fused) for fused in both),
    ]
