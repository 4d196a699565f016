# SPDX-License-Identifier: BSD-3-Clause
"""``torch.compile``, whose compilers go on to see ``loom``.

They choose how to generate code by the name of the device: for ``cuda`` they would write kernels in
Triton. So the name is hushed where they run (``inductor/hushed.py``), names in generated code are
loom's, and their caches are those of programs that say ``loom``.
"""

import sys

import torch
import torch.utils._triton

from .changes import Changes


def apply(changes: Changes) -> None:
    """Say that there is no Triton, and forget what was compiled for the other name."""
    triton = torch.utils._triton
    for name in ("has_triton", "has_triton_tma", "has_triton_tma_device"):
        if hasattr(triton, name):
            changes.set(triton, name, _no_triton)
    _reset()
    changes.on_undo(_reset)


def _no_triton() -> bool:
    return False


def _reset() -> None:
    # Graphs that were traced have the name in their guards and, where they asked for it, in
    # branches. Where Dynamo was not imported yet, nothing was traced.
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.reset()
