# SPDX-License-Identifier: BSD-3-Clause
"""Hugging Face transformers."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from .selection import is_the_accelerator

__all__ = ["patch_pipelines", "patch_training_args"]


def patch_training_args(module: Any) -> None:
    """``TrainingArguments.device`` is what accelerate has chosen, and takes bf16."""
    # It goes through the list a second time, and ends at the cpu even where accelerate has chosen
    # loom.
    arguments = module.TrainingArguments
    chosen: Callable[[Any], torch.device] = arguments._setup_devices.func

    def _setup_devices(self: Any) -> torch.device:
        device = chosen(self)
        state = self.distributed_state
        if device.type == "cpu" and not self.use_cpu and state is not None:
            device = state.device
            if device.type == "loom":
                return torch.device("loom", device.index or 0)
        return device

    replacement = functools.cached_property(_setup_devices)
    replacement.__set_name__(arguments, "_setup_devices")
    arguments._setup_devices = replacement

    # bf16=True is refused on a device that is not on the list. Replaced where it is asked: other
    # modules may hold the function from before torch was imported.
    supported: Callable[[], bool] = module.is_torch_bf16_gpu_available
    module.is_torch_bf16_gpu_available = lambda: supported() or is_the_accelerator()


def patch_pipelines(module: Any) -> None:
    """A pipeline takes the accelerator if no device is named, and reads numbers as its indices.

    Without the patch it ends at the cpu, and moves the model there.
    """
    pipeline = module.Pipeline
    original: Callable[..., None] = pipeline.__init__

    @functools.wraps(original)
    def __init__(self: Any, model: Any, *args: Any, **options: Any) -> None:  # noqa: N807
        device = options.get("device")
        if device is None and getattr(model, "hf_device_map", None) is None:
            device = 0
        if isinstance(device, int) and device >= 0 and is_the_accelerator():
            options["device"] = torch.device("loom", device)
        original(self, model, *args, **options)

    pipeline.__init__ = __init__
