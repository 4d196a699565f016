# SPDX-License-Identifier: BSD-3-Clause
"""Hugging Face accelerate."""

from collections.abc import Callable
from typing import Any

import torch

from .selection import is_the_accelerator

__all__ = ["patch_state"]


def patch_state(module: Any) -> None:
    """``Accelerator().device`` is loom, without the variable ACCELERATE_TORCH_DEVICE."""
    chosen: Callable[[Any], torch.device] = module.PartialState.default_device.fget

    def default_device(self: Any) -> torch.device:
        device = chosen(self)
        return torch.device("loom") if device.type == "cpu" and is_the_accelerator() else device

    module.PartialState.default_device = property(default_device, doc=chosen.__doc__)
