# SPDX-License-Identifier: BSD-3-Clause
"""What torch 2.13 knows of other devices by name and lets no backend register.

Each patch touches loom tensors only and says why it is needed.
"""

from . import attention, compiler, dlpack, mixed_precision, opcheck, processes

__all__ = ["apply"]


def apply() -> None:
    """Apply all patches. Call once."""
    for module in (dlpack, processes, mixed_precision, opcheck, attention, compiler):
        module.apply()
