# SPDX-License-Identifier: BSD-3-Clause
"""``torch.autocast("cuda")``: float16 where no dtype is given, as on CUDA."""

from typing import Any

import torch

from .. import amp
from .changes import Changes


def apply(changes: Changes) -> None:
    """Change the default dtype, and let questions without a device mean loom's."""
    changes.on_undo(amp._set_default_of_this_thread)  # after the next line is taken back
    changes.set(amp, "_default_dtype", torch.float16)
    amp._set_default_of_this_thread()
    known_is_enabled = torch.is_autocast_enabled
    known_set_enabled = torch.set_autocast_enabled

    def is_autocast_enabled(device_type: str = "cuda") -> bool:
        return known_is_enabled(device_type)

    def set_autocast_enabled(*args: Any) -> None:
        known_set_enabled(*(args if len(args) > 1 else ("cuda", *args)))

    changes.set(torch, "is_autocast_enabled", is_autocast_enabled)
    changes.set(torch, "set_autocast_enabled", set_autocast_enabled)
    changes.set(torch, "get_autocast_gpu_dtype", lambda: torch.get_autocast_dtype("cuda"))
    changes.set(
        torch, "set_autocast_gpu_dtype", lambda dtype: torch.set_autocast_dtype("cuda", dtype)
    )
