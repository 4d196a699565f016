# SPDX-License-Identifier: BSD-3-Clause
"""Fake convolutions: in which layout loom's results are."""

from typing import Any

import torch
from torch._subclasses import fake_impls
from torch.utils import _pytree as pytree


def apply() -> None:
    """Let fake tensors of loom have the strides that convolutions of loom give."""
    # Fake tensors ask PyTorch which of its algorithms a convolution would take, and for devices
    # that it does not know it names one whose results are contiguous. Loom's are laid out as the
    # cpu's.
    aten = torch.ops.aten
    for operator in (
        aten.convolution.default,
        aten._convolution.default,
        aten._convolution.deprecated,
        aten.convolution_backward.default,
    ):
        known = fake_impls.op_implementations_dict[operator]
        fake_impls.op_implementations_dict[operator] = _as_on_cpu(known)


def _as_on_cpu(known: Any) -> Any:
    def convolution(fake_mode: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
        device = next(
            tensor.device
            for tensor in pytree.tree_leaves((args, kwargs))
            if isinstance(tensor, torch.Tensor)
        )
        if device.type != "loom":
            return known(fake_mode, operator, *args, **kwargs)
        with fake_mode:
            args, kwargs = pytree.tree_map_only(
                torch.Tensor, lambda tensor: _at(tensor, torch.device("cpu")), (args, kwargs)
            )
        results = known(fake_mode, operator, *args, **kwargs)
        with fake_mode:
            return pytree.tree_map_only(torch.Tensor, lambda tensor: _at(tensor, device), results)

    return convolution


def _at(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A fake tensor of the same geometry, on another device."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device)
