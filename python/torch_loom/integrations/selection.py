# SPDX-License-Identifier: BSD-3-Clause
"""What the patches of libraries ask before they choose loom."""

import torch

__all__ = ["is_the_accelerator"]


def is_the_accelerator() -> bool:
    """Whether loom is torch's accelerator, and there is one of it."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator is not None and accelerator.type == "loom"
