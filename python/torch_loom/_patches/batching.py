# SPDX-License-Identifier: BSD-3-Clause
"""torch.func: how vmap maps loom's attention."""

from typing import Any

import torch

_library: torch.library.Library | None = None
"""Lives as long as its registrations."""


def apply() -> None:
    """Let vmap compute many attentions as one of a larger batch, below autograd, too."""
    # PyTorch's loop over examples takes no operators that return sizes.
    global _library
    _library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    name = "aten::_scaled_dot_product_fused_attention_overrideable"
    torch.library.register_vmap(name, _attention, lib=_library)
    torch.library.register_vmap(f"{name}_backward", _attention_backward, lib=_library)


def _attention(info: Any, in_dims: tuple[Any, ...], *args: Any, **named: Any) -> Any:
    operator = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    count = info.batch_size
    tensors = [_fold(x, dim, count) for x, dim in zip(args[:3], in_dims, strict=False)]
    others = list(args[3:])
    if others and others[0] is not None:
        others[0] = _fold_mask(others[0], in_dims[3], count, args[0], in_dims[0])
    output, log_sum, *rest = operator(*tensors, *others, **named)
    results = (_unfold(output, count), _unfold(log_sum, count), *rest)
    return results, (0, 0, *[None] * len(rest))


def _attention_backward(info: Any, in_dims: tuple[Any, ...], *args: Any, **named: Any) -> Any:
    operator = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward
    count = info.batch_size
    folded = list(args)
    for place in (0, 1, 2, 3, 6, 7):  # gradient, query, key, value, output, logsumexp
        folded[place] = _fold(args[place], in_dims[place], count)
    if args[4] is not None:
        folded[4] = _fold_mask(args[4], in_dims[4], count, args[1], in_dims[1])
    *gradients, _ = operator(*folded, **named)  # none of the mask
    return (*(_unfold(each, count) for each in gradients), None), (0, 0, 0, None)


def _fold(tensor: torch.Tensor, dim: int | None, count: int) -> torch.Tensor:
    """Examples and batches, one after another."""
    return _first(tensor, dim, count).flatten(0, 1)


def _fold_mask(
    mask: torch.Tensor, dim: int | None, count: int, query: torch.Tensor, query_dim: int | None
) -> torch.Tensor:
    if dim is None and (mask.dim() < 4 or mask.shape[0] == 1):
        return mask  # every example and batch has the same
    batch = query.select(query_dim, 0).shape[0] if query_dim is not None else query.shape[0]
    masks = _first(mask, dim, count)
    masks = masks.reshape(count, *[1] * (5 - masks.dim()), *masks.shape[1:])
    return masks.expand(-1, batch, -1, -1, -1).flatten(0, 1)


def _first(tensor: torch.Tensor, dim: int | None, count: int) -> torch.Tensor:
    return tensor.expand(count, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _unfold(tensor: torch.Tensor, count: int) -> torch.Tensor:
    return tensor.view(count, -1, *tensor.shape[1:])
