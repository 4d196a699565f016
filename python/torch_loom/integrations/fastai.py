# SPDX-License-Identifier: BSD-3-Clause
"""fastai: the device of its DataLoaders, which learners follow, and mixed precision."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from .selection import is_the_accelerator, replace, variant_for_loom

__all__ = ["patch_fp16", "patch_torch_core"]


def patch_torch_core(module: Any) -> None:
    """``default_device()``; ``default_device(False)`` is the cpu as ever."""
    chosen: Callable[..., torch.device] = module.default_device

    @functools.wraps(chosen)
    def default_device(use: Any = -1) -> torch.device:
        device = chosen(use)
        refused = module.defaults.use_cuda is False
        if device.type == "cpu" and not refused and is_the_accelerator():
            return torch.device("loom", torch.accelerator.current_device_index())
        return device

    replace(module, "default_device", default_device)


def patch_fp16(module: Any) -> None:
    """``Learner.to_fp16()`` and ``to_bf16()``: autocast and a scaler."""
    callback = module.MixedPrecision
    original: Callable[[Any], None] = callback.before_fit
    on_loom = variant_for_loom(original)

    @functools.wraps(original)
    def before_fit(self: Any) -> None:
        device = next((p.device.type for p in self.learn.model.parameters()), None)
        (on_loom if device == "loom" else original)(self)

    callback.before_fit = before_fit
