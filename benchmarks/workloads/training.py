# SPDX-License-Identifier: BSD-3-Clause
"""Steps of training: forward, loss, backward, the optimiser's step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from workloads.models import Model, variants
from workloads.workload import COUNTED, Call, Workload, Wrap


def maker(task: Model, dtype: torch.dtype) -> Callable[[str, Wrap], Call]:
    def make(device: str, wrap: Wrap) -> Call:
        model = task.model().to(device).train()
        x, target = (tensor.to(device) for tensor in task.batch(task.examples))
        parameters = list(model.parameters())
        optimizer: torch.optim.Optimizer = (
            torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
            if task.sgd
            else torch.optim.AdamW(parameters, lr=1e-4)
        )
        forward = wrap(model)

        def step() -> Sequence[Tensor]:
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16, enabled=dtype == torch.bfloat16):
                loss = F.cross_entropy(forward(x), target)
            loss.backward()
            optimizer.step()
            return (loss.detach(),)

        return step

    return make


def workloads() -> list[Workload]:
    return [
        Workload(
            "training",
            f"{name}, batch {model.examples}",
            maker(model, dtype),
            dtype=dtype,
            flops=COUNTED,
            quick=model.quick and dtype == torch.float32,
            peak_memory=True,
        )
        for name, model, dtype in variants()
    ]
