# SPDX-License-Identifier: BSD-3-Clause
"""Keras with PyTorch below it: the device of everything it makes, without KERAS_TORCH_DEVICE."""

import functools
import os
from collections.abc import Callable
from typing import Any

from .selection import is_the_accelerator, replace

__all__ = ["patch_core"]


def patch_core(module: Any) -> None:
    """``get_device()`` outside of ``keras.device(...)``, and what "gpu" means in there."""
    parse: Callable[[Any], Any] = module._parse_device_input

    @functools.wraps(parse)
    def _parse_device_input(device_name: Any) -> Any:
        parsed = parse(device_name)
        if "gpu" in str(device_name).lower() and is_the_accelerator():
            return parsed.replace("cuda", "loom")
        return parsed

    replace(module, "_parse_device_input", _parse_device_input)
    named = "KERAS_TORCH_DEVICE" in os.environ
    if module.DEFAULT_DEVICE == "cpu" and not named and is_the_accelerator():
        module.DEFAULT_DEVICE = "loom"
