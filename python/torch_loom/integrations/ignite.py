# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch-Ignite: the device of ``ignite.distributed``, and mixed precision of its engines."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from .selection import is_the_accelerator, replace, variant_for_loom

__all__ = ["patch_distributed", "patch_engine"]


def patch_distributed(module: Any) -> None:
    """``idist.device()``, where ``idist.auto_model()`` puts a model, in a single process."""
    model = module._SerialModel
    chosen: Callable[[Any], torch.device] = model.device

    @functools.wraps(chosen)
    def device(self: Any) -> torch.device:
        found = chosen(self)
        return torch.device("loom") if found.type == "cpu" and is_the_accelerator() else found

    model.device = device


def patch_engine(module: Any) -> None:
    """``amp_mode="amp"``, with and without ``scaler=True``, of supervised engines."""
    check: Callable[..., Any] = module._check_arg

    @functools.wraps(check)
    def _check_arg(on_tpu: bool, on_mps: bool, amp_mode: Any, scaler: Any) -> Any:
        if scaler is True and amp_mode == "amp" and is_the_accelerator():
            scaler = torch.amp.GradScaler("loom")
        return check(on_tpu, on_mps, amp_mode, scaler)

    names = ("supervised_training_step_amp", "supervised_evaluation_step_amp")
    steps = {name: _step(getattr(module, name)) for name in names}
    for name, step in steps.items():
        replace(module, name, step)
    replace(module, "_check_arg", _check_arg)


def _step(original: Callable[..., Any]) -> Callable[..., Any]:
    on_loom = variant_for_loom(original)

    @functools.wraps(original)
    def step(model: torch.nn.Module, *args: Any, **options: Any) -> Any:
        device = next((p.device.type for p in model.parameters()), None)
        return (on_loom if device == "loom" else original)(model, *args, **options)

    return step
