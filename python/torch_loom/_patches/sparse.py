# SPDX-License-Identifier: BSD-3-Clause
"""Sparse tensors: checks of what is read from files."""

import functools
from typing import Any

import torch

from .._replace import replace
from .._utils import is_loom


def apply() -> None:
    """Check the indices of sparse tensors of loom on the host."""
    # torch.load checks sparse tensors since torch 2.14, always with weights_only=True, by a kernel
    # that PyTorch has for its own devices only.
    name = "_validate_sparse_coo_tensor_args"
    original = getattr(torch, name)

    @functools.wraps(original)
    def validate(indices: torch.Tensor, values: torch.Tensor, *rest: Any, **named: Any) -> None:
        if is_loom(indices.device):
            indices, values = indices.cpu(), values.cpu()
        original(indices, values, *rest, **named)

    replace(torch, name, validate)
