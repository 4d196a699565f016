# SPDX-License-Identifier: BSD-3-Clause
"""Sentence Transformers: the device of a model for which none is named, and of its pools."""

import functools
import os
from collections.abc import Callable
from typing import Any

import torch

from .selection import is_the_accelerator, replace

__all__ = ["patch_environment", "patch_model"]


def patch_environment(module: Any) -> None:
    """``SentenceTransformer(...)`` without a device, and its like, are on loom."""
    chosen: Callable[[], str] = module.get_device_name

    @functools.wraps(chosen)
    def get_device_name() -> str:
        name = chosen()
        if name == "cpu" and is_the_accelerator():
            rank = int(os.environ.get("LOCAL_RANK", 0))
            return f"loom:{rank % torch.accelerator.device_count()}"
        return name

    replace(module, "get_device_name", get_device_name)


def patch_model(module: Any) -> None:
    """``start_multi_process_pool()`` starts a process for each device."""
    model = module.BaseModel
    original: Callable[..., Any] = model.start_multi_process_pool

    @functools.wraps(original)
    def start_multi_process_pool(self: Any, target_devices: Any = None) -> Any:
        if target_devices is None and is_the_accelerator():
            count = torch.accelerator.device_count()
            target_devices = [f"loom:{index}" for index in range(count)]
        return original(self, target_devices)

    model.start_multi_process_pool = start_multi_process_pool
