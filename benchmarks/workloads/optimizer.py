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


def maker(millions: int, fused: bool) -> Callable[[str, Wrap], Call]:
    def make(device: str, wrap: Wrap) -> Call:
        parameters = []
        for shape in parameter_shapes(millions):
            parameter = torch.nn.Parameter(torch.randn(shape).to(device))
            parameter.grad = torch.randn(shape).to(device)
            parameters.append(parameter)
        optimizer = torch.optim.AdamW(parameters, fused=True if fused else None)
        step = wrap(optimizer.step)

        def call() -> Sequence[Tensor]:
            step()
            return [parameter.detach() for parameter in parameters]

        return call

    return make


def workloads() -> list[Workload]:
    return [
        Workload(
            "optimizer",
            f"AdamW{', fused' if fused else ''}, {millions}M parameters",
            maker(millions, fused),
            bytes=BYTES_PER_PARAMETER * parameter_count(millions),
            quick=millions == 10,
        )
        for millions in SHAPES
        for fused in (False, True)
    ]
