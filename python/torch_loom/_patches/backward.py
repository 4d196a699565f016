# SPDX-License-Identifier: BSD-3-Clause
"""Who sets the switch of autograd's threads before a thread's first use of loom is obeyed, too.

Loom runs a backward pass on the thread that calls it, by setting PyTorch's own switch when a thread
first uses loom. What the switch was before tells nothing of whether somebody has set it.
"""

import functools

import torch

from .. import _C
from .._replace import replace


def apply() -> None:
    """Let `torch.autograd.set_multithreading_enabled` say that a thread has made its choice."""
    name = "_set_multithreading_enabled"
    setter = getattr(torch._C, name)

    @functools.wraps(setter)
    def set_it(mode: bool) -> None:
        _C._keep_backward_thread()
        setter(mode)

    replace(torch._C, name, set_it)
