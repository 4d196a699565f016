# SPDX-License-Identifier: BSD-3-Clause
"""Inference of one example."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from workloads.models import Model, variants
from workloads.workload import COUNTED, Call, Workload, Wrap


def maker(task: Model, dtype: torch.dtype) -> Callable[[str, Wrap], Call]:
    def make(device: str, wrap: Wrap) -> Call:
        model = task.model().to(device).eval()
        x = task.batch(1)[0].to(device)
        forward = wrap(model)

        def call() -> Sequence[Tensor]:
            autocast = torch.autocast(device, torch.bfloat16, enabled=dtype == torch.bfloat16)
            with torch.inference_mode(), autocast:
                return (forward(x),)

        return call

    return make


def workloads() -> list[Workload]:
    return [
        Workload(
            "inference",
            f"{name}, batch 1",
            maker(model, dtype),
            dtype=dtype,
            flops=COUNTED,
            quick=model.quick and dtype == torch.float32,
        )
        for name, model, dtype in variants()
    ]
