# SPDX-License-Identifier: BSD-3-Clause
"""What mixed precision may use: ``torch.autocast("loom")`` and ``torch.amp.GradScaler("loom")``."""

import torch

__all__ = ["get_amp_supported_dtype", "is_bf16_supported"]


def get_amp_supported_dtype() -> list[torch.dtype]:
    r"""Return the data types that ``torch.autocast("loom", dtype=...)`` accepts."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    r"""Return whether ``torch.bfloat16`` tensors work: they do on every host.

    Args:
        including_emulation (bool): accepted for code written for CUDA.
    """
    return True
