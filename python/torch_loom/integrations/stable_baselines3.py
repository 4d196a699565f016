# SPDX-License-Identifier: BSD-3-Clause
"""Stable-Baselines3: what ``device="auto"`` is, its default everywhere."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from .selection import is_the_accelerator, replace

__all__ = ["patch_utils"]


def patch_utils(module: Any) -> None:
    """``get_device("auto")``, through which each algorithm, policy and buffer goes."""
    chosen: Callable[..., torch.device] = module.get_device

    @functools.wraps(chosen)
    def get_device(device: torch.device | str = "auto") -> torch.device:
        found = chosen(device)
        if device == "auto" and found.type == "cpu" and is_the_accelerator():
            return torch.device("loom")
        return found

    replace(module, "get_device", get_device)
